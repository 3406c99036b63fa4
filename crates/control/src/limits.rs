//! Bounds and timers of the controller.

use e3_model::Nanos;

/// Applications at a time.
pub const APPS_MAX: usize = 1024;
/// What a controller that has just started gives the nodes to be heard again.
pub const START_GRACE: Nanos = Nanos::from_secs(3);
/// The same while it hears none of them: none can say whether it has seen decisions that the log lacks.
pub const START_SILENCE: Nanos = Nanos::from_secs(30);
/// Shards of the controller's table of heartbeats.
pub const SHARDS_MAX: u16 = 64;
/// Versions of the plan that are kept to find what has changed since. A node that is further behind is
/// sent the whole plan.
pub const PLANS_MAX: usize = 256;
/// Finished moves that an application remembers, so that their outcomes can be queried.
pub const MOVES_MAX: usize = 64;
/// Losses of state that an application remembers by shard and time; the count goes on.
pub const LOSSES_MAX: usize = 64;
/// Moves in flight at which draining begins no other: each copies the state of a shard.
pub const DRAIN_MOVES_MAX: usize = 2;
/// The same for bringing shards together that are to be merged.
pub const GATHER_MOVES_MAX: usize = 2;
/// Replicas that move to a node because it came back, for each time that it does.
pub const RETURN_MOVES_MAX: u16 = 64;
/// Earlier versions of an application that are kept, to go back to.
pub const RELEASES_MAX: usize = 3;
/// Rollbacks that an application remembers.
pub const ROLLBACKS_MAX: usize = 16;
/// How long a version must fail to start at a primary before the application goes back by itself.
pub const START_FAILED_TIME: Nanos = Nanos::from_secs(10);
/// How long a version may take to start at every primary before the application goes back by itself.
pub const START_TIME_MAX: Nanos = Nanos::from_secs(180);
/// How long after its start the failed attempts of a version are compared with those of the one before.
pub const PROBATION_TIME: Nanos = Nanos::from_secs(60);
/// Fewest attempts of a version that say anything about it.
pub const PROBATION_ATTEMPTS_MIN: u64 = 20;
/// Part of the attempts of a new version that must fail for the application to go back, in percent.
pub const FAILED_PERCENT_MAX: u64 = 50;
/// Part of the attempts of the version before that failed at most, for the new one to be the reason.
pub const FAILED_BEFORE_PERCENT_MAX: u64 = 10;
/// Time without progress after which a migration or a joining backup counts as stalled.
pub const PROGRESS_TIMEOUT: Nanos = Nanos::from_secs(30);
/// A node whose heartbeats arrive but which has not applied a version of the plan for so long counts as silent, if
/// shards wait for it. It asks for a plan again 200 ms after a failure, and others have it just as soon.
pub const RECEIPT_TIMEOUT: Nanos = Nanos::from_secs(2);
/// Events that are kept.
pub const EVENTS_MAX: usize = 1_024;
/// Reports of an instance from which its moving average is begun.
pub const AVERAGE_REPORTS: u32 = 10;
/// Requests between two reports, from which an execution time is known.
pub const EXECUTION_SAMPLES_MIN: u64 = 20;
/// Shortest time between two reports over which the load of an instance is measured. A node with news
/// reports sooner.
pub const REPORT_SPAN_MIN: Nanos = Nanos::from_millis(500);
/// Between two looks for instances that can return to their SmartNIC.
pub const RETURN_LOOK_INTERVAL: Nanos = Nanos::from_secs(1);
/// Age of a heartbeat after which the orchestrator knows nothing of the node's load.
pub const LOAD_AGE_MAX: Nanos = Nanos::from_secs(2);
/// Age of a report after which it knows nothing of the node's instances.
pub const REPORT_AGE_MAX: Nanos = Nanos::from_secs(5);
/// Part of a node's cores that may be busy with an instance that the orchestrator moves there, in
/// percent.
pub const DESTINATION_BUSY_PERCENT_MAX: u64 = 80;
/// Part of a SmartNIC's cores that are busy when there is no more to have, in percent.
pub const BUSY_PERCENT_FULL: u64 = 90;
/// What the load of an instance must have fallen to before it returns, in percent.
pub const RETURN_LOAD_PERCENT_MAX: u64 = 80;
/// Instances of a SmartNIC for which a destination is searched, the busiest first.
pub const CANDIDATES_MAX: usize = 4;
/// The highest of so many measurements of an application's rate counts, so that a short lull moves nothing.
pub const FOLLOW_RATES: usize = 3;
/// How many times the mean the busiest shard of a service may use for a split to help: beyond that its load
/// is in few keys, which more shards do not spread.
pub const SPLIT_SKEW_MAX: u64 = 4;
/// How busy a shard may make its destination at most, in percent of how busy the node is that it leaves.
pub const SPREAD_BUSY_PERCENT_MAX: u64 = 80;
/// Destinations that are looked at for one instance.
pub const DESTINATIONS_MAX: usize = 8;

/// Between two looks at what servers and racks with a power cap draw.
pub const POWER_LOOK_INTERVAL: Nanos = Nanos::from_secs(1);
/// Instances of a server or rack for which a destination is searched, those first that free most watts for
/// each byte.
pub const POWER_CANDIDATES_MAX: usize = 8;
/// Watts that a move must free or save: less is within the error of the model.
pub const POWER_FREED_MIN_W: f64 = 0.5;
/// Bytes that any move costs: a plan, the start of a module.
pub const MOVE_BYTES_MIN: u64 = 64 << 10;

/// How long the shards of a service may take to stop before they are split or merged. Then the change
/// is cancelled.
pub const RESHARD_TIMEOUT: Nanos = Nanos::from_secs(5);

/// Tokens of the API at a time, beside the owner's.
pub const TOKENS_MAX: usize = 256;
/// Secrets at a time, of all applications.
pub const SECRETS_MAX: usize = 1024;
/// Bytes of a secret.
pub const SECRET_LEN_MAX: usize = 8 << 10;
/// Hexadecimal digits of an encrypted secret and its tag of 16 bytes.
pub const SECRET_SEALED_LEN_MAX: usize = 2 * (SECRET_LEN_MAX + 16);

const _: () = assert!(REPORT_SPAN_MIN.0 < REPORT_AGE_MAX.0);
const _: () = assert!(FAILED_BEFORE_PERCENT_MAX < FAILED_PERCENT_MAX);
const _: () = assert!(START_FAILED_TIME.0 < START_TIME_MAX.0);
/// Requests that wait on a node from which on placement looks how many that is for its cores: the bound of one core.
pub const WAITING_MIN: u32 = e3_placement::limits::OUTSTANDING_PER_CORE_MAX as u32;
