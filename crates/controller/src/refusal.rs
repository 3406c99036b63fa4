//! Turns the errors of commands and of the framework into answers.

use crate::error::ExecuteError;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use e3_control::CommandError;
use e3_http::Refusal;
use e3_model::Topology;
use e3_store::StoreError;

impl From<ExecuteError> for Refusal {
    fn from(e: ExecuteError) -> Refusal {
        let status = match &e {
            ExecuteError::Command(c) => match c {
                CommandError::NoApp(_)
                | CommandError::NoNode { .. }
                | CommandError::Removed(_)
                | CommandError::NoShard(_)
                | CommandError::NoService { .. }
                | CommandError::NoReplica { .. }
                | CommandError::NoPowerDomain { .. }
                | CommandError::NoToken { .. }
                | CommandError::NoSecret { .. } => StatusCode::NOT_FOUND,
                CommandError::Fixed { .. }
                | CommandError::NoVersion(_)
                | CommandError::NoEarlier(_)
                | CommandError::OtherCluster { .. }
                | CommandError::Damaged { .. }
                | CommandError::NotOnDisk { .. }
                | CommandError::Format { .. }
                | CommandError::OlderMember { .. }
                | CommandError::SilentMember { .. }
                | CommandError::Exited(_)
                | CommandError::Moving { .. }
                | CommandError::Busy { .. }
                | CommandError::Exists(_)
                | CommandError::Restoring { .. }
                | CommandError::Waits { .. }
                | CommandError::Resharding { .. }
                | CommandError::ShardBounds { .. }
                | CommandError::BoundsMiss { .. }
                | CommandError::Apart { .. }
                | CommandError::NotWaiting(_)
                | CommandError::OlderFormat { .. }
                | CommandError::NameUsed(_)
                | CommandError::LastNode(_)
                | CommandError::InUse { .. }
                | CommandError::Relayed { .. }
                | CommandError::NoDomain { .. }
                | CommandError::TokenExists(_)
                | CommandError::TooManyTokens(_)
                | CommandError::TooManySecrets(_)
                | CommandError::SecretInUse { .. }
                | CommandError::Placed { .. }
                | CommandError::Choices { .. }
                | CommandError::AlreadyThere { .. } => StatusCode::CONFLICT,
                CommandError::Admit(_)
                | CommandError::Hardware(_)
                | CommandError::Misfit { .. }
                | CommandError::ColdBackup { .. }
                | CommandError::Place(_)
                | CommandError::Replicas { .. }
                | CommandError::Shards { .. }
                | CommandError::Parts { .. }
                | CommandError::Stateless(_)
                | CommandError::Setting(_)
                | CommandError::PowerCap { .. }
                | CommandError::NoAppId
                | CommandError::SecretLength { .. }
                | CommandError::TooManyApps(_) => StatusCode::UNPROCESSABLE_ENTITY,
            },
            ExecuteError::Unlogged(_) => StatusCode::UNPROCESSABLE_ENTITY,
            ExecuteError::Store(_) | ExecuteError::Broken(_) => StatusCode::INSUFFICIENT_STORAGE,
        };
        Refusal::new(status, e.to_string())
    }
}

/// A node that is not in the topology.
pub(crate) fn no_node(topology: &Topology, name: &str) -> Refusal {
    let error = CommandError::NoNode {
        name: name.into(),
        known: topology.nodes().map(|n| n.node.name.clone()).collect(),
    };
    Refusal::new(StatusCode::NOT_FOUND, error.to_string())
}

/// The refusal of a blob that cannot be written to the disk.
pub(crate) fn not_stored(e: StoreError) -> Refusal {
    Refusal::new(StatusCode::INSUFFICIENT_STORAGE, e.to_string())
}

/// The refusal of a body that is not the JSON of its route.
pub(crate) fn bad_json(e: &JsonRejection) -> Refusal {
    Refusal::new(e.status(), e.body_text())
}
