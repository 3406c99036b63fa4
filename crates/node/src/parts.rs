//! States of shards on their way to the controller, for backups, and from it, for restored
//! applications. Two threads, so that the loop waits for neither.

mod waiting;

use crate::agent::{Api, NoBytes};
use crate::complaints::Complaints;
use crate::config::NodeError;
use crate::essential;
use crate::limits::{CHUNK_LEN_MAX, CHUNKS_AHEAD, MISSING_PART_INTERVAL, RETRY_INTERVAL};
use e3_model::backup::{Part, part_file};
use e3_model::{NodeId, ShardKey};
use e3_net::Doorbell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;
use waiting::Waiting;

/// Both ways, as the loop sees them.
pub(crate) struct Parts {
    exports: Sender<Export>,
    exported: Arc<Mutex<Vec<Exported>>>,
    waiting: Arc<Waiting>,
    orders: Sender<Order>,
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

/// What the fetcher is to do.
enum Order {
    Fetch(Fetch),
    /// The shard does not wait for it any more.
    Forget {
        key: ShardKey,
        order: u64,
    },
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
    /// When it goes on.
    due: Instant,
}

/// Its next bytes, or why the controller does not have them. In that case they are asked for again.
pub(crate) struct Fetched {
    pub(crate) key: ShardKey,
    pub(crate) order: u64,
    pub(crate) bytes: Result<Vec<u8>, String>,
}

/// Why bytes of a part did not come.
struct NoChunk {
    /// Does not name the part: what holds for many is logged once.
    why: String,
    /// The controller does not have them. Otherwise it is away, or cannot read them now.
    is_missing: bool,
}

/// What the controller did with bytes for a backup.
enum Sent {
    Taken,
    Refused,
    /// Its disk is full, or it is away.
    NotYet,
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
        let waiting = Arc::<Waiting>::default();
        let (sending, noted, counted) = (way.clone(), exported.clone(), waiting.clone());
        let send = move || sending.send_all(&to_send, &noted, &counted);
        essential::spawn("e3-part-sender", send)?;
        essential::spawn("e3-part-fetcher", move || way.fetch_all(&to_fetch, &chunks))?;
        Ok(Parts {
            exports,
            exported,
            waiting,
            orders,
            fetched,
        })
    }

    pub(crate) fn export(&self, key: ShardKey, number: u64, offset: u64, bytes: Vec<u8>) {
        if !self.waiting.add(number, bytes.len()) {
            return;
        }
        // Without the thread the node is about to leave.
        let _ = self.exports.send(Export {
            key,
            number,
            offset,
            bytes,
        });
    }

    pub(crate) fn fetch(&self, key: ShardKey, order: u64, number: u64, part: Part) {
        let _ = self.orders.send(Order::Fetch(Fetch {
            key,
            order,
            number,
            part,
        }));
    }

    /// The shard does not wait for what was asked for by this order.
    pub(crate) fn forget(&self, key: ShardKey, order: u64) {
        let _ = self.orders.send(Order::Forget { key, order });
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

    fn send_all(
        &self,
        exports: &Receiver<Export>,
        exported: &Mutex<Vec<Exported>>,
        waiting: &Waiting,
    ) {
        let mut open: BTreeMap<(u64, ShardKey), (u64, Vec<u8>)> = BTreeMap::new();
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
            open.retain(|(number, _), (_, bytes)| {
                let is_wanted = !waiting.is_given_up(*number);
                if !is_wanted {
                    waiting.subtract(bytes.len());
                }
                is_wanted
            });
            let Some(((number, key), (mut offset, mut bytes))) = open.pop_first() else {
                continue;
            };
            let chunk_len = bytes.len().min(CHUNK_LEN_MAX);
            match self.send((number, key), offset, &bytes[..chunk_len]) {
                Sent::Taken => {
                    waiting.subtract(chunk_len);
                    bytes.drain(..chunk_len);
                    offset += chunk_len as u64;
                    let len = offset;
                    let mut exported = exported.lock().unwrap_or_else(PoisonError::into_inner);
                    exported.push(Exported { key, number, len });
                    drop(exported);
                    self.bell.ring();
                    if bytes.is_empty() {
                        continue;
                    }
                }
                Sent::Refused => waiting.give_up(number),
                // Meanwhile the backup may be given up.
                Sent::NotYet => thread::sleep(RETRY_INTERVAL),
            }
            open.insert((number, key), (offset, bytes));
        }
    }

