//! UDP sockets and doorbells.
