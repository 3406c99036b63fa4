//! Lossless, flow-controlled channels as state machines.
