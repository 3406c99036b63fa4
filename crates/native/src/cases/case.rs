//! A service with its environment and its requests.

use crate::NativeError;
use crate::side::{self, Side};
use e3_collections::{CollectionSpec, Kind};
use e3_engine::{ChannelSpec, InstanceSpec};
use e3_sdk::Service;
use std::time::Duration;

/// Seed of all random choices.
pub const SEED: u64 = 3;
/// Bytes of a request.
pub(crate) const BYTES: usize = 512;
/// Number of different requests; the stream repeats them.
pub(crate) const REQUESTS: u64 = 8192;

/// A service and its requests.
pub struct Case {
    /// Name of the service and its module.
    pub name: &'static str,
    /// Description of the requests.
    pub about: &'static str,
    /// Whether accelerators do most of its work.
    pub accelerated: bool,
    /// Environment of the instance.
    pub spec: InstanceSpec,
    /// Keys and payloads.
    pub requests: Vec<(Vec<u8>, Vec<u8>)>,
    /// Four bytes of a payload that are replaced by the time of a reading in seconds, if it has one.
    pub time_mark: Option<[u8; 4]>,
    /// Starts the native side.
    pub native: fn(InstanceSpec) -> Result<Box<dyn Side>, NativeError>,
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
        self.spec.collections.push(CollectionSpec {
            name,
            kind,
            ttl: None,
        });
        self
    }

    pub(crate) fn config(mut self, name: &str, value: &str) -> Case {
        self.spec.config.insert(name.into(), value.into());
        self
    }

    /// Results are sent on a channel `next`.
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

    /// Payloads contain this number, most significant byte first, where the time of a reading goes.
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
