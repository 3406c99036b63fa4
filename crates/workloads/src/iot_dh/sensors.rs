//! A fleet of sensors, seeded: when they report, how much, and in what state they are.
//!
//! Sources: periods of reports (one day, two hours, one hour, half an hour for 40, 40, 15 and 5 % of
//! the devices) and the size of what they send (Pareto with shape 2.5 from 20 to 200 bytes) are those
//! of 3GPP TR 45.820, annex E, "mobile autonomous reporting"; clocks of devices are off by some
//! percent. So a few devices cause most of the traffic. Trouble comes in episodes with a
//! heavy tail (Pareto with shape 1.5), in which a device reports every ten minutes, the exception
//! reports of the same annex. Sizes of sites fall with their rank as `1 / rank` (Zipf, 1949). The
//! mix of kinds and what trouble looks like are our own.

use e3_random::Random;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Numbers of a report's vector.
pub const FEATURES: usize = 6;
/// Samples that a report sums up.
pub const SAMPLES: usize = 16;
/// Sites.
pub const SITES: usize = 24;
/// Kinds of sensors: name, typical value, spread, part of the fleet in percent.
pub const KINDS: [(&str, f64, f64, u64); 5] = [
    ("temperature", 20.0, 5.0, 40),
    ("humidity", 50.0, 15.0, 20),
    ("power", 400.0, 150.0, 20),
    ("co2", 600.0, 150.0, 15),
    ("vibration", 2.0, 0.5, 5),
];
/// Time before which no device reports: 2026-01-01 00:00.
const FIRST_S: i64 = 1_767_225_600;
/// Seconds between two reports, and the part of the fleet that has it, in percent.
const PERIODS: [(i64, u64); 4] = [(86_400, 40), (7_200, 40), (3_600, 15), (1_800, 5)];
/// Standard deviation of a period.
const JITTER: f64 = 0.05;
/// Seconds between two reports in trouble.
const EXCEPTION_S: i64 = 600;
/// One report in so many of a device without trouble begins an episode.
const TROUBLE_ONE_IN: u64 = 50;
/// Length of an episode in seconds: shape, least, most.
const EPISODE: (f64, f64, f64) = (1.5, 1_800.0, 172_800.0);
/// Bytes that a report carries besides: shape, least, most.
const SIZE: (f64, f64, f64) = (2.5, 20.0, 200.0);

/// What a device's samples look like.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum State {
    /// Around a level, slowly up and down.
    Steady,
    /// Away from it.
    Drifting,
    /// At random over the whole range.
    Noisy,
    /// The same number again and again.
    Stuck,
    /// Steady but for one sample or two.
    Spiking,
}

impl State {
    /// All of them.
    pub const ALL: [State; 5] = [
        State::Steady,
        State::Drifting,
        State::Noisy,
        State::Stuck,
        State::Spiking,
    ];

    /// As a label.
    pub fn name(self) -> &'static str {
        match self {
            State::Steady => "steady",
            State::Drifting => "drifting",
            State::Noisy => "noisy",
            State::Stuck => "stuck",
            State::Spiking => "spiking",
        }
    }

    /// Samples of a device in this state, in spreads around the typical value.
    pub fn samples(self, random: &mut Random) -> [f64; SAMPLES] {
        let level = random.normal();
        let sign = if random.one_in(2) { 1.0 } else { -1.0 };
        let slope = sign * (2.0 + 2.0 * random.unit()) / (SAMPLES - 1) as f64;
        let mut wander = 0.0;
        let mut samples = std::array::from_fn(|n| {
            wander = 0.7 * wander + 0.2 * random.normal();
            level
                + match self {
                    State::Steady | State::Spiking => wander,
                    State::Drifting => wander + slope * n as f64,
                    State::Noisy => 1.5 * random.normal(),
                    State::Stuck => 0.0,
                }
        });
        if self == State::Spiking {
            for _ in 0..1 + random.below(2) {
                let at = random.below(SAMPLES as u64) as usize;
                samples[at] = level + sign * (4.0 + 4.0 * random.unit());
            }
        }
        samples
    }
}

