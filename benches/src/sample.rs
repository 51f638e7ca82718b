//! How a figure is taken: calls in batches until a sample's time is over, and the median of many samples.
//!
//! The median is used because noise only adds time. A mean follows the one sample in which another program had the
//! core, and the least of many samples is luck that no user has. Minimum and maximum show how far to trust the median.
//! A sample that another program disturbed is taken again.

use crate::quiet::{core_time, has_whole_core, was_alone};
use lessor_protocol::CLOCK;
use std::error::Error;
use std::sync::Barrier;
use std::time::Duration;

/// Length of a sample. A longer one is almost sure to meet another program; in a shorter one a late thread matters.
const SAMPLE: Duration = Duration::from_millis(8);

/// Calls between two readings of the clock. At 2 ns a call, the reading adds a fifth of a percent; at 1 µs a call, a
/// sample still ends in time.
const BATCH: u64 = 1 << 13;

/// Largest part of a row's calls that may be answered wrongly. A refusal costs about as much as an admission: one in a
/// thousand moves no figure, and more would make it a figure of something else.
pub(crate) const WRONG_MAX: f64 = 0.001;

/// How often a disturbed sample is taken again before it is kept: on a machine that is never quiet, a table that says
/// so is better than none. Each try takes as long as a sample; other programs come and go within a second.
const TRIES: u32 = 100;

/// The median of `all`, which must not be empty.
pub(crate) fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

type Prepare = Box<dyn FnMut() -> Result<(), Box<dyn Error>>>;
type Calls = Box<dyn Fn(u64) -> u64 + Sync>;

/// One row of the table, ready to be measured.
pub(crate) struct Case {
    /// The name in the table.
    pub(crate) name: &'static str,
    threads: usize,
    prepare: Prepare,
    /// For each thread in turn: makes a number of calls, and counts those that were not answered as the row expects.
    calls: Vec<Calls>,
}

impl Case {
    /// Makes a row of `call`, which returns whether it was answered as expected.
    pub(crate) fn new(name: &'static str, call: impl Fn() -> bool + Sync + 'static) -> Self {
        Case { name, threads: 1, prepare: Box::new(|| Ok(())), calls: vec![batch(call)] }
    }

    /// Runs on two threads at once, of which the second makes another `call`.
    pub(crate) fn beside(mut self, call: impl Fn() -> bool + Sync + 'static) -> Self {
        self.calls.push(batch(call));
        Case { threads: 2, ..self }
    }

    /// Runs on two threads at once.
    pub(crate) fn on_two_threads(self) -> Self {
        Case { threads: 2, ..self }
    }

    /// Runs `prepare` before each sample, outside the measured time.
    pub(crate) fn prepared_by(self, prepare: impl FnMut() -> Result<(), Box<dyn Error>> + 'static) -> Self {
        Case { prepare: Box::new(prepare), ..self }
    }

    /// Takes one sample, and takes it again if it was disturbed.
    pub(crate) fn sample(&mut self) -> Result<Sample, Box<dyn Error>> {
        let mut sample = self.one_sample()?;
        for _ in 1..TRIES {
            if sample.alone {
                break;
            }
            sample = self.one_sample()?;
        }
        Ok(sample)
    }

    fn one_sample(&mut self) -> Result<Sample, Box<dyn Error>> {
        (self.prepare)()?;
        let start = Barrier::new(self.threads);
        let run = |thread: usize| {
            let had_core = has_whole_core();
            start.wait();
            let run = Run::of(&self.calls[thread % self.calls.len()]);
            Run { alone: run.alone && had_core && has_whole_core(), ..run }
        };
        let runs: Vec<Run> = std::thread::scope(|scope| {
            let others: Vec<_> = (1..self.threads)
                .map(|thread| {
                    let run = &run;
                    scope.spawn(move || run(thread))
                })
                .collect();
            let mine = run(0);
            let others = others.into_iter().map(|thread| thread.join().expect("a run does not panic"));
            others.chain([mine]).collect()
        });
        Ok(Sample::of(&runs))
    }

    /// Makes `count` calls on this thread, and returns how many were answered wrongly.
    pub(crate) fn call(&mut self, count: u64) -> Result<u64, Box<dyn Error>> {
        (self.prepare)()?;
        Ok(counted(&self.calls[0], count))
    }
}

/// Puts a loop around `call`. The loop is compiled together with the call; only the batch is behind a pointer.
fn batch(call: impl Fn() -> bool + Sync + 'static) -> Calls {
    Box::new(move |count| (0..count).map(|_| u64::from(!call())).sum())
}

/// Makes the calls whose instructions `ir` counts: a profiler finds this function by its name, [`COUNTED`].
#[inline(never)]
fn counted(calls: &Calls, count: u64) -> u64 {
    calls(count)
}

/// The name of [`counted`], as a pattern for a profiler.
pub(crate) const COUNTED: &str = "benches::sample::counted";

