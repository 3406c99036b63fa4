//! Runs services: wasmtime, queues, preemption.