/// Standard deviation, slope over all samples, range, largest step, correlation of neighbours and part
/// of steps that are none.
pub fn features(samples: &[f64; SAMPLES]) -> [f64; FEATURES] {
    let len = SAMPLES as f64;
    let mean = samples.iter().sum::<f64>() / len;
    let middle = (len - 1.0) / 2.0;
    let (mut squares, mut rising, mut times, mut pairs) = (0.0, 0.0, 0.0, 0.0);
    for (n, sample) in samples.iter().enumerate() {
        let (off, time) = (sample - mean, n as f64 - middle);
        squares += off * off;
        rising += off * time;
        times += time * time;
        pairs += samples.get(n + 1).map_or(0.0, |next| off * (next - mean));
    }
    let steps = || samples.windows(2).map(|w| (w[1] - w[0]).abs());
    let highest = samples.iter().copied().fold(f64::MIN, f64::max);
    let lowest = samples.iter().copied().fold(f64::MAX, f64::min);
    let largest_step = steps().fold(0.0, f64::max);
    // equal samples have no correlation, only what rounding makes of the mean
    let varies = largest_step > 0.0;
    [
        (squares / len).sqrt(),
        rising / times * (len - 1.0),
        highest - lowest,
        largest_step,
        if varies { pairs / squares } else { 0.0 },
        steps().filter(|s| *s == 0.0).count() as f64 / (len - 1.0),
    ]
}

/// A report of a device.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Whose, from 0.
    pub device: u32,
    /// When, in seconds since the Unix epoch; later than all that it reported before.
    pub time_s: i64,
    /// The last sample, in the sensor's unit.
    pub value: f64,
    /// What the samples look like.
    pub features: [f64; FEATURES],
    /// What they were made of.
    pub state: State,
    /// Bytes of further content.
    pub bytes: usize,
}

#[derive(Clone, Debug)]
struct Device {
    site: usize,
    kind: usize,
    period_s: i64,
    state: State,
    /// When the episode ends.
    until_s: i64,
    random: Random,
}

/// Devices; each has at most one report in flight, so that retries cannot reorder them.
#[derive(Clone, Debug)]
pub struct Fleet {
    devices: Vec<Device>,
    /// When devices report next that have none in flight.
    due: BinaryHeap<Reverse<(i64, u32)>>,
    /// When those have reported that do.
    reported: Vec<i64>,
}

impl Fleet {
    /// So many devices. What each reports follows from the seed and its number alone.
    pub fn new(seed: u64, devices: u32) -> Fleet {
        let mut random = Random::new(seed);
        let sizes: Vec<f64> = (1..=SITES).map(|rank| 1.0 / rank as f64).collect();
        let all: f64 = sizes.iter().sum();
        let mut due = BinaryHeap::new();
        let device = |n| {
            let mut random = Random::new(random.next_u64());
            let mut at = random.unit() * all;
            let site = sizes.iter().position(|size| {
                at -= size;
                at < 0.0
            });
            let kind = pick(&mut random, KINDS.map(|(.., part)| part));
            let period_s = PERIODS[pick(&mut random, PERIODS.map(|(_, part)| part))].0;
            let first_s = FIRST_S + random.below(period_s as u64) as i64;
            due.push(Reverse((first_s, n)));
            Device {
                site: site.unwrap_or(SITES - 1),
                kind,
                period_s,
                state: State::Steady,
                until_s: 0,
                random,
            }
        };
        Fleet {
            devices: (0..devices).map(device).collect(),
            due,
            reported: vec![0; devices as usize],
        }
    }

    /// Number of the topic that a device reports on.
    pub fn topic(&self, device: u32) -> usize {
        let device = &self.devices[device as usize];
        device.site * KINDS.len() + device.kind
    }

    /// The next report; none if every device has one in flight.
    pub fn next_report(&mut self) -> Option<Report> {
        let Reverse((time_s, number)) = self.due.pop()?;
        self.reported[number as usize] = time_s;
        let device = &mut self.devices[number as usize];
        let random = &mut device.random;
        match device.state {
            State::Steady if random.one_in(TROUBLE_ONE_IN) => {
                device.state = State::ALL[1 + random.below(State::ALL.len() as u64 - 1) as usize];
                device.until_s = time_s + pareto(random, EPISODE) as i64;
            }
            State::Steady => {}
            _ if time_s >= device.until_s => device.state = State::Steady,
            _ => {}
        }
        let samples = device.state.samples(random);
        let (_, typical, spread, _) = KINDS[device.kind];
        Some(Report {
            device: number,
            time_s,
            value: typical + spread * samples[SAMPLES - 1],
            features: features(&samples),
            state: device.state,
            bytes: pareto(random, SIZE) as usize,
        })
    }

    /// A device's report has arrived, or has no outcome.
    pub fn on_arrived(&mut self, number: u32) {
        let device = &mut self.devices[number as usize];
        let off = 1.0 + JITTER * device.random.normal().clamp(-4.0, 4.0);
        let after_s = match device.state {
            State::Steady => device.period_s as f64 * off,
            _ => (EXCEPTION_S as f64 * off).min(device.period_s as f64),
        };
        let next_s = self.reported[number as usize] + after_s as i64;
        self.due.push(Reverse((next_s, number)));
    }
}

