//! `e3 doctor`: what this machine has and lacks, with the mend.

use crate::builtin;
use crate::deploy::find_module;
use crate::failure::Failure;
use crate::limits::{MEMORY_WANTED_BYTES, OPEN_FILES_WANTED};
use crate::machine::Machine;
use crate::output::{self, Table};
use crate::settings::Settings;
use crate::state_dir::StateDir;
use crate::text::bytes;
use crate::up::free_port;
use e3_energy::meter::{SYSFS, discover};
use std::path::Path;

/// How something is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// As it should be.
    Ok,
    /// Missing, and E3 does less or nothing without it.
    Lack,
    /// Missing, and nothing needs it here.
    Note,
}

struct Finding {
    verdict: Verdict,
    what: &'static str,
    is: String,
    mend: Option<String>,
}

fn ok(what: &'static str, is: impl Into<String>) -> Finding {
    Finding {
        verdict: Verdict::Ok,
        what,
        is: is.into(),
        mend: None,
    }
}

fn judge(good: bool, what: &'static str, is: String, mend: &str) -> Finding {
    let verdict = if good { Verdict::Ok } else { Verdict::Lack };
    let mend = (!good).then(|| mend.to_string());
    Finding {
        verdict,
        what,
        is,
        mend,
    }
}

/// `e3 doctor`.
pub fn run(settings: &Settings) -> Result<(), Failure> {
    let paint = settings.paint();
    let findings = [
        machine(),
        limits(),
        network(settings),
        meters(),
        software(settings),
    ]
    .concat();
    let mut table = Table::new(&["", "", "", ""]);
    for f in &findings {
        let verdict = match f.verdict {
            Verdict::Ok => paint.green("ok"),
            Verdict::Lack => paint.red("lack"),
            Verdict::Note => paint.yellow("note"),
        };
        let mend = f
            .mend
            .as_ref()
            .map(|m| format!("-> {m}"))
            .unwrap_or_default();
        table.row([verdict, f.what.to_string(), f.is.clone(), mend]);
    }
    output::print(&table.render())
}

impl Clone for Finding {
    fn clone(&self) -> Finding {
        Finding {
            is: self.is.clone(),
            mend: self.mend.clone(),
            ..*self
        }
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn machine() -> Vec<Finding> {
    let Machine { cpu, cores, kernel } = Machine::here();
    let memory = read("/proc/meminfo");
    let available = memory.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    let available = available.and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok());
    let available = available.unwrap_or(0) * 1024;
    let root = rustix::process::geteuid().is_root();
    let user = if root {
        "root"
    } else {
        "an ordinary user, which is all that is needed"
    };
    vec![
        judge(
            cores >= 2,
            "cores",
            format!("{cores} ({cpu})"),
            "with one core the nodes wait for each other; expect low rates",
        ),
        judge(
            available >= MEMORY_WANTED_BYTES,
            "memory",
            format!("{} free", bytes(available)),
            "close something: six nodes want about 1 GiB",
        ),
        ok(
            "kernel",
            format!("Linux {kernel} {}", std::env::consts::ARCH),
        ),
        ok("user", user),
    ]
}

fn limits() -> Vec<Finding> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let now = limit.current.unwrap_or(u64::MAX);
    vec![judge(
        now >= OPEN_FILES_WANTED,
        "open files",
        format!("{now} a process"),
        "raise it with: ulimit -n 4096",
    )]
}

fn network(settings: &Settings) -> Vec<Finding> {
    let offload = std::net::UdpSocket::bind("127.0.0.1:0")
        .map(|socket| rustix::net::sockopt::socket_type(&socket).is_ok() && segmentation_offload());
    let offload = match offload {
        Ok(true) => ok(
            "UDP segmentation offload",
            "the kernel has it (UDP_SEGMENT, 4.18)",
        ),
        _ => Finding {
            verdict: Verdict::Note,
            what: "UDP segmentation offload",
            is: "the kernel is older than 4.18".into(),
            mend: Some("datagrams are sent one by one: slower, else the same".into()),
        },
    };
    let port = settings.port(None);
    let state = StateDir::new(&settings.dir);
    let port = match (state.running().ok().flatten(), free_port(port)) {
        (Some(cluster), _) => ok("cluster", format!("up at {}", cluster.url())),
        (None, Ok(port)) => ok("port", format!("{port} of 127.0.0.1 is free")),
        (None, Err(e)) => judge(
            false,
            "port",
            e.message,
            "choose another with --port or E3_PORT",
        ),
    };
    vec![offload, port]
}

fn segmentation_offload() -> bool {
    let release = read("/proc/sys/kernel/osrelease");
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|n| n.trim().parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(4), Some(18))
}

fn meters() -> Vec<Finding> {
    let finding = |probe: e3_energy::Probe| match probe.meter {
        Ok(_) => ok("power meter", probe.name),
        Err(e) => Finding {
            verdict: Verdict::Note,
            what: "power meter",
            is: format!("{}: {e}", probe.name),
            mend: Some("watts come from the model, and are labelled so".into()),
        },
    };
    discover(Path::new(SYSFS))
        .into_iter()
        .map(finding)
        .collect()
}

fn software(settings: &Settings) -> Vec<Finding> {
    let services = settings.file.services.clone();
    let given = std::env::var_os("E3_SERVICES").map(Into::into).or(services);
    let modules = builtin::application("iot-ts").map(|(text, app)| {
        let find = |m: &str| find_module(&text, m, given.as_deref());
        let all: Vec<_> = app
            .spec
            .services
            .iter()
            .map(|s| (find(&s.module), &s.name))
            .collect();
        let missing: Vec<&str> = all
            .iter()
            .filter(|(f, _)| f.is_err())
            .map(|(_, n)| n.as_str())
            .collect();
        let dir = all
            .iter()
            .find_map(|(f, _)| f.as_ref().ok()?.parent().map(Path::to_path_buf));
        let is = match (missing.is_empty(), dir) {
            (true, Some(dir)) => format!("those of iot-ts are in {}", dir.display()),
            _ => format!("not found: {}", missing.join(", ")),
        };
        let mend = "cargo xtask build-services, or --services DIR";
        judge(missing.is_empty(), "services", is, mend)
    });
    let modules = modules.unwrap_or_else(|e| judge(false, "services", e.message, "see above"));
    let dir = &settings.dir;
    let near = dir.ancestors().find(|d| d.exists()).unwrap_or(dir);
    let writable = rustix::fs::access(near, rustix::fs::Access::WRITE_OK).is_ok();
    let state = judge(
        writable,
        "state directory",
        dir.display().to_string(),
        "it cannot be written; choose another with --dir or E3_DIR",
    );
    vec![state, modules]
}
