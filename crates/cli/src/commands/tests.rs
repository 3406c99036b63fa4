//! The command line as it is documented and used.

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
fn every_command_is_documented() {
    let page = include_str!("../../../../docs/cli.md");
    for command in Cli::command()
        .get_subcommands()
        .filter(|c| !c.is_hide_set())
    {
        let name = command.get_name();
        let found = page.contains(&format!("### `e3 {name} "))
            || page.contains(&format!("### `e3 {name}`"));
        assert!(found, "docs/cli.md says nothing of e3 {name}");
    }
}

/// The `e3` commands in the shell blocks of a page.
fn documented(page: &str) -> Vec<String> {
    let blocks = page.split("```sh\n").skip(1);
    let blocks = blocks.filter_map(|part| part.split("```").next());
    let joined = blocks.collect::<String>().replace("\\\n", " ");
    let parts = joined.split(['\n', '|', ';', '&']);
    let commands = parts.map(|part| part.split(" #").next().unwrap_or_default());
    let commands = commands.map(|c| c.trim().trim_start_matches('('));
    commands
        .filter(|c| c.starts_with("e3 "))
        .map(str::to_string)
        .collect()
}

/// Splits as a shell does, as far as these commands need it.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in command.chars().take_while(|c| *c != '>') {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(q), c) if q == c => quote = None,
            (None, ' ') => words.push(String::new()),
            _ => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|w| !w.is_empty());
    words
}

#[test]
fn documented_commands_parse() {
    let mut count = 0;
    for page in [
        include_str!("../../../../README.md"),
        include_str!("../../../../docs/first-service.md"),
        include_str!("../../../../docs/cli.md"),
        include_str!("../../../../docs/development.md"),
        include_str!("../../../../docs/applications/iot-ts.md"),
        include_str!("../../../../services/README.md"),
    ] {
        for command in documented(page) {
            let parsed = Cli::try_parse_from(words(&command));
            assert!(parsed.is_ok(), "{command}: {}", parsed.unwrap_err());
            count += 1;
        }
    }
    assert!(count >= 25, "only {count} commands found");
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
        "e3 doctor --port 0",
        "e3 get nodes -o json",
        "e3 get nodes --json",
        "e3 bench engine --json",
        "e3 bench engine -o json",
        "e3 get instances --app a --node n",
        "e3 describe instance a/b/0/primary -o yaml",
        "e3 migrate a/b/0 --to s2-host",
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
        "e3 up --port 70000",
        "e3 migrate a/b/0",
        "e3 place a.yaml --placer best",
        "e3 get nodes -o xml",
        "e3 replay a",
        "e3 replay a 0000000000000001-2 --all",
    ] {
        assert_eq!(parse(bad).unwrap_err().exit_code(), 2, "{bad}");
    }
}
