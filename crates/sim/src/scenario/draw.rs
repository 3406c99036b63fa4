//! Draws a scenario from a seed.
//!
//! The distributions are uneven on purpose: small topologies and short chains meet the most faults
//! for each second of processor time, but rare shapes must occur too.

mod branches;
mod disks;
mod racks;
mod script;

use super::{
    Act, AppShape, AskShape, AskTarget, ChannelShape, ClientShape, ClockShape, Fault, Scenario,
    ServiceShape,
};
use super::{Wire, members, topics};
use e3_random::Random;
use script::script;

/// Requests of a scenario.
const REQUESTS: u64 = 2_000;
/// Longest time to live.
const TTL_MS_MAX: u64 = 2_000;
/// The length of the phase with faults. With start, healing and probes a run has at least 30 s.
const FAULTS_MS: u64 = 28_500;
/// How long an operator tries to take a backup.
const BACKUP_MS_MAX: u64 = 6_000;
/// How long it tries to restore it.
const RESTORE_MS: u64 = 4_000;
/// An upgrade begins within this time.
const UPGRADE_MS: u64 = 12_000;
/// A client does not vanish before.
const VANISHES_MS_MIN: u64 = 500;
/// Most that a clock is off. Two clocks then differ by what nodes tolerate of each other, with their drift.
const CLOCK_OFFSET_MS_MAX: u64 = 220;
/// One scenario in this many has large state.
const LARGE_STATE_ONE_IN: u64 = 200;
/// Most places that the requests of all applications reach; it bounds what a seed costs.
const PLACES_MAX: usize = 12;

/// The scenario of a seed.
pub fn draw(seed: u64) -> Scenario {
    let random = &mut Random::new(seed ^ 0x0e3_5eed);
    let servers = servers(random);
    let replicas_max = servers.len().min(3) as u64;
    let is_large = seed.is_multiple_of(LARGE_STATE_ONE_IN);
    let mut apps = apps(random, replicas_max, is_large);
    // Drawn apart, so that all else of a seed stays what it was.
    timers(&mut Random::new(seed ^ 0x71_3e25), &mut apps);
    calls(&mut Random::new(seed ^ 0xca11), &mut apps);
    only_called(&mut Random::new(seed ^ 0x0ca1), replicas_max, &mut apps);
    ticks(&mut Random::new(seed ^ 0x71c5), &mut apps);
    let mut scenario = Scenario {
        seed,
        servers,
        racks: Vec::new(),
        clients: clients(random, apps.len()),
        apps,
        asks: Vec::new(),
        topics: Vec::new(),
        network: base_network(random),
        clocks: Vec::new(),
        spares_last_copies: !random.one_in(6),
        faults_ms: FAULTS_MS,
        script: Vec::new(),
    };
    scenario.clocks = clocks(random, scenario.nodes());
    scenario.script = script(random, &scenario);
    hurries(&mut scenario);
    times_to_live(&mut scenario);
    asks(&mut scenario);
    topics::draw(&mut scenario);
    backups(&mut scenario);
    upgrades(&mut scenario);
    bad_versions(&mut scenario);
    disks::draw(&mut scenario);
    starvation(&mut scenario);
    replays(&mut scenario);
    racks::draw(&mut scenario);
    branches::draw(&mut scenario);
    members::draw(&mut scenario);
    scenario.script.sort_by_key(|act| act.at_ms);
    scenario
}

/// Has one client in three send some of its requests with much less time than the others. Drawn apart, as
/// times to live are.
fn hurries(scenario: &mut Scenario) {
    let random = &mut Random::new(scenario.seed ^ 0x0e3_d1e);
    for client in &mut scenario.clients {
        let is_hurried = random.one_in(3) && !client.is_keyed;
        let hurried_ms = *random.pick(&[100, 500]);
        client.hurried_ms = (is_hurried && client.deadline_ms > hurried_ms).then_some(hurried_ms);
    }
}

/// Deploys versions that are no good in one scenario of six. Drawn apart, as times to live are.
fn bad_versions(scenario: &mut Scenario) {
    let random = &mut Random::new(scenario.seed ^ 0x0e3_bad);
    if !random.one_in(6) {
        return;
    }
    for _ in 0..1 + random.below(2) {
        let app = random.index(scenario.apps.len());
        let at_ms = 1_000 + random.below(FAULTS_MS - 2_000);
        let starts = random.one_in(2);
        scenario.script.push(Act {
            at_ms,
            for_ms: 1_000,
            fault: Fault::BadVersion(app, starts),
        });
    }
}

