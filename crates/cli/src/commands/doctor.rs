//! `e3 doctor`: checks that this machine has what E3 needs, and says how to fix what is missing.

use crate::cluster::meters::Meters;
use crate::cluster::start::free_port;
use crate::cluster::state_dir::StateDir;
use crate::documents::builtin;
use crate::documents::modules;
use crate::limits::{MEMORY_WANTED_BYTES, OPEN_FILES_WANTED};
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output::{self, Table};
use crate::ui::text::bytes;
use clap::Args;
use e3_bench::Machine;
use e3_energy::meter::MeterError;
use e3_energy::{Found, MeterConfig, Reading, discover};
use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;

/// `e3 doctor`.
#[derive(Args, Debug, Clone, Default)]
pub struct Doctor {
    /// Port that a cluster will use [default: 7300]
    #[arg(long, env = "E3_PORT", value_name = "PORT")]
    pub port: Option<u16>,
    /// Directory of modules [default: where they are built, else those in this program]
    #[arg(long, env = "E3_SERVICES", value_name = "DIR")]
    pub services: Option<PathBuf>,
    /// Energy meters.
    #[command(flatten)]
    pub meters: Meters,
}

/// Result of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// As required.
    Ok,
    /// Missing, and clusters or applications do not run without it.
    Missing,
    /// Missing, but E3 works without it.
    Note,
}

#[derive(Clone)]
struct Finding {
    verdict: Verdict,
    what: &'static str,
    is: String,
    fix: Option<String>,
}

fn ok(what: &'static str, is: impl Into<String>) -> Finding {
    Finding {
        verdict: Verdict::Ok,
        what,
        is: is.into(),
        fix: None,
    }
}

fn judge(good: bool, what: &'static str, is: String, fix: &str) -> Finding {
    let verdict = if good { Verdict::Ok } else { Verdict::Missing };
    Finding {
        verdict,
        what,
        is,
        fix: (!good).then(|| fix.to_string()),
    }
}

fn note(what: &'static str, is: String, fix: &str) -> Finding {
    Finding {
        verdict: Verdict::Note,
        what,
        is,
        fix: Some(fix.to_string()),
    }
}

