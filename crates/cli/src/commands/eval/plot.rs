//! Plots as SVG, drawn by `plotters`. Small enough to be read on a phone; the text is text, so the page
//! that holds a plot chooses font and colour.

use crate::ui::failure::{Exit, Failure};
use e3_evaluation::{Axis, Bars, Drawing, Line, Plot};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::prelude::*;
use std::ops::Range;

const WIDTH: u32 = 480;
/// Of the part with lines.
const LINES_HEIGHT: u32 = 280;
/// Of a bar, and between groups of bars.
const BAR_HEIGHT: u32 = 13;
const GROUP_GAP: u32 = 9;
const AXIS_HEIGHT: u32 = 46;
const TITLE_HEIGHT: u32 = 26;
const LEGEND_ROW: u32 = 20;
const MARGIN: u32 = 10;
/// A character of the legend and of group names, about; wide rather than narrow.
const CHARACTER: u32 = 8;
const FONT: (&str, i32) = ("sans-serif", 16);
const TITLE_FONT: (&str, i32) = ("sans-serif", 19);
/// Okabe and Ito, "Color Universal Design" (2008): distinguishable by the colour-blind.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(128, 128, 128),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// A plot as SVG.
pub fn svg(plot: &Plot) -> Result<String, Failure> {
    let mut text = String::new();
    draw(plot, &mut text)
        .map_err(|e| Failure::new(Exit::Unexpected, format!("draw {:?}: {e}", plot.title)))?;
    Ok(text)
}

fn draw(plot: &Plot, text: &mut String) -> Drawn {
    let names: Vec<&str> = match &plot.drawing {
        Drawing::Lines { lines, .. } => lines.iter().map(|l| l.name.as_str()).collect(),
        Drawing::Bars { bars, .. } => bars.iter().map(|b| b.name.as_str()).collect(),
    };
    let rows = legend_rows(&names);
    let head = TITLE_HEIGHT + LEGEND_ROW * rows.len() as u32;
    let height = match &plot.drawing {
        Drawing::Lines { .. } => LINES_HEIGHT,
        Drawing::Bars { groups, bars, .. } => {
            let group = BAR_HEIGHT * bars.len() as u32 + GROUP_GAP;
            group * groups.len() as u32 + AXIS_HEIGHT + 2 * MARGIN
        }
    };
    let root = SVGBackend::with_string(text, (WIDTH, head + height)).into_drawing_area();
    let (top, below) = root.split_vertically(head);
    top.draw(&Text::new(
        plot.title.clone(),
        (MARGIN as i32, 6),
        TITLE_FONT,
    ))?;
    legend(&top, &rows)?;
    match &plot.drawing {
        Drawing::Lines { x, y, lines } => lines_plot(&below, x, y, lines)?,
        Drawing::Bars { x, groups, bars } => bars_plot(&below, x, groups, bars)?,
    }
    root.present()?;
    Ok(())
}

/// Names with their numbers, in rows that fit.
fn legend_rows<'a>(names: &[&'a str]) -> Vec<Vec<(usize, &'a str)>> {
    let mut rows: Vec<Vec<(usize, &str)>> = Vec::new();
    let mut used = WIDTH;
    for (at, name) in names.iter().enumerate() {
        let width = legend_width(name);
        if used + width > WIDTH - 2 * MARGIN {
            rows.push(Vec::new());
            used = 0;
        }
        used += width;
        rows.last_mut().expect("just added").push((at, name));
    }
    rows
}

fn legend_width(name: &str) -> u32 {
    name.chars().count() as u32 * CHARACTER + 26
}

fn legend(area: &Area<'_>, rows: &[Vec<(usize, &str)>]) -> Drawn {
    for (row, names) in rows.iter().enumerate() {
        let y = (TITLE_HEIGHT + LEGEND_ROW * row as u32) as i32;
        let mut x = MARGIN as i32;
        for (at, name) in names {
            let mark = [(x, y + 4), (x + 12, y + 14)];
            area.draw(&Rectangle::new(mark, colour(*at).filled()))?;
            area.draw(&Text::new(name.to_string(), (x + 17, y + 2), FONT))?;
            x += legend_width(name) as i32;
        }
    }
    Ok(())
}

fn colour(at: usize) -> RGBColor {
    COLOURS[at % COLOURS.len()]
}

