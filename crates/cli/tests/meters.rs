//! Energy meters, from the kernel's files to what the program shows. A directory imitates `/sys` of a
//! machine with one processor package.

use crate::common::running::{CHAIN, start_load};
use crate::common::{E3, Ended, ended};
use serde_json::Value;
use std::path::PathBuf;

/// A server that is not emulated.
const TOPOLOGY: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Topology
metadata: {name: one}
spec:
  racks:
    - name: r
      servers:
        - name: s1
          system: Type1-SmartNIC
          nodes:
            - {name: s1-host, kind: host, cores: 12, memory: 4Gi}
";

/// A package's counter of energy.
struct Counter {
    dir: PathBuf,
    uj: u64,
}

impl Counter {
    fn new(e3: &E3) -> Counter {
        let dir = e3.dir.path().join("sys/class/powercap/intel-rapl:0");
        std::fs::create_dir_all(&dir).unwrap();
        let mut counter = Counter { dir, uj: 0 };
        counter.put("name", "package-0");
        counter.put("max_energy_range_uj", "65532610987");
        counter.add(1_000_000);
        counter
    }

    fn put(&self, file: &str, text: &str) {
        // Renamed, so that no reader finds half of it.
        std::fs::write(self.dir.join("new"), format!("{text}\n")).unwrap();
        std::fs::rename(self.dir.join("new"), self.dir.join(file)).unwrap();
    }

    fn add(&mut self, uj: u64) {
        self.uj += uj;
        self.put("energy_uj", &self.uj.to_string());
    }
}

/// Runs the program where the kernel's files are those of the imitated machine.
fn run(e3: &E3, arguments: &[&str], more: &[(&str, &str)]) -> Ended {
    let mut command = e3.command(arguments);
    command.env("E3_SYSFS", e3.dir.path().join("sys"));
    command.envs(more.iter().copied());
    ended(command.output().unwrap())
}

fn measured(e3: &E3) -> Value {
    e3.json(&["describe", "node", "s1-host"])["node"]["measured"].clone()
}

#[test]
fn a_nodes_meter_is_read_and_its_joules_belong_to_services_platform_and_idle() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    let mut counter = Counter::new(&e3);
    let topology = e3.file("one.yaml", TOPOLOGY);
    let up = run(
        &e3,
        &["up", "--detach", "--port", "0", "--topology", &topology],
        &[],
    );
    assert_eq!(up.code, 0, "{up:?}");
    let chain = CHAIN.replace("replicas: 2", "replicas: 1");
    e3.good(&["deploy", &e3.file("chain.yaml", &chain), "--wait"]);
    let mut load = start_load(&e3, "3s");
    e3.until("joules of services are measured", |e3| {
        counter.add(1_000_000);
        measured(e3)["serviceJoules"]
            .as_f64()
            .is_some_and(|j| j > 0.0)
    });
    load.wait().unwrap();
    let node = measured(&e3);
    assert_eq!(node["meter"], "rapl:package-0");
    assert_eq!(
        (&node["provenance"], &node["scope"]),
        (&"measured".into(), &"processor".into())
    );
    let part = |name: &str| node[name].as_f64().unwrap();
    let sum = part("serviceJoules") + part("platformJoules") + part("idleJoules");
    assert!((sum - part("joules")).abs() < 1e-6, "{node}");
    assert!(
        part("platformJoules") > 0.0 && part("idleJoules") > 0.0,
        "{node}"
    );
    // At most what the counter showed.
    assert!(part("joules") <= counter.uj as f64 / 1e6, "{node}");
    let text = e3.good(&["describe", "node", "s1-host"]);
    assert!(
        text.contains("Energy, measured") && text.contains("Energy, MODELLED"),
        "{text}"
    );
    let text = e3.good(&["describe", "service", "chain/front"]);
    assert!(text.contains("Energy, measured"), "{text}");
    assert!(e3.good(&["get", "nodes"]).contains("MEASURED ENERGY"));

    counter.put("energy_uj", "lots");
    e3.until("the meter's failure is shown", |e3| {
        let error = measured(e3)["error"].as_str().map(str::to_string);
        error.is_some_and(|e| e.ends_with("holds \"lots\", must be a whole number"))
    });
    let log = e3.good(&["logs", "s1-host", "-n", "200"]);
    assert!(log.contains("the meter cannot be read"), "{log}");
}

#[test]
fn a_meter_that_is_off_is_not_read_and_a_wrong_one_is_refused() {
    let Some(e3) = E3::with_services() else {
        return;
    };
    Counter::new(&e3);
    let topology = e3.file("one.yaml", TOPOLOGY);
    let up = ["up", "--detach", "--port", "0", "--topology", &topology];
    let wrong = run(&e3, &up, &[("E3_METER", "watt")]);
    assert_ne!(wrong.code, 0, "{wrong:?}");
    assert!(wrong.err.contains("meter \"watt\" is unknown"), "{wrong:?}");
    let off = run(&e3, &up, &[("E3_METER", "off")]);
    assert_eq!(off.code, 0, "{off:?}");
    e3.until("a report has come", |e3| {
        let node = e3.json(&["describe", "node", "s1-host"]);
        node["node"]["cpuSeconds"].as_f64().is_some_and(|s| s > 0.0)
    });
    assert_eq!(measured(&e3), Value::Null);
}

#[test]
fn the_doctor_lists_meters_with_resolution_and_overhead() {
    let e3 = E3::new();
    let counter = Counter::new(&e3);
    let found = run(&e3, &["doctor", "--port", "0"], &[]);
    let line = |text: &str| {
        let line = found.out.lines().find(|l| l.contains(text));
        line.unwrap_or_else(|| panic!("{found:?}")).to_string()
    };
    let meter = line("rapl:package-0: processor, steps of 0.015 mJ, a reading takes");
    assert!(meter.contains("ok") && meter.contains(" us"), "{meter}");
    line("measured: rapl:package-0 (processor)");
    counter.put("energy_uj", "lots");
    let broken = run(&e3, &["doctor", "--port", "0"], &[]);
    assert!(
        broken
            .out
            .contains("holds \"lots\", must be a whole number"),
        "{broken:?}"
    );
    let redfish = [
        ("E3_METER_URL", "https://root:pw@bmc"),
        ("E3_METER_USER", "root"),
        ("E3_METER_PASSWORD_FILE", "/nowhere"),
    ];
    let refused = run(&e3, &["doctor"], &redfish);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(!refused.err.contains("pw@"), "{refused:?}");
    let away = [
        ("E3_METER_URL", "http://127.0.0.1:1"),
        redfish[1],
        redfish[2],
    ];
    let away = run(&e3, &["doctor", "--port", "0"], &away);
    assert!(!away.out.contains("measured: "), "{away:?}");
    let half = run(&e3, &["doctor"], &redfish[..1]);
    assert!(half.err.contains("go together"), "{half:?}");
    std::fs::remove_dir_all(e3.dir.path().join("sys")).unwrap();
    let none = run(&e3, &["doctor", "--port", "0"], &[]);
    assert!(none.out.contains("no meter is read"), "{none:?}");
}
