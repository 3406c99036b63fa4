//! `e3 power`: what servers and racks draw, and their power caps.

use crate::cluster::client::Client;
use crate::settings::Settings;
use crate::ui::failure::Failure;
use crate::ui::output::{self, Output, Table};
use clap::{Args, Subcommand, ValueEnum};
use e3_model::api::{PowerCapRequest, PowerDomain, PowerView};

/// `e3 power`.
#[derive(Args, Debug, Clone)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Power {
    /// What to do [default: show what each rack and server draws]
    #[command(subcommand)]
    pub action: Option<Action>,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

/// What `e3 power` does.
#[derive(Subcommand, Debug, Clone)]
pub enum Action {
    /// Set the power cap of a server or a rack, or remove it
    Cap(Cap),
}

/// `e3 power cap`.
#[derive(Args, Debug, Clone)]
pub struct Cap {
    /// What is capped
    #[arg(value_enum)]
    pub kind: Kind,
    /// Name of the server or rack
    pub name: String,
    /// The cap in whole watts, or `none`
    #[arg(value_parser = watts, value_name = "WATTS|none")]
    pub cap: CapW,
}

/// What a cap is of.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A server
    Server,
    /// The servers of a rack together
    Rack,
}

/// A cap; none removes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CapW(Option<u32>);

fn watts(text: &str) -> Result<CapW, String> {
    if text == "none" {
        return Ok(CapW(None));
    }
    let cap_w = text
        .parse()
        .map_err(|_| "must be whole watts, such as 120, or none");
    Ok(CapW(Some(cap_w?)))
}

/// `e3 power`.
pub fn run(args: &Power, settings: &Settings) -> Result<(), Failure> {
    let client = Client::connect(settings)?;
    let Some(Action::Cap(cap)) = &args.action else {
        let views = client.power()?;
        return output::show(settings.format(args.output), &views, || text(&views));
    };
    let name = cap.name.clone();
    let domain = match cap.kind {
        Kind::Server => PowerDomain::Server(name),
        Kind::Rack => PowerDomain::Rack(name),
    };
    let cap_w = cap.cap.0;
    let view = client.cap_power(&PowerCapRequest { domain, cap_w })?;
    output::print(&capped(&view))
}

/// What has been set, and what is drawn.
fn capped(view: &PowerView) -> String {
    let drawn = drawn(view);
    match view.cap_w {
        Some(cap_w) => format!("{}: power cap {cap_w} W; it draws {drawn}\n", view.domain),
        None => format!("{}: no power cap; it draws {drawn}\n", view.domain),
    }
}

/// The power with its source.
fn drawn(view: &PowerView) -> String {
    let Some(watts) = view.watts else {
        return "an unknown power".into();
    };
    let source = view.provenance.name();
    format!("{watts:.1} W ({source})")
}

fn text(views: &[PowerView]) -> String {
    let head = [
        "RACK OR SERVER",
        ">POWER W",
        "SOURCE",
        ">IDLE W",
        ">BUDGET W",
        ">CAP W",
        "STATE",
    ];
    let mut table = Table::new(&head);
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    for view in views {
        table.row([
            view.domain.to_string(),
            or_dash(view.watts.map(|w| format!("{w:.1}"))),
            source(view),
            format!("{:.1}", view.idle_w),
            or_dash(view.budget_w.map(|w| format!("{w:.0}"))),
            or_dash(view.cap_w.map(|w| w.to_string())),
            state(view),
        ]);
    }
    table.render()
}

fn source(view: &PowerView) -> String {
    match (view.servers_measured, view.servers) {
        (0, _) => "modelled".into(),
        (measured, all) if measured == all => "measured".into(),
        (measured, all) => format!("modelled, {measured} of {all} servers measured"),
    }
}

fn state(view: &PowerView) -> String {
    match (view.watts, view.cap_w) {
        (_, None) => "-".into(),
        (None, _) => "unknown".into(),
        (Some(watts), Some(cap_w)) if watts > f64::from(cap_w) => {
            format!("{:.1} W above its cap", watts - f64::from(cap_w))
        }
        _ => "within its cap".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_is_whole_watts_or_none() {
        assert_eq!(watts("120"), Ok(CapW(Some(120))));
        assert_eq!(watts("none"), Ok(CapW(None)));
        for wrong in ["", "-1", "1.5", "NONE", "120W", "99999999999"] {
            assert!(watts(wrong).is_err(), "{wrong}");
        }
    }
}
