//! Tests of an allocator and its upstream together: what both count while exchanges between them are refused or lost.

use super::*;
use crate::CarryOver;
use crate::overrides::Decision;
use crate::registry::limit::PoolId;
use crate::rejection::{AskRejection, Reason};
use lessor_protocol::{Key, LimitName};

/// An allocator and its upstream, with the round trip of an exchange.
struct Pair {
    centre: Registry,
    region: Registry,
    seq: u64,
    /// Errors that the upstream answered.
    errors: Vec<String>,
}

/// The name of a limit, and a key.
type Name<'a> = (&'a str, Option<&'a str>);

/// What becomes of an exchange with the upstream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Answered,
    /// The upstream refuses each ask for this reason before it reads what the ask reports.
    Refused(Reason),
    /// The exchange does not reach the upstream.
    Lost,
}

impl Pair {
    /// Makes both, each with the `limits` that fit it.
    fn new(centre: &str, region: &str) -> Self {
        let registry =
            |text, epoch| Config::parse(text).expect("valid").registry(Past::None, millis(0), epoch);
        Pair { centre: registry(centre, 1), region: registry(region, 7), seq: 0, errors: vec![] }
    }

    /// Makes the exchange with the upstream that is due at `now`, if one is.
    fn exchange(&mut self, now: u64, way: Way) {
        let upstream = self.region.upstreams().pop_first().expect("there is one");
        self.exchange_with(&upstream, now, way);
    }

    /// Makes the exchange that is due at `now` by the address `upstream`, if one is.
    fn exchange_with(&mut self, upstream: &Upstream, now: u64, way: Way) {
        let due = self.region.asks_above(millis(now), upstream, Duration::from_millis(1));
        if due.asks.is_empty() {
            return;
        }
        self.seq += 1;
        if way == Way::Lost {
            return self.region.on_failure_above(&due.askers);
        }
        let caller = Caller { session: due.session, ..caller(self.seq) };
        let entry = |ask: &AskBody| match way {
            Way::Answered | Way::Lost => Entry::Ask(ask.clone()),
            Way::Refused(reason) => {
                let wrong = AskRejection::new(reason, "limit", "refused");
                Entry::Unread(unanswered(&ask.limit, ask.key.as_deref(), wrong).renamed(Text::into_string))
            }
        };
        let entries: Vec<Entry> = due.asks.iter().map(entry).collect();
        let grants = self.centre.leases(millis(now), &caller, &entries).grants;
        let errors = grants.iter().filter_map(|grant| Some(grant.error.as_ref()?.code.clone()));
        self.errors.extend(errors);
        let granted = Granted::of(&grants);
        self.region.on_grant_above(millis(now), upstream, due.session, millis(now), &due.askers, granted);
    }

    /// Makes exchanges from `from` to `until`, in steps of 100 ms.
    fn exchanges(&mut self, from: u64, until: u64, way: Way) {
        for now in (from..until).step_by(100) {
            self.exchange(now, way);
            self.region.sweep(millis(now), 100);
            self.centre.sweep(millis(now), 100);
        }
    }

    /// Lets `session`, which has spent all that it was lent, ask the allocator for `limit` at `now`. Returns the permits
    /// that it is lent.
    fn lent(&mut self, now: u64, session: u64, seq: u64, (limit, key): Name<'_>, spent: u64) -> u64 {
        let caller = Caller { session, ..caller(seq) };
        let grants = self.region.leases(millis(now), &caller, &[ask(limit, key, spent, 0, 5)]).grants;
        assert_eq!(grants[0].error, None);
        grants[0].permits
    }

    /// Ends `session`, which has spent all of `spent_total`.
    fn left(&mut self, now: u64, session: u64, seq: u64, (limit, key): Name<'_>, spent_total: u64) {
        let key = key.map(str::to_owned);
        let limit = limit.to_owned();
        let spent = SpentBody { limit, key, spent_total, running: None, held: Some(0), shadow_refused: 0 };
        let caller = Caller { session, ..caller(seq) };
        assert_eq!(self.region.leave(millis(now), &caller, &[spent]).errors, []);
    }

    /// Calls the key again from 40 s on, of which `lent` permits were spent. None of them may be lent once more.
    fn goes_on(&mut self, of_key: Name<'_>, lent: u64, case: &str) {
        let (limit, key) = of_key;
        assert_eq!(self.lent(40_000, 2, 1, of_key, 0), 0);
        self.exchanges(40_000, 41_000, Way::Answered);
        let key = Key::try_new(key.expect("it has one")).expect("valid");
        let left = self.left_above(41_000, limit, PoolId::from(Some(key)));
        assert!(left <= 10 - lent, "{case}: {left} of 10 are left, and {lent} were spent");
        let mut more = 0;
        for (seq, now) in (2..).zip((41_000..43_000).step_by(20)) {
            more += self.lent(now, 2, seq, of_key, more);
            self.exchange(now, Way::Answered);
        }
        assert!(lent > 0 && more > 0 && lent + more <= 10, "{case}: {lent} and {more} of 10");
    }

