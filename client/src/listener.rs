//! Listens to the events of an allocator: waiting callers ask again at once, and pools that must stop do so. There is
//! one task per client; it follows the exchanges to another allocator once that answers. Nothing depends on it: the
//! next ask learns the same, only later.

use crate::local_pool::{CLOCK, LocalPool};
use crate::shared::{Parts, Shared};
use crate::transport::Transport;
use lessor_holder::backoff::Backoff;
use lessor_protocol::Moment;
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
    transports: Vec<Transport>,
    /// Index of the allocator in `transports`.
    current_allocator: watch::Receiver<usize>,
    node: String,
    rng: fastrand::Rng,
    /// The event that pools are being told, and the pools that were not told yet.
    under_way: Option<(Event, Parts)>,
}

impl Listener {
    pub(crate) fn new(
        shared: Arc<Shared>,
        transports: Vec<Transport>,
        current_allocator: watch::Receiver<usize>,
        node: String,
        rng: fastrand::Rng,
    ) -> Self {
        Listener { shared, transports, current_allocator, node, rng, under_way: None }
    }

    /// Listens, and starts again when the stream ends or the client moves. Runs until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut moved = self.current_allocator.clone();
        loop {
            // The client may have moved while pools were told of a pause.
            self.tell_pools().await;
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
                let allocator = self.transports[at].name();
                tracing::debug!(%allocator, %reason, "no event stream from the allocator; opening it again");
            }
            sleep(backoff.failed(self.rng.u64(..)) * AGAIN).await;
        }
    }

    async fn listen(&mut self, at: usize, backoff: &mut Backoff) -> Result<(), String> {
        let open = timeout(SILENCE, self.transports[at].events()).await;
        let mut stream =
            open.map_err(|_| format!("no answer within {SILENCE:?}"))?.map_err(|error| error.to_string())?;
        self.shared.listening.fetch_add(1, Ordering::Relaxed);
        // Events before this were not heard.
        self.on_event(Event::of_all(Kind::Lagged)).await;
        let mut line = vec![];
        loop {
            let piece = timeout(SILENCE, stream.chunk()).await;
            let piece = piece
                .map_err(|_| format!("no event and no heartbeat for {SILENCE:?}"))?
                .map_err(|error| error.to_string())?;
            let Some(piece) = piece else { return Ok(()) };
            backoff.succeeded();
            for byte in piece {
                if byte != b'\n' {
                    line.push(byte);
                } else if let Some(event) = event(&std::mem::take(&mut line)) {
                    self.on_event(event).await;
                }
                if line.len() > LINE_MAX {
                    return Err("a line is too long".to_owned());
                }
            }
        }
    }

    /// Tells the pools that `event` concerns.
    async fn on_event(&mut self, event: Event) {
        if let (Kind::Changed, Some(limit)) = (event.kind, &event.limit) {
            self.shared.tell(crate::events::Event::Changed { limit: limit.as_str().into() });
        }
        let pools = self.shared.about(&event);
        self.under_way = Some((event, pools));
        self.tell_pools().await;
    }

    /// Tells all pools of the event that is under way, in parts between which other tasks run: a million keys take a
    /// good part of a second. If this is dropped, the next call goes on.
    async fn tell_pools(&mut self) {
        while let Some((event, parts)) = &mut self.under_way {
            let Some(pools) = parts.next() else {
                self.under_way = None;
                // Not after each part: the background task looks at all leased pools each time.
                self.shared.wake_list.wake.notify_one();
                return;
            };
            let (stops, now) = (event.stops(&self.node), CLOCK.now());
            for pool in &pools {
                tell(pool, stops, now, self.rng.u64(..));
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Has `pool` ask again and, if the event `stops` it, spend nothing until then.
fn tell(pool: &LocalPool, stops: bool, now: Moment, random: u64) {
    let waits = pool.seen().waiting > 0;
    let mut refill = pool.refill();
    if stops {
        refill.stop(pool.slot());
        pool.on_pause();
    }
    let is_refused = pool.condition().is_for_good() && pool.name().key.is_none();
    match is_refused {
        true => refill.may_lend_again(now, random),
        false => refill.on_event(now, waits, random),
    }
    pool.make_known();
}

/// Parses the event in a line. Other lines of a stream mean nothing to this client.
fn event(line: &[u8]) -> Option<Event> {
    serde_json::from_slice(line.strip_prefix(b"data:")?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand::{self, NOWHERE};
    use crate::local_pool::Condition;
    use lessor_holder::timing::LOOK_AGAIN;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    fn listener(shared: Arc<Shared>) -> Listener {
        let (_, current_allocator) = watch::channel(0);
        let transports = vec![by_hand::transport(NOWHERE)];
        Listener::new(shared, transports, current_allocator, "n".to_owned(), fastrand::Rng::with_seed(1))
    }

    /// The bug: all keys were told of an event in one go, and a million kept a thread for a good part of a second.
    #[tokio::test]
    async fn an_event_of_many_keys_lets_other_tasks_run() {
        let shared = by_hand::shared();
        for key in 0..20_000 {
            shared.pool("user", Some(&key.to_string()));
        }
        shared.wake_list.take(&mut vec![]);
        let others = tokio::spawn(async {
            for _turn in 0..10 {
                tokio::task::yield_now().await;
            }
        });
        listener(shared.clone()).on_event(Event::of_all(Kind::Lagged)).await;
        assert!(others.is_finished(), "ten turns beside twenty parts");
        let mut told = vec![];
        shared.wake_list.take(&mut told);
        assert_eq!(told.len(), 20_000, "each key; the plain pool was known before");
    }

    #[tokio::test]
    async fn an_event_is_told_to_all_pools_though_the_client_moves_meanwhile() {
        let shared = by_hand::shared();
        let pools: Vec<_> = (0..5_000).map(|key| shared.pool("user", Some(&key.to_string()))).collect();
        for pool in &pools {
            pool.slot().install(1, 0, CLOCK.now() + by_hand::LEASED);
        }
        let stopped = || pools.iter().filter(|pool| pool.available() == 0).count();
        let mut listener = listener(shared);
        {
            let mut told = pin!(listener.on_event(Event::of(Kind::Paused, "user")));
            poll_fn(|cx| Poll::Ready(told.as_mut().poll(cx).is_pending())).await;
        }
        assert!((1..5_000).contains(&stopped()), "{} in the first part", stopped());
        let all_stopped = async {
            while stopped() < 5_000 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = listener.run() => {}
            done = timeout(Duration::from_secs(10), all_stopped) => done.expect("the listener goes on"),
        }
    }

    /// A limit that an operator has just added is leased before it is called again.
    #[tokio::test]
    async fn a_limit_of_which_nothing_was_lent_is_asked_for_when_something_happens() {
        let shared = by_hand::shared();
        let (pool, now) = (shared.pool("a", None), CLOCK.now());
        pool.set_condition(Condition::Unknown);
        pool.refill().refused_for_good(pool.slot(), now, LOOK_AGAIN, 0);
        assert!(pool.refill().is_idle());
        listener(shared).on_event(Event::of(Kind::Changed, "a")).await;
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
