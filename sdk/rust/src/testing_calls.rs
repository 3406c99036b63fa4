//! The calls of docs/abi.md, answered by the [`testing`](crate::testing) host.

use crate::limits::{ANSWER_EDGE, RANDOM_BYTES_MAX, TIMER_EDGE};
use crate::native::Host;
use crate::testing_outbound::{To, unpacked};
use crate::testing_state::Inner;
use crate::testing_types::{Collection, TimerCall, When, slot_of};

fn timer(name: &str, key: &[u8], when: Option<When>, payload: &[u8]) -> TimerCall {
    TimerCall {
        name: name.into(),
        key: key.to_vec(),
        when,
        payload: payload.to_vec(),
    }
}

impl Host for Inner {
    fn now(&mut self) -> i64 {
        self.now
    }

    fn request_id(&mut self, out: &mut [u8; 16]) {
        *out = self.request_id;
    }

    fn request_key(&mut self, out: &mut [u8]) -> i32 {
        copy(&self.key, out)
    }

    fn request_slot(&mut self) -> i32 {
        i32::from(slot_of(&self.key))
    }

    fn request_edge(&mut self) -> i32 {
        self.edge
    }

    fn reply(&mut self, status: u32, payload: &[u8]) -> i32 {
        self.reply(status, payload)
    }

    fn channel(&mut self, name: &str) -> i32 {
        position(self.channels.iter().map(String::as_str), name)
    }

    fn send(&mut self, channel: i32, key: &[u8], payload: &[u8]) -> i32 {
        self.send(channel, key, payload)
    }

    fn timer_set(&mut self, name: &str, key: &[u8], at: i64, payload: &[u8]) -> i32 {
        self.change_timer(timer(name, key, Some(When::At(at)), payload))
    }

    fn timer_cron(&mut self, name: &str, key: &[u8], cron: &str, payload: &[u8]) -> i32 {
        self.change_timer(timer(name, key, Some(When::Cron(cron.into())), payload))
    }

    fn timer_cancel(&mut self, name: &str, key: &[u8]) -> i32 {
        self.change_timer(timer(name, key, None, b""))
    }

    fn timer_name(&mut self, out: &mut [u8]) -> i32 {
        match self.edge {
            TIMER_EDGE | ANSWER_EDGE => copy(self.timer.as_bytes(), out),
            _ => -1,
        }
    }

    fn publish(&mut self, topic: &str, key: &[u8], payload: &[u8]) -> i32 {
        self.note_published(topic, key, payload)
    }

    fn topic(&mut self, out: &mut [u8]) -> i32 {
        match self.topic_text() {
            Some(topic) => copy(topic.as_bytes(), out),
            None => -1,
        }
    }

    fn outbound_service(
        &mut self,
        name: &str,
        key: &[u8],
        service: &str,
        to: &[u8],
        payload: &[u8],
        timeout: i64,
    ) -> i32 {
        let to = To::Service {
            service: service.into(),
            key: to.to_vec(),
        };
        self.ask((name, key), to, payload, timeout)
    }

    fn outbound_application(
        &mut self,
        name: &str,
        key: &[u8],
        application: &str,
        to: &[u8],
        payload: &[u8],
        timeout: i64,
    ) -> i32 {
        let to = To::Application {
            application: application.into(),
            key: to.to_vec(),
        };
        self.ask((name, key), to, payload, timeout)
    }

    fn outbound_http(
        &mut self,
        name: &str,
        key: &[u8],
        method: &str,
        url: &str,
        headers: &[u8],
        body: &[u8],
        timeout: i64,
    ) -> i32 {
        let Some(headers) = unpacked(headers) else {
            return -20;
        };
        let to = To::Http {
            method: method.into(),
            url: url.into(),
            headers,
        };
        self.ask((name, key), to, body, timeout)
    }

    fn answer(&mut self) -> i64 {
        match self.answer {
            Some((outcome, status)) => outcome.code() << 32 | i64::from(status),
            None => -1,
        }
    }

    fn call(&mut self, service: &str, key: &[u8], payload: &[u8]) -> i32 {
        self.make_call(service, key, payload)
    }

    fn call_status(&mut self) -> i32 {
        self.called
            .as_ref()
            .map_or(-1, |(status, _)| *status as i32)
    }

    fn call_answer(&mut self, out: &mut [u8]) -> i32 {
        let answer = self.called.as_ref();
        answer.map_or(-1, |(_, payload)| copy(payload, out))
    }

