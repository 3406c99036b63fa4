//! Joules from readings.

mod common;

use common::ms;
use e3_energy::Reading;
use e3_energy::integrator::{Integrator, Totals};
use e3_energy::limits::{GAP_COUNTER_MAX, GAP_POWER_MAX};
use e3_model::{Joules, Nanos, Watts};

fn power(watts: f64) -> Reading {
    Reading::Power(Watts(watts))
}

/// A counter that wraps at 65,000 J.
fn counter(joules: f64) -> Reading {
    Reading::Counter {
        uj: (joules * 1e6) as u64,
        range_uj: Some(65_000_000_000),
    }
}

fn endless(joules: f64) -> Reading {
    Reading::Counter {
        uj: (joules * 1e6) as u64,
        range_uj: None,
    }
}

/// The totals after readings of one meter at the given seconds.
fn totals(readings: &[(u64, Reading)]) -> Totals {
    let mut integrator = Integrator::new(ms(0));
    let mut end = ms(0);
    for (second, reading) in readings {
        end = ms(second * 1000);
        integrator.on_readings(end, &[*reading]);
    }
    integrator.totals(end)
}

fn check(readings: &[(u64, Reading)], joules: f64, metered_s: u64, unmetered_s: u64) {
    let totals = totals(readings);
    assert!((totals.joules.0 - joules).abs() < 1e-6, "{totals:?}");
    assert_eq!(totals.metered, Nanos::from_secs(metered_s), "{totals:?}");
    assert_eq!(
        totals.unmetered,
        Nanos::from_secs(unmetered_s),
        "{totals:?}"
    );
}

#[test]
fn power_is_integrated_by_the_trapezoidal_rule() {
    check(
        &[(0, power(100.0)), (1, power(200.0)), (3, power(100.0))],
        450.0,
        3,
        0,
    );
}

#[test]
fn the_time_before_the_first_reading_is_unmetered() {
    check(&[], 0.0, 0, 0);
    check(&[(4, power(100.0))], 0.0, 0, 4);
    check(&[(4, power(100.0)), (5, power(100.0))], 100.0, 1, 4);
}

#[test]
fn a_counter_is_integrated_by_difference_and_wraps() {
    check(&[(0, counter(10.0)), (1, counter(60.0))], 50.0, 1, 0);
    check(&[(0, counter(64_990.0)), (1, counter(40.0))], 50.0, 1, 0);
}

#[test]
fn a_counter_that_was_reset_is_not_taken_for_one_that_wrapped() {
    // A wrap from 10 J to 5 J would be 64,995 J in a second.
    check(
        &[(0, counter(10.0)), (1, counter(5.0)), (2, counter(55.0))],
        50.0,
        1,
        1,
    );
    // Without a range there is no wrap.
    check(&[(0, endless(10.0)), (1, endless(5.0))], 0.0, 0, 1);
    // A counter that jumps.
    check(&[(0, endless(10.0)), (1, endless(1e6))], 0.0, 0, 1);
    // A value beyond the range.
    check(&[(0, counter(70_000.0)), (1, counter(5.0))], 0.0, 0, 1);
}

#[test]
fn a_gap_is_said_and_not_interpolated() {
    let after = GAP_POWER_MAX.as_secs() + 1;
    check(&[(0, power(100.0)), (after, power(100.0))], 0.0, 0, after);
    let within = GAP_POWER_MAX.as_secs();
    check(
        &[(0, power(10.0)), (within, power(10.0))],
        10.0 * within as f64,
        within,
        0,
    );
}

#[test]
fn a_counter_bridges_a_gap_until_it_may_have_wrapped_twice() {
    // At 2,000 W a counter of 65,000 J wraps after 32.5 s.
    check(
        &[(0, counter(10.0)), (32, counter(3_210.0))],
        3_200.0,
        32,
        0,
    );
    check(&[(0, counter(10.0)), (33, counter(3_310.0))], 0.0, 0, 33);
    let after = GAP_COUNTER_MAX.as_secs() + 1;
    check(&[(0, endless(10.0)), (after, endless(20.0))], 0.0, 0, after);
}

#[test]
fn a_meter_that_falls_silent_is_counted_as_unmetered_while_it_is() {
    let mut integrator = Integrator::new(ms(0));
    integrator.on_readings(ms(0), &[power(100.0)]);
    integrator.on_readings(ms(1_000), &[power(100.0)]);
    assert_eq!(integrator.totals(ms(6_000)).unmetered, Nanos(0), "may come");
    let totals = integrator.totals(ms(31_000));
    assert_eq!(totals.joules, Joules(100.0));
    assert_eq!(totals.unmetered, Nanos::from_secs(30));
    assert_eq!(totals.watts, Watts(0.0), "unknown now");
    integrator.on_readings(ms(40_000), &[power(100.0)]);
    integrator.on_readings(ms(41_000), &[power(100.0)]);
    let totals = integrator.totals(ms(41_000));
    assert_eq!(totals.joules, Joules(200.0));
    assert_eq!(
        (totals.metered.as_secs(), totals.unmetered.as_secs()),
        (2, 39)
    );
}

#[test]
fn the_meters_of_a_group_are_added_and_one_bad_counter_spoils_an_interval() {
    let mut integrator = Integrator::new(ms(0));
    integrator.on_readings(ms(0), &[counter(1.0), counter(100.0)]);
    integrator.on_readings(ms(1_000), &[counter(31.0), counter(120.0)]);
    assert_eq!(integrator.totals(ms(1_000)).joules, Joules(50.0));
    integrator.on_readings(ms(2_000), &[counter(61.0), counter(20.0)]);
    let totals = integrator.totals(ms(2_000));
    assert_eq!(
        (totals.joules, totals.unmetered),
        (Joules(50.0), Nanos::from_secs(1))
    );
    // A group that changed has no difference to the one before.
    integrator.on_readings(ms(3_000), &[counter(91.0)]);
    assert_eq!(integrator.totals(ms(3_000)).unmetered, Nanos::from_secs(2));
}

#[test]
fn readings_of_the_same_time_or_an_earlier_one_change_nothing() {
    let mut integrator = Integrator::new(ms(0));
    integrator.on_readings(ms(5), &[power(100.0)]);
    integrator.on_readings(ms(1_005), &[power(100.0)]);
    let before = integrator.totals(ms(1_005));
    integrator.on_readings(ms(1_005), &[power(9_000.0)]);
    integrator.on_readings(ms(400), &[power(9_000.0)]);
    assert_eq!(integrator.totals(ms(1_005)), before);
}
