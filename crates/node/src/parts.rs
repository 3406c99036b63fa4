//! States of shards on their way to the controller, for backups, and from it, for restored
//! applications. Two threads, so that the loop waits for neither.

use crate::agent::{Api, NoBytes};
use crate::config::NodeError;
use crate::essential;
use crate::limits::{CHUNK_LEN_MAX, CHUNKS_AHEAD, RETRY_INTERVAL};
use e3_model::backup::{Part, part_file};
use e3_model::{NodeId, ShardKey};
use e3_net::Doorbell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Both ways, as the loop sees them.
pub(crate) struct Parts {
    exports: Sender<Export>,
    exported: Arc<Mutex<Vec<Exported>>>,
    orders: Sender<Fetch>,
    fetched: Receiver<Fetched>,
}

/// Bytes for a backup.
struct Export {
    key: ShardKey,
    number: u64,
    offset: u64,
    bytes: Vec<u8>,
}

/// Bytes of a shard's part that the controller has.
#[derive(Clone, Copy)]
pub(crate) struct Exported {
    pub(crate) key: ShardKey,
    pub(crate) number: u64,
    pub(crate) len: u64,
}

/// A part that a shard begins with.
struct Fetch {
    key: ShardKey,
    order: u64,
    number: u64,
    part: Part,
}

/// A part of which the bytes up to an offset are here.
struct Fetching {
    fetch: Fetch,
    offset: u64,
}

/// Its next bytes.
pub(crate) struct Fetched {
    pub(crate) key: ShardKey,
    pub(crate) order: u64,
    pub(crate) bytes: Vec<u8>,
}

/// What both threads need.
#[derive(Clone)]
struct Way {
    api: Api,
    node: NodeId,
    bell: Doorbell,
    left: Arc<AtomicBool>,
}

impl Parts {
    /// Starts the threads. They end when the node leaves, or the loop does.
    pub(crate) fn start(
        api: Api,
        node: NodeId,
        bell: Doorbell,
        left: Arc<AtomicBool>,
    ) -> Result<Parts, NodeError> {
        let way = Way {
            api,
            node,
            bell,
            left,
        };
        let (exports, to_send) = mpsc::channel();
        let (orders, to_fetch) = mpsc::channel();
        let (chunks, fetched) = mpsc::sync_channel(CHUNKS_AHEAD);
        let exported = Arc::new(Mutex::new(Vec::new()));
        let (sending, noted) = (way.clone(), exported.clone());
        essential::spawn("e3-part-sender", move || sending.send_all(&to_send, &noted))?;
        essential::spawn("e3-part-fetcher", move || way.fetch_all(&to_fetch, &chunks))?;
        Ok(Parts {
            exports,
            exported,
            orders,
            fetched,
        })
    }

    pub(crate) fn export(&self, key: ShardKey, number: u64, offset: u64, bytes: Vec<u8>) {
        // Without the thread the node is about to leave.
        let _ = self.exports.send(Export {
            key,
            number,
            offset,
            bytes,
        });
    }

    pub(crate) fn fetch(&self, key: ShardKey, order: u64, number: u64, part: Part) {
        let _ = self.orders.send(Fetch {
            key,
            order,
            number,
            part,
        });
    }

    /// What the controller has got since the last call.
    pub(crate) fn exported(&self) -> Vec<Exported> {
        let mut exported = self.exported.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *exported)
    }

    /// The next bytes that were fetched.
    pub(crate) fn fetched(&self) -> Option<Fetched> {
        self.fetched.try_recv().ok()
    }
}

