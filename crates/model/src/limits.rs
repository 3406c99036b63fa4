//! Bounds of what a manifest or topology may ask for.

use crate::units::{Bytes, Nanos};

/// Hours of a day.
pub const HOURS: usize = 24;
/// Key slots of a service; shards own ranges of them.
pub const SLOTS: u16 = 4096;
/// Shards of one service.
pub const SHARDS_MAX: u16 = SLOTS;
/// Replicas (primary included) of one shard.
pub const REPLICAS_MAX: u16 = 7;
/// Services of one application.
pub const SERVICES_MAX: usize = 256;
/// Channels of one application.
pub const CHANNELS_MAX: usize = 1024;
/// Messages that one request may send on one channel from one handler run.
pub const OUTPUTS_MAX: u32 = 64;
/// Handler runs or messages of one kind that one request may cause in all.
pub const REQUEST_FANOUT_MAX: u64 = 1 << 20;
/// Attempts before a request becomes a dead letter.
pub const ATTEMPTS_MAX: u32 = 100;
/// Deadline that a request may have whatever its application's is.
pub const DEADLINE_ALLOWED: Nanos = Nanos::from_secs(60);
/// Nodes of one cluster.
pub const NODES_MAX: usize = 250_000;
/// Characters of a name.
pub const NAME_LEN_MAX: usize = 63;
/// Milliseconds after which a token may expire, at most: a hundred years.
pub const TOKEN_AGE_MS_MAX: u64 = 100 * 366 * 24 * 3_600_000;
/// Bytes of a manifest, profile or configuration.
pub const DOCUMENT_LEN_MAX: usize = 4 << 20;
/// Bytes of a topology: [`NODES_MAX`] nodes, with 250 bytes for each.
pub const TOPOLOGY_LEN_MAX: usize = 64 << 20;
/// Bytes that all aliases of a document together stand for.
pub const DOCUMENT_ALIAS_LEN_MAX: usize = 1 << 20;
/// Levels of lists and maps within each other in a document.
pub const DOCUMENT_DEPTH_MAX: usize = 64;
/// Bytes of a key.
pub const KEY_LEN_MAX: usize = 1024;
/// Bytes of a message's payload.
pub const PAYLOAD_LEN_MAX: usize = 32 * 1024;
/// Bytes of a timer's name.
pub const TIMER_NAME_LEN_MAX: usize = NAME_LEN_MAX;
/// Bytes of a key that lists of pending timers show.
pub const PENDING_KEY_LEN_MAX: usize = 64;
/// How far ahead a timer may be set: a year.
pub const TIMER_AHEAD_MAX: Nanos = Nanos::from_secs(366 * 24 * 3_600);
/// Timers that the manifest of a service may declare.
pub const SERVICE_TIMERS_MAX: usize = 32;
/// Shortest period of one.
pub const SERVICE_TIMER_PERIOD_MIN: Nanos = Nanos::from_secs(1);
/// Timers that one request may set or cancel.
pub const REQUEST_TIMERS_MAX: usize = 64;
/// Topics of an application.
pub const TOPICS_MAX: usize = 64;
/// Subscriptions of an application.
pub const SUBSCRIPTIONS_MAX: usize = 64;
/// Calls that one handler run may make.
pub const REQUEST_CALLS_MAX: usize = 64;
/// How long an outbound request may be repeated: a day.
pub const OUTBOUND_AHEAD_MAX: Nanos = Nanos::from_secs(24 * 3_600);
/// Bytes of the address of an outbound HTTP request.
pub const URL_LEN_MAX: usize = 2048;
/// Header fields of an outbound HTTP request.
pub const HTTP_HEADERS_MAX: usize = 32;
/// Bytes of all header fields of an outbound HTTP request.
pub const HTTP_HEADERS_LEN_MAX: usize = 8 * 1024;
/// Bytes of a cron expression.
pub const CRON_LEN_MAX: usize = 128;
/// Smallest memory of an emulated node: what its process needs before any service runs.
pub const EMULATED_MEMORY_MIN: Bytes = Bytes(64 << 20);
/// Longest one-way latency of an emulated link.
pub const LINK_LATENCY_MAX: Nanos = Nanos::from_secs(1);

const _: () = assert!(
    2 * SERVICE_TIMERS_MAX <= REQUEST_TIMERS_MAX,
    "one entry sets what a manifest declares and cancels what the one before did"
);
const _: () = assert!(SHARDS_MAX <= SLOTS, "a shard owns at least one slot");
