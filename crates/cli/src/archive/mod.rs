//! Files of backups: written under a temporary name, and checked as a whole before anything is read
//! of them.

mod reader;
mod writer;

pub use reader::Archive;
pub use writer::Writer;
