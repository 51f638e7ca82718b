//! Stops a process when an operator asks: Ctrl-C (SIGINT) or SIGTERM. It is installed before anything starts, so that
//! an early signal is not lost and does not kill.

use crate::failure::Failure;
use std::io;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Resolves when a signal asks this process to stop.
#[derive(Debug)]
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
    /// SIGHUP: the terminal is gone. `None` where the signal means something else.
    hangup: Option<Signal>,
}

impl Stop {
    /// Takes over both signals.
    pub(crate) fn install() -> Result<Self, Failure> {
        let (interrupt, terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        Ok(Stop { interrupt, terminate, hangup: None })
    }

    /// Takes over both signals and SIGHUP, unless the process was started with SIGHUP ignored, as `nohup` does. For a
    /// process that would leave other processes behind.
    pub(crate) fn install_with_hangup() -> Result<Self, Failure> {
        let hangup = if is_hangup_ignored() { None } else { Some(listen(SignalKind::hangup())?) };
        Ok(Stop { hangup, ..Stop::install()? })
    }

    /// Waits for any of the signals. Cancel-safe.
    pub(crate) async fn asked(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = hangup => {}
        }
    }
}

/// Longest time from the signal to the end of the process: less than the five seconds that it promises, because a busy
/// machine runs the watch late.
const ENDS_WITHIN: Duration = Duration::from_millis(4_600);
const _: () = assert!(ENDS_WITHIN.as_secs() < 5);

/// Makes the process end in time after the first signal, whatever hangs in it: a disk, a log that is not read, a bug.
/// The store is then as after a crash. The watch has its own thread, which needs nothing that could hang.
pub(crate) fn end_in_time() -> Result<(), Failure> {
    let cannot = |error: io::Error| {
        Failure::Run(format!("cannot start the thread that ends this process in time: {error}"))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    let mut stop = {
        let _entered = runtime.enter();
        Stop::install()?
    };
    let watch = move || {
        runtime.block_on(async {
            stop.asked().await;
            tokio::time::sleep(ENDS_WITHIN).await;
        });
        // Nothing is logged: the log may be what hangs.
        std::process::exit(1);
    };
    std::thread::Builder::new().name("lessor-end".to_owned()).spawn(watch).map(drop).map_err(cannot)
}

/// Whether the process was started with SIGHUP ignored. The system shows a bit for each signal, in hexadecimal, SIGHUP
/// first.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).is_some_and(|bits| bits & 1 == 1)
}

/// Takes over a signal.
pub(crate) fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::Run(format!("cannot listen for signals: {error}")))
}
