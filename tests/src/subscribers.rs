//! Subscribers to the log and the spans of one thread, in a process whose other threads log too.

use std::sync::LazyLock;
use tracing::Dispatch;
use tracing::subscriber::NoSubscriber;

/// A second subscriber, for as long as the process lives.
static OF_OTHER_THREADS: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));

/// Lets `tracing` ask all subscribers whether one of them wants a line. While there is only one, it asks the thread that first
/// reaches the line, and believes a thread without a subscriber for all threads.
pub fn ask_all() {
    LazyLock::force(&OF_OTHER_THREADS);
}