    /// Returns the permits that the upstream has left of `limit`.
    fn left_above(&mut self, now: u64, limit: &str, pool: PoolId) -> u64 {
        let limit = self.centre.limit(limit).expect("it is there");
        limit.view(millis(now), &pool).map_or(0, |view| view.available)
    }
}

const HOUR: &str = "rules = [{ kind = \"fixed_window\", limit = 10, per = \"1h\" }]\n";

/// A limit of a region with keys, which its upstream has below a parent.
const LEASED: &str = "[[limit]]\nname = \"a\"\nkeyed = true\nupstream = \"http://centre:1\"\n";

/// Returns the limits of that upstream, and the parent alone.
fn below_parent() -> (String, String) {
    let parent = format!("[[limit]]\nname = \"p\"\n{}", HOUR.replace("10", "1000"));
    (format!("[[limit]]\nname = \"a\"\nkeyed = true\nparent = \"p\"\n{HOUR}{parent}"), parent)
}

/// Returns the limit in `text` with another cap on calls. A limit that gets one begins anew.
fn capped(text: &str) -> LimitConfig {
    let cap = "rules = [{ kind = \"concurrency\", limit = 1000, longest = \"1s\" }, ";
    Config::parse(&text.replace("rules = [", cap)).expect("valid").limits.remove(0)
}

