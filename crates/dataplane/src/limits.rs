//! Bounds of the data path, and its timers.

use e3_model::Nanos;
use e3_model::limits::KEY_LEN_MAX;
pub use e3_model::timing::CLOCK_SKEW_MAX;
use e3_model::timing::LEASE;

/// Messages that a replica holds before its channels' credit stops.
pub const QUEUE_MAX: usize = 1024;
/// Requests of one replica that the executor holds at a time.
pub const IN_FLIGHT_MAX: usize = 32;
/// Calls of one replica that wait, run, or have an answer that may not leave yet.
pub const CALLS_MAX: usize = 1024;
/// Until a call without an answer is repeated; then twice as long, and so on.
pub const CALL_INTERVAL: Nanos = Nanos::from_millis(20);
/// The longest of these times: what is lost while a node takes over is not missed for long.
pub const CALL_INTERVAL_MAX: Nanos = Nanos::from_millis(320);
/// How long a handler waits for a call at most, if its request's deadline is later. Fail-over takes about
/// half a second.
pub const CALL_WAIT_MAX: Nanos = Nanos::from_secs(5);
/// Entries of one replica whose outputs are not durable yet; no handler starts beyond it.
pub const OUTBOX_MAX: usize = 8192;
/// Requests that wait for the routes of their applications, which the node asks the controller for.
pub const HELD_MAX: usize = 1024;
/// Bytes of their keys and payloads.
pub const HELD_BYTES_MAX: usize = 16 << 20;
/// How long they wait. Then their clients are told to ask another node: the controller may be away.
pub const HELD_FOR: Nanos = Nanos::from_secs(1);
/// How long after the last request for it a node has the routes of an application of which it hosts
/// nothing.
pub const INTEREST_KEPT: Nanos = Nanos::from_secs(600);
/// A request is noted at most this often.
pub const INTEREST_NOTED: Nanos = Nanos::from_secs(1);
/// Requests that one ingress remembers.
pub const SESSIONS_MAX: usize = 1 << 20;
/// Dead letters that a shard keeps; the oldest make room.
pub const DEAD_LETTERS_MAX: usize = 1024;
/// Refused attempts that one ingress remembers, with their clients; beyond it refusals are not told.
pub const REFUSED_MAX: usize = 1 << 18;
/// How long a request that is durable at its shard may go without an answer before it gives back its
/// place of the application's `admittedMax`. The answer was lost, or its client asks another node;
/// what waits downstream is bounded by channels and outboxes. Several times what a client waits
/// between two attempts.
pub const ANSWER_AWAITED: Nanos = Nanos::from_secs(5);
/// How far ahead a primary has itself woken for its service's timers: what is cancelled meanwhile costs
/// a place in the worker's queue no longer than this.
pub const TIMER_WAKE_AHEAD: Nanos = Nanos::from_secs(60);
/// Outbound requests of one shard that are in progress at a time; the rest wait in their order.
pub const OUTBOUND_OPEN_MAX: usize = 256;
/// How long an outbound request without an answer waits before it is made again, the first time.
pub const OUTBOUND_RETRY_AFTER: Nanos = Nanos::from_millis(200);
/// The same after several times.
pub const OUTBOUND_RETRY_AFTER_MAX: Nanos = Nanos::from_secs(2);
/// Publications that a primary has in progress, each of another key.
pub const PUBLICATIONS_OPEN_MAX: usize = 256;
/// How long one subscriber may have confirmed a publication, and another not, before the log says so.
pub const PARTIAL_AFTER: Nanos = Nanos::from_secs(10);
/// Partial confirmations that one entry writes.
pub const PARTIALS_MAX: usize = 8;
/// Bytes of copies' identities beyond which an entry takes no further one.
pub const PARTIALS_LEN_MAX: usize = 12 << 10;
/// Copies of a publication that the log knows to be confirmed; of more it does not.
pub const PARTIAL_COPIES_MAX: usize = 1_000;
/// How long after its deadline the answer to an outbound request may still come.
pub const OUTBOUND_GRACE: Nanos = Nanos::from_secs(1);
/// Bytes that a timer takes beside key, name, cron expression and payload, about.
pub const TIMER_OVERHEAD_BYTES: usize = 256;
/// How long a handled message is remembered after its request has expired.
pub const DEDUP_GRACE: Nanos = Nanos::from_secs(5);
/// The same for a request with an idempotency key.
pub const KEYED_GRACE: Nanos = Nanos::from_secs(300);
/// By how much later the deadline of a repeat must be for the log to say that it came: half of the time
/// for which it is remembered, so that few entries say so and none comes too late.
pub const REPEAT_NOTED_AFTER: Nanos = Nanos(KEYED_GRACE.0 / 2);
/// Requests with an idempotency key that one ingress admits within the time that they are
/// remembered: it bounds what shards remember.
pub const KEYED_MAX: usize = 1 << 18;
/// How far ahead of now a request's deadline may be, whatever the application's is.
pub const DEADLINE_AHEAD_MAX: Nanos = Nanos::from_secs(3_600);
/// How long after its deadline a request that this node does not know may still come. Well within
/// what shards remember, so that nothing is handled that was forgotten.
pub const LATE_MAX: Nanos = Nanos(DEDUP_GRACE.0 / 2);
/// How far another node's clock may be ahead of this one's.
pub const CLOCK_AHEAD_MAX: Nanos = Nanos::from_secs(60);
/// Least time between two restarts of one channel because its ends did not fit together.
pub const RESTART_INTERVAL: Nanos = Nanos::from_millis(500);
/// Bytes of handled messages that a shard remembers; nothing is handled beyond.
pub const REMEMBERED_BYTES_MAX: usize = 1 << 30;
/// Bytes that a remembered message takes beside what its entry holds, about.
pub const REMEMBERED_OVERHEAD_BYTES: usize = 192;
/// Bytes that a snapshot may hold beyond the service's memory: what handlers wrote that had begun
/// before it was full.
pub const SNAPSHOT_OVER_MAX: u64 = 64 << 20;
/// How long entries may wait without any commit before the shard counts as stalled. Longer than a
/// lease that a backup lets run out, so that the missing lease is named first.
pub const STALLED_AFTER: Nanos = Nanos::from_secs(1);
/// How long an acknowledgement may wait to share a datagram.
pub const ACK_DELAY: Nanos = Nanos::from_millis(2);
/// Between two notices to the backups of what was released.
pub const RELEASED_INTERVAL: Nanos = Nanos::from_millis(50);
/// How long an expired key may wait for others, or for a request, before the primary makes an entry
/// that removes it.
pub const EXPIRY_DELAY: Nanos = Nanos::from_millis(100);
/// How long it may hold memory under load; then the primary removes what has expired before it
/// handles more.
pub const EXPIRY_LAG_MAX: Nanos = Nanos::from_secs(1);
/// Bytes that wait at the traffic manager of an emulated node; what comes then is lost, as when the
/// packet buffers of a SmartNIC are full.
pub const TRAFFIC_LEN_MAX: usize = 4 << 20;
/// How long a handler run occupies an emulated core at most.
pub const OCCUPIED_MAX: Nanos = Nanos::from_secs(3_600);
/// Datagram buffers that are kept for reuse.
pub const SPARE_BUFFERS_MAX: usize = 64;
/// Bytes of a snapshot that are made at a time. A single item may be longer.
pub const PIECE_LEN: usize = 16 * 1024;
/// Entries that are looked at for them.
pub const PIECE_ENTRIES_MAX: usize = 4096;
/// Pending timers of one shard that a report lists.
pub const PENDING_SHARD_MAX: usize = 100;
/// The same of all shards of a node.
pub const PENDING_NODE_MAX: usize = 2_000;
/// Bytes of a checkpoint that are made at a time; more when they are durable.
pub const CHECKPOINT_LEN: usize = 256 * 1024;
/// How long nothing may come of a snapshot whose copy needs the journal's oldest records, before the
/// node gives the snapshot up. Much longer than any failure that passes by itself.
pub const SNAPSHOT_AWAITED: Nanos = Nanos::from_secs(60);
/// Bytes of a shard's part of a backup that may wait on the node for more of it to be made.
pub const EXPORT_AHEAD_LEN: u64 = 1 << 20;
/// Bytes that may wait before the part is given up: more is written than leaves the node.
pub const EXPORT_LEN_MAX: u64 = 64 << 20;
/// How often pieces of parts are made in one turn.
pub const TURN_PIECES_MAX: usize = 16;
/// Latest entries that a replica keeps as they were sent, in bytes: where replicas differ by no more
/// after a fail-over, they need no snapshot.
pub const TAIL_LEN_MAX: usize = 256 * 1024;
/// The same in entries.
pub const TAIL_ITEMS_MAX: usize = 2048;
/// Primaries that a log remembers.
pub const REIGNS_MAX: usize = e3_wire::limits::REIGNS_MAX;
/// Bytes of a joining backup's stream that may be open for more of the snapshot to be made.
pub const JOIN_AHEAD_LEN: usize = 128 * 1024;
/// Bytes that may be open before the primary waits for the backup.
pub const JOIN_LEN_MAX: usize = 4 << 20;
/// The same in items.
pub const JOIN_ITEMS_MAX: usize = OUTBOX_MAX;
/// How long the primary waits for a sign of a backup with too much open.
pub const JOIN_PATIENCE: Nanos = Nanos::from_millis(5);
/// The same after the stream began again several times.
pub const JOIN_PATIENCE_MAX: Nanos = Nanos::from_millis(160);
/// Bytes after which a datagram is sent without waiting for more frames. Loopback carries this in
/// one piece; on Ethernet it is one segmented send.
pub const DATAGRAM_LEN_GOAL: usize = 32 * 1024;