impl Way {
    fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    fn send_all(&self, exports: &Receiver<Export>, exported: &Mutex<Vec<Exported>>) {
        let mut open: BTreeMap<(u64, ShardKey), (u64, Vec<u8>)> = BTreeMap::new();
        let mut refused = BTreeSet::new();
        while !self.has_left() {
            let first = if open.is_empty() {
                match exports.recv() {
                    Ok(first) => Some(first),
                    Err(_) => return,
                }
            } else {
                None
            };
            for e in first.into_iter().chain(exports.try_iter()) {
                let empty = || (e.offset, Vec::new());
                let (_, bytes) = open.entry((e.number, e.key)).or_insert_with(empty);
                bytes.extend_from_slice(&e.bytes);
            }
            open.retain(|(number, _), _| !refused.contains(number));
            let Some(((number, key), (offset, mut bytes))) = open.pop_first() else {
                continue;
            };
            let rest = bytes.split_off(bytes.len().min(CHUNK_LEN_MAX));
            let len = offset + bytes.len() as u64;
            if self.send((number, key), offset, &bytes) {
                let mut exported = exported.lock().unwrap_or_else(PoisonError::into_inner);
                exported.push(Exported { key, number, len });
                drop(exported);
                self.bell.ring();
            } else {
                refused.insert(number);
            }
            if !rest.is_empty() {
                open.insert((number, key), (len, rest));
            }
        }
    }

    /// Sends a chunk, as often as it takes. False if the controller does not want it.
    fn send(&self, (number, key): (u64, ShardKey), offset: u64, bytes: &[u8]) -> bool {
        let (node, part) = (self.node.0, part_file(key.service, key.shard));
        let path = format!("/v1/nodes/{node}/backups/{number}/{part}?offset={offset}");
        while !self.has_left() {
            match self.api.send_bytes(&path, bytes) {
                Ok(200) => return true,
                Ok(status @ 400..=499) => {
                    tracing::warn!(
                        status,
                        number,
                        "the controller wants no more of this backup"
                    );
                    return false;
                }
                // Its disk is full, or it is away.
                Ok(_) | Err(_) => thread::sleep(RETRY_INTERVAL),
            }
        }
        false
    }

    fn fetch_all(&self, orders: &Receiver<Fetch>, chunks: &SyncSender<Fetched>) {
        let mut open: VecDeque<Fetching> = VecDeque::new();
        let mut complaint = None;
        while !self.has_left() {
            let first = match open.is_empty().then(|| orders.recv()) {
                Some(Ok(first)) => Some(first),
                Some(Err(_)) => return,
                None => None,
            };
            for fetch in first.into_iter().chain(orders.try_iter()) {
                // Nobody takes the bytes of an earlier order.
                open.retain(|earlier| earlier.fetch.key != fetch.key);
                open.push_back(Fetching { fetch, offset: 0 });
            }
            let Some(mut fetching) = open.pop_front() else {
                continue;
            };
            let Fetching { fetch, offset } = &mut fetching;
            match self.fetch(fetch, *offset) {
                Ok(Some(bytes)) => {
                    *offset += bytes.len() as u64;
                    let (key, order) = (fetch.key, fetch.order);
                    if chunks.send(Fetched { key, order, bytes }).is_err() {
                        return;
                    }
                    self.bell.ring();
                    if *offset < fetch.part.len {
                        open.push_front(fetching);
                    }
                }
                Ok(None) => {}
                Err(why) => {
                    if complaint.as_ref() != Some(&why) {
                        tracing::warn!("a shard waits for its state: {why}");
                        complaint = Some(why);
                    }
                    // The others need not wait for it.
                    open.push_back(fetching);
                    thread::sleep(RETRY_INTERVAL);
                }
            }
        }
    }

    /// The next bytes of a part; none if there are no more. After an error it can be tried again.
    fn fetch(&self, fetch: &Fetch, offset: u64) -> Result<Option<Vec<u8>>, String> {
        let (node, number, file) = (self.node.0, fetch.number, fetch.part.file());
        if offset >= fetch.part.len {
            return Ok(None);
        }
        let path = format!("/v1/nodes/{node}/restores/{number}/{file}?offset={offset}");
        match self.api.bytes(&path) {
            Ok(bytes) if !bytes.is_empty() => Ok(Some(bytes)),
            Ok(_) => {
                tracing::error!(number, file, offset, "the state of a shard is cut short");
                Ok(None)
            }
            Err(e @ NoBytes::Refused { status: 404, .. }) => {
                tracing::warn!(number, file, error = %e, "the state of a shard is gone");
                Ok(None)
            }
            Err(e) => Err(format!("part {file} of restore {number}: {e}")),
        }
    }
}
