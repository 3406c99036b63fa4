//! The resource controller as one deterministic state machine.
