//! What an instance is given, and why it may not start.

use crate::context::hmac;
use crate::limits::INSTANCE_IDS_MAX;
use e3_collections::CollectionSpec;
use e3_invocation::HandlerError;
use e3_model::Accelerators;
use e3_model::application::Channel;
use e3_model::http_access::HttpAccess;
use hmac::Mac;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Id of an instance on this engine. The caller chooses it, small and dense, since it indexes a
/// table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InstanceId(pub u32);

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "i{}", self.0)
    }
}

/// What an instance is given when it starts.
#[derive(Clone, Debug, Default)]
pub struct InstanceSpec {
    /// Name of the service, as logs and statistics show it.
    pub name: String,
    /// Whether it has state, which timers are part of.
    pub stateful: bool,
    /// Outgoing channels. Their order gives the indices in [`e3_invocation::Output::channel`].
    pub channels: Vec<ChannelSpec>,
    /// Collections. Their order gives their ids. Invariant: the same as those of the state.
    pub collections: Vec<CollectionSpec>,
    /// Secrets that it may read: name and value.
    pub secrets: Vec<(String, Vec<u8>)>,
    /// Key of the random bytes of a stateless service: they are a function of the message, so that a
    /// second run, after the first process was lost, sends the same. None: those of the system.
    pub random_key: Option<RandomKey>,
    /// Names of the services that it may call.
    pub calls: Vec<String>,
    /// Settings that it may read.
    pub config: BTreeMap<String, String>,
    /// Assets that it may read: name and content.
    pub assets: Vec<(String, Arc<[u8]>)>,
    /// Services that it may ask by outbound requests.
    pub asks: Vec<String>,
    /// What it may ask over HTTP.
    pub http: HttpAccess,
    /// Topics on which it may publish.
    pub publishes: Vec<String>,
    /// Accelerators that it uses. It finds those of them that its engine has.
    pub accelerators: Accelerators,
    /// Bound of its linear memory, in bytes.
    pub memory_bytes_max: usize,
    /// Longest run of the handler, not counting the time it waits for the core.
    pub deadline: Duration,
}

/// Makes random bytes a function of the message that nobody else can compute.
#[derive(Clone, Copy)]
pub struct RandomKey(pub(crate) [u8; 32]);

impl RandomKey {
    /// The key that follows from a secret, which it does not reveal.
    pub fn derive(secret: &[u8]) -> RandomKey {
        let mac = hmac(secret).chain_update("random bytes of stateless services");
        RandomKey(mac.finalize().into_bytes().into())
    }
}

impl fmt::Debug for RandomKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RandomKey(..)")
    }
}

/// An outgoing channel of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChannelSpec {
    /// Name that the service knows it by.
    pub name: String,
    /// Messages that one invocation may send on it.
    pub outputs_max: u32,
}

impl From<&Channel> for ChannelSpec {
    fn from(channel: &Channel) -> ChannelSpec {
        ChannelSpec {
            name: channel.name().to_string(),
            outputs_max: channel.outputs,
        }
    }
}

/// Why an instance does not start.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum StartError {
    /// The id is out of bounds or taken.
    #[error("instance {0}: id is taken, or not below {INSTANCE_IDS_MAX}")]
    Id(InstanceId),
    /// The instance to be replaced does not exist any more.
    #[error("instance {0}: nothing to replace")]
    Gone(InstanceId),
    /// The engine has as many instances as it may.
    #[error("service \"{service}\": the node has {maximum} instances, the maximum")]
    Full {
        /// The service.
        service: String,
        /// The bound.
        maximum: u32,
    },
    /// The code was loaded by another engine.
    #[error("instance {0}: its code was loaded by another engine")]
    ForeignCode(InstanceId),
    /// Its initial memory exceeds its bound.
    #[error(
        "service \"{service}\": needs {minimum} bytes of memory to start, must be at most {maximum}"
    )]
    Memory {
        /// The service.
        service: String,
        /// What it asks for.
        minimum: usize,
        /// What it may have.
        maximum: usize,
    },
    /// Its start failed, before its first request.
    #[error("service \"{service}\": {error}")]
    Failed {
        /// The service.
        service: String,
        /// Why.
        error: HandlerError,
    },
}
