//! The form of the figures: a table for people, which fits into a document, or JSON for tools.

use crate::sample::Figures;

/// The row that the others are compared with: one uncontended atomic subtraction is the least that a shared count can
/// cost.
pub(crate) const UNIT: &str = "floor/fetch_sub";

const HEAD: [&str; 6] =
    ["row", "ns/call median", "min", "max", "x of floor/fetch_sub", "allocations per call"];

/// The limits of the table, for a reader without its source.
const CAVEATS: &str = "\
Compare ratios within one table. A loop lets calls overlap: amid other work a call costs more than its row says.
In a virtual machine, clocks and the second core are the host's: rows with a clock or two threads differ most.
A row of two threads is wall time over the calls of both. The floor rows of two threads that share nothing show how much two
cores of this machine do at most: two hardware threads of one core, or a busy host, do less than twice as much as one.
";

/// Returns the table, with its limits above it.
pub(crate) fn text(figures: &[Figures], rounds: u32) -> String {
    let unit = figures.iter().find(|row| row.row == UNIT).map(|row| row.ns_median);
    let mut lines = vec![HEAD.map(str::to_owned)];
    lines.extend(figures.iter().map(|row| line(row, unit)));
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut text = header(rounds);
    for (index, line) in lines.iter().enumerate() {
        text += &joined(std::array::from_fn(|column| match column {
            0 => format!(" {:<1$} ", line[0], widths[0]),
            _ => format!(" {:>1$} ", line[column], widths[column]),
        }));
        if index == 0 {
            text += &joined(std::array::from_fn(|column| match column {
                0 => "-".repeat(widths[0] + 2),
                _ => "-".repeat(widths[column] + 1) + ":",
            }));
        }
    }
    text
}

fn joined(cells: [String; 6]) -> String {
    format!("|{}|\n", cells.join("|"))
}

/// Returns the rows that are not broken, as an array.
pub(crate) fn json(figures: &[Figures]) -> serde_json::Result<String> {
    let sound: Vec<&Figures> = figures.iter().filter(|row| !row.is_broken()).collect();
    serde_json::to_string_pretty(&sound)
}

/// Names the rows whose median was disturbed, if any.
pub(crate) fn warning(figures: &[Figures]) -> Option<String> {
    let disturbed: Vec<&str> = figures.iter().filter(|row| row.is_disturbed()).map(|row| row.row).collect();
    let list = disturbed.join(", ");
    (!disturbed.is_empty()).then(|| format!("other programs disturbed most samples of: {list}"))
}

fn header(rounds: u32) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut header =
        format!("Median of {rounds} samples of each row, taken in turn, on {cores} cores.\n{CAVEATS}");
    if cfg!(debug_assertions) {
        header += "Built without --release: these figures say nothing.\n";
    }
    header + "\n"
}

fn line(figures: &Figures, unit: Option<f64>) -> [String; 6] {
    if figures.is_broken() {
        let broken = format!("broken: {:.1} % unexpected results", figures.wrong * 100.0);
        return [figures.row.to_owned(), broken, String::new(), String::new(), String::new(), String::new()];
    }
    let times = unit.map_or("-".to_owned(), |unit| format!("{:.2}", figures.ns_median / unit));
    [
        figures.row.to_owned(),
        nanos(figures.ns_median),
        nanos(figures.ns_min),
        nanos(figures.ns_max),
        times,
        allocations(figures.allocations),
    ]
}

/// Formats three significant digits.
fn nanos(nanos: f64) -> String {
    match nanos {
        ..10.0 => format!("{nanos:.2}"),
        ..100.0 => format!("{nanos:.1}"),
        _ => format!("{nanos:.0}"),
    }
}

/// Formats allocations a call; "0" only if there were none at all.
fn allocations(a_call: f64) -> String {
    match a_call {
        ..=0.0 => "0".to_owned(),
        ..0.01 => format!("{a_call:.0e}"),
        _ => format!("{a_call:.2}"),
    }
}
