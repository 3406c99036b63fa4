//! Timeouts, periods and other bounds of the program.

use e3_model::timing::HEARTBEAT_TIMEOUT;
use std::ops::Range;
use std::time::Duration;

/// Default port of the controller: HTTP over TCP, heartbeats over UDP.
pub const PORT_DEFAULT: u16 = 7300;
/// Longest wait of `e3 up` for all nodes.
pub const UP_TIMEOUT: Duration = Duration::from_secs(60);
/// `e3 up` waits no longer than this for a controller that decides nothing: its disk is full, or its log lacks decisions.
pub const UNHEALTHY_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait of `e3 upgrade` for a process to start again, a node to drain or all copies to be
/// complete.
pub const UPGRADE_TIMEOUT: Duration = Duration::from_secs(120);
/// Longest wait of `e3 demo` for the application, whose code is compiled the first time.
pub const DEPLOY_TIMEOUT: Duration = Duration::from_secs(180);
/// How often the reports of the nodes are read until they stop changing.
pub const REPORTS_SETTLE_TRIES: u32 = 4;
/// Time between two of these reads; nodes report once a second.
pub const REPORTS_SETTLE: Duration = Duration::from_millis(1_300);
/// Ports of which one is chosen for a controller. Linux and macOS give later ones to outgoing connections.
pub const PORTS_CHOSEN: Range<u16> = 20_000..32_768;
/// How many of them are tried.
pub const FREE_PORT_TRIES: u32 = 16;
/// Time that a process gets to exit after SIGTERM, before SIGKILL.
pub const DOWN_GRACE: Duration = Duration::from_secs(4);
/// Period of trying to connect to a starting controller.
pub const CONNECT_INTERVAL: Duration = Duration::from_millis(10);
/// Period of polling for something that changes soon.
pub const POLL_INTERVAL: Duration = Duration::from_millis(40);
/// How long a command that shows what happens waits for a controller that is away.
pub const WATCH_PATIENCE: Duration = Duration::from_secs(60);
/// How long nothing on a node that is drained can move before `e3 node drain` gives up.
pub const DRAIN_BLOCKED_TIME: Duration = Duration::from_secs(3);
/// How long the lock of a state directory may be held by a process that was killed and still ends.
pub const LOCK_PATIENCE: Duration = Duration::from_millis(500);
/// Period of checking that the state directory still exists.
pub const LOCK_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Nodes with which a cluster starts on one machine.
pub const NODES_HERE_MAX: usize = 256;
/// Period of asking the controller whether the nodes of the cluster are others.
pub const WATCH_INTERVAL: Duration = Duration::from_millis(500);
/// How long `e3 replay` takes a node for the primary of a shard, which the controller has said. Well within the
/// time that a dead letter of a stateless service waits for copies of its message.
pub const ROUTE_AGE_MAX: Duration = Duration::from_secs(1);
/// Time between two status lines.
pub const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// A process that exits sooner than this after its start is restarted with backoff.
pub const RESTART_QUICK: Duration = Duration::from_secs(2);
/// The same of one that fails by itself: reading much state takes longer.
pub const RESTART_SETTLED: Duration = Duration::from_secs(60);
/// Longest backoff before a restart of a process that lived for less than that.
pub const RESTART_BACKOFF_MAX: Duration = Duration::from_secs(5);
/// How long the supervisor tries to tell the controller that a node's process has ended.
pub const EXIT_REPORT_TIME: Duration = Duration::from_secs(3);
/// How long a request for events waits for one; less than the timeout of a request.
pub const EVENTS_WAIT: Duration = Duration::from_secs(20);
/// Timeout of a request to the controller.
pub const API_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of a connection to the controller.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest time that an idle connection is kept; the controller keeps it longer.
pub const API_IDLE_MAX: Duration = Duration::from_secs(5);
/// Longest response of the controller.
pub const API_BODY_LEN_MAX: u64 = 64 << 20;
/// A log that is longer than this is moved to `.log.1`.
pub const LOG_LEN_MAX: u64 = 16 << 20;
/// Part of a log, from its end, in which its last lines are searched.
pub const TAIL_LEN_MAX: u64 = 1 << 20;
/// Longest line of requests of `e3 run`.
pub const LINE_LEN_MAX: u64 = 1 << 20;
/// Longest file of requests of `e3 call`.
pub const REQUESTS_LEN_MAX: u64 = 512 << 20;
/// Longest file of a module or an asset that is sent; the engine takes shorter modules only.
pub const BLOB_LEN_MAX: u64 = 128 << 20;
/// Free memory that a cluster on this machine should have.
pub const MEMORY_WANTED_BYTES: u64 = 1 << 30;
/// Open files that a process should be allowed.
pub const OPEN_FILES_WANTED: u64 = 1024;

