//! The controller program: API, storage, agents.
