//! Bounds of the meters.

use e3_model::Nanos;
use std::time::Duration;

/// Meters that are listed.
pub const METERS_MAX: usize = 64;
/// Meters that are read together.
pub const GROUP_MAX: usize = 32;
/// Between two readings.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait after failures. A management controller may lock an account that fails too often.
pub const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Between two readings of power: in a longer time the power may have been anything.
pub const GAP_POWER_MAX: Nanos = Nanos::from_secs(10);
/// Between two readings of a counter, however slowly it wraps.
pub const GAP_COUNTER_MAX: Nanos = Nanos::from_secs(60);
/// The most that a single meter can show. More is a counter that was reset, or a broken sensor.
pub const POWER_MAX_W: f64 = 20_000.0;
/// The most that a single processor can draw: so fast may its counter wrap.
pub const PROCESSOR_POWER_MAX_W: f64 = 2_000.0;
/// Bytes of a file of sysfs.
pub const FILE_LEN_MAX: u64 = 4096;
/// Longest run of a program that reads a meter.
pub const PROCESS_MAX: Duration = Duration::from_secs(5);
/// Between two looks at whether it has ended.
pub const PROCESS_POLL: Duration = Duration::from_millis(2);
/// Bytes that are read of what it prints.
pub const OUTPUT_LEN_MAX: u64 = 16 << 10;
/// Longest wait for one answer over HTTP.
pub const HTTP_MAX: Duration = Duration::from_secs(3);
/// Bytes of one answer.
pub const BODY_LEN_MAX: u64 = 1 << 20;
/// Chassis and power supplies that are looked at.
pub const MEMBERS_MAX: usize = 32;
/// Bytes of a password file or of a file of certificates.
pub const CREDENTIAL_LEN_MAX: u64 = 64 << 10;

const _: () = assert!(GAP_POWER_MAX.0 >= 2 * SAMPLE_INTERVAL.as_nanos() as u64);
const _: () = assert!(GAP_COUNTER_MAX.0 >= GAP_POWER_MAX.0);
