//! Seeds of tests. A test that fails while it holds a [`Random`] prints the command that replays it.
//! `E3_SEED` limits [`seeds`] to one seed, `E3_SEEDS` sets how many there are.

use core::ops::{Deref, DerefMut, RangeInclusive};

/// The seeds of a test: `1..=count`, unless the environment says otherwise.
///
/// # Panics
/// If `E3_SEED` or `E3_SEEDS` is not a number.
pub fn seeds(count: u64) -> RangeInclusive<u64> {
    let number = |name| {
        let value = std::env::var(name).ok()?;
        match value.parse() {
            Ok(number) => Some(number),
            Err(_) => panic!("{name}: is {value:?}, must be a whole number"),
        }
    };
    match (number("E3_SEED"), number("E3_SEEDS")) {
        (Some(seed), _) => seed..=seed,
        (None, Some(count)) => 1..=count,
        (None, None) => 1..=count,
    }
}

/// The generator of [`e3_random`], which prints how to replay the test if it fails.
#[derive(Clone, Debug)]
pub struct Random {
    seed: u64,
    stream: e3_random::Random,
}

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Random {
        Random {
            seed,
            stream: e3_random::Random::new(seed),
        }
    }
}

impl Deref for Random {
    type Target = e3_random::Random;

    fn deref(&self) -> &e3_random::Random {
        &self.stream
    }
}

impl DerefMut for Random {
    fn deref_mut(&mut self) -> &mut e3_random::Random {
        &mut self.stream
    }
}

impl Drop for Random {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", replay(self.seed));
        }
    }
}

/// The command that runs the test of this thread with that seed alone.
fn replay(seed: u64) -> String {
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    format!("replay: E3_SEED={seed} cargo test -p {package} {test}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_command_that_replays_it() {
        let says = replay(7);
        let test = "seeds::tests::a_failure_names_the_command_that_replays_it";
        assert_eq!(
            says,
            format!("replay: E3_SEED=7 cargo test -p e3-testkit {test}")
        );
    }
}
