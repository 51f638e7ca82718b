//! How long threads were ready to run and had no core. A test that measures how much is done in a span takes that time
//! off, because other programs had the cores.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// How long each thread of some processes has waited for a core, in nanoseconds, by process and thread.
type Waits = BTreeMap<(u32, u32), u64>;

/// How long threads of this process and of some others had waited when a test began to count.
#[derive(Debug)]
pub struct CoreWaits {
    before: Waits,
}

impl CoreWaits {
    /// Begins to count, for this process and for `others`.
    pub fn begin(others: &[u32]) -> Self {
        CoreWaits { before: waits(others) }
    }

    /// Returns how long all threads of this process and of `others` waited, added up. Threads that have ended are left
    /// out. On a system that does not count waits the sum is zero.
    pub fn until_now(&self, others: &[u32]) -> Duration {
        let before = |thread| self.before.get(thread).copied().unwrap_or(0);
        let nanos = waits(others).iter().map(|(thread, wait)| wait.saturating_sub(before(thread))).sum();
        Duration::from_nanos(nanos)
    }
}

fn waits(others: &[u32]) -> Waits {
    let processes = others.iter().copied().chain([std::process::id()]);
    processes
        .flat_map(|process| threads(process).into_iter().map(move |(thread, wait)| ((process, thread), wait)))
        .collect()
}

/// Returns the wait of each thread of `process`, in nanoseconds: the second number of `schedstat`.
fn threads(process: u32) -> Vec<(u32, u64)> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let wait = |task: fs::DirEntry| {
        let thread = task.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(task.path().join("schedstat")).ok()?;
        Some((thread, stat.split_whitespace().nth(1)?.parse().ok()?))
    };
    tasks.filter_map(wait).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lessor_protocol::Clock;
    use std::path::Path;
    use std::thread;

    /// Threads wait where there are more of them than cores and each of them computes.
    #[test]
    fn threads_that_share_a_core_wait() {
        if !Path::new("/proc/self/schedstat").exists() {
            return;
        }
        let waits = CoreWaits::begin(&[]);
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let (clock, span) = (Clock::since_boot(), Duration::from_millis(200));
        let began = clock.now();
        let compute = |until| while clock.now() < until {};
        let waited = thread::scope(|scope| {
            // These threads still run when this one reads the waits.
            (0..2 * cores).for_each(|_| _ = scope.spawn(move || compute(began + span * 2)));
            compute(began + span);
            waits.until_now(&[])
        });
        assert!(waited >= Duration::from_millis(100), "{waited:?}");
    }
}
