//! The common parts of the HTTP servers of the controller and of the nodes: checks of host and origin,
//! refusals, and the beginning of their OpenAPI descriptions.

mod limits;
pub mod openapi;
mod own;
mod refusal;

pub use own::Own;
pub use refusal::{Reason, Refusal, as_json};