/// Has nodes look starved in one scenario of five whose release stays. Drawn apart, as times to live
/// are.
fn starvation(scenario: &mut Scenario) {
    let random = &mut Random::new(scenario.seed ^ 0x0e3_57a);
    let upgrades = |act: &Act| matches!(act.fault, Fault::Upgrade(_) | Fault::Downgrade(_));
    if !random.one_in(5) || scenario.script.iter().any(upgrades) {
        return;
    }
    for _ in 0..2 + random.below(6) {
        let at_ms = random.below(FAULTS_MS - 1_000);
        scenario.script.push(Act {
            at_ms,
            for_ms: (500 + random.below(6_000)).min(FAULTS_MS - at_ms),
            fault: Fault::Starve(random.below(scenario.nodes().into()) as u32),
        });
    }
}

/// Has the release change in one scenario of four, forth, or forth and back and forth. Drawn apart, as
/// times to live are.
fn upgrades(scenario: &mut Scenario) {
    let random = &mut Random::new(scenario.seed ^ 0x0e3_519);
    if !random.one_in(4) {
        return;
    }
    let mut at_ms = random.below(UPGRADE_MS);
    let goes_back = random.one_in(2);
    for is_next in [true, false, true] {
        if at_ms >= FAULTS_MS || (!goes_back && at_ms >= UPGRADE_MS) {
            return;
        }
        let gap_ms = *random.pick(&[20, 300, 700, 1_500]);
        let for_ms = if goes_back {
            500 + random.below(UPGRADE_MS)
        } else {
            FAULTS_MS
        };
        let for_ms = for_ms.min(FAULTS_MS - at_ms);
        let fault = if is_next {
            Fault::Upgrade(gap_ms)
        } else {
            Fault::Downgrade(gap_ms)
        };
        let act = Act {
            at_ms,
            for_ms,
            fault,
        };
        at_ms = act.end_ms();
        scenario.script.push(act);
    }
}

/// Has applications backed up and restored in one scenario of three. Drawn apart, as times to live are.
fn backups(scenario: &mut Scenario) {
    let random = &mut Random::new(scenario.seed ^ 0x0e3_bac);
    if !random.one_in(3) || scenario.seed.is_multiple_of(LARGE_STATE_ONE_IN) {
        return;
    }
    let apps = scenario.apps.len();
    for _ in 0..1 + random.below(3) {
        let app = random.index(apps);
        let at_ms = random.below(FAULTS_MS - BACKUP_MS_MAX - RESTORE_MS);
        let backup = Act {
            at_ms,
            for_ms: *random.pick(&[50, 1_000, BACKUP_MS_MAX]),
            fault: Fault::Backup(app),
        };
        let at_ms = backup.end_ms() + random.below(RESTORE_MS);
        let restore = Act {
            at_ms,
            for_ms: RESTORE_MS.min(FAULTS_MS - at_ms),
            fault: Fault::Restore(app),
        };
        scenario.script.push(backup);
        if random.one_in(2) {
            scenario.script.push(restore);
        }
    }
}

/// Has dead letters replayed in one scenario of three. Drawn apart, as times to live are.
fn replays(scenario: &mut Scenario) {
    let random = &mut Random::new(scenario.seed ^ 0x0e3_4e9);
    if !random.one_in(3) {
        return;
    }
    for _ in 0..1 + random.below(3) {
        let at_ms = random.below(FAULTS_MS - 1_000);
        let for_ms = *random.pick(&[250, 3_000, FAULTS_MS]);
        scenario.script.push(Act {
            at_ms,
            for_ms: for_ms.min(FAULTS_MS - at_ms),
            fault: Fault::Replay(random.index(scenario.apps.len())),
        });
    }
}

/// Has keys of some services expire. From random numbers of its own, so that the rest of a seed's
/// scenario stays as it is.
fn times_to_live(scenario: &mut Scenario) {
    let random = &mut Random::new(scenario.seed ^ 0x0e3_771);
    let services = scenario.apps.iter_mut().flat_map(|app| &mut app.services);
    for service in services.filter(|s| s.stateful) {
        service.ttl_ms = *random.pick(&[0, 0, 5, 100, 600, TTL_MS_MAX]);
    }
}

