//! Frame and heartbeat formats.
