//! Bounds of the engine.

use std::time::Duration;

/// Instance ids are below this.
pub const INSTANCE_IDS_MAX: u32 = 1 << 16;
/// Instances that one engine may hold at once.
pub const INSTANCES_MAX: u32 = 4096;
/// Requests that may wait at one instance.
pub const QUEUE_LEN_MAX: usize = 1 << 16;
/// Requests before the next try to warm the state, after a try that found nothing.
pub const WARM_PAUSE: usize = 1024;
/// How long a process waits while another one compiles into the cache that they share. Afterwards
/// it compiles for itself: the other may be paused.
pub const COMPILE_WAIT_MAX: Duration = Duration::from_secs(60);
/// Between two looks at the cache meanwhile.
pub const COMPILE_POLL: Duration = Duration::from_millis(10);
/// Priority of compilation beside those who serve, as `nice` has it.
pub const COMPILE_NICE: i32 = 5;
/// Completions that the caller has not taken; the engine pauses when it has so many.
pub const COMPLETIONS_MAX: usize = 1024;
/// Bytes of a key.
pub const KEY_LEN_MAX: usize = e3_model::limits::KEY_LEN_MAX;
/// Bytes of a request's head: what it is beside its payload, see docs/abi.md.
pub const REQUEST_HEAD_LEN: usize = 96;
/// Bytes of a message or reply.
pub const PAYLOAD_LEN_MAX: usize = e3_model::limits::PAYLOAD_LEN_MAX;
/// Bytes of a timer's name.
pub const TIMER_NAME_LEN_MAX: usize = e3_model::limits::TIMER_NAME_LEN_MAX;
/// Bytes of a log line; longer ones are cut.
pub const LOG_LEN_MAX: usize = 512;
/// Lines that an instance logs in a second, in the long run. Others are dropped.
pub const LOG_LINES_PER_S: u32 = 100;
/// Lines that it logs at once.
pub const LOG_LINES_MAX: u32 = 1_000;
/// Most random bytes that a service asks for at once.
pub const RANDOM_LEN_MAX: usize = 256;
/// Keys and pattern sets that an instance may hold.
pub const ACCEL_HANDLES_MAX: usize = 1 << 14;
/// Bytes that an accelerator takes at once: it cannot be preempted, and this is about a millisecond.
pub const ACCEL_LEN_MAX: usize = 1 << 20;
/// Patterns of a set.
pub const PATTERNS_MAX: usize = 1 << 16;
/// Bytes of all patterns that an instance may hold: compiling them cannot be preempted either.
pub const PATTERN_BYTES_MAX: usize = 256 << 10;
/// Bytes of patterns up to which a set becomes a table of states by bytes, which is faster than
/// an automaton with failure links and takes up to 1 KiB for each byte of the patterns.
pub const DFA_PATTERN_BYTES_MAX: usize = 8 << 10;
/// Bytes of an instance's patterns beyond which no further set becomes such a table.
pub const DFA_ALL_PATTERN_BYTES_MAX: usize = 64 << 10;
/// Occurrences that one search of a text may find.
pub const MATCHES_MAX: usize = 1 << 16;
/// Occurrences that are looked at for each that may be found: those of patterns with regard to case are compared
/// again.
pub const CANDIDATES_FACTOR: usize = 16;
/// Over all states of a set's automaton, the patterns that end there. The automaton lists them all.
pub const MATCH_RECORDS_MAX: usize = 1 << 20;
/// Buffers that are kept for reuse.
pub const BUFFERS_MAX: usize = 256;
/// Capacity above which a buffer is not kept.
pub const BUFFER_LEN_MAX: usize = 4096;
/// Bytes of a module that may be loaded.
pub const MODULE_LEN_MAX: usize = 64 << 20;
/// Bytes of linear memory that a 32-bit module can have.
pub const MEMORY_LEN_MAX: usize = 4 << 30;
/// Elements of a module's table.
pub const TABLE_LEN_MAX: usize = 20_000;
/// Stack of WebAssembly code.
pub const WASM_STACK_LEN_MAX: usize = 512 << 10;
/// Stack of a fiber: WebAssembly code and the host functions that it calls.
pub const FIBER_STACK_LEN: usize = 1 << 20;
/// Shortest preemption period; with a shorter one the ticker would take too much of the core.
pub const TICK_MIN: Duration = Duration::from_micros(20);
/// Preemption period of an engine that runs or measures one service alone; a node chooses its own.
pub const TICK_ALONE: Duration = Duration::from_micros(100);
/// A turn of such an engine.
pub const TURN_ALONE: Duration = Duration::from_millis(10);
/// Idle ticks after which the ticker sleeps until a core is busy again.
pub const TICKS_IDLE_MAX: u32 = 8;
/// Periods between two ticks while no handler runs for a period.
pub const TICKS_SKIPPED: u32 = 5;
/// Ticks, one each period, after a handler has run for a period.
pub const TICKS_FREQUENT: u32 = 256;

const _: () = assert!(
    WASM_STACK_LEN_MAX < FIBER_STACK_LEN,
    "host functions need stack too"
);
const _: () = assert!(INSTANCES_MAX <= INSTANCE_IDS_MAX, "each instance has an id");