/// Has services with state ask others, in one scenario of three. Drawn apart, as times to live are.
fn asks(scenario: &mut Scenario) {
    let random = &mut Random::new(scenario.seed ^ 0x0e3_a5c);
    if !random.one_in(3) {
        return;
    }
    let apps = scenario.apps.len();
    for (app, shape) in scenario.apps.iter().enumerate() {
        for (service, s) in shape.services.iter().enumerate() {
            if !s.stateful || random.one_in(3) {
                continue;
            }
            let to = match random.below(4) {
                0 => AskTarget::Http,
                1 => AskTarget::App(random.index(apps)),
                _ => AskTarget::Service(random.index(shape.services.len())),
            };
            scenario.asks.push(AskShape {
                app,
                service,
                to,
                deadline_ms: *random.pick(&[20, 500, 3_000, 8_000]),
            });
        }
    }
}

/// Draws one to six servers, mostly three, some with SmartNICs.
fn servers(random: &mut Random) -> Vec<u8> {
    let count = *random.pick(&[1, 2, 2, 3, 3, 3, 3, 4, 4, 5, 6]);
    let nic = |random: &mut Random| *random.pick(&[0, 0, 0, 1, 1, 2]);
    let mut servers: Vec<u8> = (0..count).map(|_| nic(random)).collect();
    if servers.len() > 3 {
        for nics in &mut servers {
            *nics = (*nics).min(1);
        }
    }
    servers
}

fn apps(random: &mut Random, replicas_max: u64, is_large: bool) -> Vec<AppShape> {
    let count = *random.pick(&[1, 1, 1, 1, 2, 2, 3]);
    let mut apps = Vec::new();
    let mut places = 0;
    while apps.len() < count {
        let app = app(random, replicas_max, is_large);
        let reached = app.places().len();
        if places + reached <= PLACES_MAX {
            places += reached;
            apps.push(app);
        } else if !apps.is_empty() {
            break;
        }
    }
    apps
}

fn app(random: &mut Random, replicas_max: u64, is_large: bool) -> AppShape {
    let count = *random.pick(&[1, 1, 2, 2, 2, 3, 3, 4, 5]);
    // All services on disk, so that all processes may die at once, or some.
    let on_disk_permille = *random.pick(&[0, 0, 300, 1_000]);
    let mut services: Vec<ServiceShape> = (0..count)
        .map(|_| service(random, replicas_max, is_large))
        .collect();
    if services.iter().all(|s| !s.stateful) {
        services[count - 1].stateful = true;
    }
    for service in services.iter_mut().filter(|s| s.stateful) {
        service.on_disk = random.chance(on_disk_permille);
    }
    // Every service has a channel from an earlier one, so that all are reached.
    let mut channels: Vec<ChannelShape> = (1..count)
        .map(|to| ChannelShape {
            from: if random.chance(700) {
                to - 1
            } else {
                random.index(to)
            },
            to,
            messages: if random.one_in(4) { 2 } else { 1 },
        })
        .collect();
    if count > 2 && random.one_in(3) {
        let from = random.index(count - 2);
        let to = from + 1 + random.index(count - from - 1);
        let is_new = channels.iter().all(|c| (c.from, c.to) != (from, to));
        if is_new {
            channels.push(ChannelShape {
                from,
                to,
                messages: 1,
            });
        }
    }
    AppShape {
        admitted_max: *random.pick(&[20, 1_000, 10_000]),
        attempts: 1 + random.below(4) as u32,
        services,
        channels,
    }
}

fn service(random: &mut Random, replicas_max: u64, is_large: bool) -> ServiceShape {
    let stateful = !random.one_in(4);
    let replicas = if random.chance(750) {
        replicas_max.min(2)
    } else {
        1 + random.below(replicas_max)
    };
    ServiceShape {
        stateful,
        draws_keys: !stateful && random.one_in(2),
        shards: *random.pick(&[1, 1, 2, 2, 3]),
        replicas: if stateful { replicas as u16 } else { 1 },
        on_disk: false,
        refuses_alone: stateful && replicas > 1 && random.one_in(12),
        service_us: *random.pick(&[5, 5, 50, 50, 500, 3_000]),
        fails_permille: *random.pick(&[0, 0, 0, 0, 0, 20, 300]),
        state_bytes: if is_large && stateful {
            1 << (20 + random.below(5))
        } else {
            0
        },
        timer_ms: 0,
        ticks: false,
        ttl_ms: 0,
        calls: None,
    }
}

