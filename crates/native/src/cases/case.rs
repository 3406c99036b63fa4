//! A service with its surroundings and its requests.

use crate::Fault;
use crate::side::{self, Side};
use e3_collections::{CollectionSpec, Kind};
use e3_engine::{ChannelSpec, InstanceSpec};
use e3_sdk::Service;
use std::time::Duration;

/// Seed of everything that is drawn.
pub const SEED: u64 = 3;
/// Bytes of a request.
pub(crate) const BYTES: usize = 512;
/// Requests that are made; the stream repeats them.
pub(crate) const REQUESTS: u64 = 8192;

/// A service and its requests.
pub struct Case {
    /// The service, as its module is called.
    pub name: &'static str,
    /// What the requests are.
    pub about: &'static str,
    /// Whether it lives on accelerators.
    pub accelerated: bool,
    /// What the service is given.
    pub spec: InstanceSpec,
    /// Keys and payloads.
    pub requests: Vec<(Vec<u8>, Vec<u8>)>,
    /// Four bytes of a payload that stand for the time of a reading in seconds, if it has one.
    pub time_mark: Option<[u8; 4]>,
    /// Starts the native side.
    pub native: fn(InstanceSpec) -> Result<Box<dyn Side>, Fault>,
}

impl Case {
    pub(crate) fn new<S: Service + 'static>(name: &'static str, about: &'static str) -> Case {
        Case {
            name,
            about,
            accelerated: false,
            spec: InstanceSpec {
                name: name.into(),
                memory_bytes_max: 64 << 20,
                deadline: Duration::from_secs(10),
                ..InstanceSpec::default()
            },
            requests: Vec::new(),
            time_mark: None,
            native: side::start::<S>,
        }
    }

    pub(crate) fn accelerated(mut self) -> Case {
        self.accelerated = true;
        self
    }

    pub(crate) fn collection(mut self, name: &str, kind: Kind) -> Case {
        let name = name.into();
        self.spec.collections.push(CollectionSpec { name, kind });
        self
    }

    pub(crate) fn config(mut self, name: &str, value: &str) -> Case {
        self.spec.config.insert(name.into(), value.into());
        self
    }

    /// Results go along a channel `next`.
    pub(crate) fn passes_on(mut self) -> Case {
        self.spec.channels.push(ChannelSpec {
            name: "next".into(),
            outputs_max: 8,
        });
        self.config("to", "next")
    }

    pub(crate) fn asset(mut self, name: &str, content: Vec<u8>) -> Case {
        self.spec.assets.push((name.into(), content.into()));
        self
    }

    pub(crate) fn secret(mut self, name: &str, content: &[u8]) -> Case {
        self.spec.secrets.push((name.into(), content.into()));
        self
    }

    /// Payloads hold the time of a reading where this number is, most significant byte first.
    pub(crate) fn timed(mut self, mark: u32) -> Case {
        self.time_mark = Some(mark.to_be_bytes());
        self
    }

    pub(crate) fn requests(
        mut self,
        requests: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>,
    ) -> Case {
        self.requests = requests.into_iter().collect();
        self
    }
}
