//! Meters that the kernel shows, on directories that imitate `/sys` of several machines.

mod common;

use common::{Sysfs, ms};
use e3_energy::{Choice, ChoiceError, MeterConfig, MeterError, Sampler};
use e3_model::meter::MeterScope;
use std::cell::Cell;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

fn open(config: MeterConfig) -> Sampler {
    Sampler::open(config, ms(0)).unwrap().expect("has a meter")
}

/// The joules after another second.
fn joules(sampler: &mut Sampler, second: u64) -> f64 {
    sampler.sample(|| ms(second * 1000)).joules
}

#[test]
fn intel_with_two_packages_adds_packages_and_their_memory() {
    let sysfs = Sysfs::intel();
    assert_eq!(
        sysfs.list(),
        [
            "rapl:package-0: steps of 0.061 mJ",
            "rapl:package-0:dram: steps of 0.015 mJ",
            "rapl:package-1: steps of 0.061 mJ",
            "rapl:package-1:dram: steps of 0.015 mJ",
        ]
    );
    let mut sampler = open(sysfs.config());
    let name = "rapl:package-0+package-0:dram+package-1+package-1:dram";
    assert_eq!(sampler.name(), name);
    assert_eq!(joules(&mut sampler, 1), 0.0);
    sysfs.count("intel-rapl:0", 150_000_000);
    sysfs.count("intel-rapl:1", 140_000_000);
    sysfs.count("intel-rapl:1:0", 25_000_000);
    let said = sampler.sample(|| ms(2_000));
    assert_eq!((said.joules, said.watts), (95.0, 95.0));
    assert_eq!((said.scope, said.cores), (MeterScope::Processor, 32));
    assert_eq!((said.metered_seconds, said.unmetered_seconds), (1.0, 1.0));
}

#[test]
fn amd_with_one_package_does_not_count_its_cores_again() {
    let sysfs = Sysfs::amd();
    assert_eq!(sysfs.list(), ["rapl:package-0: steps of 0.015 mJ"]);
    let mut sampler = open(sysfs.config());
    joules(&mut sampler, 1);
    sysfs.count("intel-rapl:0", 35_000_000);
    sysfs.count("intel-rapl:0:0", 31_000_000);
    assert_eq!(joules(&mut sampler, 2), 30.0);
}

#[test]
fn a_counter_wraps_at_the_range_that_the_kernel_says() {
    let sysfs = Sysfs::amd();
    sysfs.count("intel-rapl:0", 65_532_610_987 - 10_000_000);
    let mut sampler = open(sysfs.config());
    joules(&mut sampler, 1);
    sysfs.count("intel-rapl:0", 20_000_000);
    assert_eq!(joules(&mut sampler, 2), 30.0);
}

#[test]
fn a_platform_counter_is_read_only_if_it_is_named() {
    let sysfs = Sysfs::amd();
    sysfs.zone("intel-rapl:1", "psys", 7_000_000, 262_143_328_850);
    assert_eq!(sysfs.list().len(), 2);
    assert_eq!(open(sysfs.config()).name(), "rapl:package-0");
    assert_eq!(open(sysfs.named(&["rapl"])).name(), "rapl:package-0");
    let mut platform = open(sysfs.named(&["rapl:psys"]));
    joules(&mut platform, 1);
    sysfs.count("intel-rapl:1", 87_000_000);
    let said = platform.sample(|| ms(2_000));
    assert_eq!((said.joules, said.scope), (80.0, MeterScope::Node));
}

