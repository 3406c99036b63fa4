//! Bounds of collections and of one request's writes (docs/abi.md).

/// Bytes of a key; a key has at least one.
pub const KEY_LEN_MAX: usize = e3_model::limits::KEY_LEN_MAX;
/// Bytes of a value or of an array's element.
pub const VALUE_LEN_MAX: usize = 32 * 1024;
/// Bytes of an encoded write batch: all writes of one request.
pub const BATCH_LEN_MAX: usize = 40 * 1024;
/// Writes of one request.
pub const WRITES_MAX: usize = 4096;
/// Collections of one service.
pub const COLLECTIONS_MAX: usize = 256;
/// Distinct things written by a request above which they are looked up by hash, not one by one.
pub const OVERLAY_LINEAR_MAX: usize = 12;
/// Keys that are warmed together: as many misses as a core can have in flight.
pub const WARM_KEYS_MAX: usize = 16;
/// Expired keys that are removed with one batch, beside the writes of its request.
pub const EXPIRED_KEYS_MAX: usize = 256;
/// Bytes of these removals.
pub const EXPIRED_LEN_MAX: usize = 8 * 1024;
/// Bytes of a snapshot record before its key and value, without the time at which the key expires.
pub const RECORD_HEADER_LEN: usize = 10;
/// Bytes of that time, if the key expires.
pub const RECORD_EXPIRES_LEN: usize = 8;
/// Bytes before the element in the value of an array's snapshot record: its index.
pub const INDEX_LEN: usize = 8;
/// Bytes of a snapshot's piece before its records.
pub const PIECE_HEADER_LEN: usize = 8;
/// Bytes of the longest snapshot record.
pub const RECORD_LEN_MAX: usize =
    RECORD_HEADER_LEN + RECORD_EXPIRES_LEN + KEY_LEN_MAX + INDEX_LEN + VALUE_LEN_MAX;
/// Entries of a table that are sorted at a time for a piece.
pub const PIECE_SORT_MAX: usize = 128;
/// Entries of a part of a hash table: seven eighths of 2048 buckets, where hashbrown would grow.
pub const PART_LEN_MAX: usize = 1792;
/// Room for more elements or entries than this is given back when less than a quarter of it is in use.
pub const SHRUNK_CAPACITY_MIN: usize = 64;

/// The room that so many elements keep, if they have far too much: memory that nobody uses is not counted either.
pub(crate) fn shrunk(len: usize, capacity: usize) -> Option<usize> {
    (capacity > SHRUNK_CAPACITY_MIN && len < capacity / 4).then_some(len * 2)
}

/// Accounted bytes of a hash map entry beyond key and value.
pub const HASH_ENTRY_BYTES: usize = 56;
/// Accounted bytes of an ordered map entry beyond key and value.
pub const ORDERED_ENTRY_BYTES: usize = 96;
/// Accounted bytes of an array beyond its key and elements.
pub const ARRAY_ENTRY_BYTES: usize = 120;
/// Accounted bytes of an array's element beyond its content.
pub const ELEMENT_BYTES: usize = 32;
/// Accounted bytes of a counter beyond its key.
pub const COUNTER_ENTRY_BYTES: usize = 80;
/// Accounted bytes of a key that expires beyond the copy of the key in the order of expiry.
pub const EXPIRY_BYTES: usize = 72;
/// Accounted bytes that a byte of a batch can add, at most: its shortest write makes an array of one
/// element whose key of one byte expires.
pub const GROWTH_PER_BYTE_MAX: usize = 32;

const _: () = assert!(
    KEY_LEN_MAX + VALUE_LEN_MAX + 64 <= BATCH_LEN_MAX,
    "one write of the largest size fits"
);
const _: () = assert!(
    KEY_LEN_MAX + 64 <= EXPIRED_LEN_MAX,
    "the removal of any key fits"
);
const _: () = assert!(
    // tag, collection, key length, key, value length; a time of 8 bytes comes with an expiry
    (1 + ARRAY_ENTRY_BYTES + ELEMENT_BYTES) <= GROWTH_PER_BYTE_MAX * 8
        && (2 + ARRAY_ENTRY_BYTES + ELEMENT_BYTES + EXPIRY_BYTES) <= GROWTH_PER_BYTE_MAX * 16,
    "no write adds more"
);
const _: () = assert!(
    VALUE_LEN_MAX <= u16::MAX as usize,
    "lengths are encoded in u16"
);
const _: () = assert!(
    KEY_LEN_MAX <= u16::MAX as usize,
    "lengths are encoded in u16"
);
