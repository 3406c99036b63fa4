//! Bounds of the SQL engine and of its service.

/// Most tables of a database.
pub const TABLES_MAX: usize = 64;
/// Most indices of a table.
pub const INDICES_MAX: usize = 8;
/// Most columns of a table, of an index, of a result.
pub const COLUMNS_MAX: usize = 32;
/// Longest name of a table, a column or an index in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Most bytes of a database's schema as it is stored.
pub const SCHEMA_BYTES_MAX: usize = 16 * 1024;
/// Longest text value in bytes; those of a primary key or of an index must fit in a key of 1 KiB
/// escaped.
pub const TEXT_BYTES_MAX: usize = 1024;
/// Longest statement in a record in bytes. The parser's tree is as deep as a chain of operators is
/// long, and a module's stack is finite.
pub const STATEMENT_BYTES_MAX: usize = 2048;
/// Deepest nesting that the parser follows. It calls itself with large frames, and a module's
/// stack is finite (`.cargo/config.toml`): a level takes up to 32 KiB of its 1 MiB.
pub const NESTING_MAX: usize = 24;
/// Deepest expression: a chain such as `a + b + c` is as deep as it is long.
pub const EXPRESSION_DEPTH_MAX: usize = 64;
/// Most rows that are sorted in memory when no key order serves an ORDER BY, and most groups.
pub const ROWS_SORTED_MAX: usize = 4096;
/// Most pairs of rows that a join looks at.
pub const PAIRS_MAX: usize = 1 << 16;
/// Most rows that one UPDATE or DELETE may change, or one CREATE INDEX or DROP may go through.
pub const ROWS_CHANGED_MAX: usize = 256;
/// Most bytes of keys and values that a request writes; the platform's bound is 40 KiB.
pub const WRITE_BYTES_MAX: usize = 39 * 1024;
/// Most bytes of a result's columns and rows; the rest is left out, and `more` says so.
pub const RESULT_BYTES_MAX: usize = 31 * 1024;
/// Parsed statements that an instance keeps for each schema.
pub const STATEMENTS_CACHED_MAX: usize = 64;
/// Longest key of a collection in bytes.
pub const KEY_BYTES_MAX: usize = e3_sdk::limits::KEY_BYTES_MAX;