    fn collection(&mut self, name: &str) -> i32 {
        position(self.names.iter().map(String::as_str), name)
    }

    fn get(&mut self, coll: i32, key: &[u8], out: &mut [u8]) -> i32 {
        match self.collection_at(coll) {
            Some(Collection::Hash(map) | Collection::Ordered(map)) => {
                map.get(key).map_or(-1, |value| copy(value, out))
            }
            Some(_) => -3,
            None => -1,
        }
    }

    fn put(&mut self, coll: i32, key: &[u8], value: &[u8]) -> i32 {
        self.put_map(coll, key, value, None)
    }

    fn put_ttl(&mut self, coll: i32, key: &[u8], value: &[u8], ttl: i64) -> i32 {
        if ttl <= 0 {
            return BOUND;
        }
        self.put_map(coll, key, value, Some(ttl))
    }

    fn delete(&mut self, coll: i32, key: &[u8]) -> i32 {
        {
            let removed = match self.collection_at(coll) {
                Some(Collection::Hash(map) | Collection::Ordered(map)) => map.remove(key).is_some(),
                Some(Collection::Array(map)) => map.remove(key).is_some(),
                Some(Collection::Counter(map)) => map.remove(key).is_some(),
                None => return -1,
            };
            i32::from(removed)
        }
    }

