//! How many shards a service may have: a fixed number, or bounds within which the orchestrator scales it
//! by load. A manifest writes either under `shards`. Design: docs/design/022.

use crate::application::Service;
use crate::limits::SHARDS_MAX;
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// The fewest and the most shards of a service that is scaled by load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ShardBounds {
    /// Fewest.
    pub min: u16,
    /// Most: `min` times a power of two, since the number is doubled and halved.
    pub max: u16,
}

impl ShardBounds {
    /// Whether a service may have so many shards: `min`, doubled any number of times, at most `max`.
    pub fn allow(&self, shards: u16) -> bool {
        let is_within = (self.min..=self.max).contains(&shards) && self.min > 0;
        is_within && is_doubled(self.min, shards)
    }

    /// What is wrong with them, if something is: the value, the bound, what to do.
    pub(crate) fn fault(&self) -> Option<String> {
        let ShardBounds { min, max } = *self;
        if !(1..=SHARDS_MAX).contains(&min) {
            return Some(format!("shards.min is {min}, must be 1..={SHARDS_MAX}"));
        }
        if !(min..=SHARDS_MAX).contains(&max) {
            return Some(format!(
                "shards.max is {max}, must be {min}..={SHARDS_MAX}, at least shards.min"
            ));
        }
        if !is_doubled(min, max) {
            let below = min << (max / min).ilog2();
            let above = u32::from(below) * 2;
            let above = if above <= u32::from(SHARDS_MAX) {
                format!(" or {above}")
            } else {
                String::new()
            };
            return Some(format!(
                "shards.max is {max}, must be shards.min, {min}, times a power of two: {below}{above}"
            ));
        }
        None
    }
}

fn is_doubled(min: u16, shards: u16) -> bool {
    shards.is_multiple_of(min) && (shards / min).is_power_of_two()
}

impl fmt::Display for ShardBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.min, self.max)
    }
}

/// What stands under `shards`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ShardsForm {
    /// A fixed number, `1..=4096`.
    Fixed(u16),
    /// Bounds within which the orchestrator scales by load.
    Scaled(ScaledShards),
}

/// Bounds of the number of shards, and the number.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScaledShards {
    /// Fewest, `1..=4096`.
    pub min: u16,
    /// Most: `min` times a power of two, at most 4096.
    pub max: u16,
    /// How many a new application begins with: `min` times a power of two; by default `min`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u16>,
}

impl Default for ShardsForm {
    fn default() -> ShardsForm {
        ShardsForm::Fixed(1)
    }
}

impl<'de> Deserialize<'de> for ShardsForm {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<ShardsForm, D::Error> {
        struct Form;

        impl<'de> Visitor<'de> for Form {
            type Value = ShardsForm;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a number from 1 to {SHARDS_MAX}, or {{min: N, max: N}}")
            }

            fn visit_u64<E: Error>(self, v: u64) -> Result<ShardsForm, E> {
                let fixed = u16::try_from(v).map(ShardsForm::Fixed);
                fixed.map_err(|_| E::invalid_value(Unexpected::Unsigned(v), &self))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ShardsForm, A::Error> {
                let scaled = ScaledShards::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ShardsForm::Scaled(scaled))
            }
        }
        from.deserialize_any(Form)
    }
}

impl Service {
    /// Whether the orchestrator scales it by load.
    pub fn is_scaled(&self) -> bool {
        self.shard_bounds.is_some_and(|b| b.min < b.max)
    }

    fn shards_form(&self) -> ShardsForm {
        match self.shard_bounds {
            None => ShardsForm::Fixed(self.shards),
            Some(ShardBounds { min, max }) => ShardsForm::Scaled(ScaledShards {
                min,
                max,
                count: (self.shards != min).then_some(self.shards),
            }),
        }
    }
}

impl<'de> Deserialize<'de> for Service {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Service, D::Error> {
        // The derived function, which reads all fields as they are written.
        let mut service = Service::deserialize(from)?;
        (service.shards, service.shard_bounds) = match std::mem::take(&mut service.shards_form) {
            ShardsForm::Fixed(shards) => (shards, None),
            ShardsForm::Scaled(ScaledShards { min, max, count }) => {
                (count.unwrap_or(min), Some(ShardBounds { min, max }))
            }
        };
        Ok(service)
    }
}

impl Serialize for Service {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut written = self.clone();
        written.shards_form = self.shards_form();
        Service::serialize(&written, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::parse_application;

    const APP: &str = include_str!("../tests/two-services.yaml");

    fn service(shards: &str) -> Result<Service, String> {
        let text = APP.replace("shards: 2", &format!("shards: {shards}"));
        let app = parse_application("a.yaml", &text).map_err(|e| e.to_string())?;
        Ok(app.spec.services[1].clone())
    }

    #[test]
    fn a_number_is_fixed_and_bounds_begin_with_the_fewest() {
        let fixed = service("3").unwrap();
        assert_eq!((fixed.shards, fixed.shard_bounds), (3, None));
        let bounds = Some(ShardBounds { min: 2, max: 16 });
        let scaled = service("{min: 2, max: 16}").unwrap();
        assert_eq!((scaled.shards, scaled.shard_bounds), (2, bounds));
        let scaled = service("{min: 2, max: 16, count: 8}").unwrap();
        assert_eq!((scaled.shards, scaled.shard_bounds), (8, bounds));
    }

    #[test]
    fn what_is_written_is_read_again_with_the_present_number() {
        for (form, text) in [
            ("3", r#""shards":3"#),
            ("{min: 2, max: 16}", r#""shards":{"min":2,"max":16}"#),
            (
                "{min: 2, max: 16, count: 8}",
                r#""shards":{"min":2,"max":16,"count":8}"#,
            ),
        ] {
            let service = service(form).unwrap();
            let json = serde_json::to_string(&service).unwrap();
            assert!(json.contains(text), "{json}");
            assert_eq!(serde_json::from_str::<Service>(&json).unwrap(), service);
        }
    }

    #[test]
    fn bounds_that_cannot_be_kept_are_refused() {
        for (form, says) in [
            ("{min: 0, max: 4}", "shards.min is 0, must be 1..=4096"),
            ("{min: 4, max: 2}", "shards.max is 2, must be 4..=4096"),
            (
                "{min: 3, max: 10}",
                "shards.min, 3, times a power of two: 6 or 12",
            ),
            ("{min: 3000, max: 4000}", "times a power of two: 3000"),
            (
                "{min: 2, max: 8, count: 6}",
                "shards.count is 6, must be shards.min, 2, times a power of two, at most 8",
            ),
            ("{min: 2}", "missing field `max`"),
            ("{min: 2, max: 4, step: 2}", "unknown field `step`"),
            ("70000", "expected a number from 1 to 4096"),
            ("many", "expected a number from 1 to 4096"),
        ] {
            let refused = service(form).unwrap_err();
            assert!(refused.contains(says), "{form}: {refused}");
        }
        let pinned = "{min: 1, max: 4}\n      pin: {node: s1-host}";
        let refused = service(pinned).unwrap_err();
        assert!(refused.contains("must be 1"), "{refused}");
    }
}