/// `e3 doctor`.
pub fn run(args: &Doctor, settings: &Settings) -> Result<(), Failure> {
    let paint = settings.paint();
    let port = settings.port(args.port)?;
    let findings = [
        machine(),
        limits(),
        network(port, settings),
        meters(&args.meters.config()?),
        software(args, settings),
    ]
    .concat();
    let mut table = Table::new(&["", "", "", ""]);
    for f in &findings {
        let verdict = match f.verdict {
            Verdict::Ok => paint.green("ok"),
            Verdict::Missing => paint.red("missing"),
            Verdict::Note => paint.yellow("note"),
        };
        let fix = f.fix.as_ref().map(|fix| format!("-> {fix}"));
        table.row([
            verdict,
            f.what.to_string(),
            f.is.clone(),
            fix.unwrap_or_default(),
        ]);
    }
    output::print(&table.render())?;
    let missing = findings.iter().filter(|f| f.verdict == Verdict::Missing);
    let missing: Vec<&str> = missing.map(|f| f.what).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let message = format!("this machine is not ready for E3: {}", missing.join(", "));
    Err(Failure::new(Exit::Check, message).hint("each line above says how to fix it"))
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
        "not root, which is not needed"
    };
    vec![
        match cores {
            1 => note(
                "cores",
                format!("1 ({cpu})"),
                "all processes share one core; expect low rates",
            ),
            _ => ok("cores", format!("{cores} ({cpu})")),
        },
        judge(
            available >= MEMORY_WANTED_BYTES,
            "memory",
            format!("{} free", bytes(available)),
            "free some memory: six nodes need about 1 GiB",
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
    // Each process of a cluster raises its limit to the highest.
    let most = limit.maximum.unwrap_or(u64::MAX);
    vec![judge(
        most >= OPEN_FILES_WANTED,
        "open files",
        format!("{most} per process"),
        "raise the hard limit as root: ulimit -Hn 4096",
    )]
}

fn network(port: u16, settings: &Settings) -> Vec<Finding> {
    let offload = std::net::UdpSocket::bind("127.0.0.1:0")
        .map(|socket| rustix::net::sockopt::socket_type(&socket).is_ok() && segmentation_offload());
    let offload = match offload {
        Ok(true) => ok(
            "UDP segmentation offload",
            "supported by the kernel (UDP_SEGMENT, 4.18)",
        ),
        _ => note(
            "UDP segmentation offload",
            "the kernel is older than 4.18".into(),
            "each datagram needs its own system call, which is slower",
        ),
    };
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

/// The meters of this machine, and the ones that a node would read.
fn meters(config: &MeterConfig) -> Vec<Finding> {
    let mut findings: Vec<Finding> = discover(config).into_iter().map(meter).collect();
    let chosen = config.open().and_then(|group| match group {
        Some(mut group) => group.read().map(|_| Some(group)),
        None => Ok(None),
    });
    findings.push(match chosen {
        Ok(Some(group)) => ok(
            "energy",
            format!("measured: {} ({})", group.name, group.scope.name()),
        ),
        Ok(None) => note(
            "energy",
            format!(
                "no meter is read: {} shows no counter of a processor and no power meter of the machine",
                config.sysfs.display()
            ),
            "it is modelled and labelled as such (virtual machines rarely have meters)",
        ),
        Err(error) => note("energy", format!("modelled: {error}"), &fix(&error)),
    });
    findings
}

fn meter(found: Found) -> Finding {
    let label = found.label.map_or_else(String::new, |l| format!(" ({l})"));
    let name = format!("{}{label}", found.name);
    match found.shows {
        Ok(shown) => {
            let now = match shown.reading {
                Reading::Power(watts) => format!("{:.1} W now, ", watts.0),
                Reading::Counter { .. } => String::new(),
            };
            let scope = shown.about.scope.name();
            let micros = shown.overhead.as_secs_f64() * 1e6;
            let (about, what) = (&shown.about, "energy meter");
            ok(
                what,
                format!("{name}: {scope}, {now}{about}, a reading takes {micros:.0} us"),
            )
        }
        Err(error) => note("energy meter", format!("{name}: {error}"), &fix(&error)),
    }
}

fn fix(error: &MeterError) -> String {
    let otherwise = || "energy is modelled and labelled as such".to_string();
    error.fix().unwrap_or_else(otherwise)
}

fn software(args: &Doctor, settings: &Settings) -> Vec<Finding> {
    let dir = &settings.dir;
    let near = dir.ancestors().find(|d| d.exists()).unwrap_or(dir);
    let writable = rustix::fs::access(near, rustix::fs::Access::WRITE_OK).is_ok();
    let state = judge(
        writable,
        "state directory",
        if writable {
            dir.display().to_string()
        } else {
            format!("{} is not writable", near.display())
        },
        "choose another with --dir or E3_DIR",
    );
    vec![state, modules(args, settings)]
}

/// Whether every service of the built-in applications has a module.
fn modules(args: &Doctor, settings: &Settings) -> Finding {
    let services = args.services.as_deref();
    let services = services.or(settings.file.services.as_deref());
    let mut missing = BTreeSet::new();
    let mut origins = BTreeSet::new();
    for app in builtin::app_names() {
        let Ok((text, app)) = builtin::application(app) else {
            continue;
        };
        for service in &app.spec.services {
            match modules::find(&text, &service.module, services) {
                Ok(module) => origins.insert(match Path::new(&module.origin).parent() {
                    Some(dir) if !dir.as_os_str().is_empty() => format!("in {}", dir.display()),
                    _ => "built into this program".to_string(),
                }),
                Err(_) => missing.insert(service.module.clone()),
            };
        }
    }
    let join = |all: BTreeSet<String>| all.into_iter().collect::<Vec<_>>().join(", ");
    let is = if missing.is_empty() {
        format!("all modules are {}", join(origins))
    } else {
        format!("modules not found: {}", join(missing.clone()))
    };
    let fix = "build them with: cargo xtask build-services, or give --services DIR";
    judge(missing.is_empty(), "services", is, fix)
}
