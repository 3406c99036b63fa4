//! The controller as a deterministic state machine: commands in, plans out.
//!
//! [`Control`] is what is logged and replayed; it depends on nothing but its commands, so that it can
//! be replicated. [`Membership`] is soft state beside it: heartbeats are frequent and soon out of
//! date, so only the decisions based on them become commands. Source: E3 (USENIX ATC
//! 2019), 3.2 placement, 3.4 migration, 3.5 fail-over.

mod access;
mod backup;
mod choice;
mod choosing;
mod command;
mod concern;
mod credentials;
mod cut;
pub mod deliberate;
mod deploy;
mod doubtful;
mod drain;
mod error;
mod event_list;
mod events;
mod failover;
mod format;
mod gather;
mod hardware;
mod hearing;
mod index;
mod indexing;
mod last_copies;
mod leaving;
pub mod limits;
mod membership;
mod migration;
mod older;
mod orchestrate;
mod orchestration;
mod orchestrator;
mod plans;
mod power_cap;
mod probation;
mod reach;
mod receipt;
mod relays;
mod reshard;
mod returned;
mod room;
mod scale;
mod settle;
mod sharding;
mod state;
mod table;
mod update;
mod validate;
mod view;
mod waiting;

pub use choice::{Choice, Purpose};
pub use command::{Applied, Command, CommandError, Genesis, Placed};
pub use credentials::{ApiToken, SecretState, Secrets};
pub use cut::Backup;
pub use deploy::{PLACER_UNDECIDED, explain};
pub use drain::{Stays, Undrained};
pub use event_list::Events;
pub use hearing::{Heard, Hearing, LastPulse, Pulse};
pub use membership::{Membership, Sender};
pub use migration::{Cancelled, Migration, MoveOutcome, Moved, Phase};
pub use older::LaterCopy;
pub use orchestration::{Act, Decided, Displaced, Orchestration};
pub use orchestrator::{InstanceLoad, MeterReading, NodeLoad, Orchestrator};
pub use plans::{Interest, PlanAnswer, PlanRequest, Plans};
pub use probation::{Probation, Seen};
pub use receipt::Receipts;
pub use reshard::Resharding;
pub use sharding::Shards;
pub use state::{AppState, Control, Loss, Member, RolledBack};
pub use table::{Chunked, Table};
pub use waiting::Waiting;
