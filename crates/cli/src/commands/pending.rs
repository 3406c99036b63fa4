//! `e3 get timers`: what is pending at the shards of an application.

use crate::ui::output::Table;
use crate::ui::text::{count, plural};
use e3_clock::Clock;
use e3_model::Timestamp;
use e3_model::api::PendingView;
use e3_model::pending::Pending;

/// A table of what is pending, and a line for each shard that has more or did not answer.
pub fn text(shards: &[PendingView]) -> String {
    let now_ms = Clock::new().now().since(Timestamp::ZERO).as_millis();
    let mut table = Table::new(&[
        "INSTANCE",
        "KIND",
        "NAME",
        "KEY",
        "DUE",
        "REPEATS",
        "TO",
        ">ATTEMPTS",
        "NEXT ATTEMPT",
        "LAST ERROR",
    ]);
    for shard in shards {
        for p in &shard.pending {
            table.row(row(&shard.instance, p, now_ms));
        }
    }
    let mut text = table.render();
    for shard in shards {
        let instance = &shard.instance;
        if shard.left_out > 0 {
            text.push_str(&format!("{instance}: {} more\n", count(shard.left_out)));
        }
        if let Some(error) = &shard.error {
            text.push_str(&format!("{instance}: {error}\n"));
        }
    }
    let known = shards.iter().filter_map(|s| s.count).sum::<u64>();
    let shards = plural(shards.len(), "shard");
    text.push_str(&format!("{} pending at {shards}\n", count(known)));
    text
}

fn row(instance: &str, p: &Pending, now_ms: u64) -> [String; 10] {
    let due_or_none = |at: Option<u64>| at.map_or_else(|| "-".into(), |at| due(at, now_ms));
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    [
        instance.to_string(),
        p.kind.name().into(),
        match p.name.as_str() {
            "" => "-".into(),
            name => name.into(),
        },
        p.key.clone(),
        due_or_none(p.due_unix_ms),
        or_none(&p.repeats),
        or_none(&p.to),
        count(p.attempts.into()),
        due_or_none(p.next_attempt_unix_ms),
        p.last_error.clone().unwrap_or_default(),
    ]
}

/// How far ahead a time is.
fn due(at_ms: u64, now_ms: u64) -> String {
    let seconds = at_ms.saturating_sub(now_ms) / 1_000;
    match seconds {
        _ if at_ms <= now_ms => "now".into(),
        0..120 => format!("in {seconds} s"),
        120..7_200 => format!("in {} min", seconds / 60),
        7_200..172_800 => format!("in {} h", seconds / 3_600),
        _ => format!("in {} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_ahead_are_said_in_the_largest_unit_that_fits() {
        let ahead = |seconds: u64| due(seconds * 1_000 + 5, 5);
        assert_eq!(due(5, 6), "now");
        assert_eq!(ahead(59), "in 59 s");
        assert_eq!(ahead(180), "in 3 min");
        assert_eq!(ahead(7_200), "in 2 h");
        assert_eq!(ahead(3 * 86_400), "in 3 d");
    }
}
