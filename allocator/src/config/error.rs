//! What is wrong with a configuration, in one line: which line, which key, which value, and what would be right.

use std::fmt;

/// Characters of a problem that are shown: it is a line of a log, and quotes what it was given.
const SHOWN_MAX: usize = 1_000;

/// `text` as one line of bounded length, without characters that move a terminal's cursor.
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
    /// `problem` at byte `offset` of `text`.
    pub(super) fn at(text: &str, offset: usize, problem: impl AsRef<str>) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        ConfigError { line: before.matches('\n').count() + 1, problem: one_line(problem.as_ref()) }
    }

    /// What is wrong, for a text that has no lines of its own.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// The key that is wrong, as far as it can be told: `rules[0].per`.
    pub fn key(&self) -> Option<&str> {
        let (_, rest) = self.problem.split_once("\": ").unwrap_or(("", &self.problem));
        let rest = rest.strip_prefix("limit[0].").unwrap_or(rest);
        let end = rest.find([' ', ':']).unwrap_or(rest.len());
        let is_key = |c: char| c.is_ascii_alphanumeric() || "_.[]\"/-*".contains(c);
        rest.get(..end).filter(|key| !key.is_empty() && key.chars().all(is_key))
    }

    /// The line it is on, counted from one.
    pub fn line(&self) -> usize {
        self.line
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for ConfigError {}
