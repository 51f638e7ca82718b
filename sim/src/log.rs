//! The last events of a run in words, and a running hash of all of them, by which two runs are compared.

use std::collections::VecDeque;
use std::fmt::Write;

/// Events kept in words. A failure shows these; more would not be read.
const KEPT: usize = 24;

/// An event. Each `#` in `words` stands for the next of `numbers`.
#[derive(Clone, Copy, Debug)]
struct Event {
    real: u64,
    words: &'static str,
    numbers: [u64; 6],
    /// Times that the event happened in a row.
    times: u64,
}

/// The last events, and the hash of all.
#[derive(Clone, Debug, Default)]
pub struct Log {
    last: VecDeque<Event>,
    hash: u64,
    steps: u64,
}

impl Log {
    /// Notes an event; the first number names its host. An event equal to the last one is only counted.
    pub fn note(&mut self, real: u64, words: &'static str, numbers: &[u64]) {
        let mut six = [0; 6];
        six[..numbers.len()].copy_from_slice(numbers);
        for part in [real, words.len() as u64, u64::from(words.as_bytes()[0])].iter().chain(&six) {
            // FNV's prime; the rotation lets high bits count too.
            self.hash = (self.hash ^ part).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
        }
        match self.last.back_mut() {
            Some(last) if last.words == words && last.numbers == six => last.times += 1,
            _ => {
                self.last.push_back(Event { real, words, numbers: six, times: 1 });
                if self.last.len() > KEPT {
                    self.last.pop_front();
                }
            }
        }
    }

    /// Counts a step of the world.
    pub fn step(&mut self) {
        self.steps += 1;
    }

    /// Returns the number of steps so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns the hash of all events so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the last events in words, oldest first.
    pub fn words(&self) -> Vec<String> {
        self.last.iter().map(Event::words).collect()
    }
}

impl Event {
    fn words(&self) -> String {
        let mut line = format!("{:>12.6} s  ", self.real as f64 / 1e9);
        let mut numbers = self.numbers.iter();
        for letter in self.words.chars() {
            match letter {
                '#' => write!(line, "{}", numbers.next().expect("a number for each #")).expect("a string"),
                letter => line.push(letter),
            }
        }
        if self.times > 1 {
            write!(line, " ({} times)", self.times).expect("a string");
        }
        line
    }
}
