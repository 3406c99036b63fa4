//! What the HTTP servers of the controller and of the nodes have in common: who may address them,
//! how they refuse, and how their descriptions begin.

mod limits;
pub mod openapi;
mod own;
mod refusal;

pub use own::Own;
pub use refusal::{Refusal, as_json};
