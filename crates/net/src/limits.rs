//! Bounds of the sockets.

/// Receive and send buffer asked of the kernel, in bytes: bursts of whole windows must fit.
pub const SOCKET_BUFFER_LEN: usize = 4 << 20;
/// Largest datagram.
pub const DATAGRAM_LEN_MAX: usize = 65_536;
