//! Reports of servers, seeded: how busy each is over the day, and what it writes to its log.
//!
//! Sources: load follows the day, with a peak of its own for each server (Gmach, Rolia, Cherkasova and
//! Kemper, "Workload analysis and demand prediction of enterprise data center applications", 2007);
//! around that it is autocorrelated, here by an AR(1) process (Dinda and O'Hallaron, "Host load
//! prediction using linear models", 2000). Incidents last for some reports, raise the load, and say in
//! the log what is wrong, in the words of the programs that report such things.

use e3_random::Random;
use std::collections::BTreeSet;

/// Servers.
pub const HOSTS: u32 = 300;
/// Reports of a day: one in ten minutes.
const DAY_REPORTS: f64 = 144.0;
/// Autocorrelation of two reports that follow each other, and the spread of what is new, in percent.
const AR1: (f64, f64) = (0.85, 2.5);
/// One report in so many begins an incident: with a report in ten minutes, a server has one in two days
/// or so, which lasts an hour. Some two reports in a hundred are alerts.
const INCIDENT_ONE_IN: u64 = 300;
/// Fewest reports of an incident, and how many more there may be.
const INCIDENT_REPORTS: (u64, u64) = (4, 8);
/// What an incident adds to the load, in percent.
const INCIDENT_LOAD: f64 = 30.0;
/// Draws for a server that is not busy.
const DRAWS_MAX: u32 = 64;

/// What an incident writes to the log (`#` stands for a number), and how the runbooks for it begin.
const INCIDENTS: [(&str, &str); 12] = [
    (
        "write error: no space left on device, filesystem /dev/sda# mounted on /var has #% space left",
        "filesystem-",
    ),
    (
        "md/raid1: md#: disk failure on sdb#, disabling device, array is degraded",
        "raid-",
    ),
    (
        "nf_conntrack: table full, dropping packet, # conntrack entries",
        "conntrack-",
    ),
    (
        "VFS: file-max limit # reached, too many open file descriptors",
        "file-descriptors-",
    ),
    (
        "chronyd: system clock wrong by # seconds, no NTP server, clock is not synchronised",
        "clock-",
    ),
    (
        "eth#: network interface link is flapping, down # times",
        "network-",
    ),
    (
        "kubelet: CrashLoopBackOff, pod web-# is crash looping, container restarted # times",
        "pod-",
    ),
    (
        "etcd: slow fsync of the write-ahead log, fdatasync took # ms, disk is slow",
        "etcd-",
    ),
    (
        "etcd: raft lost leader, member # has no leader, election timed out",
        "etcd-",
    ),
    (
        "kubelet: client certificate expires in # hours, renewal of the certificate failed",
        "certificate-",
    ),
    (
        "prometheus: remote write is # seconds behind, remote storage is slow, # pending shards",
        "metrics-",
    ),
    (
        "kubelet: persistent volume claim data-# is filling up, # bytes available",
        "volume-",
    ),
];

/// What a server writes else.
const ROUTINE: [&str; 6] = [
    "sshd: accepted publickey for deploy from 10.0.#.# port #",
    "systemd: started session # of user deploy",
    "nginx: GET /healthz 200 # bytes in # ms",
    "cron: session opened for user root, job # done in # s",
    "kernel: perf: interrupt took too long, lowering the sample rate to #",
    "dhclient: DHCPACK of 10.0.#.#, renewal in # seconds",
];

/// A report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Its server.
    pub host: u32,
    /// Number among those of the server, from 1.
    pub number: i64,
    /// How busy its processors were, in thousandths.
    pub cpu: i64,
    /// `info`, `warning` or `error`.
    pub severity: &'static str,
    /// What it wrote to its log.
    pub log: String,
    /// How the runbooks for its incident begin.
    pub runbooks: Option<&'static str>,
}

#[derive(Clone, Default, Debug)]
struct Server {
    reports: i64,
    /// Deviation from the day's course, in percent.
    noise: f64,
    /// Incident, and reports that it goes on for.
    incident: Option<(usize, u64)>,
}

/// A stream of reports.
#[derive(Clone, Debug)]
pub struct Health {
    random: Random,
    servers: Vec<Server>,
}

fn filled(template: &str, random: &mut Random) -> String {
    let mut text = String::new();
    for (n, part) in template.split('#').enumerate() {
        if n > 0 {
            text.push_str(&(2 + random.below(250)).to_string());
        }
        text.push_str(part);
    }
    text
}

