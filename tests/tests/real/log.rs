//! The log of a test: all that is logged on its thread.

use scenarios::subscribers;
use std::io::Write;
use std::sync::{Arc, Mutex};
use tracing::Level;

/// The lines logged on one thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Runs `test` on this thread, in a runtime of its own. The test gets all that is logged there at `level` or above.
    pub(crate) fn of<T>(level: Level, test: impl AsyncFnOnce(Log) -> T) -> T {
        subscribers::ask_all();
        let log = Log::default();
        let written = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .with_writer(move || written.clone())
            .finish();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        tracing::subscriber::with_default(subscriber, || runtime.block_on(test(log)))
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.0.lock().expect("no thread panics with it")).into_owned();
        text.lines().map(str::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no thread panics with it").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The bug: a test waited for lines that a test on another thread had logged first, and was never shown them.
#[test]
fn lines_that_another_thread_logs_first_are_in_the_log_of_this_thread() {
    Log::of(Level::WARN, async |log| {
        let say = || tracing::warn!("one place in the source");
        std::thread::spawn(say).join().expect("no panic");
        say();
        assert_eq!(log.lines().len(), 1);
    });
}
