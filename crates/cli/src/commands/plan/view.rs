//! The report of `e3 plan` as text.

use crate::commands::load::report::{facts, heading, reading};
use crate::ui::output::{Paint, Table};
use crate::ui::text::rate;
use e3_capacity::Plan;
use e3_capacity::report::{CandidateReport, Figure, Figures, SensitivityRow};
use e3_hardware::Origin;

/// Rows of inputs that are shown.
const SENSITIVITY_SHOWN: usize = 16;

/// The report.
pub fn text(plan: &Plan, paint: Paint) -> String {
    let mut text = format!(
        "{} at {} requests/s, p99 within {} ms, {} years: modelled, nothing ran\n",
        paint.bold(&plan.app),
        rate(plan.load_rps),
        plan.p99_ms_objective,
        plan.years
    );
    assumptions(&mut text, paint, plan);
    inputs(&mut text, paint, plan);
    candidates(&mut text, paint, plan);
    verdict(&mut text, paint, plan);
    if plan.cheapest.is_some() {
        by_years(&mut text, paint, plan);
        by_load(&mut text, paint, plan);
        break_even(&mut text, paint, plan);
        sensitivity(&mut text, paint, plan);
    }
    text
}

/// A number with three digits that count.
fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => rate(value),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 || v == 0.0 => trimmed(format!("{value:.2}")),
        v => {
            let digits = (2.0 - v.log10().floor()) as usize;
            trimmed(format!("{value:.0$}", digits.min(12)))
        }
    }
}

fn trimmed(text: String) -> String {
    let text = text.trim_end_matches('0').trim_end_matches('.');
    text.to_string()
}

/// `4,650 (3,720 to 5,580)`.
fn cell(figure: &Figure, factor: f64) -> String {
    let e = &figure.estimate;
    if e.is_exact() {
        return short(e.value * factor);
    }
    format!(
        "{} ({} to {})",
        short(e.value * factor),
        short(e.low * factor),
        short(e.high * factor)
    )
}

fn assumptions(text: &mut String, paint: Paint, plan: &Plan) {
    heading(text, paint, "Assumed", "given or by default");
    let rows: Vec<(&str, String)> = plan
        .assumptions
        .iter()
        .map(|a| {
            (
                a.name,
                format!("{} {}", cell(&a.figure, 1.0), a.figure.unit),
            )
        })
        .chain([(
            "average load",
            format!("{} requests/s", rate(plan.average_rps)),
        )])
        .collect();
    facts(text, &rows);
}

fn inputs(text: &mut String, paint: Paint, plan: &Plan) {
    heading(
        text,
        paint,
        "Servers",
        "what is known of one; docs/hardware.md",
    );
    let headings = [
        "",
        ">PRICE $",
        ">IDLE W",
        ">PEAK W",
        "FROM",
        "SERVICE TIMES",
    ];
    let mut table = Table::new(&headings).indent(2);
    for c in &plan.candidates {
        let from = c.price_usd.from.max(c.idle_w.from).max(c.peak_w.from);
        table.row([
            c.name.clone(),
            cell(&c.price_usd, 1.0),
            cell(&c.idle_w, 1.0),
            cell(&c.peak_w, 1.0),
            from.words().to_string(),
            service_times(c),
        ]);
    }
    *text += &table.render();
}

fn service_times(c: &CandidateReport) -> String {
    match c.service_times {
        Origin::Measured => "measured".into(),
        Origin::Paper => "paper, Table 1".into(),
        _ => {
            let part = |name: &str, figure: &Option<Figure>| {
                let figure = figure.as_ref().filter(|f| f.estimate.value != 1.0)?;
                Some(format!("{name} core x {}", cell(figure, 1.0)))
            };
            let parts = [
                part("host", &c.host_speed),
                part("SmartNIC", &c.smartnic_speed),
            ];
            let parts: Vec<String> = parts.into_iter().flatten().collect();
            format!("guess, not measured: {}", parts.join(", "))
        }
    }
}

