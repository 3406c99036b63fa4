//! What services must answer, computed independently of them: one module for each service that
//! several applications use.

pub(crate) mod count;
pub(crate) mod ddos;
pub(crate) mod flowmon;
pub(crate) mod gateway;
pub(crate) mod ipsec;
pub(crate) mod models;
pub(crate) mod nids;
