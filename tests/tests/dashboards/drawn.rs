//! Draws a dashboard from the answers of a real Prometheus, for readers without a Grafana: the same panels in the same
//! places. It computes nothing.

use super::board::{Board, Panel, Place};
use super::prometheus::Prometheus;
use lessor_protocol::clock::wall;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// In pixels: the width of a board, the height of a unit of its grid, and the height of its head.
const WIDTH: u32 = 1280;
const ROW: u32 = 26;
const HEAD: u32 = 40;

/// Lines that a panel names below its curves.
const NAMED: usize = 8;

const INK: RGBColor = RGBColor(40, 40, 40);
const PALE: RGBColor = RGBColor(110, 110, 110);
const FAINT: RGBColor = RGBColor(228, 228, 228);
const COLORS: [RGBColor; 8] = [
    RGBColor(31, 111, 180),
    RGBColor(214, 90, 20),
    RGBColor(44, 140, 60),
    RGBColor(160, 60, 150),
    RGBColor(200, 160, 20),
    RGBColor(90, 160, 170),
    RGBColor(190, 60, 70),
    RGBColor(112, 128, 144),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// One line of a panel: its name, and its values by second.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// Draws the last `seconds` of `board`, where `filled` fills in its variables. The file is left in the temporary folder
/// of the build.
pub(super) async fn draw(
    prometheus: &Prometheus,
    board: &Board,
    seconds: u64,
    filled: impl Fn(&str) -> String,
) -> PathBuf {
    let mut panels = vec![];
    for panel in &board.panels {
        let mut lines = vec![];
        for target in &panel.targets {
            lines.extend(ask(prometheus, &filled(&target.expr), &target.legend, seconds).await);
        }
        assert!(lines.iter().any(|line| !line.points.is_empty()), "{}: {} is empty", board.name, panel.title);
        panels.push((panel, lines));
    }
    let name = board.name.rsplit(' ').next().unwrap_or_default().to_lowercase();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("board-{name}.svg"));
    let text = picture(board, &panels, seconds).expect("a string can be drawn to");
    let lines: usize =
        panels.iter().map(|(panel, lines)| if panel.kind == "timeseries" { lines.len() } else { 0 }).sum();
    assert!(text.matches("<polyline").count() >= lines, "{}: fewer than {lines} lines are drawn", board.name);
    for (panel, _) in &panels {
        assert!(text.contains(&panel.title), "{}: {} is not drawn", board.name, panel.title);
    }
    std::fs::write(&path, text).expect("tests may leave something there");
    path
}

/// Returns the values of `expr` in the last `seconds`.
async fn ask(prometheus: &Prometheus, expr: &str, legend: &str, seconds: u64) -> Vec<Line> {
    let end = wall();
    let start = end.before(Duration::from_secs(seconds));
    let unix = |moment: lessor_protocol::Moment| format!("{:.3}", moment.as_nanos() as f64 / 1e9);
    let (from, until) = (unix(start), unix(end));
    let query = [("query", expr), ("start", &from), ("end", &until), ("step", "0.5")];
    let data = prometheus.get("/api/v1/query_range", &query).await.expect("Prometheus answers");
    let begin = start.as_nanos() as f64 / 1e9;
    let lines = data["result"].as_array().into_iter().flatten().map(|series| {
        let points = series["values"].as_array().into_iter().flatten();
        let point = |point: &Value| Some((point[0].as_f64()? - begin, point[1].as_str()?.parse().ok()?));
        let points = points.filter_map(point).filter(|(_, value): &(f64, f64)| value.is_finite());
        Line { name: named(legend, &series["metric"]), points: points.collect() }
    });
    lines.collect()
}

/// Fills the labels of a series into `legend`.
fn named(legend: &str, labels: &Value) -> String {
    let labels = labels.as_object().into_iter().flatten();
    labels.fold(legend.to_owned(), |name, (label, value)| {
        name.replace(&format!("{{{{{label}}}}}"), value.as_str().unwrap_or_default())
    })
}

fn picture(
    board: &Board,
    panels: &[(&Panel, Vec<Line>)],
    seconds: u64,
) -> Result<String, Box<dyn std::error::Error>> {
    let bottom = board.places.iter().map(|place| place.y + place.h).max().unwrap_or(0);
    let mut text = String::new();
    let size = (WIDTH, HEAD + ROW * u32::try_from(bottom)?);
    let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
    root.fill(&WHITE)?;
    root.draw(&Text::new(board.name.clone(), (14, 10), ("sans-serif", 20).into_font().color(&INK)))?;
    for (title, place) in &board.rows {
        let (x, y) = corner(place)?;
        let style = ("sans-serif", 16).into_font().color(&PALE);
        root.draw(&Text::new(title.clone(), (x + 10, y + 5), style))?;
    }
    for (panel, lines) in panels {
        let (x, y) = corner(&panel.place)?;
        let size = (WIDTH * u32::try_from(panel.place.w)? / 24 - 8, ROW * u32::try_from(panel.place.h)? - 8);
        let area = root.clone().shrink((x + 4, y + 4), size);
        frame(&area, panel)?;
        match panel.kind.as_str() {
            "timeseries" => curves(&area, panel, lines, seconds)?,
            _ => values(&area, panel, lines)?,
        }
    }
    root.present()?;
    drop(root);
    Ok(text)
}

