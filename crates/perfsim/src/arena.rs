//! Requests and messages in flight, in arenas: a number names one, and freed places are used
//! again.

/// No element.
pub(crate) const NONE: u32 = u32::MAX;

/// A request of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request {
    /// When its client sent it, in nanoseconds; below zero if that was before the run.
    pub start: i64,
    /// Weight of its work so far in nanojoules; see [`crate::energy`].
    pub weight_nj: f64,
    /// Latency, when it is answered; the highest number if it was refused.
    pub latency: u64,
    /// Messages in flight, the answer included.
    pub open: u32,
    /// Its answer has left.
    pub is_answered: bool,
    /// Slot of its key.
    pub slot: u16,
    /// Its client has given up.
    pub has_failed: bool,
}

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum What {
    /// A request of a client or a message of a service.
    #[default]
    Work,
    /// A log entry for a backup.
    Entry,
    /// The acknowledgement of a backup.
    Ack,
    /// An answer on its way to the node that took the request.
    Back,
    /// The answer to a client.
    Reply,
    /// A part of the state of a shard that is copied.
    Chunk,
    /// What a thread of a node that has failed was running.
    Ghost,
    /// A datagram of a data plane: its number is in `shard`, its size in `work`.
    Datagram,
}

/// A message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Message {
    /// When it entered the queue of its thread.
    pub entered: u64,
    /// When its thread began to run it.
    pub started: u64,
    /// Request; of entries and acknowledgements, the message that waits for them; of a part of a copy,
    /// the copy.
    pub of: u32,
    /// Next one in the same queue.
    pub next: u32,
    /// Shard, counted over all services.
    pub shard: u32,
    /// Time of its work without what other work adds, in nanoseconds.
    pub work: u32,
    /// Service.
    pub service: u16,
    /// Node that sends it; of a run that a data plane asked for, its number there.
    pub from: u32,
    /// Node that gets it.
    pub to: u32,
    /// Acknowledgements that it waits for.
    pub waits: u8,
    /// Switches that it has passed on its way between racks.
    pub stage: u8,
    /// What it is.
    pub what: What,
    /// How often it was lost.
    pub losses: u8,
    /// A client sends it.
    pub is_from_client: bool,
    /// It waits in the queue that the threads of its node share.
    pub is_shared: bool,
}

/// Places for elements.
#[derive(Default)]
pub(crate) struct Arena<T> {
    all: Vec<T>,
    free: Vec<u32>,
}

impl<T> Arena<T> {
    /// Puts an element somewhere.
    #[inline]
    pub fn add(&mut self, element: T) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.all[at as usize] = element;
                at
            }
            None => {
                self.all.push(element);
                (self.all.len() - 1) as u32
            }
        }
    }

    /// Frees a place.
    #[inline]
    pub fn remove(&mut self, at: u32) {
        self.free.push(at);
    }

    /// Changes every element.
    pub fn for_each(&mut self, change: impl FnMut(&mut T)) {
        self.all.iter_mut().for_each(change);
    }

    /// The elements that are not freed.
    pub fn live(&self) -> impl Iterator<Item = &T> {
        let mut is_free = vec![false; self.all.len()];
        for at in &self.free {
            is_free[*at as usize] = true;
        }
        let all = self.all.iter().zip(is_free);
        all.filter(|(_, is_free)| !is_free).map(|(t, _)| t)
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.all.capacity() * size_of::<T>() + self.free.capacity() * size_of::<u32>()
    }
}

impl<T> std::ops::Index<u32> for Arena<T> {
    type Output = T;
    #[inline]
    fn index(&self, at: u32) -> &T {
        &self.all[at as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Arena<T> {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.all[at as usize]
    }
}

const _: () = assert!(size_of::<Message>() <= 48);
