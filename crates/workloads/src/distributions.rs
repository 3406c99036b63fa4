//! Distributions of random numbers.

use e3_random::Random;

/// A normal deviate (Box and Muller, 1958).
pub(crate) fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.unit()).cos()
}
