//! How an operator stops a process: Ctrl-C (SIGINT) or SIGTERM. Installed before anything starts, so that a
//! signal which comes early is not lost and does not kill.

use crate::failure::Failure;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Resolves when somebody wants this process to stop.
#[derive(Debug)]
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// From now on both signals are ours.
    pub(crate) fn install() -> Result<Self, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::Run(format!("cannot listen for signals: {error}")));
        Ok(Stop { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for either signal. Cancel-safe.
    pub(crate) async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