fn corner(place: &Place) -> Result<(i32, i32), std::num::TryFromIntError> {
    let x = u64::from(WIDTH) * place.x / 24;
    Ok((i32::try_from(x)?, i32::try_from(u64::from(HEAD) + u64::from(ROW) * place.y)?))
}

fn frame(area: &Area<'_>, panel: &Panel) -> Drawn {
    let (width, height) = area.dim_in_pixel();
    let corners = [(0, 0), (i32::try_from(width)? - 1, i32::try_from(height)? - 1)];
    area.draw(&Rectangle::new(corners, FAINT.stroke_width(1)))?;
    area.draw(&Text::new(panel.title.clone(), (8, 6), ("sans-serif", 14).into_font().color(&INK)))?;
    Ok(())
}

/// Draws the last value of each line, in large letters.
fn values(area: &Area<'_>, panel: &Panel, lines: &[Line]) -> Drawn {
    let (width, height) = area.dim_in_pixel();
    let count = i32::try_from(lines.len().clamp(1, NAMED))?;
    let (left, step) = (14, (i32::try_from(height)? - 30) / count);
    for (index, line) in lines.iter().take(NAMED).enumerate() {
        let Some((_, value)) = line.points.last() else { continue };
        let y = 28 + step * i32::try_from(index)? + step / 2;
        let at = |place, size: u32, color: &RGBColor| {
            ("sans-serif", size).into_font().color(color).pos(Pos::new(place, VPos::Center))
        };
        let color = &COLORS[index % COLORS.len()];
        // For a version, the name of the series is what matters, and its value says nothing.
        let shown = if panel.title == "Version" { line.name.clone() } else { shown(&panel.unit, *value) };
        let size = u32::try_from(step.clamp(12, 30))?;
        area.draw(&Text::new(shown, (left, y), at(HPos::Left, size, color)))?;
        if count > 1 {
            let right = i32::try_from(width)? - 10;
            area.draw(&Text::new(line.name.clone(), (right, y), at(HPos::Right, 12, &PALE)))?;
        }
    }
    Ok(())
}

fn curves(area: &Area<'_>, panel: &Panel, lines: &[Line], seconds: u64) -> Drawn {
    let most = lines.iter().flat_map(|line| &line.points).map(|point| point.1).fold(0.0, f64::max);
    let top = if most > 0.0 { most * 1.08 } else { 1.0 };
    let named = lines.len().min(NAMED);
    let legend = 14 * u32::try_from(named.div_ceil(2))?;
    let mut chart = ChartBuilder::on(area)
        .margin_top(26)
        .margin_right(14)
        .margin_bottom(6 + legend)
        .x_label_area_size(20)
        .y_label_area_size(84)
        .build_cartesian_2d(0.0..seconds as f64, 0.0..top)?;
    let (unit, style) = (panel.unit.as_str(), ("sans-serif", 11).into_font().color(&PALE));
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .axis_style(FAINT)
        .label_style(style)
        .x_labels(5)
        .x_label_formatter(&|value| format!("{value} s"))
        .y_labels(4)
        .y_label_formatter(&|value| shown(unit, *value))
        .draw()?;
    for (index, line) in lines.iter().enumerate() {
        let color = COLORS[index % COLORS.len()];
        chart.draw_series(LineSeries::new(line.points.iter().copied(), color.stroke_width(2)))?;
    }
    let (width, height) = area.dim_in_pixel();
    let (half, above) = (i32::try_from(width)? / 2, i32::try_from(height - legend)? - 2);
    for (index, line) in lines.iter().take(NAMED).enumerate() {
        let (column, row) = (i32::try_from(index % 2)?, i32::try_from(index / 2)?);
        let (x, y) = (10 + half * column, above + 14 * row);
        let color = COLORS[index % COLORS.len()];
        area.draw(&Rectangle::new([(x, y - 2), (x + 14, y + 1)], color.filled()))?;
        let style = ("sans-serif", 11).into_font().color(&PALE).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(line.name.clone(), (x + 20, y), style))?;
    }
    Ok(())
}

/// Formats a value as Grafana does in this unit.
fn shown(unit: &str, value: f64) -> String {
    let short = |value: f64| match value {
        value if value >= 1e6 => format!("{:.1} M", value / 1e6),
        value if value >= 1e4 => format!("{:.1} k", value / 1e3),
        value => ((value * 1e2).round() / 1e2).to_string(),
    };
    match unit {
        "s" if value == 0.0 => "0 s".to_owned(),
        "s" if value < 1e-6 => format!("{:.0} ns", value * 1e9),
        "s" if value < 1e-3 => format!("{:.1} µs", value * 1e6),
        "s" if value < 1.0 => format!("{:.1} ms", value * 1e3),
        "s" => format!("{} s", short(value)),
        "percentunit" => format!("{:.1} %", value * 1e2),
        "reqps" => format!("{}/s", short(value)),
        "bool_yes_no" => if value > 0.0 { "yes" } else { "no" }.to_owned(),
        "short" => short(value),
        unit => format!("{} {unit}", short(value)),
    }
}
