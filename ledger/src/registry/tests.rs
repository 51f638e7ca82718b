//! Tests of whole exchanges with the registry: the answers, and that wrong entries change nothing.

mod above;
mod beside;
mod gather;
mod handover;
mod heirs;
mod kinds;
mod leased;
mod lies;
mod removed;
mod roots;
mod told;
mod written;

use super::fixtures::Config;
use super::rows::Written;
use super::*;
use crate::fixtures::millis;
use lessor_protocol::wire::code;
use lessor_protocol::{Answer, RefusalReason};
use proptest::prelude::*;

const CONFIG: &str = r#"
[[limit]]
name = "vendor/rest"
rules = [{ kind = "sliding_window", limit = 1000, per = "30s", margin = "0s" }]
weights = { "big-*" = 3 }

[[limit]]
name = "export"
keyed = true
rules = [{ kind = "token_bucket", capacity = 10, refill = 1, per = "1s" }]
"#;

fn config(text: &str) -> Config {
    Config::parse(text).expect("valid")
}

fn registry(past: Past) -> Registry {
    config(CONFIG).registry(past, millis(0), 7)
}

/// Begins an allocator of `config` that has written down everything. Also returns what is written.
fn writing(config: &Config) -> (Registry, Written) {
    let (mut registry, mut written) = (config.registry(Past::None, millis(0), 7), Written::default());
    registry.begin_writing(0);
    write(&mut registry, &mut written, 0);
    (registry, written)
}

fn write(registry: &mut Registry, written: &mut Written, now: u64) {
    let batch = registry.write_down(millis(now));
    written.apply(&batch);
    registry.raise_high_water(&batch);
}

fn caller(seq: u64) -> Caller {
    Caller {
        node: NodeName::try_new("node-1").expect("valid"),
        session: 1,
        epoch: 0,
        seq,
        rtt: Duration::ZERO,
        owner: Default::default(),
    }
}

fn ask(limit: &str, key: Option<&str>, spent_total: u64, held: u64, want: u64) -> Entry {
    let key = key.map(str::to_owned);
    Entry::Ask(AskBody {
        limit: limit.to_owned(),
        key,
        spent_total,
        held,
        want,
        waiting: want,
        ..AskBody::default()
    })
}

/// Returns the sums of every limit as text.
fn books(registry: &mut Registry, now: Moment) -> String {
    let limits: Vec<String> =
        registry.limits(now).iter().map(|(_, figures)| format!("{:?}", figures.sums)).collect();
    limits.join("\n")
}

#[track_caller]
fn error(grant: &GrantBody) -> (&str, &str, &str) {
    let error = grant.error.as_ref().expect("it was wrong");
    (&error.code, error.field.as_deref().unwrap_or_default(), &error.detail)
}

#[test]
fn one_wrong_entry_fails_no_other_entry() {
    let mut registry = registry(Past::None);
    let long = "x".repeat(1 << 20);
    let asks = [
        ask("vendor/rest", None, 0, 0, 10),
        ask("nope", None, 0, 0, 1),
        ask("vendor/rest", Some("k"), 0, 0, 1),
        ask("export", None, 0, 0, 1),
        ask("export", Some(&long), 0, 0, 1),
        ask("export", Some("k"), 0, 0, 1 << 53),
        ask("export", Some("j"), 5, 0, 1),
        ask("vendor/rest", None, 0, 0, 10),
        ask(&long, None, 0, 0, 1),
        ask("export", Some("k"), 0, 0, 2),
    ];
    let grants = registry.leases(millis(0), &caller(1), &asks).grants;
    assert_eq!((grants[0].permits, grants[9].permits), (10, 2));
    assert_eq!(error(&grants[1]), (code::LIMIT_UNKNOWN, "limit", "there is no limit \"nope\""));
    assert_eq!(
        error(&grants[2]),
        (code::KEY_MISMATCH, "key", "\"vendor/rest\" has no keys: ask without one")
    );
    assert_eq!(error(&grants[3]), (code::KEY_MISMATCH, "key", "\"export\" is counted by key: send a key"));
    let (.., detail) = error(&grants[4]);
    assert_eq!(detail, "key is 1048576 bytes long, at most 256 are allowed");
    let detail = "want is 9007199254740992: use at most 9007199254740991 (2^53 - 1)";
    assert_eq!(error(&grants[5]), (code::INVALID, "want", detail));
    assert_eq!(error(&grants[6]).0, code::LEASE_UNKNOWN);
    assert_eq!(error(&grants[7]).0, code::DUPLICATE);
    let shown = format!("\"{}\"… (1048576 bytes)", "x".repeat(40));
    assert_eq!(
        error(&grants[8]),
        (code::LIMIT_UNKNOWN, "limit", format!("there is no limit {shown}").as_str())
    );
    assert_eq!((grants[8].limit.as_str(), grants[4].key.as_deref()), (shown.as_str(), Some(shown.as_str())));
    let wrong = registry.wrong();
    assert_eq!((wrong[&Reason::Invalid], wrong[&Reason::LimitUnknown]), (2, 2));
}