fn lines_plot(area: &Area<'_>, x: &Axis, y: &Axis, lines: &[Line]) -> Drawn {
    let all = || lines.iter().flat_map(|l| &l.points);
    let xs = range(x, all().map(|p| p.0));
    let ys = range(y, all().map(|p| p.1));
    let mut chart = ChartBuilder::on(area);
    chart
        .margin(MARGIN)
        .margin_right(2 * MARGIN + 8)
        .x_label_area_size(AXIS_HEIGHT)
        .y_label_area_size(62);
    match (x.log, y.log) {
        (false, false) => lines_on(chart.build_cartesian_2d(xs, ys)?, x, y, lines),
        (true, false) => lines_on(chart.build_cartesian_2d(xs.log_scale(), ys)?, x, y, lines),
        (false, true) => lines_on(chart.build_cartesian_2d(xs, ys.log_scale())?, x, y, lines),
        (true, true) => lines_on(
            chart.build_cartesian_2d(xs.log_scale(), ys.log_scale())?,
            x,
            y,
            lines,
        ),
    }
}

fn lines_on<'a, X, Y>(
    mut chart: ChartContext<'_, SVGBackend<'a>, Cartesian2d<X, Y>>,
    x: &Axis,
    y: &Axis,
    lines: &[Line],
) -> Drawn
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .x_labels(6)
        .y_labels(6)
        .x_desc(&x.label)
        .y_desc(&y.label)
        .x_label_formatter(&|v| number(*v))
        .y_label_formatter(&|v| number(*v))
        .bold_line_style(BLACK.mix(0.15))
        .light_line_style(TRANSPARENT)
        .label_style(FONT)
        .axis_desc_style(FONT)
        .draw()?;
    for (at, line) in lines.iter().enumerate() {
        let points = || line.points.iter().copied();
        chart.draw_series(LineSeries::new(points(), colour(at).stroke_width(2)))?;
        chart.draw_series(points().map(|p| Circle::new(p, 3, colour(at).filled())))?;
    }
    Ok(())
}

fn bars_plot(area: &Area<'_>, x: &Axis, groups: &[String], bars: &[Bars]) -> Drawn {
    let values = bars.iter().flat_map(|b| b.values.iter().flatten().copied());
    let ends = bars.iter().flat_map(|b| b.ranges.iter().flatten());
    let xs = range(x, values.chain(ends.flat_map(|(low, high)| [*low, *high])));
    let left = groups.iter().map(|g| g.chars().count()).max().unwrap_or(0) as u32;
    let ys = Groups(groups.to_vec());
    let mut chart = ChartBuilder::on(area);
    chart
        .margin(MARGIN)
        .margin_right(2 * MARGIN + 8)
        .x_label_area_size(AXIS_HEIGHT)
        .y_label_area_size(left * CHARACTER + 12);
    if x.log {
        let chart = chart.build_cartesian_2d(xs.clone().log_scale(), ys)?;
        return bars_on(chart, x, xs.start, bars);
    }
    bars_on(chart.build_cartesian_2d(xs.clone(), ys)?, x, xs.start, bars)
}

/// Bars; on a logarithmic axis, which has no 0 where a bar could begin, dots.
fn bars_on<X>(
    mut chart: ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Groups>>,
    x: &Axis,
    start: f64,
    bars: &[Bars],
) -> Drawn
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .disable_y_mesh()
        .x_labels(6)
        .x_desc(&x.label)
        .x_label_formatter(&|v| number(*v))
        .bold_line_style(BLACK.mix(0.15))
        .light_line_style(TRANSPARENT)
        .label_style(FONT)
        .axis_desc_style(FONT)
        .draw()?;
    // Bars of a group fill it but for the gap.
    let group = f64::from(BAR_HEIGHT * bars.len() as u32 + GROUP_GAP);
    let height = f64::from(BAR_HEIGHT) / group;
    for (at, series) in bars.iter().enumerate() {
        let values = series.values.iter().enumerate();
        let values = values.filter_map(|(group, value)| Some((group as f64, (*value)?)));
        let above = height * (at as f64 - bars.len() as f64 / 2.0);
        let fill = colour(at).filled();
        if x.log {
            let dot = |(group, v)| Circle::new((v, group + above + height / 2.0), 5, fill);
            chart.draw_series(values.map(dot))?;
        } else {
            let bar = |(group, v)| {
                let top = group + above;
                Rectangle::new([(start, top), (v, top + height)], fill)
            };
            chart.draw_series(values.map(bar))?;
        }
        let ranges = series.ranges.iter().enumerate();
        let ranges = ranges.filter_map(|(group, range)| Some((group as f64, (*range)?)));
        // A range without width would look like a tick.
        let ranges = ranges.filter(|(_, (low, high))| low < high);
        let line = |(group, (low, high))| {
            let middle = group + above + height / 2.0;
            PathElement::new([(low, middle), (high, middle)], BLACK.stroke_width(1))
        };
        chart.draw_series(ranges.map(line))?;
    }
    Ok(())
}