/// Bytes of a token file that are read.
pub const TOKEN_FILE_LEN_MAX: u64 = 4096;
/// Characters of a key or a reason that a table shows.
pub const SHOWN_LEN_MAX: usize = 60;
/// Losses of state that `e3 describe app` names.
pub const LOSSES_SHOWN: usize = 3;
/// Default length of a load that is not from a file.
pub const LOAD_DURATION_DEFAULT: Duration = Duration::from_secs(15);
/// Length of the load of a file whose requests are all due at once.
pub const FILE_DURATION_MIN: Duration = Duration::from_millis(1);
/// Linear memory of a service under `e3 run`, unless given.
pub const RUN_MEMORY_BYTES: usize = 64 << 20;
/// Deadline of a handler under `e3 run`, unless given.
pub const RUN_DEADLINE: Duration = Duration::from_secs(1);
/// Bytes of a secret. The controller has the same bound.
pub const SECRET_LEN_MAX: u64 = 8 << 10;
/// Period of the drawing of a spinner.
pub const SPINNER_INTERVAL: Duration = Duration::from_millis(120);
/// Load of `e3 chaos`, unless given, in requests per second.
pub const CHAOS_RATE_RPS_DEFAULT: f64 = 200.0;
/// Longest run of `e3 chaos`, in minutes.
pub const CHAOS_MINUTES_MAX: f64 = 24.0 * 60.0;
/// Deadline of a request under faults: longer than the longest fault and the recovery from it.
pub const CHAOS_DEADLINE: Duration = Duration::from_secs(60);
/// Time after a fault by which the controller has noticed it.
pub const CHAOS_NOTICED: Duration = Duration::from_millis(1_500);
/// Longest time that an application may take to have all its copies again.
pub const CHAOS_WHOLE_MAX: Duration = Duration::from_secs(60);
/// Timeout of requests to a controller that may be paused.
pub const CHAOS_API_TIMEOUT: Duration = Duration::from_secs(5);
/// The same just before a fault.
pub const CHAOS_AIM_TIMEOUT: Duration = Duration::from_millis(250);
/// By how much the fault `delay` delays a datagram, at most.
pub const CHAOS_DELAY_MAX: Duration = Duration::from_millis(50);
/// How often a relay that has nothing to send looks whether to stop.
pub const RELAY_WAIT_MAX: Duration = Duration::from_millis(20);
/// Datagrams in a hundred that the fault `drop` loses.
pub const CHAOS_DROP_PERCENT: u32 = 10;
/// Longest fail-over that is measured.
pub const FAILOVER_MAX: Duration = Duration::from_secs(20);
/// Time between two requests of a probe.
pub const PROBE_INTERVAL: Duration = Duration::from_millis(2);
/// Time that a probe runs before the fault.
pub const PROBE_BEFORE: Duration = Duration::from_millis(300);
/// Clients of a history.
pub const HISTORY_CLIENTS: u64 = 6;
/// Keys that they share at a time.
pub const HISTORY_KEYS: u64 = 3;
/// How long a key is used: what is without answer then burdens the check of this key alone.
pub const HISTORY_KEY_TIME: Duration = Duration::from_secs(4);
/// Longest time that a client waits before its next request, in milliseconds.
pub const HISTORY_PAUSE_MAX_MS: u64 = 30;
/// One request in so many is the last of its client.
pub const HISTORY_VANISH_ONE_IN: u64 = 150;

const _: () = assert!(CHAOS_NOTICED.as_nanos() > HEARTBEAT_TIMEOUT.0 as u128);
const _: () = assert!(RESTART_QUICK.as_millis() < RESTART_BACKOFF_MAX.as_millis());

/// Bytes of a trace of arrivals that `e3 sim` reads; a day of the Azure traces of 2019 has some 150 MB.
pub const SIM_TRACE_LEN_MAX: u64 = 1 << 30;
/// Lines of such a trace.
pub const SIM_TRACE_ROWS_MAX: usize = 10_000_000;