#[test]
fn garbage_in_a_counter_is_told_and_makes_a_gap() {
    let sysfs = Sysfs::amd();
    let mut sampler = open(sysfs.config());
    joules(&mut sampler, 1);
    let file = "class/powercap/intel-rapl:0/energy_uj";
    for garbage in ["lots", "", "-5", "1e9", "12 13", "18446744073709551616"] {
        sysfs.put(file, garbage);
        let said = sampler.sample(|| ms(2_000));
        let error = said.error.expect("the meter cannot be read");
        let says = format!("energy_uj holds {garbage:?}, must be a whole number");
        assert!(error.ends_with(&says), "{error}");
        assert_eq!(said.joules, 0.0);
    }
    std::fs::write(sysfs.file(file), [0xff, 0xfe, 0]).unwrap();
    assert!(sampler.sample(|| ms(3_000)).error.is_some());
    assert!(
        sampler.pause() > std::time::Duration::from_secs(30),
        "backs off"
    );
    std::fs::remove_file(sysfs.file(file)).unwrap();
    let error = sampler.sample(|| ms(4_000)).error.unwrap();
    assert!(error.ends_with("energy_uj does not exist"), "{error}");
    // The counter went on meanwhile: its difference is exact.
    sysfs.put(file, "45000000");
    let said = sampler.sample(|| ms(5_000));
    assert_eq!((said.joules, said.error), (40.0, None));
    assert_eq!(sampler.pause(), std::time::Duration::from_secs(1));
}

#[test]
fn garbage_at_the_start_leaves_the_meter_out() {
    let sysfs = Sysfs::amd();
    sysfs.put("class/powercap/intel-rapl:0/max_energy_range_uj", "0x10");
    let list = sysfs.list();
    let says = "max_energy_range_uj holds \"0x10\", must be a whole number";
    assert!(list[0].ends_with(says), "{list:?}");
    assert!(Sampler::open(sysfs.config(), ms(0)).is_err());
}

#[test]
fn a_bluefield_shows_whole_watts_of_its_system_on_a_chip() {
    let sysfs = Sysfs::new();
    // As in a BlueField-3 with DOCA: hwmon has counters of events, and disks' temperatures.
    sysfs.put("class/hwmon/hwmon0/name", "bfperf\n");
    sysfs.put("class/hwmon/hwmon0/triogen0/counter0", "0x0\n");
    sysfs.put("class/hwmon/hwmon1/name", "nvme\n");
    sysfs.put("class/hwmon/hwmon1/temp1_input", "41850\n");
    let status = "kernel/debug/mlxbf-ptm/monitors/status";
    sysfs.put(&format!("{status}/vr0_power"), "24\n");
    sysfs.put(&format!("{status}/vr1_power"), "7\n");
    sysfs.put(&format!("{status}/total_power"), "31\n");
    sysfs.put("devices/system/cpu/online", "0-15\n");
    assert_eq!(sysfs.list(), ["bluefield: steps of 1 W"]);
    let mut sampler = open(sysfs.config());
    joules(&mut sampler, 1);
    sysfs.put(&format!("{status}/total_power"), "33\n");
    let said = sampler.sample(|| ms(3_000));
    assert_eq!((said.meter.as_str(), said.joules), ("bluefield", 64.0));
    sysfs.put(&format!("{status}/total_power"), "0\n");
    let error = sampler.sample(|| ms(4_000)).error.unwrap();
    assert_eq!(error, "bluefield: no voltage regulator answers");
}

/// An ARM server whose ACPI power meters show a module, its processor and its memory.
fn arm() -> Sysfs {
    let sysfs = Sysfs::new();
    let sensors = [
        ("hwmon1", "Module Power Socket 0", "310000000"),
        ("hwmon2", "Grace Power Socket 0", "250000000"),
        ("hwmon3", "CPU Power Socket 0", "180000000"),
    ];
    for (dir, label, uw) in sensors {
        let dir = format!("class/hwmon/{dir}");
        sysfs.put(&format!("{dir}/name"), "power_meter\n");
        let device = format!("{dir}/device");
        sysfs.put(&format!("{device}/power1_average"), &format!("{uw}\n"));
        sysfs.put(&format!("{device}/power1_average_interval"), "50\n");
        sysfs.put(&format!("{device}/power1_oem_info"), &format!("{label}\n"));
    }
    sysfs
}

