//! Watches the configuration file of a running server: reads it again when it changes and on SIGHUP. A file with an
//! error is refused whole and logged once, and the server stays as it is. Only SIGHUP removes limits that the file no
//! longer has.

use crate::configuration;
use crate::failure::Failure;
use lessor_allocator::reload::{Reloads, Removals, counted};
use std::path::PathBuf;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Interval between two looks at the file. Reading a few kilobytes a second costs nothing, and needs neither a library
/// nor a file system that notifies. SIGHUP makes it sooner.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Time until the next look after SIGHUP: an editor or a copy has most likely written the whole file by then.
const LOOK_TWICE: Duration = Duration::from_millis(200);

/// Watches one file.
#[derive(Debug)]
pub(crate) struct Watch {
    file: PathBuf,
    /// The text that was last taken over or refused.
    seen: Result<String, String>,
    /// The text of the last look, if it differs. It is taken over once the next look finds it unchanged, because it may
    /// be half written.
    next: Option<Result<String, String>>,
    reloads: Reloads,
    hangup: Signal,
}

impl Watch {
    /// Watches `file`, which had `text` when the server was started. Takes over SIGHUP.
    pub(crate) fn install(file: PathBuf, text: String, reloads: Reloads) -> Result<Self, Failure> {
        let hangup = signal(SignalKind::hangup())
            .map_err(|error| Failure::Run(format!("cannot listen for signals: {error}")))?;
        Ok(Watch { file, seen: Ok(text), next: None, reloads, hangup })
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
            let read = tokio::task::spawn_blocking(move || configuration::text(&file));
            let text = read.await.unwrap_or_else(|error| Err(Failure::Run(error.to_string())));
            let text = text.map_err(|failure| failure.to_string());
            if !is_asked && text == self.seen {
                self.next = None;
            } else if self.next.as_ref() == Some(&text) {
                self.take_over(&text, if is_asked { Removals::Apply } else { Removals::Keep });
                (self.seen, self.next, is_asked) = (text, None, false);
            } else {
                self.next = Some(text);
            }
        }
    }

    fn take_over(&self, text: &Result<String, String>, removals: Removals) {
        let config = text.as_ref().map_err(String::clone).and_then(|text| {
            configuration::of_allocator(&self.file, text).map_err(|failure| failure.to_string())
        });
        let done = config
            .and_then(|config| self.reloads.reload(&config, removals).map_err(|unfit| unfit.to_string()));
        match done {
            Ok(done) => {
                let (put, removed) = (counted(&done.put), counted(&done.removed));
                tracing::info!(put, removed, "the configuration was read again");
                if let Some(warning) = done.warning() {
                    tracing::warn!("{warning}");
                }
                if !done.needs_restart.is_empty() {
                    tracing::warn!("changed settings that need a restart: {}", done.needs_restart.join(", "));
                }
            }
            Err(problem) => {
                self.reloads.refused(&problem);
                tracing::error!(%problem, "the configuration is refused: the allocator keeps the old one");
            }
        }
    }
}