    /// Tries to send a chunk.
    fn send(&self, (number, key): (u64, ShardKey), offset: u64, bytes: &[u8]) -> Sent {
        let (node, part) = (self.node.0, part_file(key.service, key.shard));
        let path = format!("/v1/nodes/{node}/backups/{number}/{part}?offset={offset}");
        match self.api.send_bytes(&path, bytes) {
            Ok(200) => Sent::Taken,
            Ok(status @ 400..=499) => {
                tracing::warn!(
                    status,
                    number,
                    "the controller wants no more of this backup"
                );
                Sent::Refused
            }
            Ok(_) | Err(_) => Sent::NotYet,
        }
    }

    fn fetch_all(&self, orders: &Receiver<Order>, chunks: &SyncSender<Fetched>) {
        let mut open: VecDeque<Fetching> = VecDeque::new();
        let mut complaints = Complaints::default();
        while !self.has_left() {
            let first = match open.iter().map(|fetching| fetching.due).min() {
                None => orders.recv().map_err(RecvTimeoutError::from),
                Some(due) => orders.recv_timeout(due.saturating_duration_since(Instant::now())),
            };
            if matches!(first, Err(RecvTimeoutError::Disconnected)) {
                return;
            }
            for order in first.into_iter().chain(orders.try_iter()) {
                note(&mut open, order);
            }
            let now = Instant::now();
            let next = open.iter().position(|fetching| fetching.due <= now);
            let Some(mut fetching) = next.and_then(|at| open.remove(at)) else {
                continue;
            };
            let (key, order) = (fetching.fetch.key, fetching.fetch.order);
            let bytes = match self.fetch(&fetching) {
                Ok(bytes) => {
                    fetching.offset += bytes.len() as u64;
                    if fetching.offset < fetching.fetch.part.len {
                        open.push_front(fetching);
                    }
                    Ok(bytes)
                }
                Err(NoChunk { why, is_missing }) => {
                    let reason = fetching.reason(&why);
                    if complaints.is_new(&why) {
                        tracing::warn!("a shard waits for its state: {reason}");
                    }
                    if is_missing {
                        fetching.due = now + MISSING_PART_INTERVAL;
                    }
                    // The others need not wait for it.
                    open.push_back(fetching);
                    if !is_missing {
                        thread::sleep(RETRY_INTERVAL);
                        continue;
                    }
                    Err(format!(
                        "{reason}; the node asks again every {} s: bring the file back, or delete the application and restore it again",
                        MISSING_PART_INTERVAL.as_secs()
                    ))
                }
            };
            if chunks.send(Fetched { key, order, bytes }).is_err() {
                return;
            }
            self.bell.ring();
        }
    }

    /// The next bytes of a part.
    fn fetch(&self, fetching: &Fetching) -> Result<Vec<u8>, NoChunk> {
        let Fetching { fetch, offset, .. } = fetching;
        let (node, number, file) = (self.node.0, fetch.number, fetch.part.file());
        let path = format!("/v1/nodes/{node}/restores/{number}/{file}?offset={offset}");
        match self.api.bytes(&path) {
            Ok(bytes) if bytes.is_empty() => Err(NoChunk {
                why: "its file is cut short".into(),
                is_missing: true,
            }),
            Ok(bytes) => Ok(bytes),
            Err(NoBytes::Refused { status, text, .. }) => Err(NoChunk {
                why: format!("status {status}: {text}"),
                is_missing: status == 404,
            }),
            Err(NoBytes::Lost { source, .. }) => Err(NoChunk {
                why: source.to_string(),
                is_missing: false,
            }),
        }
    }
}

impl Fetching {
    /// Which bytes did not come, and why.
    fn reason(&self, why: &str) -> String {
        let (file, number) = (self.fetch.part.file(), self.fetch.number);
        let (offset, len) = (self.offset, self.fetch.part.len);
        format!(
            "the controller does not give part {file} of restore {number} from byte {offset} of {len} on: {why}"
        )
    }
}

/// Does what an order says to the parts that are being fetched.
fn note(open: &mut VecDeque<Fetching>, order: Order) {
    match order {
        Order::Fetch(fetch) => {
            // Nobody takes the bytes of an earlier order.
            open.retain(|earlier| earlier.fetch.key != fetch.key);
            open.push_back(Fetching {
                fetch,
                offset: 0,
                due: Instant::now(),
            });
        }
        Order::Forget { key, order } => {
            open.retain(|of| (of.fetch.key, of.fetch.order) != (key, order));
        }
    }
}

#[cfg(test)]
mod tests;
