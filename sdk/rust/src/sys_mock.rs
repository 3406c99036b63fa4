//! The calls of docs/abi.md, answered by the thread's [`testing`](crate::testing) host.

use crate::testing::{Collection, with};

pub(crate) fn now() -> i64 {
    with(|host| host.now)
}

pub(crate) fn request_id(out: &mut [u8; 16]) {
    with(|host| *out = host.request_id);
}

pub(crate) fn request_key(out: &mut [u8]) -> i32 {
    with(|host| copy(&host.key, out))
}

pub(crate) fn request_slot() -> i32 {
    with(|host| i32::from(crate::testing::slot_of(&host.key)))
}

pub(crate) fn request_edge() -> i32 {
    with(|host| host.edge)
}

pub(crate) fn reply(status: u32, payload: &[u8]) -> i32 {
    with(|host| host.reply(status, payload))
}

pub(crate) fn channel(name: &str) -> i32 {
    with(|host| position(host.channels.iter().map(String::as_str), name))
}

pub(crate) fn send(channel: i32, key: &[u8], payload: &[u8]) -> i32 {
    with(|host| host.send(channel, key, payload))
}

pub(crate) fn collection(name: &str) -> i32 {
    with(|host| position(host.names.iter().map(String::as_str), name))
}

pub(crate) fn get(coll: i32, key: &[u8], out: &mut [u8]) -> i32 {
    with(|host| match host.collection(coll) {
        Some(Collection::Hash(map) | Collection::Ordered(map)) => {
            map.get(key).map_or(-1, |value| copy(value, out))
        }
        _ => -1,
    })
}

pub(crate) fn put(coll: i32, key: &[u8], value: &[u8]) -> i32 {
    with(|host| {
        if let Some(code) = host.refuses_write(key, value) {
            return code;
        }
        match host.collection(coll) {
            Some(Collection::Hash(map) | Collection::Ordered(map)) => {
                map.insert(key.to_vec(), value.to_vec());
                0
            }
            Some(_) => -3,
            None => -1,
        }
    })
}

pub(crate) fn delete(coll: i32, key: &[u8]) -> i32 {
    with(|host| {
        let removed = match host.collection(coll) {
            Some(Collection::Hash(map) | Collection::Ordered(map)) => map.remove(key).is_some(),
            Some(Collection::Array(map)) => map.remove(key).is_some(),
            Some(Collection::Counter(map)) => map.remove(key).is_some(),
            None => return -1,
        };
        i32::from(removed)
    })
}

