//! Writes answers in the order of their requests, each as soon as it and all before it are known. It ignores their
//! content.

use super::answer::Answer;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Answers on their way to a writer.
pub(crate) struct Out<W> {
    writer: W,
    /// Whether the caller wants the answers.
    are_wanted: bool,
    /// The ticket of the next answer to be written.
    next: u64,
    known: BTreeMap<u64, Answer>,
}

impl<W: Write> Out<W> {
    /// Creates it without answers.
    pub(crate) fn new(writer: W, are_wanted: bool) -> Self {
        Out { writer, are_wanted, next: 0, known: BTreeMap::new() }
    }

    /// Adds the answer to the request with `ticket`.
    pub(crate) fn put(&mut self, ticket: u64, answer: Answer) {
        if self.are_wanted {
            self.known.insert(ticket, answer);
        }
    }

    /// Writes the answers whose turn it is. Flushes them unless `more` are sure to come at once.
    pub(crate) fn write(&mut self, more: bool) -> io::Result<()> {
        while let Some(answer) = self.known.remove(&self.next) {
            self.next += 1;
            let line = serde_json::to_string(&answer).expect("plain data is always JSON");
            writeln!(self.writer, "{line}")?;
        }
        if more { Ok(()) } else { self.writer.flush() }
    }

    /// Writes `text` unchanged.
    pub(crate) fn print(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.writer, "{text}")?;
        self.writer.flush()
    }

    /// Returns the writer.
    #[cfg(test)]
    pub(crate) fn into_inner(self) -> W {
        self.writer
    }
}
