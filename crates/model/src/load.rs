//! The load that an application expects, for placement.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Expected load.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Load {
    /// Requests per second of the whole application.
    pub rate_rps: f64,
    /// Typical payload.
    #[serde(default = "default_request_bytes")]
    pub request_bytes: u32,
    /// The rate in each hour of a day against `rateRps`, 24 factors; by default it is the same in all. Room is
    /// reserved for the highest one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub day: Vec<f64>,
}

impl Load {
    /// The highest factor of the day.
    pub fn peak(&self) -> f64 {
        let highest = self.day.iter().copied().reduce(f64::max);
        highest.unwrap_or(1.0)
    }
}

fn default_request_bytes() -> u32 {
    512
}