    fn scan(
        &mut self,
        coll: i32,
        from: &[u8],
        to: &[u8],
        limit: u32,
        reverse: bool,
        out: &mut [u8],
    ) -> i32 {
        {
            let map = match self.collection_at(coll) {
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
        }
    }

    fn array_len(&mut self, coll: i32, key: &[u8]) -> i64 {
        match self.collection_at(coll) {
            Some(Collection::Array(map)) => map.get(key).map_or(0, |array| array.len() as i64),
            _ => -1,
        }
    }

    fn array_get(&mut self, coll: i32, key: &[u8], index: i64, out: &mut [u8]) -> i32 {
        match self.collection_at(coll) {
            Some(Collection::Array(map)) => usize::try_from(index)
                .ok()
                .and_then(|index| map.get(key)?.get(index))
                .map_or(-1, |element| copy(element, out)),
            _ => -1,
        }
    }

    fn array_scan(&mut self, coll: i32, key: &[u8], from: i64, out: &mut [u8]) -> i32 {
        let items = match self.collection_at(coll) {
            Some(Collection::Array(map)) => map.get(key).into_iter().flatten(),
            Some(_) => return -3,
            None => return -1,
        };
        let mut at = 0;
        for item in items.skip(usize::try_from(from).unwrap_or(usize::MAX)) {
            let needed = 4 + item.len();
            if at + needed > out.len() {
                return if at == 0 { -(needed as i32) } else { at as i32 };
            }
            out[at..at + 4].copy_from_slice(&(item.len() as u32).to_le_bytes());
            out[at + 4..at + needed].copy_from_slice(item);
            at += needed;
        }
        if let Some(part) = out.get_mut(at..at + 4) {
            part.copy_from_slice(&u32::MAX.to_le_bytes());
            at += 4;
        }
        at as i32
    }

    fn array_push(&mut self, coll: i32, key: &[u8], value: &[u8]) -> i32 {
        {
            if let Some(code) = self.refuses_write(key, value) {
                return code;
            }
            match self.collection_at(coll) {
                Some(Collection::Array(map)) => {
                    map.entry(key.to_vec())
                        .or_default()
                        .push_back(value.to_vec());
                    self.wrote(coll, key, None);
                    0
                }
                Some(_) => -3,
                None => -1,
            }
        }
    }

    fn array_put(&mut self, coll: i32, key: &[u8], index: i64, value: &[u8]) -> i32 {
        {
            if let Some(code) = self.refuses_write(key, value) {
                return code;
            }
            match self.collection_at(coll) {
                Some(Collection::Array(map)) => {
                    let element = usize::try_from(index)
                        .ok()
                        .and_then(|index| map.get_mut(key)?.get_mut(index));
                    match element {
                        Some(element) => {
                            *element = value.to_vec();
                            self.wrote(coll, key, None);
                            0
                        }
                        None => -4,
                    }
                }
                Some(_) => -3,
                None => -1,
            }
        }
    }

    fn array_pop_front(&mut self, coll: i32, key: &[u8]) -> i32 {
        match self.collection_at(coll) {
            Some(Collection::Array(map)) => {
                let Some(array) = map.get_mut(key) else {
                    return 0;
                };
                let popped = array.pop_front().is_some();
                if array.is_empty() {
                    map.remove(key);
                }
                self.wrote(coll, key, None);
                i32::from(popped)
            }
            Some(_) => -3,
            None => -1,
        }
    }

    fn counter_add(&mut self, coll: i32, key: &[u8], delta: i64) -> i64 {
        if let Some(code) = self.refuses_write(key, &[]) {
            self.is_write_lost = true;
            return code.into();
        }
        match self.collection_at(coll) {
            Some(Collection::Counter(map)) => {
                let counter = map.entry(key.to_vec()).or_default();
                let before = *counter;
                *counter = counter.wrapping_add(delta);
                self.wrote(coll, key, None);
                before
            }
            Some(_) => -3,
            None => -1,
        }
    }

    fn counter_get(&mut self, coll: i32, key: &[u8]) -> i64 {
        match self.collection_at(coll) {
            Some(Collection::Counter(map)) => map.get(key).copied().unwrap_or(0),
            Some(_) => -3,
            None => -1,
        }
    }

    fn asset(&mut self, name: &str) -> i32 {
        position(self.assets.iter().map(|(name, _)| name.as_str()), name)
    }

    fn asset_len(&mut self, asset: i32) -> i64 {
        {
            usize::try_from(asset)
                .ok()
                .and_then(|index| self.assets.get(index))
                .map_or(-1, |(_, bytes)| bytes.len() as i64)
        }
    }

    fn asset_read(&mut self, asset: i32, offset: i64, out: &mut [u8]) -> i32 {
        {
            let bytes = usize::try_from(asset)
                .ok()
                .and_then(|index| self.assets.get(index))
                .zip(usize::try_from(offset).ok())
                .and_then(|((_, bytes), offset)| bytes.get(offset..));
            let Some(bytes) = bytes else { return 0 };
            let len = bytes.len().min(out.len());
            out[..len].copy_from_slice(&bytes[..len]);
            len as i32
        }
    }

    fn secret(&mut self, name: &str, out: &mut [u8]) -> i32 {
        self.secrets.get(name).map_or(-1, |value| copy(value, out))
    }

    fn config(&mut self, name: &str, out: &mut [u8]) -> i32 {
        {
            self.config
                .get(name)
                .map_or(-1, |value| copy(value.as_bytes(), out))
        }
    }

    fn random(&mut self, out: &mut [u8]) -> i32 {
        if out.len() > RANDOM_BYTES_MAX {
            return -2;
        }
        self.fill_random(out);
        0
    }

    fn log(&mut self, level: i32, text: &[u8]) {
        {
            let text = String::from_utf8_lossy(text).into_owned();
            self.logs.push((level, text));
        };
    }

    fn accel_key(&mut self, _kind: i32, _key: &[u8]) -> i32 {
        ABSENT
    }

    fn accel_drop(&mut self, _handle: i32) {}

    fn aes_cbc_encrypt(&mut self, _key: i32, _iv: &[u8; 16], _blocks: &mut [u8]) -> i32 {
        NO_HANDLE
    }

    fn aes_cbc_decrypt(&mut self, _key: i32, _iv: &[u8; 16], _blocks: &mut [u8]) -> i32 {
        NO_HANDLE
    }

    fn aes_gcm_seal(
        &mut self,
        _key: i32,
        _nonce: &[u8; 12],
        _aad: &[u8],
        _data: &mut [u8],
        _tag: &mut [u8; 16],
    ) -> i32 {
        NO_HANDLE
    }

    fn aes_gcm_open(
        &mut self,
        _key: i32,
        _nonce: &[u8; 12],
        _aad: &[u8],
        _data: &mut [u8],
        _tag: &[u8; 16],
    ) -> i32 {
        NO_HANDLE
    }

    fn hmac(&mut self, _key: i32, _data: &[u8], _out: &mut [u8]) -> i32 {
        NO_HANDLE
    }

    fn crc32(&mut self, _before: u32, _data: &[u8]) -> i64 {
        i64::from(ABSENT)
    }

    fn match_set(&mut self, _packed: &[u8]) -> i32 {
        ABSENT
    }

    fn match_find(&mut self, _set: i32, _text: &[u8], _out: &mut [u8]) -> i32 {
        NO_HANDLE
    }
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

/// A bound is reached.
const BOUND: i32 = -2;

/// And so there are no handles.
const NO_HANDLE: i32 = -1;
