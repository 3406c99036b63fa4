//! Client, workloads and the exactly-once ledger.
