//! Tests of how fast the clock of an allocator runs, and where it is steered to.

use super::*;
use proptest::prelude::*;
use std::time::Duration;

const HOUR: u64 = 3_600_000_000_000;

/// A machine with a steady clock and a disciplined one, whose rates may differ.
#[derive(Clone, Copy)]
struct Machine {
    steady: u64,
    disciplined: u64,
}

impl Machine {
    fn run(&mut self, span: u64, ppm: i64) -> Instants {
        self.steady += span;
        let gone = i128::from(span) * i128::from(1_000_000 + ppm) / 1_000_000;
        self.disciplined += u64::try_from(gone).expect("forwards");
        self.now()
    }

    fn now(self) -> Instants {
        Instants {
            steady: Moment::from_nanos(self.steady),
            disciplined: Moment::from_nanos(self.disciplined),
        }
    }
}

fn begin(clocks: ClockBounds) -> (Machine, Steering) {
    let machine = Machine { steady: 5_000, disciplined: 9_000 };
    let course = Course::at(Moment::from_nanos(1 << 60), machine.now());
    (machine, Steering::new(course, clocks))
}

proptest! {
    /// Between any two readings, the rate of the clock is within the limit of the hardware's rate. With hardware at the
    /// edge of its half, it is within the drift of real time.
    #[test]
    fn no_slew_moves_it_faster_than_it_is_steered(
        steps in prop::collection::vec((0u64..1_000_000_000, -1_000_000i64..1_000_000), 1..100),
        drift_ppm in 0u32..=ClockBounds::DRIFT_PPM_MAX,
    ) {
        let clocks = ClockBounds::try_new(drift_ppm).expect("below the maximum");
        let (mut machine, mut clock) = begin(clocks);
        let mut seen: Vec<(u64, u64)> = vec![];
        for (span, ppm) in steps {
            let now = machine.run(span, ppm);
            seen.push((now.steady.as_nanos(), clock.show(now).as_nanos()));
        }
        let d = f64::from(drift_ppm) / 1e6;
        for (index, from) in seen.iter().enumerate() {
            for to in &seen[index + 1..] {
                let (gone, shown) = ((to.0 - from.0) as f64, to.1.checked_sub(from.1).expect("never back") as f64);
                // Real time that passed if the hardware is slow, and if it is fast.
                let (slow, fast) = (gone / (1.0 - d / 2.0), gone / (1.0 + d / 2.0));
                prop_assert!(shown <= fast * (1.0 + d) + 2.0, "{shown} in {fast}");
                prop_assert!(shown >= slow * (1.0 - d) - 2.0, "{shown} in {slow}");
            }
        }
    }
}

#[test]
fn it_follows_a_frequency_that_is_set_for_good() {
    for ppm in [-300, 300, 480] {
        let (mut machine, mut clock) = begin(ClockBounds::default());
        let apart = 1 << 60;
        for _ in 0..24 * 3_600 {
            let now = machine.run(HOUR / 3_600, ppm);
            let off = clock.show(now).as_nanos().abs_diff(now.disciplined.as_nanos() + apart - 9_000);
            assert!(off <= 1, "{off} ns off at {ppm} ppm");
        }
    }
}

#[test]
fn readings_a_nanosecond_apart_steer_it_as_those_a_second_apart_do() {
    let (mut machine, mut clock) = begin(ClockBounds::default());
    let first = clock.show(machine.now());
    for _ in 0..1_000_000 {
        clock.show(machine.run(7, 1_000_000));
    }
    assert_eq!(clock.show(machine.now()).since(first), Duration::from_nanos(7_000_000 + 7 * 490));
}

#[test]
fn it_comes_back_to_where_it_is_aimed_once_a_slew_is_over() {
    let (mut machine, mut clock) = begin(ClockBounds::default());
    // The disciplined clock gains a second in twelve.
    clock.show(machine.run(12_000_000_000, 83_333));
    let lag = |machine: Machine, shown: Moment| (machine.disciplined + (1 << 60) - 9_000) - shown.as_nanos();
    assert!(lag(machine, clock.show(machine.now())) > 990_000_000);
    for _ in 0..2_100 {
        clock.show(machine.run(1_000_000_000, 0));
    }
    assert_eq!(lag(machine, clock.show(machine.now())), 0);
}

#[test]
fn one_that_goes_on_in_another_process_shows_what_it_would_have_shown() {
    let (mut machine, mut clock) = begin(ClockBounds::default());
    clock.show(machine.run(HOUR, 83_333));
    let written = clock.course();
    let later = machine.run(HOUR, 0);
    assert_eq!(Steering::new(written, ClockBounds::default()).show(later), clock.show(later));
}
