//! The command line as it is documented and used.

mod documents;

use super::*;
use clap::CommandFactory;

fn parse(words: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(words.split(' '))
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn commands_parse() {
    let cli = parse("e3 up --topology t.yaml --detach --port 0 --no-restart --dir d").unwrap();
    let Command::Up(up) = cli.command else {
        panic!("not up")
    };
    assert!(up.detach && up.no_restart);
    assert_eq!((up.port, up.topology.as_deref()), (Some(0), Some("t.yaml")));
    assert_eq!(cli.global.dir, Some("d".into()));
    for good in [
        "e3 down",
        "e3 down --yes",
        "e3 deploy a.yaml --dry-run --topology t.yaml",
        "e3 doctor --port 0",
        "e3 get nodes -o json",
        "e3 get nodes --json",
        "e3 bench engine --json",
        "e3 bench sim",
        "e3 sim iot-ts --load -5",
        "e3 plan iot-ts --candidates Beefy,Type1-SmartNIC --load 20000",
        "e3 plan iot-ts --candidates Beefy --load 9000 --day 900 --price 0.05:0.1:0.3 --pue 1.3",
        "e3 sim iot-ts --sweep --no-topology-awareness",
        "e3 bench engine -o json",
        "e3 get instances --app a --node n",
        "e3 describe instance a/b/0/primary -o yaml",
        "e3 migrate a/b/0 --to s2-host",
        "e3 get events shop --watch",
        "e3 orchestrator",
        "e3 orchestrator dry-run --moves-max 2",
        "e3 power",
        "e3 power cap server s1 120",
        "e3 power cap rack rack0 none",
        "e3 get dead-letters --app a",
        "e3 replay a --all",
        "e3 replay a 0000000000000001-2",
        "e3 logs controller -f",
        "e3 place iot-ts --topology 3x-beefy --placer hosts-only",
        "e3 schema application",
        "e3 completions bash",
    ] {
        assert!(parse(good).is_ok(), "{good}");
    }
    for bad in [
        "e3",
        "e3 get pods",
        "e3 orchestrator maybe",
        "e3 power cap server s1",
        "e3 power cap node s1-host 120",
        "e3 power cap rack rack0 some",
        "e3 up --port 70000",
        "e3 deploy a.yaml --topology t.yaml",
        "e3 migrate a/b/0",
        "e3 place a.yaml --placer best",
        "e3 get nodes -o xml",
        "e3 replay a",
        "e3 replay a 0000000000000001-2 --all",
    ] {
        assert_eq!(parse(bad).unwrap_err().exit_code(), 2, "{bad}");
    }
}
