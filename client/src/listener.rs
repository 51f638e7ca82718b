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
            let (stops, is_of_key, now) = (event.stops(&self.node), event.key.is_some(), CLOCK.now());
            for pool in &pools {
                tell(pool, stops, is_of_key, now, self.rng.u64(..));
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Has `pool` ask again and, if the event `stops` it, spend nothing until then. `is_of_key` says that the event concerns
/// one key.
fn tell(pool: &LocalPool, stops: bool, is_of_key: bool, now: Moment, random: u64) {
    let waits = pool.seen().waiting > 0;
    let mut refill = pool.refill();
    let is_plain = pool.name().key.is_none();
    // Idle pools ask whether a pause has begun or ended. But if a limit is paused, not each of its idle keys: they would
    // all be asked for every few seconds until the pause ends.
    let was_stopped = || pool.standby().has_heard_stop() || pool.standby().is_told_to_stop();
    let is_in_doubt = if stops { is_plain || is_of_key } else { was_stopped() };
    if stops {
        refill.stop(pool.slot());
        pool.on_pause(is_of_key);
    }
    match is_in_doubt || (is_plain && pool.condition().is_for_good()) {
        true => refill.ask_though_idle(now, waits, random),
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
    use crate::fallback;
    use crate::local_pool::Condition;
    use crate::refusal::Refusal;
    use lessor_holder::timing::LOOK_AGAIN;
    use lessor_protocol::Fallback;
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

    /// When `pool` is due, from now on.
    fn due_in(pool: &LocalPool) -> Duration {
        let now = CLOCK.now();
        pool.refill().due(pool.slot(), pool.seen(), now, Duration::ZERO).since(now)
    }

    /// The bug: only answers counted, and an idle pool got none. Without an allocator its calls passed during the pause.
    #[tokio::test]
    async fn a_pause_that_only_an_event_told_of_stays_in_an_open_fallback() {
        let shared = by_hand::shared();
        let limits = [by_hand::limit(&shared, "a"), by_hand::limit(&shared, "user").key("k")];
        for limit in &limits {
            limit.pool().standby().on_grant(false, Fallback::Open);
        }
        let mut listener = listener(shared.clone());
        for paused in ["a", "user"] {
            listener.on_event(Event::of(Kind::Paused, paused)).await;
        }
        fallback::enter(&shared, &shared.pools(), CLOCK.now());
        for limit in &limits {
            assert!(matches!(limit.try_acquire(1), Err(Refusal::Paused { .. })), "{limit:?}");
        }
        // Another key of the limit was granted something: the pause is over.
        shared.pool("user", None).standby().on_ask();
        shared.pool("user", None).standby().set_stopped(false);
        fallback::enter(&shared, &shared.pools(), CLOCK.now());
        assert_eq!((limits[0].try_acquire(1).is_ok(), limits[1].try_acquire(1)), (false, Ok(())));
    }

    /// The bug: a pause of one key counted as over because its limit was not paused.
    #[tokio::test]
    async fn a_pause_of_one_key_that_only_an_event_told_of_stays_in_an_open_fallback() {
        let shared = by_hand::shared();
        let [paused, other] = ["k", "other"].map(|key| by_hand::limit(&shared, "user").key(key));
        for limit in [&paused, &other] {
            limit.pool().standby().on_grant(false, Fallback::Open);
        }
        let mut listener = listener(shared.clone());
        // An event without a key pauses the limit, which leaves the key paused.
        for key in [Some("k"), None] {
            let event = Event { key: key.map(str::to_owned), ..Event::of(Kind::Paused, "user") };
            listener.on_event(event).await;
        }
        shared.pool("user", None).standby().on_ask();
        shared.pool("user", None).standby().set_stopped(false);
        paused.pool().standby().on_ask();
        fallback::enter(&shared, &shared.pools(), CLOCK.now());
        assert!(matches!(paused.try_acquire(1), Err(Refusal::Paused { .. })));
        assert_eq!(other.try_acquire(1), Ok(()), "another key");
        paused.pool().standby().set_stopped(false);
        assert!(!paused.pool().standby().has_heard_stop(), "an answer to a later ask ends it");
    }

    #[tokio::test]
    async fn an_answer_to_an_ask_from_before_a_pause_does_not_end_it() {
        let shared = by_hand::shared();
        let pool = shared.pool("a", None);
        pool.standby().on_ask();
        listener(shared.clone()).on_event(Event::of(Kind::Paused, "a")).await;
        pool.standby().set_stopped(false);
        assert!(pool.standby().has_heard_stop());
        pool.standby().on_ask();
        pool.standby().set_stopped(false);
        assert!(!pool.standby().has_heard_stop());
    }

    /// The bug: a pool that was idle when a pause began asked neither then nor later. Its state was paused for ever.
    #[tokio::test]
    async fn an_idle_pool_asks_whether_a_pause_has_begun_and_ended() {
        const SOON: Duration = Duration::from_secs(1);
        let shared = by_hand::shared();
        let plain = by_hand::limit(&shared, "a");
        plain.pool().refill().refused_for_good(plain.pool().slot(), CLOCK.now(), LOOK_AGAIN, 0);
        let [resumed, missed] = ["resumed", "missed"].map(|key| by_hand::limit(&shared, "user").key(key));
        let due = || [&plain, &resumed, &missed].map(|limit| due_in(limit.pool()) < SOON);
        let mut listener = listener(shared.clone());
        assert_eq!(due(), [false; 3]);
        listener.on_event(Event::of(Kind::Paused, "a")).await;
        listener.on_event(Event::of(Kind::Paused, "user")).await;
        assert_eq!(due(), [true, false, false], "not each key, every few seconds until the pause ends");
        assert_eq!(resumed.pool().known_refusal(1, CLOCK.now()), None, "an answer can tell");
        let event = Event { key: Some("resumed".to_owned()), ..Event::of(Kind::Resumed, "user") };
        listener.on_event(event).await;
        assert_eq!(due(), [true, true, false]);
        assert!(missed.paused().is_some(), "as far as is known");
        assert_eq!(due(), [true; 3], "and the look at it has the allocator asked");
    }

    #[tokio::test]
    async fn an_idle_key_that_an_answer_has_paused_asks_when_its_limit_is_resumed() {
        let shared = by_hand::shared();
        let key = by_hand::limit(&shared, "user").key("k");
        key.pool().standby().set_stopped(true);
        assert!(due_in(key.pool()) > LOOK_AGAIN, "it has nothing to say");
        listener(shared.clone()).on_event(Event::of(Kind::Resumed, "user")).await;
        assert!(due_in(key.pool()) < Duration::from_secs(1), "within a tenth of a second");
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
