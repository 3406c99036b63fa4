//! Bounds and fixed shares of placement.

/// Rejected nodes that a decision names; the rest is counted.
pub const REJECTED_MAX: usize = 8;

/// Nodes whose cost a decision names.
pub const CONSIDERED_MAX: usize = 8;

/// Nodes on which each decision of a placement is weighed, unless the placement uses more.
pub const WEIGHED_MAX: usize = 16;

/// Servers that placers of whole applications consider, unless the replicas of a shard need more. So what
/// `ilp` proves holds for placements on these servers.
pub const CANDIDATES_MAX: usize = 16;

/// Bytes of a request if the manifest does not say: that of Table 1.
pub const REQUEST_BYTES_DEFAULT: u32 = 512;

/// Part of a primary's processor time that a backup reserves. A backup applies finished write
/// batches and runs no handler; the map writes and copies of a batch take a few microseconds where
/// the handlers of Table 1 that keep state in a database take tens. An assumption until measured.
pub const BACKUP_CPU_FRACTION: f64 = 0.1;

/// Requests that may be outstanding on a node per core before placement takes it for overloaded.
/// At 64 the last one waits for 63 others on its core.
pub const OUTSTANDING_PER_CORE_MAX: u64 = 64;

/// Sums of cores and bandwidth are compared with this tolerance, so that ten instances of a tenth
/// of a core fit on one core.
pub const ROUNDING: f64 = 1e-6;

/// Part of a node's cores by which a backup's node must be less loaded after fail-over for the backup
/// to move there.
pub const LOAD_GAIN_MIN: f64 = 0.1;

/// Round trip between two hosts through the switch with kernel bypass. An assumption: the paper's Fig. 3
/// gives ratios to it.
pub const ROUND_TRIP_HOSTS_US: f64 = 20.0;

/// Round trip between SmartNICs through the switch, against that between hosts: up to 86.2 % lower
/// (E3, ATC 2019, Fig. 3).
pub const ROUND_TRIP_SMARTNICS: f64 = 1.0 - 0.862;

/// Round trip between a SmartNIC and its host over PCIe, against that between hosts: up to 83.3 % lower
/// (same figure).
pub const ROUND_TRIP_PCIE: f64 = 1.0 - 0.833;

const _: () = assert!(REJECTED_MAX > 0);
const _: () = assert!(LOAD_GAIN_MIN > ROUNDING);
const _: () = assert!(BACKUP_CPU_FRACTION > 0.0 && BACKUP_CPU_FRACTION < 1.0);