/// The result of one thread in one sample.
struct Run {
    calls: u64,
    wrong: u64,
    elapsed: Duration,
    /// Allocations of this thread: those of background tasks do not belong to the caller.
    allocations: u64,
    /// Whether the thread had a core all the time.
    alone: bool,
}

impl Run {
    fn of(calls: &Calls) -> Self {
        let mut run = Run { calls: 0, wrong: 0, elapsed: Duration::ZERO, allocations: 0, alone: true };
        let before = core_time();
        let counted = allocation_counter::measure(|| {
            let begin = CLOCK.now();
            while run.elapsed < SAMPLE {
                run.wrong += calls(BATCH);
                run.calls += BATCH;
                run.elapsed = CLOCK.now().since(begin);
            }
        });
        run.allocations = counted.count_total;
        run.alone = was_alone(core_time().zip(before).map(|(now, before)| now - before), run.elapsed);
        run
    }
}

/// One sample of one row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Nanoseconds in which all threads together make one call.
    ns: f64,
    calls: u64,
    wrong: u64,
    allocations: u64,
    /// Whether every thread had a core all the time, and an undisturbed one before and after.
    alone: bool,
}

impl Sample {
    fn of(runs: &[Run]) -> Self {
        // Speeds are added: two threads that end at different times are not averaged over the longer time.
        let calls_per_ns: f64 = runs.iter().map(|run| run.calls as f64 / run.elapsed.as_nanos() as f64).sum();
        Sample {
            ns: 1.0 / calls_per_ns,
            calls: runs.iter().map(|run| run.calls).sum(),
            wrong: runs.iter().map(|run| run.wrong).sum(),
            allocations: runs.iter().map(|run| run.allocations).sum(),
            alone: runs.iter().all(|run| run.alone),
        }
    }
}

/// The figures of one row, from its samples.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Figures {
    pub(crate) row: &'static str,
    pub(crate) ns_median: f64,
    pub(crate) ns_min: f64,
    pub(crate) ns_max: f64,
    /// Allocations a call, on the caller's thread.
    pub(crate) allocations: f64,
    /// Part of the calls that were answered wrongly.
    #[serde(skip)]
    pub(crate) wrong: f64,
    /// Part of the samples that stayed disturbed however often they were taken again.
    #[serde(skip)]
    disturbed: f64,
}

impl Figures {
    /// Computes the figures of at least one sample.
    pub(crate) fn of(row: &'static str, samples: &[Sample]) -> Self {
        let mut ns: Vec<f64> = samples.iter().map(|sample| sample.ns).collect();
        ns.sort_by(f64::total_cmp);
        let sum = |part: fn(&Sample) -> u64| samples.iter().map(part).sum::<u64>() as f64;
        let calls = sum(|sample| sample.calls);
        Figures {
            row,
            // Of an even number, the upper one: a real sample rather than a mean of two.
            ns_median: ns[ns.len() / 2],
            ns_min: ns[0],
            ns_max: ns[ns.len() - 1],
            allocations: sum(|sample| sample.allocations) / calls,
            wrong: sum(|sample| sample.wrong) / calls,
            disturbed: sum(|sample| u64::from(!sample.alone)) / samples.len() as f64,
        }
    }

    /// Whether the row measured something else than its name says.
    pub(crate) fn is_broken(&self) -> bool {
        self.wrong > WRONG_MAX
    }

    /// Whether other programs affected the median.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.disturbed > 0.5
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn figures(mut case: Case) -> Figures {
        let sample = case.sample().expect("nothing to prepare");
        Figures::of(case.name, &[sample])
    }

    #[test]
    fn the_allocations_of_a_call_are_counted_on_every_thread() {
        let boxed = || Case::new("boxed", || *black_box(Box::new(true)));
        assert!((figures(boxed()).allocations - 1.0).abs() < 0.001);
        assert!((figures(boxed().on_two_threads()).allocations - 1.0).abs() < 0.001);
        assert!(figures(Case::new("plain", || black_box(true))).allocations < 0.001);
    }

    #[test]
    fn a_row_that_is_answered_otherwise_is_broken() {
        let each = |nth: u64| {
            let count = AtomicU64::new(0);
            Case::new("now and then", move || {
                count.fetch_add(1, Ordering::Relaxed).checked_rem(nth) != Some(0)
            })
        };
        assert!(figures(each(500)).is_broken());
        assert!(!figures(each(5_000)).is_broken());
    }

    #[test]
    fn the_median_is_a_sample_that_was_taken() {
        let samples =
            [3.0, 1.0, 9.0].map(|ns| Sample { ns, calls: 1, wrong: 0, allocations: 0, alone: true });
        let figures = Figures::of("row", &samples);
        assert_eq!([figures.ns_min, figures.ns_median, figures.ns_max].map(|ns| ns as u64), [1, 3, 9]);
    }
}