pub(crate) fn scan(
    coll: i32,
    from: &[u8],
    to: &[u8],
    limit: u32,
    reverse: bool,
    out: &mut [u8],
) -> i32 {
    with(|host| {
        let map = match host.collection(coll) {
            Some(Collection::Ordered(map)) => map,
            Some(_) => return -3,
            None => return -1,
        };
        let mut entries: Vec<(&Vec<u8>, &Vec<u8>)> = map
            .iter()
            .filter(|(key, _)| key.as_slice() >= from && (to.is_empty() || key.as_slice() < to))
            .collect();
        if reverse {
            entries.reverse();
        }
        let limit = if limit == 0 {
            usize::MAX
        } else {
            limit as usize
        };
        let mut at = 0;
        for (key, value) in entries.into_iter().take(limit) {
            let needed = 8 + key.len() + value.len();
            if at + needed > out.len() {
                if at == 0 {
                    return -(needed as i32);
                }
                break;
            }
            for part in [
                &(key.len() as u32).to_le_bytes()[..],
                &(value.len() as u32).to_le_bytes(),
                key,
                value,
            ] {
                out[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
        }
        at as i32
    })
}

pub(crate) fn array_len(coll: i32, key: &[u8]) -> i64 {
    with(|host| match host.collection(coll) {
        Some(Collection::Array(map)) => map.get(key).map_or(0, |array| array.len() as i64),
        _ => -1,
    })
}

pub(crate) fn array_get(coll: i32, key: &[u8], index: i64, out: &mut [u8]) -> i32 {
    with(|host| match host.collection(coll) {
        Some(Collection::Array(map)) => usize::try_from(index)
            .ok()
            .and_then(|index| map.get(key)?.get(index))
            .map_or(-1, |element| copy(element, out)),
        _ => -1,
    })
}

pub(crate) fn array_push(coll: i32, key: &[u8], value: &[u8]) -> i32 {
    with(|host| {
        if let Some(code) = host.refuses_write(key, value) {
            return code;
        }
        match host.collection(coll) {
            Some(Collection::Array(map)) => {
                map.entry(key.to_vec())
                    .or_default()
                    .push_back(value.to_vec());
                0
            }
            Some(_) => -3,
            None => -1,
        }
    })
}

pub(crate) fn array_put(coll: i32, key: &[u8], index: i64, value: &[u8]) -> i32 {
    with(|host| {
        if let Some(code) = host.refuses_write(key, value) {
            return code;
        }
        match host.collection(coll) {
            Some(Collection::Array(map)) => {
                let element = usize::try_from(index)
                    .ok()
                    .and_then(|index| map.get_mut(key)?.get_mut(index));
                match element {
                    Some(element) => {
                        *element = value.to_vec();
                        0
                    }
                    None => -4,
                }
            }
            Some(_) => -3,
            None => -1,
        }
    })
}

pub(crate) fn array_pop_front(coll: i32, key: &[u8]) -> i32 {
    with(|host| match host.collection(coll) {
        Some(Collection::Array(map)) => {
            let Some(array) = map.get_mut(key) else {
                return 0;
            };
            let popped = array.pop_front().is_some();
            if array.is_empty() {
                map.remove(key);
            }
            i32::from(popped)
        }
        Some(_) => -3,
        None => -1,
    })
}

pub(crate) fn counter_add(coll: i32, key: &[u8], delta: i64) -> i64 {
    with(|host| match host.collection(coll) {
        Some(Collection::Counter(map)) => {
            let counter = map.entry(key.to_vec()).or_default();
            let before = *counter;
            *counter = counter.wrapping_add(delta);
            before
        }
        Some(_) => -3,
        None => -1,
    })
}

pub(crate) fn counter_get(coll: i32, key: &[u8]) -> i64 {
    with(|host| match host.collection(coll) {
        Some(Collection::Counter(map)) => map.get(key).copied().unwrap_or(0),
        Some(_) => -3,
        None => -1,
    })
}

pub(crate) fn asset(name: &str) -> i32 {
    with(|host| position(host.assets.iter().map(|(name, _)| name.as_str()), name))
}

pub(crate) fn asset_len(asset: i32) -> i64 {
    with(|host| {
        usize::try_from(asset)
            .ok()
            .and_then(|index| host.assets.get(index))
            .map_or(-1, |(_, bytes)| bytes.len() as i64)
    })
}

pub(crate) fn asset_read(asset: i32, offset: i64, out: &mut [u8]) -> i32 {
    with(|host| {
        let bytes = usize::try_from(asset)
            .ok()
            .and_then(|index| host.assets.get(index))
            .zip(usize::try_from(offset).ok())
            .and_then(|((_, bytes), offset)| bytes.get(offset..));
        let Some(bytes) = bytes else { return 0 };
        let len = bytes.len().min(out.len());
        out[..len].copy_from_slice(&bytes[..len]);
        len as i32
    })
}

pub(crate) fn secret(name: &str, out: &mut [u8]) -> i32 {
    with(|host| host.secrets.get(name).map_or(-1, |value| copy(value, out)))
}

pub(crate) fn config(name: &str, out: &mut [u8]) -> i32 {
    with(|host| {
        host.config
            .get(name)
            .map_or(-1, |value| copy(value.as_bytes(), out))
    })
}

pub(crate) fn log(level: i32, text: &[u8]) {
    with(|host| {
        let text = String::from_utf8_lossy(text).into_owned();
        host.logs.push((level, text));
    });
}

/// The `out`/`cap` protocol: all or nothing.
fn copy(value: &[u8], out: &mut [u8]) -> i32 {
    if value.len() <= out.len() {
        out[..value.len()].copy_from_slice(value);
    }
    value.len() as i32
}

fn position<'a>(mut names: impl Iterator<Item = &'a str>, name: &str) -> i32 {
    names
        .position(|candidate| candidate == name)
        .map_or(-1, |index| index as i32)
}

/// This host has no accelerator: tests run the portable code.
const ABSENT: i32 = -5;
/// And so there are no handles.
const NO_HANDLE: i32 = -1;

pub(crate) fn accel_key(_kind: i32, _key: &[u8]) -> i32 {
    ABSENT
}

pub(crate) fn accel_drop(_handle: i32) {}

pub(crate) fn aes_cbc_encrypt(_key: i32, _iv: &[u8; 16], _blocks: &mut [u8]) -> i32 {
    NO_HANDLE
}

pub(crate) fn aes_cbc_decrypt(_key: i32, _iv: &[u8; 16], _blocks: &mut [u8]) -> i32 {
    NO_HANDLE
}

pub(crate) fn aes_gcm_seal(
    _key: i32,
    _nonce: &[u8; 12],
    _aad: &[u8],
    _data: &mut [u8],
    _tag: &mut [u8; 16],
) -> i32 {
    NO_HANDLE
}

pub(crate) fn aes_gcm_open(
    _key: i32,
    _nonce: &[u8; 12],
    _aad: &[u8],
    _data: &mut [u8],
    _tag: &[u8; 16],
) -> i32 {
    NO_HANDLE
}

pub(crate) fn hmac(_key: i32, _data: &[u8], _out: &mut [u8]) -> i32 {
    NO_HANDLE
}

pub(crate) fn crc32(_before: u32, _data: &[u8]) -> i64 {
    i64::from(ABSENT)
}

pub(crate) fn match_set(_packed: &[u8]) -> i32 {
    ABSENT
}

pub(crate) fn match_find(_set: i32, _text: &[u8], _out: &mut [u8]) -> i32 {
    NO_HANDLE
}
