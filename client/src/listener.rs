//! Listens to the events of an allocator: waiting callers ask again at once, and pools that must stop do so. There is
//! one task per client; it follows the exchanges to another allocator once that answers. Nothing depends on it: the
//! next ask learns the same, only later.

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

/// Longest silence of a stream that counts as alive: three heartbeats of an allocator.
const SILENCE: Duration = Duration::from_secs(30);

/// Longest line, in bytes. An event has a few hundred; a longer line is no event and ends the stream.
const LINE_MAX: usize = 4_096;

/// Pause between two attempts to listen, in units of the backoff of exchanges. It may be long, because a node that
/// cannot listen still asks. Less could make a storm of thousands of nodes that come back.
const AGAIN: u32 = 16;

/// The task that listens for a client.
pub(crate) struct Listener {
    shared: Arc<Shared>,
    ways: Vec<Transport>,
    /// Index of the allocator in `ways`.
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

    /// Listens, and starts again when the stream ends or the client moves. Runs until it is dropped.
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

    /// Listens to the allocator at index `at`, without end.
    async fn stay(&mut self, at: usize) {
        let mut backoff = Backoff::default();
        loop {
            if let Err(reason) = self.listen(at, &mut backoff).await {
                tracing::debug!(%reason, "no event stream from the allocator; opening it again");
            }
            sleep(backoff.failed(self.rng.u64(..)) * AGAIN).await;
        }
    }

    async fn listen(&mut self, at: usize, backoff: &mut Backoff) -> Result<(), String> {
        let open = timeout(SILENCE, self.ways[at].events()).await;
        let mut stream = open.map_err(|_| "no answer")?.map_err(|error| error.to_string())?;
        self.shared.listening.fetch_add(1, Ordering::Relaxed);
        // Events before this were not heard.
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
                    return Err("a line is too long".to_owned());
                }
            }
        }
    }

    /// Wakes the pools that `event` concerns.
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

/// Parses the event in a line. Other lines of a stream mean nothing to this client.
fn event(line: &[u8]) -> Option<Event> {
    serde_json::from_slice(line.strip_prefix(b"data:")?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand;
    use crate::local_pool::Condition;
    use lessor_holder::timing::LOOK_AGAIN;

    /// A limit that an operator has just added is leased before it is called again.
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
