//! Limits that need more than permits in a shared store: calls in flight, a steady flow, a bucket that refills at
//! intervals. Two allocators lend them, one is killed, and the test counts the calls itself.

use super::{CLOCK, PER, Store};
use lessor::{Client, Limit};
use lessor_allocator::cells::StoreKind;
use lessor_protocol::Moment;
use scenarios::fleet::Fleet;
use scenarios::process::Allocator;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::sleep;

/// How long each limit is in full use.
const SECONDS: u32 = 3;

/// Each of these tests uses all that a store and two allocators can do, so two at once would disturb each other's
/// figures.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// Calls that may be in flight at once, and the longest call.
const AT_ONCE: u64 = 20;
const LONGEST: Duration = Duration::from_secs(2);

const LIMITS: &str = "[[limit]]\nname = \"calls\"\nrules = [{ kind = \"concurrency\", limit = 20, longest = \"2s\" }]\n\
    [[limit]]\nname = \"both\"\nrules = [{ kind = \"concurrency\", limit = 20, longest = \"2s\" }, \
    { kind = \"sliding_window\", limit = 150, per = \"1s\", margin = \"50ms\" }]\n\
    [[limit]]\nname = \"paced\"\nrules = [{ kind = \"leaky_bucket\", burst = 5, refill = 50, per = \"1s\" }]\n\
    [[limit]]\nname = \"stepwise\"\n\
    rules = [{ kind = \"token_bucket\", capacity = 60, refill = 60, per = \"1s\", refill_style = \"interval\" }]\n";

impl Store {
    fn of_all_kinds(&self, node: &str) -> String {
        self.head(&self.server.url(), node, 1) + LIMITS
    }
}

/// Percent of a flow or a bucket that must be used. Where allocators keep the time, their clocks may be apart by half
/// of the time that the burst of the flow covers.
fn flow_percent(kind: StoreKind) -> u64 {
    match kind {
        StoreKind::Redis | StoreKind::Postgres | StoreKind::Memory => 90,
        StoreKind::Etcd => 20,
    }
}

/// Calls at the vendor: those in flight now, the most at once, how many there were, and how long they took together.
#[derive(Debug, Default)]
struct InFlight {
    now: AtomicU64,
    most: AtomicU64,
    calls: AtomicU64,
    nanos: AtomicU64,
}

impl InFlight {
    /// Makes one call after another until then, of 5 to 60 ms each.
    async fn call(self: Arc<Self>, limit: Limit, seed: u64, until: Moment) {
        let mut dice = fastrand::Rng::with_seed(seed);
        while CLOCK.now() < until {
            let Ok(call) = limit.enter_within(1, Duration::from_millis(200)).await else { continue };
            let begun = CLOCK.now();
            self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(Duration::from_millis(dice.u64(5..60))).await;
            self.now.fetch_sub(1, Ordering::SeqCst);
            self.calls.fetch_add(1, Ordering::SeqCst);
            let took = CLOCK.now().since(begun).as_nanos();
            self.nanos.fetch_add(u64::try_from(took).unwrap_or(u64::MAX), Ordering::SeqCst);
            drop(call);
        }
    }

    /// Starts callers of all `limits` at once, more of them than may call.
    async fn press(self: &Arc<Self>, limits: &[Limit], span: Duration) {
        let until = CLOCK.now() + span;
        let callers = limits.iter().flat_map(|limit| (0..AT_ONCE).map(|_| limit.clone()));
        let call = |(seed, limit)| tokio::spawn(self.clone().call(limit, seed, until));
        let callers: Vec<_> = (0..).zip(callers).map(call).collect();
        for caller in callers {
            caller.await.expect("no panic");
        }
    }

    /// Returns how much of the cap was in use, on average over `span`, in percent.
    fn percent(&self, span: Duration) -> u64 {
        let most = u128::from(AT_ONCE) * span.as_nanos();
        u64::try_from(u128::from(self.nanos.load(Ordering::SeqCst)) * 100 / most).unwrap_or(u64::MAX)
    }
}

pub(super) async fn no_more_are_in_flight_than_may_be(kind: StoreKind) {
    let _turn = ONE_AT_A_TIME.lock().await;
    let store = Store::shared(kind, "inflight").await;
    let (east, west) =
        (Fleet::start(&store.of_all_kinds("east")).await, Fleet::start(&store.of_all_kinds("west")).await);
    let clients = [east.client("a").await, west.client("b").await];
    for name in ["calls", "both"] {
        let limits = clients.each_ref().map(|client| client.limit(name));
        let (vendor, span) = (Arc::new(InFlight::default()), SECONDS * PER);
        vendor.press(&limits, span).await;
        let (most, calls, percent) =
            (vendor.most.load(Ordering::SeqCst), vendor.calls.load(Ordering::SeqCst), vendor.percent(span));
        println!("{kind:?}: {name}: {calls} calls, {most} of {AT_ONCE} at once, {percent} % on average");
        assert!(most <= AT_ONCE, "{most} at once");
        // Calls take 32 ms on average: a window of 150 a second needs five at once.
        let seconds = u64::from(SECONDS);
        let expected = if name == "calls" { AT_ONCE * seconds * 1_000 / 32 } else { 150 * seconds };
        assert!(calls >= expected * 60 / 100, "{name}: {calls} of {expected}");
    }
    for client in clients {
        client.shutdown().await;
    }
    east.stop().await;
    west.stop().await;
}

