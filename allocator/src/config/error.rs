//! Errors of a configuration, in one line: the line, the key, the value, and what would be right.

use std::fmt;

/// Longest problem that is shown, in characters: it is a line of a log, and quotes its input.
const SHOWN_MAX: usize = 1_000;

/// Returns `text` as one line of bounded length, without characters that move a terminal's cursor.
pub(crate) fn one_line(text: &str) -> String {
    let mut shown: String =
        text.chars().take(SHOWN_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(SHOWN_MAX).is_some() {
        shown.push('…');
    }
    shown
}

/// Why a configuration was refused. Its `Display` is one line, without the name of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    line: usize,
    problem: String,
}

impl ConfigError {
    /// Makes an error of `problem` at byte `offset` of `text`.
    pub(super) fn at(text: &str, offset: usize, problem: impl AsRef<str>) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        ConfigError { line: before.matches('\n').count() + 1, problem: one_line(problem.as_ref()) }
    }

    /// Returns the problem without its line, for a text that is no file.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// Returns the key that is wrong, if the problem names one: `rules[0].per`.
    pub fn key(&self) -> Option<&str> {
        let rest = after_limit(&self.problem).unwrap_or(&self.problem);
        let rest = rest.strip_prefix("limit[0].").unwrap_or(rest);
        let end = rest.find([' ', ':']).unwrap_or(rest.len());
        let is_key = |c: char| c.is_ascii_alphanumeric() || "_.[]\"/-*".contains(c);
        rest.get(..end).filter(|key| !key.is_empty() && key.chars().all(is_key))
    }

    /// Returns the line of the problem, counted from one.
    pub fn line(&self) -> usize {
        self.line
    }
}

/// Returns what `problem` says of the limit that it begins with, as in `limit "vendor/rest": margin is …`.
fn after_limit(problem: &str) -> Option<&str> {
    let quoted = problem.strip_prefix("limit \"")?;
    let mut is_escaped = false;
    let end = quoted.find(|c| {
        let ends = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends
    })?;
    quoted[end..].strip_prefix("\": ")
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for ConfigError {}
