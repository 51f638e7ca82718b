//! Hears what an allocator says by itself: callers that wait ask again at once, and pools that are to stop do so. One task
//! per client, which goes where exchanges go once they are answered there. Nothing depends on it: what is not heard is learnt
//! at the next ask; what is heard only makes that sooner.

use crate::local_pool::CLOCK;
use crate::shared::Shared;
use crate::transport::Transport;
use lessor_holder::backoff::Backoff;
use lessor_protocol::push::{Event, Kind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Longest silence of a stream that is taken for alive: three heartbeats of an allocator's.
const SILENCE: Duration = Duration::from_secs(30);

/// Longest line. An event is a few hundred bytes; what is longer is none, and ends the stream.
const LINE_MAX: usize = 4_096;

/// Shortest time between two tries, times sixteen for the longest: a node that cannot listen asks as ever, and thousands
/// of them that come back are no storm.
const AGAIN: u32 = 16;

/// Listens for a client.
pub(crate) struct Listener {
    shared: Arc<Shared>,
    ways: Vec<Transport>,
    /// Which of them.
    current_allocator: watch::Receiver<usize>,
    node: String,
    rng: fastrand::Rng,
}

impl Listener {
    pub(crate) fn new(
        shared: Arc<Shared>,
        ways: Vec<Transport>,
        current_allocator: watch::Receiver<usize>,
        node: String,
        rng: fastrand::Rng,
    ) -> Self {
        Listener { shared, ways, current_allocator, node, rng }
    }

    /// Listens, and begins again when the stream ends. Runs until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut moved = self.current_allocator.clone();
        loop {
            let at = *moved.borrow_and_update();
            tokio::select! {
                () = self.stay(at) => {}
                Ok(()) = moved.changed() => {}
            }
        }
    }

    /// Listens at the place `at`, without end.
    async fn stay(&mut self, at: usize) {
        let mut backoff = Backoff::default();
        loop {
            if let Err(reason) = self.listen(at, &mut backoff).await {
                tracing::debug!(%reason, "nothing is heard of the allocator; listening again");
            }
            sleep(backoff.failed(self.rng.u64(..)) * AGAIN).await;
        }
    }

    async fn listen(&mut self, at: usize, backoff: &mut Backoff) -> Result<(), String> {
        let open = timeout(SILENCE, self.ways[at].events()).await;
        let mut stream = open.map_err(|_| "no answer")?.map_err(|error| error.to_string())?;
        self.shared.listening.fetch_add(1, Ordering::Relaxed);
        // What happened meanwhile was not heard.
        self.on_event(&Event::of_all(Kind::Lagged));
        let mut line = vec![];
        loop {
            let piece = timeout(SILENCE, stream.chunk()).await;
            let piece = piece.map_err(|_| "silence")?.map_err(|error| error.to_string())?;
            let Some(piece) = piece else { return Ok(()) };
            backoff.succeeded();
            for byte in piece {
                if byte != b'\n' {
                    line.push(byte);
                } else if let Some(event) = event(&std::mem::take(&mut line)) {
                    self.on_event(&event);
                }
                if line.len() > LINE_MAX {
                    return Err("a line without end".to_owned());
                }
            }
        }
    }

    /// Wakes the pools that `event` is about.
    fn on_event(&mut self, event: &Event) {
        let now = CLOCK.now();
        if let (Kind::Changed, Some(limit)) = (event.kind, &event.limit) {
            self.shared.tell(crate::events::Event::Changed { limit: limit.as_str().into() });
        }
        for pool in self.shared.about(event) {
            let waits = pool.seen().waiting > 0;
            let mut refill = pool.refill();
            if event.stops(&self.node) {
                refill.stop(pool.slot());
                pool.on_pause();
            }
            let is_refused = pool.condition().is_for_good() && pool.name().key.is_none();
            match is_refused {
                true => refill.may_lend_again(now, self.rng.u64(..)),
                false => refill.on_event(now, waits, self.rng.u64(..)),
            }
            pool.make_known();
        }
        self.shared.wake_list.wake.notify_one();
    }
}

/// The event in a line, if there is one: what else there may be in a stream means nothing to us.
fn event(line: &[u8]) -> Option<Event> {
    serde_json::from_slice(line.strip_prefix(b"data:")?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand;
    use crate::local_pool::Condition;
    use lessor_holder::timing::LOOK_AGAIN;

    /// A limit that was put just now is lent from before it is called.
    #[test]
    fn a_limit_of_which_nothing_was_lent_is_asked_for_when_something_happens() {
        let shared = by_hand::shared();
        let (pool, now) = (shared.pool("a", None), CLOCK.now());
        pool.set_condition(Condition::Unknown);
        pool.refill().refused_for_good(pool.slot(), now, LOOK_AGAIN, 0);
        assert!(pool.refill().is_idle());
        let (_allocator, current_allocator) = watch::channel(0);
        let (node, rng) = ("n".to_owned(), fastrand::Rng::with_seed(1));
        let mut listener = Listener { shared, ways: vec![], current_allocator, node, rng };
        listener.on_event(&Event::of(Kind::Changed, "a"));
        let due = pool.refill().due(pool.slot(), pool.seen(), now, Duration::ZERO);
        assert!(due < now + Duration::from_secs(1), "within a tenth of a second: {:?}", due.since(now));
    }

    #[test]
    fn what_is_no_event_is_passed_over() {
        let heard = event(br#"data: {"kind":"topped_up","limit":"a"}"#);
        assert_eq!(heard, Some(Event::of(Kind::ToppedUp, "a")));
        for line in [&b""[..], b":", b"event: limit", b"data:", b"data: {", b"data: 7", b"\xff\xfe"] {
            assert_eq!(event(line), None, "{line:?}");
        }
    }
}