/// Services call a later one with backups, in one scenario of two.
fn calls(random: &mut Random, apps: &mut [AppShape]) {
    if random.one_in(2) {
        return;
    }
    for app in apps {
        for at in 0..app.services.len() {
            let later = at + 1..app.services.len();
            let called: Vec<usize> = later
                .filter(|s| app.services[*s].stateful && app.services[*s].replicas > 1)
                .collect();
            if !called.is_empty() && !random.one_in(3) {
                app.services[at].calls = Some(*random.pick(&called));
            }
        }
    }
}

/// A service is reached by calls alone, in one scenario of eight.
fn only_called(random: &mut Random, replicas_max: u64, apps: &mut [AppShape]) {
    if !random.one_in(8) {
        return;
    }
    let app = random.index(apps.len());
    let services = &mut apps[app].services;
    let count = services.len();
    services[random.index(count)].calls = Some(count);
    let mut called = service(random, replicas_max, false);
    called.fails_permille = 0;
    services.push(called);
}

/// Services with state set timers, in one scenario of two.
fn timers(random: &mut Random, apps: &mut [AppShape]) {
    if random.one_in(2) {
        return;
    }
    let services = apps.iter_mut().flat_map(|app| &mut app.services);
    for service in services.filter(|s| s.stateful) {
        service.timer_ms = *random.pick(&[0, 1, 100, 1_000, 5_000]);
    }
}

/// Services with state set timers that repeat, in one scenario of three.
fn ticks(random: &mut Random, apps: &mut [AppShape]) {
    if !random.one_in(3) {
        return;
    }
    let services = apps.iter_mut().flat_map(|app| &mut app.services);
    for service in services.filter(|s| s.stateful) {
        service.ticks = random.chance(700);
    }
}

fn base_network(random: &mut Random) -> Wire {
    Wire {
        loss_permille: *random.pick(&[0, 0, 1, 10]),
        repeat_permille: *random.pick(&[0, 0, 5]),
        damage_permille: *random.pick(&[0, 0, 0, 2]),
        delay_us_max: *random.pick(&[40, 40, 200, 1_000]),
    }
}

fn clients(random: &mut Random, apps: usize) -> Vec<ClientShape> {
    let count = 3 + random.below(3);
    let each = REQUESTS.div_ceil(count);
    // So that all that nodes remember of requests can be forgotten before the end.
    let are_short = random.one_in(8);
    let client = |at: u64, random: &mut Random| {
        let is_keyed = !are_short && random.one_in(8);
        ClientShape {
            app: at as usize % apps,
            requests: each,
            burst: *random.pick(&[1, 1, 1, 8, 100]),
            is_rushing: random.one_in(3),
            keys: *random.pick(&[1, 8, 64, 64, 1_000]),
            deadline_ms: if is_keyed {
                // Clocks may differ by half a second.
                *random.pick(&[600, 1_000, 5_000])
            } else if are_short {
                *random.pick(&[20, 500, 3_000])
            } else {
                *random.pick(&[20, 500, 3_000, 30_000, 60_000, 60_000, 3_000_000])
            },
            hurried_ms: None,
            is_keyed,
            offset_ms: offset_ms(random),
            vanishes_ms: random
                .one_in(8)
                .then(|| VANISHES_MS_MIN + random.below(FAULTS_MS - VANISHES_MS_MIN)),
        }
    };
    (0..count).map(|at| client(at, random)).collect()
}

fn offset_ms(random: &mut Random) -> i64 {
    let max_ms = CLOCK_OFFSET_MS_MAX;
    match random.below(3) {
        0 => random.below(2 * max_ms + 1) as i64 - max_ms as i64,
        _ => 0,
    }
}

fn clocks(random: &mut Random, nodes: u32) -> Vec<ClockShape> {
    let clock = |random: &mut Random| ClockShape {
        offset_ms: offset_ms(random),
        fast_ppm: random.below(401) as i64 - 200,
    };
    (0..nodes).map(|_| clock(random)).collect()
}
