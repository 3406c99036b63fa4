//! The ticker: a thread that increments the epochs of busy engines, so that long handlers yield.
//!
//! Compiled code compares the epoch in its loops. The deadline of a yield counts from the epoch at
//! resume, so a tick before that is lost; therefore ticks are periodic. While all handlers are short
//! there is nothing to preempt and each tick only interrupts the core, so ticks are rare until one
//! handler has run for a period. The thread sleeps when no engine is busy, so an idle process uses no
//! processor time.

use crate::limits::{TICK_MIN, TICKS_FREQUENT, TICKS_IDLE_MAX, TICKS_SKIPPED};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

/// One engine as the ticker sees it.
pub(crate) struct Watch {
    busy: AtomicBool,
    /// A handler has run for a period since the ticker looked.
    has_long: AtomicBool,
    engine: wasmtime::Engine,
}

struct Shared {
    period: Duration,
    watches: Mutex<Vec<Weak<Watch>>>,
    parked: AtomicBool,
    stop: AtomicBool,
}

/// The thread; it ends when the last handle is dropped.
struct Owner {
    shared: Arc<Shared>,
    thread: Thread,
    join: Mutex<Option<JoinHandle<()>>>,
}

/// Preempts the engines of this process; clones share one thread.
#[derive(Clone)]
pub struct Ticker {
    owner: Arc<Owner>,
}

impl Ticker {
    /// Starts the thread. A handler runs at most one period undisturbed; periods below
    /// [`TICK_MIN`] are raised to it.
    pub fn new(period: Duration) -> std::io::Result<Ticker> {
        let shared = Arc::new(Shared {
            period: period.max(TICK_MIN),
            watches: Mutex::new(Vec::new()),
            parked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let for_thread = Arc::clone(&shared);
        let join = thread::Builder::new()
            .name("e3-ticker".into())
            .spawn(move || run(&for_thread))?;
        Ok(Ticker {
            owner: Arc::new(Owner {
                shared,
                thread: join.thread().clone(),
                join: Mutex::new(Some(join)),
            }),
        })
    }

    /// Time between two ticks.
    pub fn period(&self) -> Duration {
        self.owner.shared.period
    }

    pub(crate) fn watch(&self, engine: wasmtime::Engine) -> Arc<Watch> {
        let watch = Arc::new(Watch {
            busy: AtomicBool::new(false),
            has_long: AtomicBool::new(false),
            engine,
        });
        let mut watches = lock(&self.owner.shared.watches);
        watches.retain(|w| w.strong_count() > 0);
        watches.push(Arc::downgrade(&watch));
        watch
    }

    /// Marks an engine busy until the guard is dropped.
    pub(crate) fn busy<'a>(&self, watch: &'a Watch) -> Busy<'a> {
        // Both sides store, then load (SeqCst): either the thread sees the engine busy before it
        // parks, or this sees it parked.
        watch.busy.store(true, SeqCst);
        if self.owner.shared.parked.load(SeqCst) {
            self.owner.thread.unpark();
        }
        Busy(watch)
    }
}

impl Watch {
    /// A handler has run for a period: ticks come at the full rate for a while.
    pub(crate) fn note_long(&self) {
        self.has_long.store(true, SeqCst);
    }
}

/// See [`Ticker::busy`].
pub(crate) struct Busy<'a>(&'a Watch);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.store(false, SeqCst);
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        self.thread.unpark();
        if let Some(join) = lock(&self.join).take() {
            // the thread cannot panic; if it did, there is nothing left to stop
            let _ = join.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(shared: &Shared) {
    // the kernel's default slack of 50 us would nearly double a short period; if it cannot be
    // changed, preemption is just later
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    raise_thread_priority();
    let (mut ticks_idle, mut ticks_frequent) = (0, 0);
    while !shared.stop.load(SeqCst) {
        let is_frequent = ticks_frequent > 0;
        let periods = if is_frequent { 1 } else { TICKS_SKIPPED };
        // not `sleep`: the drop of the last handle ends the wait
        thread::park_timeout(shared.period * periods);
        let (mut any_busy, mut any_long) = (false, false);
        for watch in lock(&shared.watches).iter().filter_map(Weak::upgrade) {
            if watch.busy.load(SeqCst) {
                watch.engine.increment_epoch();
                any_busy = true;
            }
            any_long |= watch.has_long.swap(false, SeqCst);
        }
        ticks_frequent = if any_long {
            TICKS_FREQUENT
        } else {
            ticks_frequent.saturating_sub(1)
        };
        ticks_idle = if any_busy { 0 } else { ticks_idle + 1 };
        if ticks_idle >= TICKS_IDLE_MAX {
            park(shared);
            ticks_idle = 0;
        }
    }
}

/// Lets this thread run at once when its timer fires. For threads that run for microseconds at a time
/// and keep others waiting if they wait for the time slice of another program to end. A high priority
/// alone is not enough: the scheduler lets a running thread finish its slice of some milliseconds.
/// Where the system allows neither, the thread is late on a busy machine.
pub fn raise_thread_priority() {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: the argument is valid for the time of the call, which changes nothing but how this
    // thread is scheduled.
    let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &lowest) };
    if set != 0 {
        let _ = rustix::process::setpriority_process(None, -20);
    }
}

/// Sleeps until an engine is busy.
fn park(shared: &Shared) {
    shared.parked.store(true, SeqCst);
    loop {
        let busy = lock(&shared.watches)
            .iter()
            .filter_map(Weak::upgrade)
            .any(|w| w.busy.load(SeqCst));
        if busy || shared.stop.load(SeqCst) {
            break;
        }
        thread::park();
    }
    shared.parked.store(false, SeqCst);
}
