//! Which of several allocators is asked, and in which session. Pure: the background task reports results of exchanges
//! and passes random numbers.
//!
//! A node stays with one allocator for as long as the allocator answers. A session that was answered ends when its
//! allocator is left. It also ends when another allocator answers at the same address, as behind a balancer, which
//! shows by its epoch. So an allocator never hears of leases from another one, nor of its own from before it was left.

use lessor_protocol::PERMITS_MAX;

/// The choice of the allocator that is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    current: usize,
    /// Failed exchanges in a row, with one allocator after the other.
    failures: usize,
    /// For each allocator the session in which it is asked, unless one is to begin.
    sessions: Vec<Option<Session>>,
}

/// A session, as one allocator knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Session {
    number: u64,
    /// Exchanges that have begun.
    seq: u64,
    /// Whether any answer was believed. Until then the session owns nothing, even if permits were lent to it in answers
    /// that were lost.
    is_answered: bool,
    /// The epoch of the allocator that answers: the number of its life.
    epoch: Option<u64>,
}

/// What follows from a failed exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Whether every allocator has failed since the last good answer: it is time for a pause.
    pub all_failed: bool,
    /// Whether the session that holds the leases is over.
    pub loses_leases: bool,
}

impl Session {
    /// Creates a session that owns nothing. `random` is any number.
    fn new(random: u64) -> Self {
        Session { number: 1 + random % PERMITS_MAX, seq: 0, is_answered: false, epoch: None }
    }
}

impl Rotation {
    /// Creates the choice among that many `addresses`. `first` (any number) chooses the first allocator, and `random`
    /// its session.
    ///
    /// # Panics
    /// If there is no address.
    pub fn new(addresses: usize, first: u64, random: u64) -> Self {
        assert!(addresses > 0, "a client has an address");
        let current =
            usize::try_from(first % addresses as u64).expect("the index is below the number of allocators");
        let mut sessions = vec![None; addresses];
        sessions[current] = Some(Session::new(random));
        Rotation { current, failures: 0, sessions }
    }

    /// Whether there is only one allocator.
    pub fn is_alone(&self) -> bool {
        self.sessions.len() == 1
    }

    /// Whether there is another allocator that has not failed since the last good answer.
    pub fn has_another(&self) -> bool {
        self.failures + 1 < self.sessions.len()
    }

    /// Returns the index of the allocator that is asked.
    pub fn current(&self) -> usize {
        self.current
    }

    /// Returns the session in which it is asked.
    pub fn session(&self) -> u64 {
        self.here().number
    }

    /// Returns the epoch of the allocator that answers in this session; 0 if none has answered yet.
    pub fn epoch(&self) -> u64 {
        self.here().epoch.unwrap_or(0)
    }

    /// Begins an exchange and returns its sequence number.
    pub fn next_seq(&mut self) -> u64 {
        let here = self.here_mut();
        here.seq += 1;
        here.seq
    }

    /// Records that an answer was believed.
    pub fn on_answer(&mut self) {
        self.here_mut().is_answered = true;
    }

    /// Notes that an answer came from the allocator's life `epoch`. Returns whether another life has answered in this
    /// session before.
    pub fn is_of_another(&mut self, epoch: u64) -> bool {
        *self.here_mut().epoch.get_or_insert(epoch) != epoch
    }

    /// Records that the answer was a good one.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Begins another session with the same allocator.
    pub fn begin_session(&mut self, random: u64) {
        self.sessions[self.current] = Some(Session::new(random));
    }

    /// Records a failed exchange: the next allocator is asked, if there is another.
    pub fn failed(&mut self, random: u64) -> Turn {
        self.failures = self.failures.saturating_add(1);
        let all_failed = self.failures >= self.sessions.len();
        if self.is_alone() {
            return Turn { all_failed, loses_leases: false };
        }
        let left = self.current;
        let loses_leases = self.here().is_answered;
        if loses_leases {
            // When this allocator is asked again, it may still remember the old session.
            self.sessions[left] = None;
        }
        self.current = (left + 1) % self.sessions.len();
        self.sessions[self.current].get_or_insert_with(|| Session::new(random));
        Turn { all_failed, loses_leases }
    }