#[test]
fn what_cannot_be_true_or_comes_too_late_changes_nothing() {
    let mut registry = registry(Past::None);
    let grant = |registry: &mut Registry, seq, entry| {
        registry.leases(millis(1), &caller(seq), &[entry]).grants.pop().expect("one each")
    };
    let first = grant(&mut registry, 5, ask("vendor/rest", None, 0, 0, 10));
    assert_eq!(first.permits, 10);
    let before = books(&mut registry, millis(1));
    let again = grant(&mut registry, 5, ask("vendor/rest", None, 0, 0, 10));
    assert_eq!(again, first, "a replay gets the same grant");
    assert_eq!(error(&grant(&mut registry, 4, ask("vendor/rest", None, 0, 0, 10))).0, code::STALE_SEQUENCE);
    assert_eq!(error(&grant(&mut registry, 6, ask("vendor/rest", None, 11, 0, 1))).0, code::TOTALS_WRONG);
    assert_eq!(error(&grant(&mut registry, 6, ask("vendor/rest", None, 5, 6, 1))).0, code::TOTALS_WRONG);
    let sums = |text: String| text.split("answered").next().unwrap_or_default().to_owned();
    assert_eq!(sums(books(&mut registry, millis(1))), sums(before));
}

#[test]
fn leaving_returns_what_is_unspent_and_names_what_is_wrong() {
    let registry = registry(Past::None);
    let asks = [ask("vendor/rest", None, 0, 0, 10), ask("export", Some("k"), 0, 0, 4)];
    registry.leases(millis(0), &caller(1), &asks);
    let spent = |limit: &str, key: Option<&str>, spent_total| SpentBody {
        limit: limit.to_owned(),
        key: key.map(str::to_owned),
        spent_total,
        running: None,
        held: Some(PERMITS_MAX),
        shadow_refused: 0,
    };
    let goodbye = [spent("vendor/rest", None, 3), spent("nope", None, 1), spent("export", Some("k"), 4)];
    let left = registry.leave(millis(10), &caller(2), &goodbye);
    assert_eq!(left.returned, 7);
    let errors: Vec<_> = left.errors.iter().map(|e| (e.code.as_str(), e.field.as_deref())).collect();
    assert_eq!(errors, [(code::LIMIT_UNKNOWN, Some("spent[1].limit"))]);
    assert_eq!(registry.leave(millis(11), &caller(2), &goodbye[..1]).returned, 0, "said twice, done once");
    let stranger = Caller { session: 99, ..caller(1) };
    assert_eq!(registry.leave(millis(11), &stranger, &goodbye[..1]).returned, 0);
    assert_eq!(registry.sessions(), 1, "saying goodbye makes no session");
}

#[test]
fn a_stopping_allocator_lends_nothing_and_takes_back() {
    let mut registry = registry(Past::None);
    registry.leases(millis(0), &caller(1), &[ask("vendor/rest", None, 0, 0, 10)]);
    registry.stop();
    let grants = registry.leases(millis(1), &caller(2), &[ask("vendor/rest", None, 4, 6, 10)]).grants;
    assert_eq!((grants[0].refused, grants[0].permits), (Some(RefusalReason::Stopping), 0));
    assert_eq!(grants[0].retry_after_ms, Some(1_000));
    let spent = SpentBody {
        limit: "vendor/rest".to_owned(),
        key: None,
        spent_total: 4,
        running: None,
        held: Some(PERMITS_MAX),
        shadow_refused: 0,
    };
    assert_eq!(registry.leave(millis(2), &caller(3), &[spent]).returned, 6);
}

#[test]
fn after_a_loss_every_limit_waits_for_its_own_window() {
    let registry = registry(Past::Lost(millis(0)));
    let waits = registry.quarantined(millis(0));
    let [("export", bucket), ("vendor/rest", window)] = waits[..] else { panic!("{waits:?}") };
    assert!(bucket < Duration::from_secs(3) && window > Duration::from_secs(31), "{waits:?}");
    let grants = registry
        .leases(
            millis(3_000),
            &caller(1),
            &[ask("export", Some("k"), 0, 0, 1), ask("vendor/rest", None, 0, 0, 1)],
        )
        .grants;
    assert_eq!((grants[0].refused, grants[1].refused), (None, Some(RefusalReason::Quarantine)));
    assert!(registry.quarantined(millis(40_000)).is_empty());
}