/// An axis of groups, the first one on top: group `i` is from `i - 0.5` to `i + 0.5`.
struct Groups(Vec<String>);

impl Ranged for Groups {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (low, high): (i32, i32)) -> i32 {
        let part = (value + 0.5) / self.0.len() as f64;
        high + (f64::from(low - high) * part).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        (0..self.0.len()).map(|at| at as f64).collect()
    }

    fn range(&self) -> Range<f64> {
        -0.5..self.0.len() as f64 - 0.5
    }
}

impl ValueFormatter<f64> for Groups {
    fn format_ext(&self, value: &f64) -> String {
        self.0.get(*value as usize).cloned().unwrap_or_default()
    }
}

/// The range of an axis: from 0 if it is linear, whole decades if it is logarithmic, since its ticks are powers of ten.
fn range(axis: &Axis, values: impl Iterator<Item = f64>) -> Range<f64> {
    let values = values.filter(|v| v.is_finite() && (*v > 0.0 || !axis.log));
    let (low, high) = values.fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
    match (axis.log, low <= high) {
        (_, false) => 0.1..1.0,
        (true, _) => {
            let (low, high) = (low.log10().floor(), high.log10().ceil());
            10f64.powf(low)..10f64.powf(high.max(low + 1.0))
        }
        (false, _) => low.min(0.0)..high.max(1e-9) * 1.05,
    }
}

/// A number at an axis.
fn number(value: f64) -> String {
    let (value, unit) = match value.abs() {
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match value.abs() {
        v if v >= 100.0 || v == 0.0 => 0,
        v if v >= 1.0 => 2,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_at_an_axis_are_short() {
        let shown = [0.0, 0.001, 0.25, 1.5, 250.0, 9_999.0, 12_500.0, 3e6].map(number);
        let expected = ["0", "0.001", "0.25", "1.5", "250", "9999", "12.5k", "3M"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_logarithmic_axis_has_whole_decades() {
        let near = |found: Range<f64>, low: f64, high: f64| {
            let ratio = (found.start / low, found.end / high);
            assert!(
                (ratio.0 - 1.0).abs() < 1e-9 && (ratio.1 - 1.0).abs() < 1e-9,
                "{found:?}"
            );
        };
        near(
            range(&Axis::log("x"), [97.0, 234.0].into_iter()),
            10.0,
            1_000.0,
        );
        near(range(&Axis::log("x"), [100.0].into_iter()), 100.0, 1_000.0);
        assert_eq!(range(&Axis::linear("x"), [2.0].into_iter()), 0.0..2.1);
        assert_eq!(range(&Axis::linear("x"), std::iter::empty()), 0.1..1.0);
    }

    #[test]
    fn a_legend_breaks_where_the_figure_ends() {
        let names = ["a name of a cluster"; 5];
        let rows: Vec<usize> = legend_rows(&names).iter().map(Vec::len).collect();
        assert_eq!(rows, [2, 2, 1]);
    }

    #[test]
    fn names_are_escaped_and_values_that_are_missing_are_left_out() {
        let plot = Plot {
            title: "a < b & c".into(),
            alt: String::new(),
            drawing: Drawing::Bars {
                x: Axis::linear("W"),
                groups: vec!["one".into(), "two".into()],
                bars: vec![Bars {
                    name: "s".into(),
                    values: vec![Some(1.0), None],
                    ranges: vec![Some((0.5, 4.0)), None],
                }],
            },
        };
        let text = svg(&plot).unwrap();
        assert!(text.contains("a &lt; b &amp; c") && !text.contains("a < b"));
        // One of the legend, one for the value.
        assert_eq!(text.matches("fill=\"#0072B2\"").count(), 2, "{text}");
        // The axis holds the whole range.
        assert!(text.contains("\n4\n"), "{text}");
    }
}
