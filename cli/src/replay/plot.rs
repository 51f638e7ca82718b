//! Draws the admissions of a replay over time, as an SVG for people: a panel for each limit, all its keys together. Requests
//! are grey, with admissions in front, so that what stays grey was refused or served later. It computes no figure.

use super::summary::Flow;
use crate::failure::Failure;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;

/// Size in pixels: as wide as a page, each panel a fifth as high.
const WIDTH: u32 = 1000;
const ROW: u32 = 210;

/// Steps into which the time is cut: as many as can be told apart on the page.
const STEPS: usize = 250;

const ASKED: RGBColor = RGBColor(205, 205, 205);
const ADMITTED: RGBColor = RGBColor(31, 111, 180);
const INK: RGBColor = RGBColor(40, 40, 40);
const FAINT: RGBColor = RGBColor(228, 228, 228);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Draws `flows`, each with its title, into `file`. Draws an empty figure if there is none.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn draw(file: &Path, flows: &[(String, Flow)]) -> Result<(), Failure> {
    let broken = |problem: String| Failure::Run(format!("cannot write {}: {problem}", file.display()));
    let mut text = String::new();
    let height = ROW * u32::try_from(flows.len().max(1)).unwrap_or(1);
    let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
    figure(&root, flows).map_err(|error| broken(error.to_string()))?;
    drop(root);
    std::fs::write(file, text).map_err(|error| broken(error.to_string()))
}

fn figure(root: &Area<'_>, flows: &[(String, Flow)]) -> Drawn {
    root.fill(&WHITE)?;
    if flows.is_empty() {
        root.present()?;
        return Ok(());
    }
    // All panels show the same span of time.
    let moments = || flows.iter().flat_map(|(_, flow)| flow.asked.iter().chain(&flow.admitted));
    let first = moments().map(|(at, _)| *at).min().unwrap_or(0);
    let last = moments().map(|(at, _)| *at).max().unwrap_or(0);
    let step = round_step((last - first) / STEPS as u64 + 1);
    for (area, (title, flow)) in root.split_evenly((flows.len(), 1)).iter().zip(flows) {
        let steps = |calls: &[(u64, u64)]| {
            let mut sums = [0u64; STEPS];
            for (at, permits) in calls {
                let sum = &mut sums[usize::try_from((at - first) / step).unwrap_or(STEPS).min(STEPS - 1)];
                *sum = sum.saturating_add(*permits);
            }
            sums
        };
        panel(area, title, step, &steps(&flow.asked), &steps(&flow.admitted))?;
    }
    root.present()?;
    Ok(())
}

fn panel(area: &Area<'_>, title: &str, step: u64, asked: &[u64; STEPS], admitted: &[u64; STEPS]) -> Drawn {
    let wide = step as f64 / 1e9;
    let most = asked.iter().chain(admitted).copied().max().unwrap_or(0).max(1) as f64;
    let caption = format!("{title}: permits asked for (grey) and admitted, per {}", short_span(wide));
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 15).into_font().color(&INK))
        .margin_left(8)
        .margin_right(18)
        .margin_bottom(6)
        .x_label_area_size(34)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..wide * STEPS as f64, 0.0..most * 1.04)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .axis_style(INK)
        .label_style(("sans-serif", 12).into_font().color(&INK))
        .x_desc("seconds since the first call")
        .y_labels(5)
        .draw()?;
    for (sums, color) in [(asked, ASKED), (admitted, ADMITTED)] {
        let bars = sums.iter().enumerate().filter(|(_, sum)| **sum > 0).map(|(index, sum)| {
            let left = index as f64 * wide;
            Rectangle::new([(left, 0.0), (left + wide, *sum as f64)], color.filled())
        });
        chart.draw_series(bars)?;
    }
    Ok(())
}

/// Returns the first of 1, 2, 5, 10, 20, 50 … that is not below `least`: with other steps an even flow looks uneven.
fn round_step(least: u64) -> u64 {
    let mut decade = 1u64;
    loop {
        for digit in [1, 2, 5] {
            let step = decade.saturating_mul(digit);
            if step >= least {
                return step;
            }
        }
        decade = decade.saturating_mul(10);
    }
}

fn short_span(seconds: f64) -> String {
    if seconds < 0.001 {
        format!("{} ns", (seconds * 1e9).round())
    } else if seconds < 1.0 {
        format!("{} ms", (seconds * 1e5).round() / 100.0)
    } else {
        format!("{} s", (seconds * 100.0).round() / 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_never_too_short() {
        for (least, step) in [(0, 1), (1, 1), (3, 5), (50, 50), (51, 100), (126_000_000, 200_000_000)] {
            assert_eq!(round_step(least), step);
        }
        assert_eq!(round_step(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_plot_has_a_panel_for_each_limit_and_shows_what_was_admitted() {
        let folder = tempfile::tempdir().expect("a private folder");
        let file = folder.path().join("flow.svg");
        let flow = || Flow { asked: vec![(0, 2), (1_000_000_000, 5)], admitted: vec![(1_000_000_000, 5)] };
        draw(&file, &[("one".to_owned(), flow()), ("other".to_owned(), flow())]).expect("it can be written");
        let text = std::fs::read_to_string(&file).expect("it is there");
        // A grey bar for each of the two steps, and a blue one in front of the second, in each panel.
        assert_eq!((text.matches("#CDCDCD").count(), text.matches("#1F6FB4").count()), (4, 2));
        assert!(text.contains("one: permits") && text.contains("other: permits"));
        draw(&file, &[]).expect("nothing is drawn");
    }
}
