//! Bounds and fixed figures of the models.

/// Use of cores, of a stateful shard's one core, and of a port at the knee of the curve of latency
/// against throughput. Kleinrock ("Power and Deterministic Rules of Thumb for Probabilistic Problems
/// in Computer Communications", ICC 1979) puts the knee where throughput / latency is largest; for a
/// queue M/M/12, the paper's node of 12 cores, that is at 0.785. A test computes it.
pub const KNEE_UTILISATION: f64 = 0.8;

/// Bytes on the wire around a UDP payload: preamble, Ethernet, IPv4, UDP, checksum, gap.
pub const WIRE_OVERHEAD_BYTES: u32 = 8 + 14 + 20 + 8 + 4 + 12;

/// Port of the paper's SmartNIC and host in Gb/s.
pub const PAPER_PORT_GBPS: f64 = 10.0;

/// Part of the port's rate from which a figure of Table 1 is taken to be the port's, not the cores'.
pub const PORT_SATURATED: f64 = 0.9;

const _: () = assert!(KNEE_UTILISATION > 0.0 && KNEE_UTILISATION < 1.0);
const _: () = assert!(PORT_SATURATED > 0.0 && PORT_SATURATED < 1.0);
