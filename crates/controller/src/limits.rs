//! Bounds and periods of the controller's HTTP side.

use crate::rate::RateLimit;
use e3_model::Nanos;
use std::time::Duration;

/// How long clients may take. By default [`HEADER_TIMEOUT`] and [`BODY_TIMEOUT`].
#[derive(Clone, Copy, Debug)]
pub struct ClientTimeouts {
    /// Longest wait for the header of a request, and longest idle time of a connection.
    pub header: Duration,
    /// Longest wait for the whole body of a request.
    pub body: Duration,
}

impl Default for ClientTimeouts {
    fn default() -> ClientTimeouts {
        ClientTimeouts {
            header: HEADER_TIMEOUT,
            body: BODY_TIMEOUT,
        }
    }
}

/// Bytes of a deployment: manifest, modules and assets.
pub const DEPLOY_LEN_MAX: usize = 256 << 20;
/// Bytes of deployments that are read at the same time; further ones wait. A deployment needs about three times its bytes
/// in memory.
pub const DEPLOYMENTS_LEN_MAX: usize = 2 * DEPLOY_LEN_MAX;
const _: () = assert!(DEPLOY_LEN_MAX <= u32::MAX as usize);
/// Bytes of a request with a document in JSON, which may need two bytes for one.
pub const TOPOLOGY_LEN_MAX: usize = 2 * e3_model::limits::TOPOLOGY_LEN_MAX;
/// Bytes of a node's report, and of its hello, which lists the copies that its disk has.
pub const REPORT_LEN_MAX: usize = 64 << 20;
/// Bytes of a generated secret.
pub const SECRET_LEN: usize = 32;
/// Bytes of any other request's body.
pub const BODY_LEN_MAX: usize = 64 << 10;
/// Bytes of a shard's state in one request, or in one answer.
pub const CHUNK_LEN_MAX: usize = 1 << 20;
/// Bytes on the disk that states of shards, modules and assets leave free for decisions, but at most this share of it.
/// Without room for these no node that fails is replaced.
pub const FREE_MIN: u64 = 32 << 20;
/// See [`FREE_MIN`]: one in so many bytes.
pub const FREE_MIN_SHARE: u64 = 8;
/// How long the files of a backup that nobody fetches are kept, and parts that nobody deploys.
pub const BACKUP_KEPT: Nanos = Nanos::from_secs(600);
/// See [`ClientTimeouts::header`].
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// See [`ClientTimeouts::body`].
pub const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// How often the versions of all applications are looked at: whether they start, and how many requests fail; and which
/// nodes have received the plan. It looks at every shard.
pub const WATCH_INTERVAL: Nanos = Nanos::from_millis(250);
/// How often the files of an earlier version are looked for again that an automatic rollback lacks: they are read whole.
pub const KEPT_BACK_RETRY: Nanos = Nanos::from_secs(10);
/// How far back "lately dead-lettered" reaches.
pub const LATELY: Nanos = Nanos::from_secs(60);
/// Bytes of a datagram that are read where heartbeats arrive: what is longer is none.
pub const HEARTBEAT_LEN_MAX: usize = 128;
/// How long heartbeats without a tag count after the format was raised to one with tags.
pub const TAGLESS_AFTER_RAISE: Nanos = Nanos::from_secs(10);
/// Commands for which its role is not enough that the audit log takes of a token at once,
pub const REFUSALS_MAX: u32 = 100;
/// and until it takes one more. So they need days to push out what came before.
pub const REFUSAL_INTERVAL: Nanos = Nanos::from_secs(60);
/// Heartbeats that are taken under one lock.
pub const HEARTBEATS_TOGETHER_MAX: usize = 64;
/// Times that so many are taken before requests have their turn.
pub const BATCHES_MAX: usize = 32;
/// How often a request that waits for the nodes after a start looks whether they were heard.
pub const HEARD_CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// How long such a request waits: as long as the controller does if it hears any node.
pub const HEARD_WAIT: Duration = Duration::from_secs(4);
/// Placements with a time budget that are searched for at the same time, each on a thread of its own.
pub const SOLVERS_MAX: usize = 2;
/// Age after which the figures of a report are stale, even if heartbeats continue.
pub const REPORT_TIMEOUT: Nanos = Nanos::from_secs(5);
/// Problems of an application that `/readyz` names one by one.
pub const PROBLEMS_MAX: usize = 3;
/// Bytes of log after which a snapshot replaces it.
pub const LOG_LEN_MAX: u64 = 4 << 20;
/// Longest wait at shutdown for answers that are being written.
pub const CLOSE_GRACE: Duration = Duration::from_millis(200);
/// Longest wait of a plan request.
pub const PLAN_WAIT_MAX: Duration = Duration::from_secs(30);
/// How long a node that a new version does not concern waits for its number, so that many versions are
/// one answer. Shorter than a lease: a node that replaced another grants it leases by that number.
pub const PLAN_QUIET: Duration = Duration::from_millis(200);
const _: () = assert!(PLAN_QUIET.as_nanos() < e3_model::timing::LEASE.0 as u128);
/// Longest wait of a request for events.
pub const EVENTS_WAIT_MAX: Duration = Duration::from_secs(30);
/// Longest wait for what primaries say of their pending timers: a node reports at least once a second.
pub const PENDING_WAIT_MAX: Duration = Duration::from_secs(5);
/// Between two looks whether they have said it.
pub const PENDING_CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Most connections that have presented no valid token. The oldest makes room for a new one.
pub const ANONYMOUS_MAX: usize = 64;
/// Longest life of such a connection; it serves at most one request.
pub const ANONYMOUS_AGE_MAX: Duration = Duration::from_secs(20);
/// Most connections that have presented a valid token. A node uses two, a command of the owner one.
pub const TRUSTED_MAX: usize = 8192;
/// Interval of the check for old connections.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Pause after the system refuses a connection, for example for lack of file descriptors.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Requests of one token, see [`RateLimit`]. A backup or a restore makes one for each [`CHUNK_LEN_MAX`].
pub const RATE_LIMIT: RateLimit = RateLimit {
    per_second: 1_000,
    burst: 2_000,
};
/// Bytes of one of the two files of the audit log.
pub const AUDIT_FILE_LEN_MAX: u64 = 8 << 20;
/// Bytes of each text in a record of the audit log.
pub const AUDIT_TEXT_LEN_MAX: usize = 500;
/// Records in one answer.
pub const AUDIT_ANSWER_MAX: usize = 1_000;

const _: () = assert!(HEADER_TIMEOUT.as_secs() < ANONYMOUS_AGE_MAX.as_secs());
const _: () = assert!(BODY_LEN_MAX <= REPORT_LEN_MAX && REPORT_LEN_MAX <= DEPLOY_LEN_MAX);
/// The most that a node's meter can show. More is an error of the node.
pub const METERED_POWER_MAX_W: f64 = 1e6;
/// Seconds between two steps of a meter. More is an error of the node.
pub const METERED_STEP_MAX_S: f64 = 1e6;