/// Name of a topic.
pub fn topic_name(topic: usize) -> String {
    let (site, kind) = (topic / KINDS.len(), topic % KINDS.len());
    format!("site{site:02}/{}", KINDS[kind].0)
}

/// One of several, by their parts in percent.
fn pick<const N: usize>(random: &mut Random, parts: [u64; N]) -> usize {
    let mut at = random.below(parts.iter().sum());
    let found = parts.iter().position(|part| match at.checked_sub(*part) {
        Some(rest) => {
            at = rest;
            false
        }
        None => true,
    });
    found.unwrap_or(N - 1)
}

/// A Pareto deviate of a shape, not below the least and cut off at the most.
fn pareto(random: &mut Random, (shape, least, most): (f64, f64, f64)) -> f64 {
    (least * (1.0 - random.unit()).powf(-1.0 / shape)).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn reports(seed: u64, devices: u32, count: usize) -> Vec<Report> {
        let mut fleet = Fleet::new(seed, devices);
        let next = |_| {
            let report = fleet.next_report().unwrap();
            fleet.on_arrived(report.device);
            report
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn the_seed_decides_everything() {
        assert_eq!(reports(7, 50, 2000), reports(7, 50, 2000));
        assert_ne!(reports(7, 50, 2000), reports(8, 50, 2000));
    }

    #[test]
    fn a_device_reports_the_same_whatever_the_others_do() {
        let mut fleet = Fleet::new(3, 20);
        let first = fleet.next_report().unwrap();
        let device = first.device;
        let mut alone = vec![first];
        while fleet.next_report().is_some() {}
        for _ in 0..50 {
            fleet.on_arrived(device);
            alone.push(fleet.next_report().unwrap());
            assert_eq!(fleet.next_report(), None, "the others are in flight");
        }
        let mut together = reports(3, 20, 50_000);
        together.retain(|r| r.device == device);
        assert!(together.len() > 50);
        assert_eq!(alone, together[..51]);
        assert!(alone.windows(2).all(|w| w[0].time_s < w[1].time_s));
    }

    #[test]
    fn few_devices_make_most_of_the_traffic() {
        let mut counts = BTreeMap::new();
        let all = reports(1, 2000, 40_000);
        for report in &all {
            *counts.entry(report.device).or_insert(0u32) += 1;
        }
        let mut counts: Vec<u32> = counts.into_values().collect();
        counts.sort_unstable_by_key(|n| Reverse(*n));
        let busiest: u32 = counts[..400].iter().sum();
        // a fifth of the devices reports every hour or more often
        assert!((20_000..30_000).contains(&busiest), "{busiest}");
        let sizes = all.iter().map(|r| r.bytes);
        let mean = sizes.clone().sum::<usize>() as f64 / all.len() as f64;
        // of the whole Pareto distribution 20 * 2.5 / 1.5
        assert!((31.0..34.0).contains(&mean), "{mean}");
        assert!(sizes.min() >= Some(20) && all.iter().any(|r| r.bytes == 200));
    }

    #[test]
    fn trouble_comes_in_episodes_and_sites_differ() {
        let all = reports(2, 1000, 40_000);
        let troubled = all.iter().filter(|r| r.state != State::Steady).count();
        let share = troubled as f64 / all.len() as f64;
        assert!((0.1..0.5).contains(&share), "{share}");
        for state in State::ALL {
            assert!(all.iter().any(|r| r.state == state), "{state:?}");
        }
        let fleet = Fleet::new(2, 5000);
        let at_first = (0..5000).filter(|d| fleet.topic(*d) < KINDS.len()).count();
        // the harmonic number of 24 is 3.78
        assert!((1200..1450).contains(&at_first), "{at_first}");
    }

    #[test]
    fn features_are_those_of_a_line_and_of_nothing() {
        let line = features(&std::array::from_fn(|n| 2.0 * n as f64));
        let slope = 2.0 * 15.0;
        assert!((line[1] - slope).abs() < 1e-9 && (line[2] - slope).abs() < 1e-9);
        assert!((line[0] - 2.0 * (255.0f64 / 12.0).sqrt()).abs() < 1e-9);
        assert_eq!((line[3], line[5]), (2.0, 0.0));
        assert!(line[4] > 0.8);
        let nothing = features(&[0.1; SAMPLES]);
        assert!(nothing.iter().take(5).all(|f| f.abs() < 1e-12));
        assert_eq!(nothing[5], 1.0);
    }
}
