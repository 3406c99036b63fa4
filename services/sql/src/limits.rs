//! Bounds of the SQL engine and of its service.

/// Most tables of a database.
pub const TABLES_MAX: usize = 64;
/// Most columns of a table.
pub const COLUMNS_MAX: usize = 32;
/// Longest name of a table or column in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Longest text value in bytes; those of a primary key must fit in a key of 1 KiB escaped.
pub const TEXT_BYTES_MAX: usize = e3_iot_messages::limits::TEXT_BYTES_MAX;
/// Deepest nesting that the parser follows. It calls itself with large frames, and a module's
/// stack is finite (`.cargo/config.toml`): a level takes up to 32 KiB of its 1 MiB.
pub const NESTING_MAX: usize = 24;
/// Deepest expression: a chain such as `a + b + c` is as deep as it is long.
pub const EXPRESSION_DEPTH_MAX: usize = 64;
/// Most rows that are sorted in memory when no key order serves an ORDER BY.
pub const ROWS_SORTED_MAX: usize = 4096;
/// Most rows that one UPDATE or DELETE may change.
pub const ROWS_CHANGED_MAX: usize = 256;
/// Parsed statements that an instance keeps.
pub const STATEMENTS_CACHED_MAX: usize = 64;
/// Longest key of a collection in bytes.
pub const KEY_BYTES_MAX: usize = e3_sdk::limits::KEY_BYTES_MAX;
