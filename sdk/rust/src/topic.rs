//! The topic of a publication.

use alloc::borrow::ToOwned;
use alloc::string::String;

/// The topic of a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// The application that published.
    pub application: String,
    /// The name of the topic there.
    pub name: String,
}

impl Topic {
    /// From `APPLICATION/TOPIC`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (application, name) = text.split_once('/')?;
        Some(Self {
            application: application.to_owned(),
            name: name.to_owned(),
        })
    }
}
