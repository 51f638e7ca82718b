//! Calls that last longer than any should, at nodes that go on to say so: the shipping refills of two nodes and the shipping pool,
//! with exchanges that come so late that leases end under calls. Never more are in flight than the cap.

use lessor::pace::Refill;
use lessor::slot::Slot;
use lessor_holder::refill::Seen;
use lessor_ledger::Rule;
use lessor_ledger::pool::{Holder, Plan, Pool, SessionId};
use lessor_ledger::rule::Concurrency;
use lessor_ledger::share::{Share, Sharing};
use lessor_protocol::{Answer, ClockBounds, Grant, Moment};
use std::sync::Arc;
use std::time::Duration;

const MILLI: u64 = 1_000_000;
const CAP: u64 = 4;

/// The longest that a call should take.
const LONGEST: u64 = 500 * MILLI;

/// A node says nothing for as long as this at most: its lease ends meanwhile, and no call counts as over yet.
const SILENT: u64 = 400 * MILLI;

const RTT: Duration = Duration::from_millis(1);

/// How long a world runs, and how long calls are allowed for at its end to come back.
const TROUBLE: u64 = 20_000 * MILLI;
const CALM: u64 = 3_000 * MILLI;

struct Node {
    slot: Slot,
    refill: Refill,
    seq: u64,
    /// When its calls end.
    calls: Vec<u64>,
    /// It does nothing before, and has asked since.
    silent_until: u64,
    has_asked: bool,
    /// An answer on its way: when it arrives, when its ask was sent, and what it is.
    answer: Option<(u64, Moment, Grant)>,
}

impl Node {
    fn new() -> Self {
        let refill = Refill::new(Moment::ORIGIN, true);
        Node {
            slot: Slot::new(),
            refill,
            seq: 0,
            calls: vec![],
            silent_until: 0,
            has_asked: false,
            answer: None,
        }
    }
}

/// Runs one world, and says how many calls began, how many of those lasted longer than any should, and how many leases ended
/// under calls.
///
/// # Errors
/// In words, if too many were in flight, or not all are seen to have ended.
///
/// # Panics
/// If an ask is not answered with a grant: all of them are true.
pub fn run(seed: u64) -> Result<[u64; 3], String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let rules = vec![Rule::Concurrency(
        Concurrency::try_new(CAP, Duration::from_nanos(LONGEST)).expect("numbers in range"),
    )];
    let (clocks, sharing) = (ClockBounds::default(), Sharing::default());
    let plan =
        Plan { rules, is_borrowed: false, is_root: false, clocks, ease_off: true, lessees_max: 10, sharing };
    let mut pool = Pool::new(Arc::new(plan), Moment::ORIGIN);
    let mut nodes = [Node::new(), Node::new()];
    let [mut began, mut overlong, mut ended] = [0; 3];
    for time in (0..TROUBLE + CALM).step_by(MILLI as usize) {
        let (now, is_calm) = (Moment::from_nanos(time), time >= TROUBLE);
        for (number, node) in nodes.iter_mut().enumerate() {
            if time < node.silent_until {
                continue;
            }
            // Calls end when they are over: a process that is silent runs all the same, and tells later.
            let over = node.calls.extract_if(.., |ends| *ends <= time || is_calm).count() as u64;
            if over > 0 {
                node.refill.hand_back(&node.slot, over, now);
            }
            if let Some((_, sent, grant)) = node.answer.take_if(|(arrives, ..)| *arrives <= time) {
                ended += u64::from(node.refill.calls().busy() > 0 && node.slot.deadline() <= now);
                node.refill.believe(&node.slot, &grant, clocks, sent, now, rng.u64(..));
            }
            let seen = Seen { waiting: u64::from(!is_calm), ..Seen::default() };
            if node.answer.is_none() && node.refill.due(&node.slot, seen, now, RTT) <= now {
                let ask = node.refill.write(&node.slot, seen, now, RTT);
                (node.seq, node.has_asked) = (node.seq + 1, true);
                let holder = Holder { id: SessionId(number as u64), share: Share::EVEN, rtt: RTT };
                let answer = pool.renew(now, holder, node.seq, ask).expect("it is true");
                let Answer::Grant(grant) = answer else { panic!("{answer:?}") };
                node.answer = Some((time + rng.u64(..5 * MILLI), now, grant));
            }
            if !is_calm && rng.u8(..4) == 0 && node.refill.enter(&node.slot, 1, now).is_ok() {
                let takes = rng.u64(1..=10 * LONGEST) / rng.u64(1..=20);
                node.calls.push(time + takes);
                (began, overlong) = (began + 1, overlong + u64::from(takes > LONGEST));
            }
            if !is_calm && node.has_asked && rng.u8(..100) == 0 {
                (node.silent_until, node.has_asked) = (time + rng.u64(..SILENT), false);
            }
        }
        let in_flight = nodes.iter().flat_map(|node| &node.calls).filter(|ends| **ends > time).count();
        if in_flight as u64 > CAP {
            return Err(format!("{in_flight} of {CAP} in flight at {now:?}"));
        }
    }
    let view = pool.view(Moment::from_nanos(TROUBLE + CALM));
    if (view.available, view.in_flight) != (CAP, 0) {
        return Err(format!("all have ended: {view:?}"));
    }
    Ok([began, overlong, ended])
}