    fn here(&self) -> &Session {
        self.sessions[self.current].as_ref().expect("the current one has a session")
    }

    fn here_mut(&mut self) -> &mut Session {
        self.sessions[self.current].as_mut().expect("the current one has a session")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates three allocators, of which the second is asked first.
    fn three() -> Rotation {
        Rotation::new(3, 4, 100)
    }

    /// Does the same as [`three`], after a good exchange.
    fn settled() -> Rotation {
        let mut rotation = three();
        rotation.next_seq();
        rotation.on_answer();
        rotation.succeeded();
        rotation
    }

    #[test]
    fn the_first_is_drawn_and_the_order_goes_round() {
        let mut rotation = three();
        assert_eq!((rotation.current(), rotation.session()), (1, 101));
        let turns: Vec<(usize, bool)> = (0..5)
            .map(|random| {
                let has_another = rotation.has_another();
                let all_failed = rotation.failed(random).all_failed;
                assert_eq!(has_another, !all_failed);
                (rotation.current(), all_failed)
            })
            .collect();
        assert_eq!(turns, [(2, false), (0, false), (1, true), (2, true), (0, true)]);
        let firsts: Vec<usize> = (0..6).map(|first| Rotation::new(3, first, 0).current()).collect();
        assert_eq!(firsts, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn it_stays_where_it_is_answered_and_begins_another_round_after_that() {
        let mut rotation = settled();
        assert!(!rotation.failed(0).all_failed);
        rotation.on_answer();
        rotation.succeeded();
        assert_eq!(rotation.current(), 2);
        let turns: Vec<bool> = (0..3).map(|random| rotation.failed(random).all_failed).collect();
        assert_eq!(turns, [false, false, true], "no allocator has failed since");
    }

    #[test]
    fn no_allocator_sees_a_session_with_two_histories() {
        let mut rotation = settled();
        let first = rotation.session();
        assert!(rotation.failed(7).loses_leases);
        let second = rotation.session();
        rotation.on_answer();
        assert!(rotation.failed(8).loses_leases, "the second allocator has answered too");
        assert!(!rotation.failed(9).loses_leases, "an allocator that has not answered has lent nothing");
        // Round again, to an allocator that may remember.
        let third = rotation.session();
        assert_eq!((rotation.current(), third), (1, 10));
        assert!(third != first && third != second);
        assert_eq!(rotation.next_seq(), 1);
    }

    #[test]
    fn one_life_of_an_allocator_answers_in_a_session() {
        let mut rotation = settled();
        assert!(![7, 7].into_iter().any(|epoch| rotation.is_of_another(epoch)));
        assert!(rotation.is_of_another(8) && !rotation.is_of_another(7), "the first one goes on");
        rotation.begin_session(5);
        assert!(!rotation.is_of_another(8));
        rotation.failed(9);
        assert!(!rotation.is_of_another(3), "each allocator has its own");
    }

    /// Permits lent to a session in a lost answer come back with its next ask. If the session ended, they would burn.
    #[test]
    fn a_session_that_was_never_answered_goes_on_when_its_turn_comes() {
        let mut rotation = three();
        assert_eq!(rotation.next_seq(), 1);
        let asked = rotation.session();
        (0..3).for_each(|random| assert!(!rotation.failed(random).loses_leases));
        assert_eq!((rotation.current(), rotation.session(), rotation.next_seq()), (1, asked, 2));
    }

    #[test]
    fn one_alone_keeps_its_session_and_has_always_failed() {
        let mut rotation = Rotation::new(1, 9, 100);
        rotation.on_answer();
        rotation.succeeded();
        assert_eq!(rotation.next_seq(), 1);
        assert_eq!(rotation.failed(5), Turn { all_failed: true, loses_leases: false });
        assert_eq!((rotation.current(), rotation.session(), rotation.next_seq()), (0, 101, 2));
        rotation.begin_session(55);
        assert_eq!((rotation.session(), rotation.next_seq()), (56, 1));
    }
}