fn candidates(text: &mut String, paint: Paint, plan: &Plan) {
    heading(
        text,
        paint,
        "Candidates",
        "modelled: value, and range over all uncertain inputs",
    );
    let carries = plan
        .candidates
        .iter()
        .filter_map(|c| Some((c, c.figures.as_ref()?)));
    let carries: Vec<(&CandidateReport, &Figures)> = carries.collect();
    if !carries.is_empty() {
        let mut headings = vec!["".to_string()];
        headings.extend(carries.iter().map(|(c, _)| format!(">{}", c.name)));
        let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
        let mut table = Table::new(&headings).indent(2);
        let mut row = |name: &str, of: &dyn Fn(&Figures) -> String| {
            let cells = carries.iter().map(|(_, figures)| of(figures));
            table.row(std::iter::once(name.to_string()).chain(cells));
        };
        row("servers", &|f| cell(&f.servers, 1.0));
        row("watts at the peak", &|f| cell(&f.watts_peak, 1.0));
        row("watts on average", &|f| cell(&f.watts_average, 1.0));
        row("mJ a request", &|f| cell(&f.joules_per_request, 1e3));
        row("servers, $", &|f| cell(&f.capex_usd, 1.0));
        row("electricity, $", &|f| cell(&f.electricity_usd, 1.0));
        row("cost of ownership, $", &|f| cell(&f.ownership_usd, 1.0));
        row("CO2 of electricity, kg", &|f| cell(&f.co2_kg, 1.0));
        row("million requests/$, PUE 1", &|f| {
            short(f.requests_per_usd / 1e6)
        });
        row("p99, ms", &|f| short(f.p99_ms));
        row("knee, requests/s", &|f| rate(f.knee_rps));
        row("most used", &|f| f.bottleneck.clone());
        *text += &table.render();
    }
    for (c, figures) in &carries {
        if !figures.shards.is_empty() {
            let shards = figures
                .shards
                .iter()
                .map(|(name, n)| format!("{n} of {name}"));
            let shards: Vec<String> = shards.collect();
            let words = format!("{} needs more shards: {}", c.name, shards.join(", "));
            reading(text, &words);
        }
        for assumption in &figures.assumptions {
            let words = format!("{}: {assumption}", c.name);
            reading(text, &paint.yellow(&words));
        }
        if !figures.fails_at.is_empty() {
            let ends = figures.fails_at.join(", ");
            let words = format!("{} does not carry this load at: {ends}", c.name);
            reading(text, &paint.yellow(&words));
        }
    }
    for c in &plan.candidates {
        if let Some(why) = &c.cannot {
            let words = format!("{} does not carry this load: {why}", c.name);
            reading(text, &paint.yellow(&words));
        }
    }
    if !plan.grow_shards && plan.candidates.iter().any(|c| c.cannot.is_some()) {
        reading(
            text,
            "with --grow-shards, stateful services may have more shards",
        );
    }
}

fn verdict(text: &mut String, paint: Paint, plan: &Plan) {
    text.push('\n');
    match (&plan.cheapest, &plan.least_carbon) {
        (Some(cheapest), Some(carbon)) => {
            let words = format!("cheapest over {} years: {cheapest}", plan.years);
            reading(text, &paint.green(&words));
            reading(text, &format!("least CO2: {carbon}"));
        }
        _ if plan.candidates.len() == 2 => reading(text, &paint.red("neither carries this load")),
        _ => reading(text, &paint.red("no candidate carries this load")),
    }
}

fn by_years(text: &mut String, paint: Paint, plan: &Plan) {
    heading(
        text,
        paint,
        "Cheapest by years and price of electricity",
        "modelled, at the planned load",
    );
    let grid = &plan.by_years_and_price;
    let mut headings = vec!["YEARS".to_string()];
    let prices = grid.prices_usd_kwh.iter();
    headings.extend(prices.map(|p| format!("{} $/KWH", short(*p))));
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let mut table = Table::new(&headings).indent(2);
    for row in &grid.rows {
        let cells = row.cheapest.iter().map(|c| c.clone().unwrap_or("-".into()));
        table.row(std::iter::once(short(row.years)).chain(cells));
    }
    *text += &table.render();
}

