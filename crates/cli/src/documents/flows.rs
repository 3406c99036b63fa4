//! How many messages each service of a built-in application handles for a request: the table of
//! docs/applications/flows.md, which a test holds against what `e3 load` measures.

use e3_model::Application;

const PAGE: &str = include_str!("../../../../docs/applications/flows.md");

/// Messages per request by service; None if the page does not have the application with all of its
/// services.
pub fn visits(app: &Application) -> Option<Vec<f64>> {
    let rows = PAGE.lines().map(|l| l.split('|').map(str::trim));
    let rows: Vec<Vec<&str>> = rows.map(Iterator::collect).collect();
    let of = |service: &str| {
        let row = rows
            .iter()
            .find(|r| r.len() > 4 && r[1] == app.name && r[2] == service)?;
        row[3].parse().ok()
    };
    app.spec.services.iter().map(|s| of(&s.name)).collect()
}

/// The lowest and the highest plausible messages per request by service; None if the page does not have the
/// application with all of its services.
pub fn plausible(app: &Application) -> Option<(Vec<f64>, Vec<f64>)> {
    let rows = PAGE.lines().map(|l| l.split('|').map(str::trim));
    let rows: Vec<Vec<&str>> = rows.map(Iterator::collect).collect();
    let of = |service: &str| {
        let row = rows
            .iter()
            .find(|r| r.len() > 5 && r[1] == app.name && r[2] == service)?;
        let (low, high) = row[4].split_once(" to ").unwrap_or((row[4], row[4]));
        Some((low.parse::<f64>().ok()?, high.parse::<f64>().ok()?))
    };
    let all: Option<Vec<_>> = app.spec.services.iter().map(|s| of(&s.name)).collect();
    Some(all?.into_iter().unzip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::builtin;

    #[test]
    fn the_page_has_the_paper_s_applications() {
        let of = |name: &str| visits(&builtin::application(name).unwrap().1);
        assert_eq!(of("iot-ts"), Some(vec![1.0, 0.99, 0.61, 0.99, 0.07]));
        assert_eq!(of("kvs"), None);
        let known = builtin::app_names().filter(|name| of(name).is_some());
        assert_eq!(known.count(), 8);
    }

    #[test]
    fn each_application_s_messages_are_within_what_is_plausible() {
        for name in builtin::app_names() {
            let app = builtin::application(name).unwrap().1;
            let Some(all) = visits(&app) else {
                assert_eq!(plausible(&app), None);
                continue;
            };
            let (low, high) = plausible(&app).unwrap();
            for ((at, low), high) in all.iter().zip(low).zip(high) {
                assert!((low..=high).contains(at), "{name}: {low} {at} {high}");
            }
        }
    }
}
