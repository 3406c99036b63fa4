//! `e3 get events`: what happened in the cluster.

use crate::cluster::client::Client;
use crate::cluster::patience::Patience;
use crate::limits::{EVENTS_WAIT, WATCH_PATIENCE};
use crate::ui::failure::Failure;
use crate::ui::output::{self, Format, Table};
use crate::ui::text::time;
use e3_model::api::Event;

/// Prints the events that are kept, of one application or node if they are given; then new ones as they
/// happen.
pub fn run(
    client: &Client,
    format: Format,
    (app, node): (Option<&str>, Option<&str>),
    watch: bool,
) -> Result<(), Failure> {
    let is_wanted = |e: &Event| {
        let nodes = [e.node.as_deref(), e.to.as_deref()];
        let of_node = node.is_none_or(|node| nodes.contains(&Some(node)));
        of_node && app.is_none_or(|app| e.app.as_deref() == Some(app))
    };
    let mut all = client.events(0, 0)?;
    let mut last = all.last().map_or(0, |e| e.number);
    all.retain(is_wanted);
    output::show(format, &all, || table(&all))?;
    if !watch {
        return Ok(());
    }
    while !output::reader_is_gone() {
        let patience = Patience::new(WATCH_PATIENCE);
        for event in patience.ask(|| client.events(last, EVENTS_WAIT.as_secs()))? {
            last = event.number;
            if is_wanted(&event) {
                output::show(format, &event, || line(&event) + "\n")?;
            }
        }
    }
    Ok(())
}

/// What the event is about: an instance, an application or a node, and where it goes.
fn what(e: &Event) -> String {
    let thing = e.instance.as_ref().or(e.app.as_ref());
    let mut text = thing.or(e.node.as_ref()).cloned().unwrap_or_default();
    match (thing.and(e.node.as_ref()), &e.to) {
        (Some(from), Some(to)) => text += &format!(" from {from} to {to}"),
        (Some(node), None) => text += &format!(" on {node}"),
        _ => {}
    }
    text
}

/// The reason, and the numbers behind it.
fn why(e: &Event) -> String {
    let figures = e.figures.iter();
    let figures: Vec<String> = figures.map(|(name, n)| format!("{name}={n}")).collect();
    let mut text = e3_log::escape(&e.why).to_string();
    if !figures.is_empty() {
        text += &format!(" ({})", figures.join(" "));
    }
    text.trim().to_string()
}

fn line(e: &Event) -> String {
    let (at, kind, what) = (time(e.at_unix_ms), e.kind, what(e));
    format!("{at}  {kind}  {what}  {}", why(e))
        .trim_end()
        .to_string()
}

pub fn table(all: &[Event]) -> String {
    let mut table = Table::new(&[">NUMBER", "TIME", "EVENT", "WHAT", "WHY"]);
    for e in all {
        let (number, at) = (e.number.to_string(), time(e.at_unix_ms));
        table.row([number, at, e.kind.to_string(), what(e), why(e)]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use e3_model::api::EventKind;
    use std::collections::BTreeMap;

    #[test]
    fn a_decision_is_one_line_with_its_numbers() {
        let event = Event {
            number: 7,
            at_unix_ms: 0,
            kind: EventKind::OrchestratorMove,
            app: Some("shop".into()),
            instance: Some("shop/sql/0".into()),
            node: Some("s1-nic0".into()),
            to: Some("s1-host".into()),
            why: "starvation: 90 requests wait".into(),
            figures: BTreeMap::from([("queueLen".to_string(), 90)]),
        };
        assert!(line(&event).ends_with(
            "orchestrator-move  shop/sql/0 from s1-nic0 to s1-host  starvation: 90 requests wait (queueLen=90)"
        ));
        let lost = Event {
            kind: EventKind::NodeLost,
            app: None,
            instance: None,
            to: None,
            why: String::new(),
            figures: BTreeMap::new(),
            ..event
        };
        assert!(line(&lost).ends_with("node-lost  s1-nic0"));
    }
}
