//! Watches the configuration file of a running server: reads it again when it changes and on SIGHUP. A file with an
//! error is refused whole and logged once, and the server stays as it is. Only SIGHUP removes limits that the file no
//! longer has.

use crate::configuration;
use crate::failure::Failure;
use lessor_allocator::reload::{Reloads, Removals, counted};
use lessor_protocol::{CLOCK, Moment};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::signal::unix::Signal;
use tokio::task::spawn_blocking;

/// Interval between two looks at the file. Reading a few kilobytes a second costs nothing, and needs neither a library
/// nor a file system that notifies. SIGHUP makes it sooner.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Time between the two looks after SIGHUP: an editor or a copy has most likely written the whole file by then.
const LOOK_TWICE: Duration = Duration::from_millis(200);

/// What a look found: the text of the file, or why it cannot be read.
type Text = Result<String, String>;

/// Watches one file.
#[derive(Debug)]
pub(crate) struct Watch {
    file: PathBuf,
    looks: Looks,
    reloads: Reloads,
    hangup: Signal,
}

/// What the looks at a file found.
#[derive(Debug)]
struct Looks {
    /// The text that was last taken over or refused.
    seen: Text,
    /// The text of the last look, if it differs, and when it was first found. It is taken over once a later look finds
    /// it unchanged, because it may be half written.
    next: Option<(Moment, Text)>,
}

impl Looks {
    /// Records that a look at `now` found `text`, and returns whether that is to be taken over. If it `is_asked` for,
    /// the text may be the one from before.
    fn found(&mut self, text: Text, is_asked: bool, now: Moment) -> bool {
        if !is_asked && text == self.seen {
            self.next = None;
            return false;
        }
        match self.next.take() {
            Some((since, next)) if next == text && now.since(since) >= LOOK_TWICE => {
                self.seen = text;
                true
            }
            Some((since, next)) if next == text => {
                self.next = Some((since, next));
                false
            }
            Some(_) | None => {
                self.next = Some((now, text));
                false
            }
        }
    }
}

impl Watch {
    /// Watches `file`, which had `text` when the server was started. `hangup` tells of each SIGHUP.
    pub(crate) fn new(file: PathBuf, text: String, reloads: Reloads, hangup: Signal) -> Self {
        Watch { file, looks: Looks { seen: Ok(text), next: None }, reloads, hangup }
    }

    /// Runs until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut is_asked = false;
        loop {
            tokio::select! {
                Some(()) = self.hangup.recv() => is_asked = true,
                () = tokio::time::sleep(if is_asked { LOOK_TWICE } else { LOOK_EVERY }) => {}
            }
            let file = self.file.clone();
            // The disk may be slow; exchanges do not wait for it.
            let read = spawn_blocking(move || configuration::text(&file));
            let text = read.await.unwrap_or_else(|error| Err(Failure::Run(error.to_string())));
            let text = text.map_err(|failure| failure.to_string());
            if self.looks.found(text, is_asked, CLOCK.now()) {
                let removals = if is_asked { Removals::Apply } else { Removals::Keep };
                let (file, text, reloads) =
                    (self.file.clone(), self.looks.seen.clone(), self.reloads.clone());
                // Nor do they wait for thousands of limits to be parsed.
                let taken = spawn_blocking(move || take_over(&file, &text, &reloads, removals));
                if let Err(error) = taken.await {
                    tracing::error!(%error, "the configuration was not read to its end");
                }
                is_asked = false;
            }
        }
    }
}

/// Takes over the `text` of `file`, or refuses it.
fn take_over(file: &Path, text: &Text, reloads: &Reloads, removals: Removals) {
    let config = text
        .as_ref()
        .map_err(String::clone)
        .and_then(|text| configuration::of_allocator(file, text).map_err(|failure| failure.to_string()));
    let done = config.and_then(|config| reloads.reload(&config, removals).map_err(|unfit| unfit.to_string()));
    match done {
        Ok(done) => {
            let (put, removed) = (counted(&done.put), counted(&done.removed));
            tracing::info!(%put, %removed, "the configuration was read again");
            if let Some(warning) = done.warning() {
                tracing::warn!("{warning}");
            }
            if !done.needs_restart.is_empty() {
                tracing::warn!("changed settings that need a restart: {}", done.needs_restart.join(", "));
            }
        }
        Err(problem) => {
            reloads.refused(&problem);
            tracing::error!(%problem, "the configuration is refused: the allocator keeps the old one");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bug: the look before SIGHUP counted as the first one, however short ago it was.
    #[test]
    fn a_text_is_taken_over_once_it_stood_for_a_while() {
        let at = |millis: u64| Moment::from_nanos(1_000_000_000 + millis * 1_000_000);
        let text = |text: &str| Ok(text.to_owned());
        let mut looks = Looks { seen: text("old"), next: None };
        assert!(!looks.found(text("old"), false, at(0)));
        assert!(!looks.found(text("new"), false, at(1_000)));
        assert!(!looks.found(text("new"), true, at(1_001)), "SIGHUP came just after the look");
        assert!(looks.found(text("new"), true, at(1_201)));
        // SIGHUP takes the same text over again, for its removals.
        assert!(!looks.found(text("new"), true, at(5_000)));
        assert!(looks.found(text("new"), true, at(5_200)));
        assert!(!looks.found(text("half"), false, at(6_000)));
        assert!(!looks.found(text("half and half"), false, at(7_000)), "it is still written");
        assert!(looks.found(text("half and half"), false, at(8_000)));
        assert!(!looks.found(Err("it is away".to_owned()), false, at(9_000)));
        assert!(!looks.found(text("half and half"), false, at(9_500)), "it is back");
        assert!(!looks.found(Err("it is away".to_owned()), false, at(10_000)), "counted anew");
    }
}