/// After an allocator was killed, the calls of its nodes count until they must have ended. Each call is entered after
/// its instant was read, and counts for the longest that a call may take. So the nth call at the other allocator comes
/// after the nth of these must have ended.
async fn calls_outlive_the_allocator_that_let_them_begin(kind: StoreKind) {
    let store = Store::shared(kind, "outlive").await;
    let east = Allocator::start(&store.of_all_kinds("east"), "127.0.0.1:0", true);
    let west = Fleet::start(&store.of_all_kinds("west")).await;
    let client = Client::builder(&east.url).node("a").connect().await.expect("the allocator answers");
    let others = west.client("b").await;
    let (calls, elsewhere) = (client.limit("calls"), others.limit("calls"));
    let mut held = vec![];
    // The first call waits for as long as the store takes until its time is known.
    calls.enter_within(1, 20 * PER).await.expect("the allocator lends").finish();
    for _ in 0..AT_ONCE {
        let begun = CLOCK.now();
        held.push((begun, calls.enter_within(1, 2 * PER).await.expect("there is room")));
    }
    assert!(elsewhere.enter_within(1, PER / 10).await.is_err(), "all calls are in flight");
    let killed = CLOCK.now();
    east.running.kill();
    let mut later = vec![];
    for (nth, (begun, _)) in held.iter().enumerate() {
        later.push(elsewhere.enter_within(1, 8 * PER).await.expect("the held calls have ended"));
        let now = CLOCK.now();
        if nth == 0 {
            let (one, all) = (now.since(*begun), now.since(killed));
            println!(
                "{kind:?}: a call {one:?} after the first in flight, {all:?} after its allocator was killed"
            );
        }
        assert!(now >= *begun + LONGEST, "call {nth}: {:?}", now.since(*begun));
    }
    drop((later, held));
    others.shutdown().await;
    client.shutdown().await;
    west.stop().await;
}

/// A call: the moments just before and after its admission, in nanoseconds.
type Call = (u64, u64);

/// Calls both limits as often as possible.
async fn calls_of(limits: [Limit; 2], span: Duration) -> Vec<Call> {
    let until = CLOCK.now() + span;
    let caller = async |limit: &Limit| {
        let mut calls = vec![];
        while CLOCK.now() < until {
            let before = CLOCK.now().as_nanos();
            match limit.try_acquire(1) {
                Ok(_) => calls.push((before, CLOCK.now().as_nanos())),
                Err(_) => sleep(Duration::from_millis(1)).await,
            }
        }
        calls
    };
    let (one, other) = tokio::join!(caller(&limits[0]), caller(&limits[1]));
    let mut calls = [one, other].concat();
    calls.sort_by_key(|&(_, after)| after);
    calls
}

/// Returns the first span in which more calls began and ended than `burst` and `a_second` allow.
fn too_many(calls: &[Call], burst: u64, a_second: u64) -> Option<String> {
    const SECOND: u128 = 1_000_000_000;
    for &(from, _) in calls {
        let within = calls.iter().filter(|(before, _)| *before >= from);
        for (count, &(_, until)) in (1_u128..).zip(within) {
            let most = u128::from(burst) * SECOND + u128::from(a_second) * u128::from(until - from);
            if count * SECOND > most {
                return Some(format!("{count} in {} ns", until - from));
            }
        }
    }
    None
}

#[test]
fn one_call_too_many_is_seen_and_one_that_may_have_been_earlier_is_not() {
    const MILLI: u64 = 1_000_000;
    assert_eq!(too_many(&[(0, 0), (0, 0), (100 * MILLI, 100 * MILLI)], 2, 10), None);
    assert!(too_many(&[(0, 0), (0, 0), (99 * MILLI, 99 * MILLI)], 2, 10).is_some());
    assert_eq!(too_many(&[(0, 0), (0, 0), (99 * MILLI, 100 * MILLI)], 2, 10), None);
}

/// A flow keeps its rate while each permit is lent, spent and reported within the tenth of a second that its burst
/// covers.
pub(super) async fn flows_and_intervals_hold_through_two(kind: StoreKind) {
    let _turn = ONE_AT_A_TIME.lock().await;
    let store = Store::shared(kind, "flows").await;
    let (east, west) =
        (Fleet::start(&store.of_all_kinds("east")).await, Fleet::start(&store.of_all_kinds("west")).await);
    let clients = [east.client("a").await, west.client("b").await];
    // Any span may contain one more refill than fits into it completely.
    for (name, burst, a_second) in [("paced", 5, 50), ("stepwise", 60 + 60, 60)] {
        let stalls = store.stalls();
        let calls = calls_of(clients.each_ref().map(|client| client.limit(name)), SECONDS * PER).await;
        let least = stalls.least_used(flow_percent(kind), a_second, SECONDS * PER);
        println!(
            "{kind:?}: {name}: {} of {} used through two allocators",
            calls.len(),
            u64::from(SECONDS) * a_second
        );
        assert_eq!(too_many(&calls, burst, a_second), None, "{name}");
        assert!(calls.len() as u64 >= least, "{name}: {} of {least}", calls.len());
    }
    for client in clients {
        client.shutdown().await;
    }
    east.stop().await;
    west.stop().await;
}

on_stores!(etcd: calls_outlive_the_allocator_that_let_them_begin;);
