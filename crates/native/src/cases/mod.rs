//! The environment and the requests of each service, of about 512 bytes each.

mod case;
mod packets;
mod records;
mod series;

pub use case::{Case, SEED};

/// Makes a case.
pub type Make = fn() -> Case;

/// The services by name.
pub const ALL: [(&str, Make); 16] = [
    ("ipsec", packets::ipsec),
    ("nids", packets::nids),
    ("natv4", packets::natv4),
    ("flowmon", packets::flowmon),
    ("ddos", packets::ddos),
    ("count", records::count),
    ("kvs", records::kvs),
    ("knn", records::knn),
    ("bayes", records::bayes),
    ("topranker", records::topranker),
    ("bm25", records::bm25),
    ("apigw", series::apigw),
    ("sql", series::sql),
    ("ema", series::ema),
    ("spike", series::spike),
    ("recommend", series::recommend),
];
