//! Discrete-event simulator and fault injection.