fn by_load(text: &mut String, paint: Paint, plan: &Plan) {
    heading(
        text,
        paint,
        "Cheapest by load",
        "modelled; servers and cost of ownership; - does not carry it",
    );
    let mut headings = vec![">REQUESTS/S".to_string()];
    headings.extend(plan.candidates.iter().map(|c| format!(">{}", c.name)));
    headings.push("CHEAPEST".into());
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let mut table = Table::new(&headings).indent(2);
    for row in &plan.by_load {
        let cells = row.servers.iter().zip(&row.ownership_usd);
        let cells = cells.map(|(servers, cost)| match (servers, cost) {
            (Some(servers), Some(cost)) => format!("{servers}: {} $", short(*cost)),
            _ => "-".into(),
        });
        let cheapest = row.cheapest.clone().unwrap_or("-".into());
        let first = std::iter::once(rate(row.load_rps));
        table.row(first.chain(cells).chain([cheapest]));
    }
    *text += &table.render();
}

fn break_even(text: &mut String, paint: Paint, plan: &Plan) {
    if plan.break_even.is_empty() {
        return;
    }
    heading(
        text,
        paint,
        "Break-even",
        "where both cost the same, all else as planned",
    );
    let headings = ["CHEAPEST", "OTHER", ">YEARS", ">$/KWH", ">REQUESTS/S"];
    let mut table = Table::new(&headings).indent(2);
    for b in &plan.break_even {
        let or_never = |value: Option<f64>| value.map_or("never".into(), short);
        let load = |(low, high)| format!("{} to {}", rate(low), rate(high));
        table.row([
            b.cheapest.clone(),
            b.other.clone(),
            or_never(b.years),
            or_never(b.price_usd_kwh),
            b.load_rps.map_or("not within 1/4 to 4 times".into(), load),
        ]);
    }
    *text += &table.render();
}

fn sensitivity(text: &mut String, paint: Paint, plan: &Plan) {
    heading(
        text,
        paint,
        "Sensitivity",
        "one input at both ends of its range, the others stay; swing of the cost between the two cheapest",
    );
    let headings = [
        "INPUT",
        "OF",
        ">LOW",
        ">HIGH",
        "FROM",
        ">SWING $",
        "CHEAPEST AT LOW",
        "AT HIGH",
        "",
    ];
    let mut table = Table::new(&headings).indent(2);
    for row in plan.sensitivity.iter().take(SENSITIVITY_SHOWN) {
        let mark = if row.moves_cheapest { "<- changes" } else { "" };
        table.row([
            row.input.clone(),
            row.part.clone().unwrap_or("all".into()),
            short(row.low.value),
            short(row.high.value),
            row.from.words().to_string(),
            swing(row),
            row.low.cheapest.clone().unwrap_or("-".into()),
            row.high.cheapest.clone().unwrap_or("-".into()),
            mark.to_string(),
        ]);
    }
    *text += &table.render();
    let more = plan.sensitivity.len().saturating_sub(SENSITIVITY_SHOWN);
    if more > 0 {
        reading(text, &format!("and {more} with less effect; see -o json"));
    }
}

fn swing(row: &SensitivityRow) -> String {
    row.swing_usd.map_or("not carried".into(), short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_the_digits_that_count() {
        for (value, text) in [
            (0.0, "0"),
            (0.0733, "0.0733"),
            (0.00012345, "0.000123"),
            (1.0, "1"),
            (2.345, "2.35"),
            (12.34, "12.3"),
            (1234.5, "1,235"),
        ] {
            assert_eq!(short(value), text);
        }
    }
}
