//! All integration tests of the crate in one program: each program links the whole crate again.

mod access;
mod backup;
mod concern;
mod copies;
mod disk;
mod drain;
mod follow;
mod formats;
mod hardware;
mod hardware_random;
mod load;
mod membership;
mod moves;
mod orchestrator;
mod placed;
mod reach;
mod recorded;
mod reshard;
mod restore_faults;
mod rollback;
mod scale;
mod script;
mod scripts;
mod silence;
mod vacant;
mod versions;
