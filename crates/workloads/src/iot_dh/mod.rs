//! The workload of the IoT data hub (IOT-DH): reports of a fleet of sensors are authenticated, counted
//! by topic, classified and stored: the latest of each sensor, and all of them.
//!
//! The hub numbers the reports of each sensor and the reports on each topic. Both sequences must have no
//! gap and no duplicate, whatever was lost or sent twice. After the load the latest report, the rows and
//! the counts are read back. A class must be the one that the training points give. A few reports carry a
//! bad token and must be refused; they are sent again with a good one. Sensors have new names in each
//! load. Topics are the same in all loads, so their counts before the load are read first.

mod generator;
mod messages;
mod nearest;
mod oracle;
pub mod sensors;
#[cfg(test)]
mod tests;

use crate::error::WorkloadError;
use crate::inputs::Inputs;
use crate::limits::SENSORS_MAX;
use crate::load::Load;
use crate::tokens::{Token, TokenKey};
use e3_model::Timestamp;
use generator::Senders;
use oracle::Hub;
use sensors::Fleet;
use std::rc::Rc;

/// Sensors, if rate and duration allow.
const SENSORS: u32 = 1000;
/// Reports that a sensor should send in a run, by having fewer sensors.
const REPORTS_MIN: f64 = 10.0;
/// Reports per second of a sensor; above it, there are more sensors. The busiest send ten times as
/// many, and the gate lets 50 pass.
const RATE_PER_SENSOR_MAX: f64 = 2.0;
/// Life of a token.
const TOKEN_LIFE_S: i64 = 7 * 86_400;

/// A sensor as the hub knows it.
struct Sensor {
    user: String,
    token: Token,
    topic: usize,
}

/// As many sensors as suit rate and duration, unless the inputs say how many.
pub(crate) fn load(inputs: &Inputs, token_key: &[u8]) -> Result<Load<Senders, Hub>, WorkloadError> {
    let requests = inputs.rate_rps * inputs.duration.as_secs_f64();
    let fit = (requests / REPORTS_MIN).clamp(1.0, f64::from(SENSORS));
    let fit = fit.max(inputs.rate_rps / RATE_PER_SENSOR_MAX).ceil();
    let fit = fit.min(f64::from(SENSORS_MAX)) as u32;
    let count = inputs.senders.unwrap_or(fit);
    if !(1..=SENSORS_MAX).contains(&count) {
        return Err(WorkloadError::Sensors { sensors: count });
    }
    let token_key = TokenKey::new(token_key);
    let expiry = inputs.now.since(Timestamp::ZERO).as_secs() as i64 + TOKEN_LIFE_S;
    let fleet = Fleet::new(inputs.seed, count);
    let run = inputs.run_name();
    let sensor = |n| {
        let user = format!("d{run}-{n:04x}");
        Sensor {
            token: token_key.mint(&user, expiry),
            user,
            topic: fleet.topic(n),
        }
    };
    let sensors: Rc<[Sensor]> = (0..count).map(sensor).collect();
    let oracle = Hub::new(sensors.clone(), token_key.clone(), expiry);
    let generator = Senders::new(inputs.seed, fleet, sensors, token_key);
    Ok(Load::new(generator, oracle))
}
