//! Collections, write batches, log entries, duplicates.
