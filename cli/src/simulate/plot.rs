//! Draws curves as an SVG for people: a row for each policy. On the left are pool and outstanding permits, on one scale
//! for all rows; on the right the grants of each node, each row with its own scale. The `simulate` command calls it; it
//! computes nothing that a figure is made of.

use lessor_sim::curve::{Curve, LOOKS, Look};
use lessor_sim::policy::Policy;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::path::Path;

/// Size in pixels: wide enough for two panels and a legend, each row as high as a third of its panels' width.
const WIDTH: u32 = 1280;
const ROW: u32 = 250;
const HEAD: u32 = 44;
const LEGEND: u32 = 150;

/// Nodes with their own colour; all others share one. No more colours can be told apart.
const NAMED: usize = 10;
/// Looks in one step of the grants. A node gets a grant about once a term, so finer steps would look like a comb.
const STEP: usize = LOOKS as usize / 50;

const POOL: RGBColor = RGBColor(31, 111, 180);
const OUTSTANDING: RGBColor = RGBColor(214, 90, 20);
const REST: RGBColor = RGBColor(200, 200, 200);
const INK: RGBColor = RGBColor(40, 40, 40);
const FAINT: RGBColor = RGBColor(228, 228, 228);
const NODES: [RGBColor; NAMED] = [
    RGBColor(78, 121, 167),
    RGBColor(242, 142, 43),
    RGBColor(225, 87, 89),
    RGBColor(118, 183, 178),
    RGBColor(89, 161, 79),
    RGBColor(237, 201, 72),
    RGBColor(176, 122, 161),
    RGBColor(255, 157, 167),
    RGBColor(156, 117, 95),
    RGBColor(112, 128, 144),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Checks that `path` can be written, before hours are spent on the run.
///
/// # Errors
/// If it cannot be written.
pub(super) fn try_file(path: &Path) -> std::io::Result<()> {
    std::fs::OpenOptions::new().create(true).append(true).open(path).map(|_| ())
}

/// Draws `curves` of the run with `seed` into `path`, under `title`. Does nothing if there is none.
///
/// # Errors
/// A description of the problem, if it cannot be written.
pub(super) fn draw(path: &Path, title: &str, seed: u64, curves: &[(Policy, &Curve)]) -> Result<(), String> {
    if curves.is_empty() {
        return Ok(());
    }
    let mut text = String::new();
    let height = HEAD + ROW * curves.len() as u32;
    let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
    figure(&root, title, seed, curves).map_err(|error| error.to_string())?;
    drop(root);
    std::fs::write(path, text).map_err(|error| error.to_string())
}

fn figure(root: &Area<'_>, title: &str, seed: u64, curves: &[(Policy, &Curve)]) -> Drawn {
    root.fill(&WHITE)?;
    let (head, body) = root.split_vertically(HEAD);
    head.draw(&Text::new(
        format!("{title}, seed {seed}"),
        (16, 12),
        ("sans-serif", 19).into_font().color(&INK),
    ))?;
    let (panels, side) = body.split_horizontally(WIDTH - LEGEND);
    let scale = Scale::of(curves);
    for (area, (policy, curve)) in panels.split_evenly((curves.len(), 1)).iter().zip(curves) {
        let (stock, grants) = area.split_horizontally((WIDTH - LEGEND) / 2);
        draw_stock(&stock, *policy, curve, &scale)?;
        draw_grants(&grants, *policy, curve, &scale)?;
    }
    legend(&side, &scale)?;
    root.present()?;
    Ok(())
}

/// Scales and colours that all rows share.
struct Scale {
    seconds: f64,
    permits: f64,
    /// The nodes with the most grants of all policies together, in the order in which they are stacked.
    named: Vec<usize>,
}

impl Scale {
    fn of(curves: &[(Policy, &Curve)]) -> Self {
        let looks = || curves.iter().flat_map(|(_, curve)| &curve.looks);
        let highest = looks().map(|look| look.available.max(look.outstanding)).max().unwrap_or(0);
        let nodes = looks().map(|look| look.granted.len()).max().unwrap_or(0);
        let mut named: Vec<usize> = (0..nodes).collect();
        let granted = |node: usize| looks().map(|look| look.granted[node]).sum::<u64>();
        named.sort_by_cached_key(|&node| std::cmp::Reverse(granted(node)));
        named.truncate(NAMED);
        Scale {
            seconds: looks().map(|look| look.real).max().unwrap_or(1) as f64 / 1e9,
            permits: highest.max(1) as f64,
            named,
        }
    }
}

/// Returns the permits a second of each node, in each step of a curve.
fn steps(curve: &Curve) -> impl Iterator<Item = Vec<f64>> {
    curve.looks.windows(STEP + 1).step_by(STEP).map(|looks| {
        let seconds = (looks[STEP].real - looks[0].real) as f64 / 1e9;
        let granted = |node| looks[1..].iter().map(|look| look.granted[node]).sum::<u64>() as f64 / seconds;
        (0..looks[0].granted.len()).map(granted).collect()
    })
}

fn draw_stock(area: &Area<'_>, policy: Policy, curve: &Curve, scale: &Scale) -> Drawn {
    let caption = format!("{}: pool and outstanding", policy.heading());
    let mut chart = chart(area, &caption, "permits", scale.seconds, scale.permits)?;
    let points = |value: fn(&Look) -> u64| {
        curve.looks.iter().map(move |look| (look.real as f64 / 1e9, value(look) as f64))
    };
    chart.draw_series(LineSeries::new(points(|look| look.available), POOL.stroke_width(2)))?;
    chart.draw_series(LineSeries::new(points(|look| look.outstanding), OUTSTANDING.stroke_width(2)))?;
    Ok(())
}

fn draw_grants(area: &Area<'_>, policy: Policy, curve: &Curve, scale: &Scale) -> Drawn {
    let steps: Vec<Vec<f64>> = steps(curve).collect();
    let most = steps.iter().map(|step| step.iter().sum()).fold(0.0, f64::max);
    let caption = format!("{}: granted, by node", policy.heading());
    let mut chart = chart(area, &caption, "permits a second", scale.seconds, most.max(1.0))?;
    let wide = scale.seconds / steps.len().max(1) as f64;
    // Later areas cover earlier ones: all nodes first, then one fewer each time.
    let all: Vec<f64> = steps.iter().map(|step| step.iter().sum()).collect();
    let lowest = |step: &Vec<f64>, count: usize| scale.named[..count].iter().map(|&node| step[node]).sum();
    let named = (1..=scale.named.len()).rev().map(|count| {
        let tops = steps.iter().map(|step| lowest(step, count)).collect();
        (NODES[count - 1], tops)
    });
    for (color, tops) in std::iter::once((REST, all)).chain(named) {
        let mut outline = vec![(0.0, 0.0)];
        for (index, &top) in tops.iter().enumerate() {
            outline.extend([(index as f64 * wide, top), ((index + 1) as f64 * wide, top)]);
        }
        outline.push((scale.seconds, 0.0));
        chart.draw_series([Polygon::new(outline, color.filled())])?;
    }
    if most <= 0.0 {
        let middle = (scale.seconds * 0.5, 0.5);
        let style = ("sans-serif", 15).into_font().color(&INK).pos(Pos::new(HPos::Center, VPos::Center));
        chart.draw_series([Text::new("no node asks: each has a fixed share", middle, style)])?;
    }
    Ok(())
}

/// Prepares axes from 0 to `seconds` and a little over `most` of `unit`, under `caption`.
fn chart<'a, 'b>(
    area: &'b Area<'a>,
    caption: &str,
    unit: &str,
    seconds: f64,
    most: f64,
) -> Result<Chart<'b, 'a>, Box<dyn std::error::Error>> {
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 15).into_font().color(&INK))
        .margin_left(8)
        .margin_right(18)
        .margin_bottom(8)
        .x_label_area_size(38)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..seconds, 0.0..most * 1.04)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .axis_style(INK)
        .label_style(("sans-serif", 12).into_font().color(&INK))
        .x_desc("seconds")
        .y_desc(unit)
        .x_labels(7)
        .x_label_formatter(&|value| short(*value))
        .y_labels(5)
        .y_label_formatter(&|value| short(*value))
        .draw()?;
    Ok(chart)
}

/// Formats a number for an axis.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{} M", (value / 1e5).round() / 10.0),
        value if value >= 1e3 => format!("{} k", (value / 1e2).round() / 10.0),
        value => ((value * 1e3).round() / 1e3).to_string(),
    }
}

fn legend(side: &Area<'_>, scale: &Scale) -> Drawn {
    let lines = [("pool", POOL), ("outstanding", OUTSTANDING)];
    let nodes = scale.named.iter().zip(NODES).map(|(node, color)| (format!("node {node}"), color));
    let nodes = nodes.chain([("all others".to_owned(), REST)]);
    let entries = lines.into_iter().map(|(name, color)| (name.to_owned(), color)).chain(nodes);
    for (index, (name, color)) in entries.enumerate() {
        // A gap between lines and areas.
        let y = 26 + 17 * index as i32 + if index < lines.len() { 0 } else { 9 };
        let thick = if index < lines.len() { 1 } else { 5 };
        side.draw(&Rectangle::new([(8, y - thick), (28, y + thick)], color.filled()))?;
        let style = ("sans-serif", 13).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
        side.draw(&Text::new(name, (36, y), style))?;
    }
    Ok(())
}
