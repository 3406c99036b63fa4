//! Bounds of the store.

use e3_sdk::limits::VALUE_BYTES_MAX;

/// Longest key, as memcached has it.
pub const KEY_BYTES_MAX: usize = 250;
/// Longest data of an item: it fits into one reply with its line.
pub const DATA_BYTES_MAX: usize = VALUE_BYTES_MAX - 512;
/// Data of an item beyond which its expiry changes without the data being written again, and which
/// the answer to a record that stores does not repeat: a request must fit into
/// [`EFFECTS_BYTES_MAX`].
pub const LARGE_BYTES: usize = 16 * 1024;
/// Bytes that the writes of a request may have together, a little less than the platform allows.
pub const WRITES_BYTES_MAX: usize = 40 * 1024 - 64;
/// What a write or a message counts there in addition to key and value.
pub const WRITE_OVERHEAD_BYTES: usize = 16;
/// Bytes that writes, messages and reply of a request may have together, a little less than the
/// platform allows.
pub const EFFECTS_BYTES_MAX: usize = 56 * 1024 - 1024;
/// Bytes of a reply after which no further command of a request is executed.
pub const REPLY_BYTES_MAX: usize = VALUE_BYTES_MAX - 128;
/// Most fields of an item that is a record.
pub const FIELDS_MAX: usize = 16;
/// Longest line of a reply, other than an item.
pub const ANSWER_BYTES_MAX: usize = 64;
/// Expired items that are dropped when an item with an expiry is stored.
pub const PURGED: usize = 4;
/// Expiry times beyond this are Unix times, not seconds from now (protocol.txt).
pub const RELATIVE_S_MAX: i64 = 60 * 60 * 24 * 30;

// the last line of a reply and the note that it is full still fit
const _: () = assert!(REPLY_BYTES_MAX + 2 * ANSWER_BYTES_MAX <= VALUE_BYTES_MAX);
// the largest item can be stored with its entry in the index, and be read
const _: () = assert!(DATA_BYTES_MAX + 3 * (KEY_BYTES_MAX + 40) <= WRITES_BYTES_MAX);
const _: () = assert!(DATA_BYTES_MAX + KEY_BYTES_MAX + 2 * ANSWER_BYTES_MAX <= REPLY_BYTES_MAX);
// an item can be read and written again in one request, up to this length
const _: () =
    assert!(2 * (LARGE_BYTES + KEY_BYTES_MAX) + 8 * (KEY_BYTES_MAX + 40) <= EFFECTS_BYTES_MAX);