#[test]
fn sensors_of_an_arm_server_that_contain_each_other_are_not_added() {
    let sysfs = arm();
    let list = sysfs.list();
    let first = "hwmon:power_meter:power1_average: steps of 0.001 mW, average over 0.05 s";
    assert_eq!((list.len(), list[0].as_str()), (3, first));
    let labels = e3_energy::discover(&sysfs.config());
    let labels: Vec<_> = labels.into_iter().filter_map(|f| f.label).collect();
    assert_eq!(labels[1], "Grace Power Socket 0");
    let error = Sampler::open(sysfs.config(), ms(0)).err().unwrap();
    assert!(matches!(error, MeterError::Ambiguous { .. }), "{error}");
    assert!(
        error
            .fix()
            .unwrap()
            .contains("--meter hwmon:power_meter:power1_average")
    );
    let mut one = open(sysfs.named(&["hwmon:power_meter:power1_average#2"]));
    joules(&mut one, 1);
    assert_eq!(joules(&mut one, 2), 250.0);
}

#[test]
fn the_only_acpi_power_meter_is_the_servers() {
    let sysfs = Sysfs::new();
    sysfs.put("class/hwmon/hwmon0/name", "power_meter\n");
    sysfs.put("class/hwmon/hwmon0/power1_average", "98500000\n");
    sysfs.put("class/hwmon/hwmon0/power1_input", "99000000\n");
    sysfs.put("class/hwmon/hwmon0/power1_cap_max", "500000000\n");
    let mut sampler = open(sysfs.config());
    joules(&mut sampler, 1);
    let said = sampler.sample(|| ms(2_000));
    assert_eq!((said.joules, said.scope), (98.5, MeterScope::Server));
    sysfs.put("class/hwmon/hwmon0/power1_average", "99000000000\n");
    let error = sampler.sample(|| ms(3_000)).error.unwrap();
    assert_eq!(
        error,
        "hwmon:power_meter:power1_average shows 99000 W, must be 0..=20000"
    );
}

#[test]
fn other_sensors_are_read_only_if_they_are_named_and_are_added() {
    let sysfs = Sysfs::new();
    // An Ampere Altra with an accelerator card.
    sysfs.put("class/hwmon/hwmon0/name", "apm_xgene\n");
    sysfs.put("class/hwmon/hwmon0/power1_label", "CPU power\n");
    sysfs.put("class/hwmon/hwmon0/power1_input", "70000000\n");
    sysfs.put("class/hwmon/hwmon0/power2_label", "IO power\n");
    sysfs.put("class/hwmon/hwmon0/power2_input", "30000000\n");
    sysfs.put("class/hwmon/hwmon1/name", "amdgpu\n");
    sysfs.put("class/hwmon/hwmon1/energy1_input", "123456\n");
    assert_eq!(sysfs.list().len(), 3);
    assert!(Sampler::open(sysfs.config(), ms(0)).unwrap().is_none());
    let names = [
        "hwmon:apm_xgene:power1_input",
        "hwmon:apm_xgene:power2_input",
    ];
    let mut sampler = open(sysfs.named(&names));
    assert_eq!(
        sampler.name(),
        "hwmon:apm_xgene:power1_input+apm_xgene:power2_input"
    );
    joules(&mut sampler, 1);
    assert_eq!(joules(&mut sampler, 2), 100.0);
}

#[test]
fn a_machine_without_meters_has_none_and_a_named_one_may_still_come() {
    let sysfs = Sysfs::new();
    assert_eq!(sysfs.list(), [""; 0]);
    assert!(Sampler::open(sysfs.config(), ms(0)).unwrap().is_none());
    let mut sampler = open(sysfs.named(&["rapl"]));
    let said = sampler.sample(|| ms(1_000));
    assert!(
        said.error
            .unwrap()
            .ends_with("has no counter of a processor's energy")
    );
    sysfs.zone("intel-rapl:0", "package-0", 1_000_000, 65_532_610_987);
    joules(&mut sampler, 2);
    sysfs.count("intel-rapl:0", 3_000_000);
    let said = sampler.sample(|| ms(3_000));
    assert_eq!((said.joules, said.meter.as_str()), (2.0, "rapl:package-0"));
    assert_eq!(said.unmetered_seconds, 2.0);
}

