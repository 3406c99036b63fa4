//! What the tests of experiments share.

use e3_evaluation::Pool;

/// One job after the other.
pub struct Forwards;

impl Pool for Forwards {
    fn run(&self, count: usize, job: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(job);
    }
}