const _: () = assert!(
    CLOCK_SKEW_MAX.0 > LEASE.0,
    "a request for a lease that is of use may be in flight for long"
);
const _: () = assert!(
    STALLED_AFTER.0 > LEASE.0,
    "a missing lease is named before the shard that it stops"
);
const _: () = assert!(
    TURN_PIECES_MAX * PIECE_LEN >= 2 * JOIN_AHEAD_LEN,
    "a turn makes all that may be open"
);
const _: () = assert!(EXPORT_AHEAD_LEN < EXPORT_LEN_MAX);
const _: () = assert!(EXPIRY_DELAY.0 < EXPIRY_LAG_MAX.0);
const _: () = assert!(KEYED_MAX < SESSIONS_MAX);
const _: () = assert!(DEDUP_GRACE.0 < KEYED_GRACE.0);
const _: () = assert!(
    OUTBOUND_GRACE.0 < LATE_MAX.0,
    "the ingress takes an outbound request until its answer is given up"
);
const _: () = assert!(
    PARTIAL_AFTER.0 * 10 < KEYED_GRACE.0,
    "the log knows who has confirmed long before a subscriber forgets that it has"
);
const _: () = assert!(
    PARTIALS_LEN_MAX + 16 * (PARTIAL_COPIES_MAX + 1) + PARTIALS_MAX * (2 * KEY_LEN_MAX + 64) + 256
        < e3_wire::limits::BODY_LEN_MAX,
    "an entry with partial confirmations fits"
);
const _: () = assert!(DATAGRAM_LEN_GOAL <= e3_wire::limits::DATAGRAM_LEN_MAX);