/// Two allocators that get the same calls give the same answers, entry by entry. The simulator relies on it.
#[test]
fn the_same_calls_get_the_same_answers() {
    let run = || {
        let mut registry = registry(Past::None);
        let mut answers = vec![];
        for step in 0..2_000u64 {
            let node = NodeName::try_new(&format!("big-{}", step % 7)).expect("valid");
            let caller = Caller { node, ..caller(step) };
            let key = (step * 7919 % 50).to_string();
            let asks = [ask("vendor/rest", None, 0, 0, step % 9), ask("export", Some(&key), 0, 0, 1)];
            answers.push(registry.leases(millis(step), &caller, &asks).grants);
            if step % 10 == 0 {
                registry.sweep(millis(step), 5);
            }
        }
        (answers, books(&mut registry, millis(2_000)))
    };
    assert_eq!(run(), run());
}

/// Limits of several kinds and mixtures, small enough to run out often.
const MIXED: &str = r#"
[[limit]]
name = "sliding"
rules = [{ kind = "sliding_window", limit = 20, per = "300ms", margin = "10ms" }]
lessees_max = 3

[[limit]]
name = "fixed"
rules = [{ kind = "fixed_window", limit = 20, per = "100ms" }]

[[limit]]
name = "bucket"
keyed = true
keys_max = 3
rules = [{ kind = "token_bucket", capacity = 10, refill = 7, per = "100ms", initial = 3 }]

[[limit]]
name = "all"
keyed = true
keys_max = 2
rules = [
    { kind = "token_bucket", capacity = 10, refill = 1, per = "10ms" },
    { kind = "fixed_window", limit = 12, per = "200ms" },
    { kind = "sliding_window", limit = 15, per = "250ms", margin = "0s" },
]

[[limit]]
name = "nothing"
rules = [{ kind = "sliding_window", limit = 0, per = "1s" }, { kind = "token_bucket", capacity = 0, refill = 0, per = "1s" }]
"#;

/// A pool, as a node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    node: u64,
    limit: usize,
    key: Option<u64>,
}

/// An act of a node.
#[derive(Clone, Debug)]
enum Deed {
    /// The node spends and gives back some of what it holds, reports that and wants more. `skip` is 1 for the next
    /// sequence number, 0 for the last one again.
    Renew {
        place: Place,
        spends: u64,
        keeps: u64,
        want: u64,
        skip: u64,
    },
    /// The node spends some of what it holds, and does not report it.
    Lose {
        place: Place,
        spends: u64,
    },
    Lie {
        place: Place,
        spent: u64,
        held: u64,
        want: u64,
    },
    Leave {
        place: Place,
        spends: u64,
    },
    Wait {
        millis: u64,
    },
    Sweep,
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0u64..30, 1 => Just(PERMITS_MAX), 1 => Just(u64::MAX)]
}

fn deed() -> impl Strategy<Value = Deed> {
    let place = || {
        let parts = (0u64..5, 0usize..5, proptest::option::of(0u64..4));
        parts.prop_map(|(node, limit, key)| {
            // Mostly a key if the limit is keyed, and none if it is not.
            let key = if limit == 2 || limit == 3 { key } else { key.filter(|&key| key == 3) };
            Place { node, limit, key }
        })
    };
    let (few, skip) = (|| 0u64..12, prop_oneof![1 => Just(0u64), 9 => Just(1)]);
    prop_oneof![
        12 => (place(), few(), few(), few(), skip)
            .prop_map(|(place, spends, keeps, want, skip)| Deed::Renew { place, spends, keeps, want, skip }),
        2 => (place(), few()).prop_map(|(place, spends)| Deed::Lose { place, spends }),
        2 => (place(), number(), number(), number())
            .prop_map(|(place, spent, held, want)| Deed::Lie { place, spent, held, want }),
        1 => (place(), few()).prop_map(|(place, spends)| Deed::Leave { place, spends }),
        6 => prop_oneof![3 => 0u64..10, 2 => 0u64..60, 1 => 0u64..30_000].prop_map(|millis| Deed::Wait { millis }),
        1 => Just(Deed::Sweep),
    ]
}

/// Nodes, and what they know of their pools.
#[derive(Default)]
struct Nodes {
    /// Spent so far and still held, by pool.
    believed: BTreeMap<Place, (u64, u64)>,
    seq: u64,
}

