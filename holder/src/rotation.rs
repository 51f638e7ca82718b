//! Which of several allocators is asked, and as which session. Pure: the background task tells it what came of an exchange and
//! hands it random numbers.
//!
//! A node stays with one allocator for as long as that answers. An allocator that is left is known no more. What a session has
//! heard from one allocator is told to no other, nor to the same one in another life of this node's books.

use lessor_protocol::PERMITS_MAX;

/// Which allocator is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    current: usize,
    /// Exchanges in a row that were no use, with one allocator after the other.
    failures: usize,
    /// For each allocator the session that it is asked as, unless one is to begin.
    sessions: Vec<Option<Session>>,
}

/// A session, as one allocator knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Session {
    number: u64,
    /// Exchanges that were begun.
    seq: u64,
    /// Whether any answer was believed. Until then it owns nothing, whatever was lent to it in answers that were lost.
    is_answered: bool,
}

/// What it means that an exchange was no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// None is left that was not tried since the last good answer: it is time for a pause.
    pub all_failed: bool,
    /// What is held was lent to a session that asks no allocator any more.
    pub loses_leases: bool,
}

impl Session {
    /// One that owns nothing. `random` is any number.
    fn new(random: u64) -> Self {
        Session { number: 1 + random % PERMITS_MAX, seq: 0, is_answered: false }
    }
}

impl Rotation {
    /// Among so many `addresses`, of which `first` (any number) says which is asked first, as the session that `random` says.
    ///
    /// # Panics
    /// If there is no address.
    pub fn new(addresses: usize, first: u64, random: u64) -> Self {
        assert!(addresses > 0, "a client has an address");
        let current = usize::try_from(first % addresses as u64).expect("less than there are");
        let mut sessions = vec![None; addresses];
        sessions[current] = Some(Session::new(random));
        Rotation { current, failures: 0, sessions }
    }

    /// Whether there is no other.
    pub fn is_alone(&self) -> bool {
        self.sessions.len() == 1
    }

    /// Whether there is another that has not failed since the last good answer.
    pub fn has_another(&self) -> bool {
        self.failures + 1 < self.sessions.len()
    }

    /// The place of the one that is asked.
    pub fn current(&self) -> usize {
        self.current
    }

    /// The session that it is asked as.
    pub fn session(&self) -> u64 {
        self.here().number
    }

    /// The number of the exchange that begins.
    pub fn next_seq(&mut self) -> u64 {
        let here = self.here_mut();
        here.seq += 1;
        here.seq
    }

    /// An answer came that is believed.
    pub fn on_answer(&mut self) {
        self.here_mut().is_answered = true;
    }

    /// It was a good one.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// The same allocator is asked as another session.
    pub fn begin_session(&mut self, random: u64) {
        self.sessions[self.current] = Some(Session::new(random));
    }

    /// The exchange was no use: the next one is asked, if there is another.
    pub fn failed(&mut self, random: u64) -> Turn {
        self.failures = self.failures.saturating_add(1);
        let all_failed = self.failures >= self.sessions.len();
        if self.is_alone() {
            return Turn { all_failed, loses_leases: false };
        }
        let left = self.current;
        let loses_leases = self.here().is_answered;
        if loses_leases {
            // When it is asked again, it may still remember this one.
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

    /// Three of them, of which the second is asked first.
    fn three() -> Rotation {
        Rotation::new(3, 4, 100)
    }

    /// The same after a good exchange.
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
        assert_eq!(turns, [false, false, true], "none of them has failed since");
    }

    #[test]
    fn no_allocator_sees_a_session_with_two_histories() {
        let mut rotation = settled();
        let first = rotation.session();
        assert!(rotation.failed(7).loses_leases);
        let second = rotation.session();
        rotation.on_answer();
        assert!(rotation.failed(8).loses_leases, "this one has answered too");
        assert!(!rotation.failed(9).loses_leases, "it has not answered, so nothing was lent");
        // Round again, to one that may remember.
        let third = rotation.session();
        assert_eq!((rotation.current(), third), (1, 10));
        assert!(third != first && third != second);
        assert_eq!(rotation.next_seq(), 1);
    }

    /// What it may have lent to a session in an answer that was lost comes back with the next ask of that session. Of one that
    /// is never heard of again it would burn.
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
