//! Formats runs as a table: policies side by side, a block for each seed, and with several seeds a block of medians.

use super::runs::Run;
use lessor_sim::meter::Figures;
use lessor_sim::policy::Policy;
use lessor_sim::world::Report;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Width of the names of rows, and of each column: the longest heading and two blanks.
const NAME_WIDTH: usize = 43;
const WIDTH: usize = 15;

/// One figure.
struct Row {
    name: &'static str,
    unit: Unit,
    /// `None` if the run has no such figure.
    value: fn(&Figures) -> Option<f64>,
}

const fn row(name: &'static str, unit: Unit, value: fn(&Figures) -> Option<f64>) -> Row {
    Row { name, unit, value }
}

/// Format of a figure.
#[derive(Clone, Copy)]
enum Unit {
    Count,
    Percent,
    Number(usize),
    Seconds,
    Terms,
    /// A rate per second, divided by the number of nodes.
    PerNode,
}

const ROWS: [Row; 20] = [
    row("permits admitted", Unit::Count, |it| Some(it.admitted as f64)),
    row("used of what the limit allowed", Unit::Percent, |it| Some(it.used_share)),
    row("spent when the pool was first empty", Unit::Percent, |it| {
        it.first_empty_refusal_at.map(|_| it.first_empty_refusal_at_share)
    }),
    row("  time until then", Unit::Seconds, |it| it.first_empty_refusal_at),
    row("  stranded at nodes then", Unit::Percent, |it| it.first_empty_refusal_at.map(|_| it.stranded_share)),
    row("refused while permits existed, until then", Unit::Percent, |it| {
        Some(it.refused_while_available_share)
    }),
    row("exchanges per node and second", Unit::PerNode, |it| Some(it.exchanges_per_second)),
    row("exchanges per second", Unit::Number(1), |it| Some(it.exchanges_per_second)),
    row("Jain index of max-min shares", Unit::Number(4), |it| Some(it.jain)),
    row("worst wait of a node that tries", Unit::Seconds, |it| Some(it.worst_wait)),
    row("worst refusals of a node below its share", Unit::Percent, |it| {
        Some(it.modest_refused_share).filter(|share| *share > 0.0)
    }),
    row("found no permit in 50 ms after a boundary", Unit::Percent, |it| {
        it.after_boundary.map(|(short, _)| short)
    }),
    row("asks in 50 ms after a boundary", Unit::Number(1), |it| it.after_boundary.map(|(_, asks)| asks)),
    row("slowest second after three windows", Unit::Percent, |it| it.even.map(|even| even.seconds.0)),
    row("fastest second after three windows", Unit::Percent, |it| it.even.map(|even| even.seconds.1)),
    row("median deviation of a second", Unit::Percent, |it| it.even.map(|even| even.off)),
    row("least admitted in a window, first three", Unit::Percent, |it| it.even.map(|even| even.windows.0)),
    row("least admitted in a window, later ones", Unit::Percent, |it| it.even.map(|even| even.windows.1)),
    row("hot spot at 90 % of its share after", Unit::Terms, |it| it.catch_up_terms.map(|(median, _)| median)),
    row("  at worst", Unit::Terms, |it| it.catch_up_terms.map(|(_, worst)| worst)),
];

/// Formats `runs` under `title`, of `nodes` nodes each.
pub(super) fn table(title: &str, nodes: usize, runs: &[Run]) -> String {
    let seeds: BTreeSet<u64> = runs.iter().map(|run| run.seed).collect();
    let mut text = format!("{title}\n");
    for &seed in &seeds {
        let of_seed: Vec<&Run> = runs.iter().filter(|run| run.seed == seed).collect();
        block(&mut text, &format!("seed {seed}"), nodes, &of_seed);
    }
    if seeds.len() > 1 {
        let name = format!("median of {} seeds", seeds.len());
        block(&mut text, &name, nodes, &runs.iter().collect::<Vec<_>>());
    }
    for failure in runs.iter().filter_map(|run| run.result.as_ref().err()) {
        write(&mut text, format_args!("\nfailed: {failure}\n"));
    }
    // With many seeds no reader compares hashes by eye; they are in the JSON.
    if let [Run { result: Ok(report), .. }, ..] = runs
        && seeds.len() == 1
    {
        write(&mut text, format_args!("\nhash of all events of lessor: {:016x}\n", report.hash));
    }
    text
}

/// Formats all rows of `runs`: the median where there are several runs of a policy.
fn block(text: &mut String, name: &str, nodes: usize, runs: &[&Run]) {
    let column = |policy| (policy, runs.iter().filter(|run| run.policy == policy).copied().collect());
    let columns: Vec<(Policy, Vec<&Run>)> = Policy::ALL.map(column).into();
    let columns: Vec<_> = columns.into_iter().filter(|(_, runs)| !runs.is_empty()).collect();
    write(text, format_args!("\n{name:<NAME_WIDTH$}"));
    for (policy, _) in &columns {
        write(text, format_args!("{:>WIDTH$}", policy.heading()));
    }
    text.push('\n');
    for row in ROWS {
        let cells: Vec<_> = columns.iter().map(|(_, runs)| cell(&row, nodes, runs)).collect();
        // Not every workload has every figure.
        if cells.iter().any(Option::is_some) {
            line(text, row.name, cells.into_iter().map(|cell| cell.unwrap_or("none".to_owned())));
        }
    }
    line(text, "over-admissions", columns.iter().map(|(_, runs)| over_admissions(runs)));
}

fn line(text: &mut String, name: &str, cells: impl Iterator<Item = String>) {
    write(text, format_args!("{name:<NAME_WIDTH$}"));
    for cell in cells {
        write(text, format_args!("{cell:>WIDTH$}"));
    }
    text.push('\n');
}

/// Formats the median of `row` over `runs`; `None` if no run has the figure.
fn cell(row: &Row, nodes: usize, runs: &[&Run]) -> Option<String> {
    let reports: Option<Vec<&Report>> = runs.iter().map(|run| run.result.as_ref().ok()).collect();
    let Some(reports) = reports else {
        return Some("failed".to_owned());
    };
    let mut values: Vec<f64> =
        reports.into_iter().filter_map(|report| (row.value)(&report.figures)).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len().checked_sub(1)? / 2;
    let median = (values[middle] + values[values.len() / 2]) / 2.0;
    Some(match row.unit {
        Unit::Count => format!("{median:.0}"),
        Unit::Percent => format!("{:.3} %", 100.0 * median),
        Unit::Number(digits) => format!("{median:.digits$}"),
        Unit::Seconds => format!("{median:.3} s"),
        Unit::Terms => format!("{median:.2} terms"),
        Unit::PerNode => format!("{:.2}", median / nodes as f64),
    })
}

/// Returns the over-admissions of all runs: a median would hide the one that matters.
fn over_admissions(runs: &[&Run]) -> String {
    let over = |run: &&Run| match &run.result {
        Ok(report) => report.over_admissions,
        Err(failure) => u64::from(failure.is_over),
    };
    runs.iter().map(over).sum::<u64>().to_string()
}

fn write(text: &mut String, words: std::fmt::Arguments<'_>) {
    text.write_fmt(words).expect("a string takes everything");
}