/// The bug: an answer that refused an ask unread counted as a report that was taken in. The allocator forgot the key,
/// and later counted from zero in the same session. Its upstream took all that it had lent for unspent.
#[test]
fn a_report_that_was_refused_unread_is_made_again() {
    let (centre, parent) = below_parent();
    let parent = Config::parse(&parent).expect("valid").limits.remove(0);
    let refused = |reason| move |_: &mut Pair| Way::Refused(reason);
    let without_parent = |pair: &mut Pair| {
        assert!(pair.centre.remove("p"));
        Way::Answered
    };
    let without_both = |pair: &mut Pair| {
        assert!(pair.centre.remove("a") && pair.centre.remove("p"));
        Way::Answered
    };
    let child = Config::parse(&centre).expect("valid").limits.remove(0);
    type Begins<'a> = &'a dyn Fn(&mut Pair) -> Way;
    let cases: [(&str, Begins<'_>); 4] = [
        ("forbidden", &refused(Reason::Forbidden)),
        ("full", &refused(Reason::KeysFull)),
        ("no parent", &without_parent),
        ("neither", &without_both),
    ];
    for (case, begins) in cases {
        let (mut pair, of_key) = (Pair::new(&centre, LEASED), ("a", Some("k")));
        assert_eq!(pair.lent(0, 1, 1, of_key, 0), 0);
        pair.exchange(0, Way::Answered);
        let lent = pair.lent(1, 1, 2, of_key, 0);
        assert!(lent > 0);
        pair.left(2, 1, 3, of_key, lent);
        let way = begins(&mut pair);
        pair.exchanges(10, 40_000, way);
        for limit in [&parent, &child] {
            pair.centre.put(millis(40_000), limit, CarryOver::AsIs, false).expect("there is room");
        }
        pair.goes_on(of_key, lent, case);
    }
}

/// The bug: a quarantine of the parent counted as an answer that had read the report, too.
#[test]
fn a_report_that_came_in_a_quarantine_of_the_parent_is_made_again() {
    let (centre, parent) = below_parent();
    let capped = capped(&parent);
    let (mut pair, of_key) = (Pair::new(&centre, LEASED), ("a", Some("k")));
    assert_eq!(pair.lent(0, 1, 1, of_key, 0), 0);
    pair.exchange(0, Way::Answered);
    let lent = pair.lent(1, 1, 2, of_key, 0);
    pair.left(2, 1, 3, of_key, lent);
    pair.centre.put(millis(2), &capped, CarryOver::AsIs, false).expect("there is room");
    pair.exchanges(10, 40_000, Way::Answered);
    let upstream = pair.region.upstreams().pop_first().expect("there is one");
    let mut due = (40_000..50_000)
        .step_by(100)
        .flat_map(|now| pair.region.asks_above(millis(now), &upstream, Duration::from_millis(1)).asks);
    assert!(lent > 0 && due.any(|ask| ask.spent_total == lent), "{lent} were spent");
}

/// The bug: a pause or a block counted as an answer that had read the report, though a quarantine of the parent kept it
/// from being read.
#[test]
fn a_report_that_came_under_a_pause_in_a_quarantine_of_the_parent_counts() {
    let (centre, parent) = below_parent();
    let seconds = |text: &str| text.replace("1000, per = \"1h\"", "1000, per = \"1s\"");
    let capped = capped(&seconds(&parent));
    let node = caller(1).node;
    for (name, begins, ends) in [
        ("a", Decision::Pause(None), Decision::Resume),
        ("p", Decision::Pause(None), Decision::Resume),
        ("a", Decision::Block(node.clone()), Decision::Unblock(node)),
    ] {
        let (mut pair, of_key) = (Pair::new(&seconds(&centre), LEASED), ("a", Some("k")));
        assert_eq!(pair.lent(0, 1, 1, of_key, 0), 0);
        pair.exchange(0, Way::Answered);
        let lent = pair.lent(1, 1, 2, of_key, 0);
        pair.left(2, 1, 3, of_key, lent);
        pair.centre.put(millis(2), &capped, CarryOver::AsIs, false).expect("there is room");
        pair.centre.decide(millis(2), name, &begins).expect("it is there").expect("there is room");
        pair.exchanges(10, 20_000, Way::Answered);
        pair.centre.decide(millis(20_000), name, &ends).expect("it is there").expect("there is room");
        pair.exchanges(20_000, 40_000, Way::Answered);
        pair.goes_on(of_key, lent, name);
    }
}

/// The bug: the pool of the pattern and the pool of the new limit both asked their upstream by that name in one session,
/// each with totals of its own. The upstream disputed them, or took permits of one pool that were spent for permits of the
/// other that came back.
#[test]
fn a_limit_that_is_put_for_a_name_of_a_leased_pattern_asks_in_a_session_of_its_own() {
    let centre = format!("[[limit]]\nname = \"u/*\"\n{HOUR}");
    let leased = |name: &str| format!("[[limit]]\nname = {name:?}\nupstream = \"http://centre:1\"\n");
    let new = Config::parse(&leased("u/7")).expect("valid");
    let of_name = || PoolId { name: LimitName::try_new("u/7").ok(), key: None };
    for lost_until in (200..6_000).step_by(400) {
        let (mut pair, name) = (Pair::new(&centre, &leased("u/*")), ("u/7", None));
        pair.lent(0, 1, 1, name, 0);
        pair.exchange(0, Way::Answered);
        let lent = pair.lent(1, 1, 2, name, 0);
        pair.left(150, 1, 3, name, lent);
        pair.region.put(millis(200), &new.limits[0], CarryOver::AsIs, false).expect("there is room");
        pair.exchanges(200, lost_until, Way::Lost);
        let mut of_new = 0;
        for (seq, now) in (1..).zip((lost_until..lost_until + 6_000).step_by(100)) {
            of_new += pair.lent(now, 2, seq, name, of_new);
            pair.exchange(now, Way::Answered);
        }
        assert_eq!(pair.errors, Vec::<String>::new(), "lost until {lost_until} ms");
        assert!(lent > 0 && of_new > 0, "{lent} and {of_new} were lent");
        let left = pair.left_above(lost_until + 6_000, "u/*", of_name());
        assert!(
            lent + of_new <= 10 && left <= 10 - lent - of_new,
            "lost until {lost_until} ms: {lent} and {of_new} of 10 were spent, {left} are left"
        );
    }
}

/// The bug: an allocator took what was asked by two of its addresses for one session. A new pool reported nothing, and
/// permits that the older pool had lent came back to it as unspent.
#[test]
fn two_addresses_of_one_upstream_are_two_sessions_there() {
    let centre = format!("[[limit]]\nname = \"u/*\"\n{HOUR}");
    let leased =
        |name: &str, at: u16| format!("[[limit]]\nname = {name:?}\nupstream = \"http://centre:{at}\"\n");
    let upstream = |at: u16| Upstream::Address(format!("http://centre:{at}"));
    let new = Config::parse(&leased("u/7", 2)).expect("valid");
    let (mut pair, name) = (Pair::new(&centre, &leased("u/*", 1)), ("u/7", None));
    pair.lent(0, 1, 1, name, 0);
    pair.exchange(0, Way::Answered);
    let lent = pair.lent(1, 1, 2, name, 0);
    pair.left(2, 1, 3, name, lent);
    pair.region.put(millis(200), &new.limits[0], CarryOver::AsIs, false).expect("there is room");
    let mut of_new = 0;
    for (seq, now) in (1..).zip((200..12_000).step_by(100)) {
        of_new += pair.lent(now, 2, seq, name, of_new);
        pair.exchange_with(&upstream(2), now, Way::Answered);
        // The other address is out of reach for five seconds.
        let way = if now < 5_000 { Way::Lost } else { Way::Answered };
        pair.exchange_with(&upstream(1), now, way);
    }
    assert_eq!(pair.errors, Vec::<String>::new());
    assert!(lent > 0 && of_new > 0 && lent + of_new <= 10, "{lent} and {of_new} of 10 were spent");
}
