//! Bounds of placers with a time budget.

use std::time::Duration;

/// Time of simulated annealing for one application: Service Fabric's `PlacementSearchTimeout`, "search for
/// at most this long before returning a result", by default.
pub const ANNEALING_TIME: Duration = Duration::from_millis(500);
/// Time of the integer programming solver for one application, by default.
pub const ILP_TIME: Duration = Duration::from_secs(10);
/// The longest time that a deployment may ask for.
pub const TIME_MAX: Duration = Duration::from_secs(60);
/// How often a deployment is solved: again if the cluster has changed so that the last result no longer
/// fits.
pub const SOLVES_MAX: u32 = 3;
/// How long the solver's process may go on after its time is up: it looks at the clock now and then only.
pub const STOP_GRACE: Duration = Duration::from_secs(10);
/// First pause between two looks whether its process has ended; each pause is twice the last.
pub(crate) const POLL_MIN: Duration = Duration::from_micros(200);
/// Longest pause.
pub(crate) const POLL_MAX: Duration = Duration::from_millis(2);

const _: () = assert!(ANNEALING_TIME.as_nanos() <= TIME_MAX.as_nanos());
const _: () = assert!(ILP_TIME.as_nanos() <= TIME_MAX.as_nanos());