#[test]
fn a_slow_reading_counts_for_the_middle_of_its_time() {
    let sysfs = Sysfs::amd();
    let mut sampler = open(sysfs.config());
    let now = Cell::new(0);
    let clock = || ms(now.replace(now.get() + 1_000));
    sampler.sample(clock);
    // The second one begins at 3 s and ends at 4 s, the first was from 0 s to 1 s.
    assert_eq!(sampler.sample(clock).metered_seconds, 3.0);
}

#[test]
fn a_choice_that_makes_no_sense_is_refused() {
    let parse = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        Choice::parse(&words)
    };
    assert_eq!(parse(&[]), Ok(Choice::Auto));
    assert_eq!(parse(&["off"]), Ok(Choice::Off));
    assert_eq!(parse(&["watt"]), Err(ChoiceError::Unknown("watt".into())));
    assert_eq!(
        parse(&["rapl", "ipmi"]),
        Err(ChoiceError::Alone("rapl".into()))
    );
    assert_eq!(
        parse(&["rapl:a", "rapl:a"]),
        Err(ChoiceError::Twice("rapl:a".into()))
    );
    assert_eq!(parse(&["rapl:a"; 33]), Err(ChoiceError::TooMany(33)));
    let redfish = MeterConfig {
        choice: parse(&["redfish"]).unwrap(),
        ..MeterConfig::default()
    };
    assert_eq!(redfish.validate(), Err(ChoiceError::NoUrl));
}

/// The user that may read nothing of root's.
const NOBODY: u32 = 65534;
const TREE: &str = "E3_TEST_TREE";

/// Run as another user by the next test only.
#[test]
fn reader_without_permission() {
    let Some(tree) = std::env::var_os(TREE) else {
        return;
    };
    let config = MeterConfig {
        sysfs: tree.into(),
        ..MeterConfig::default()
    };
    let error = Sampler::open(config, ms(0)).err().expect("is not allowed");
    assert!(matches!(error, MeterError::Forbidden { .. }), "{error:?}");
    let says = error.to_string();
    assert!(
        says.ends_with("energy_uj may not be read by this user"),
        "{says}"
    );
    let fix = error.fix().unwrap();
    assert!(
        fix.contains("run the node as root") && fix.contains("chmod o+r"),
        "{fix}"
    );
}

#[test]
fn a_counter_that_only_root_may_read_is_told_with_a_fix() {
    let sysfs = Sysfs::intel();
    for zone in ["0", "0:0", "1", "1:0"] {
        let file = sysfs.file(&format!("class/powercap/intel-rapl:{zone}/energy_uj"));
        std::fs::set_permissions(file, PermissionsExt::from_mode(0o400)).unwrap();
    }
    std::fs::set_permissions(sysfs.path(), PermissionsExt::from_mode(0o755)).unwrap();
    // A copy, because the directory of builds may be closed to others.
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = dir.path().join("reader");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut command = Command::new(&program);
    command.args(["--exact", "reader_without_permission"]);
    command.env(TREE, sysfs.path()).uid(NOBODY).gid(NOBODY);
    match command.output() {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        // Not root: then this process is the one without permission.
        Err(_) => {
            for zone in ["0", "1"] {
                let file = sysfs.file(&format!("class/powercap/intel-rapl:{zone}/energy_uj"));
                std::fs::set_permissions(file, PermissionsExt::from_mode(0o000)).unwrap();
            }
            let error = Sampler::open(sysfs.config(), ms(0)).err().unwrap();
            assert!(matches!(error, MeterError::Forbidden { .. }), "{error:?}");
        }
    }
}