impl Nodes {
    /// Spends up to `spends` of the permits held at `place`, and keeps up to `keeps` of the rest.
    fn spend(&mut self, place: Place, spends: u64, keeps: u64) -> (u64, u64) {
        let (spent, held) = self.believed.entry(place).or_default();
        let now = spends.min(*held);
        (*spent, *held) = (*spent + now, (*held - now).min(keeps));
        (*spent, *held)
    }

    fn act(&mut self, registry: &mut Registry, now: Moment, deed: &Deed) -> Option<GrantBody> {
        let caller = |place: Place, seq| Caller {
            node: NodeName::try_new(&format!("node-{}", place.node)).expect("valid"),
            session: 1,
            epoch: 0,
            seq,
            rtt: Duration::ZERO,
            owner: Default::default(),
        };
        let name = |place: Place| ["sliding", "fixed", "bucket", "all", "nothing"][place.limit];
        let key = |place: Place| place.key.map(|key| key.to_string());
        match *deed {
            Deed::Renew { place, spends, keeps, want, skip } => {
                self.seq += skip;
                let (spent, held) = self.spend(place, spends, keeps);
                let entry = ask(name(place), key(place).as_deref(), spent, held, want);
                let grant = registry.leases(now, &caller(place, self.seq), &[entry]).grants.pop()?;
                let believed = match grant.answer() {
                    Ok(Answer::Grant(grant)) => (spent, grant.kept + grant.permits),
                    Ok(Answer::Refusal(_)) => (spent, held),
                    Err(_) => (0, 0),
                };
                self.believed.insert(place, believed);
                return Some(grant);
            }
            Deed::Lose { place, spends } => drop(self.spend(place, spends, u64::MAX)),
            Deed::Lie { place, spent, held, want } => {
                self.seq += 1;
                let entry = ask(name(place), key(place).as_deref(), spent, held, want);
                return registry.leases(now, &caller(place, self.seq), &[entry]).grants.pop();
            }
            Deed::Leave { place, spends } => {
                self.seq += 1;
                let (spent_total, _) = self.spend(place, spends, 0);
                let spent = SpentBody {
                    limit: name(place).to_owned(),
                    key: key(place),
                    spent_total,
                    running: None,
                    held: Some(PERMITS_MAX),
                    shadow_refused: 0,
                };
                registry.leave(now, &caller(place, self.seq), &[spent]);
            }
            Deed::Wait { .. } => {}
            Deed::Sweep => registry.sweep(now, 3),
        }
        None
    }
}

proptest! {
    /// Whatever nodes say, in any order, repeated or made up: nothing panics, every permit is accounted for, no limit
    /// has more than its permits, and counts never fall. Debug assertions check the books of each rule.
    #[test]
    fn no_words_can_break_the_books(deeds in proptest::collection::vec(deed(), 1..120), fresh: bool) {
        let past = if fresh { Past::None } else { Past::Lost(millis(0)) };
        let mut registry = config(MIXED).registry(past, millis(0), 7);
        let (mut nodes, mut now) = (Nodes::default(), 0);
        let mut before: Vec<Figures> = vec![];
        for deed in deeds {
            if let Deed::Wait { millis } = deed {
                now += millis;
            }
            let grant = nodes.act(&mut registry, millis(now), &deed);
            prop_assert!(grant.is_none_or(|grant| grant.permits <= 20));
            let after: Vec<Figures> =
                registry.limits(millis(now)).into_iter().map(|(_, figures)| figures).collect();
            for (index, figures) in after.iter().enumerate() {
                let sums = &figures.sums;
                prop_assert!(sums.balance(), "{sums:?}");
                prop_assert!(sums.available + u128::from(sums.outstanding) <= 20 * u128::from(figures.pools));
                prop_assert!(figures.pools <= 3);
                if let Some(Figures { sums: old, .. }) = before.get(index) {
                    prop_assert!(sums.granted >= old.granted && sums.spent >= old.spent);
                    prop_assert!(sums.returned >= old.returned && sums.burned >= old.burned);
                }
            }
            before = after;
        }
    }
}

/// The bug: a look at a limit copied its configuration, however large, while all other callers waited.
#[test]
fn a_look_at_limits_shares_what_is_configured() {
    let mut registry = registry(Past::None);
    let looks = registry.snapshots(millis(1));
    let names: Vec<_> = looks.iter().map(|(config, _)| config.name.to_string()).collect();
    assert_eq!(names, ["export", "vendor/rest"]);
    for (config, figures) in &looks {
        let limit = registry.limit(config.name.as_str()).expect("it is there");
        assert!(std::sync::Arc::ptr_eq(config, &limit.shared_config()));
        assert_eq!(*figures, limit.figures(millis(1)));
    }
}