impl Health {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Health {
        Health {
            random: Random::new(seed),
            servers: vec![Server::default(); HOSTS as usize],
        }
    }

    /// The next report of a server that is not busy; none if all that are drawn are.
    pub fn next_report(&mut self, busy: &BTreeSet<u32>) -> Option<Report> {
        let random = &mut self.random;
        let mut draws = (0..DRAWS_MAX).map(|_| random.below(u64::from(HOSTS)) as u32);
        let host = draws.find(|host| !busy.contains(host))?;
        let server = &mut self.servers[host as usize];
        server.reports += 1;
        server.noise = AR1.0 * server.noise + AR1.1 * random.normal();
        if server.incident.is_none() && random.one_in(INCIDENT_ONE_IN) {
            let (least, more) = INCIDENT_REPORTS;
            let kind = random.below(INCIDENTS.len() as u64) as usize;
            server.incident = Some((kind, least + random.below(more)));
        }
        let incident = server.incident.map(|(kind, left)| {
            server.incident = (left > 1).then_some((kind, left - 1));
            INCIDENTS[kind]
        });
        let phase = f64::from(host) / f64::from(HOSTS) * 0.2 + server.reports as f64 / DAY_REPORTS;
        let day = 15.0 * (phase * std::f64::consts::TAU).sin();
        let more = if incident.is_some() {
            INCIDENT_LOAD
        } else {
            0.0
        };
        let usual = 25.0 + f64::from(host % 7) * 3.0;
        let percent = (usual + day + server.noise + more).clamp(0.0, 100.0);
        let (template, severity) = match incident {
            Some((template, _)) if random.unit() < 0.5 => (template, "error"),
            Some((template, _)) => (template, "warning"),
            None => (ROUTINE[random.below(ROUTINE.len() as u64) as usize], "info"),
        };
        Some(Report {
            host,
            number: server.reports,
            cpu: (percent * 10.0).round() as i64,
            severity,
            log: filled(template, random),
            runbooks: incident.map(|(_, runbooks)| runbooks),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(seed: u64, reports: usize) -> Vec<Report> {
        let mut stream = Health::new(seed);
        let next = |_| stream.next_report(&BTreeSet::new()).unwrap();
        (0..reports).map(next).collect()
    }

    fn mean(of: impl Iterator<Item = f64> + Clone) -> f64 {
        of.clone().sum::<f64>() / of.count() as f64
    }

    #[test]
    fn load_follows_the_day_with_memory_and_incidents() {
        let reports = stream(1, 300 * 288);
        let of = |h: u32| reports.iter().filter(move |r| r.host == h);
        let calm = of(0).filter(|r| r.runbooks.is_none());
        // the first server's peak is a quarter of a day in, its low three quarters
        let by = |r: &&Report| (r.number % 144) as f64 / 144.0;
        let level = |at: f64| {
            let near = calm.clone().filter(|r| (by(r) - at).abs() < 0.05);
            mean(near.map(|r| r.cpu as f64 / 10.0))
        };
        let (peak, low) = (level(0.25), level(0.75));
        assert!((20.0..40.0).contains(&(peak - low)), "{peak} {low}");
        let busy = |hard: bool| {
            let such = reports.iter().filter(move |r| r.runbooks.is_some() == hard);
            mean(such.map(|r| r.cpu as f64 / 10.0))
        };
        assert!((25.0..35.0).contains(&(busy(true) - busy(false))));
        let hard = reports.iter().filter(|r| r.runbooks.is_some()).count();
        assert!((1_200..3_200).contains(&hard), "{hard}");
        assert!(reports.iter().all(|r| (0..=1000).contains(&r.cpu)));
        assert!(reports.iter().all(|r| !r.log.contains('#')));
    }

    #[test]
    fn the_busy_report_nothing() {
        let mut stream = Health::new(3);
        let busy: BTreeSet<u32> = (0..HOSTS - 10).collect();
        for _ in 0..200 {
            if let Some(report) = stream.next_report(&busy) {
                assert!(!busy.contains(&report.host));
            }
        }
        assert_eq!(stream.next_report(&(0..HOSTS).collect()), None);
    }

    #[test]
    fn the_seed_decides_everything() {
        assert_eq!(stream(7, 300), stream(7, 300));
        assert_ne!(stream(7, 300), stream(8, 300));
    }
}
