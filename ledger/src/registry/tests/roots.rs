//! Tests of what an allocator asks of the roots in a shared store.

use super::*;
use crate::cells::{Table, Timeline};
use crate::overrides::{EffectiveLimits, LimitOverrides, ReadLimit, Version};
use crate::pool::{Holder, SessionId};
use crate::registry::Upstream;
use crate::roots::{Exchange, Head, RootAsk, RootClock, RootSpec, TimeSource};
use crate::share::Share;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The limit of the store called `name`, which lends `most` in a second.
fn limit(name: &str, most: u64) -> LimitConfig {
    let rule = format!("{{ kind = \"fixed_window\", limit = {most}, per = \"1s\" }}");
    let text = format!("[[limit]]\nname = \"{name}\"\nrules = [{rule}]\n");
    let mut limit = config(&text).limits.remove(0);
    limit.upstream = Some(Upstream::Store(TimeSource::Store));
    limit
}

/// Reads limits that are put as the most that they lend.
#[derive(Clone, Debug)]
struct Reader;

impl ReadLimit for Reader {
    fn read(&self, name: &str, put: &Value) -> Result<LimitConfig, String> {
        Ok(limit(name, put.as_u64().expect("a number")))
    }
}

/// An allocator with a file of version 1.
struct Allocator {
    effective: EffectiveLimits<Reader>,
    registry: Registry,
    seq: u64,
}

impl Allocator {
    /// Makes an allocator whose file has the limits `file`, and that knows `decided`.
    fn new(file: &[LimitConfig], decided: &LimitOverrides) -> Self {
        let mut effective = EffectiveLimits::new(Reader, 1, file);
        effective.follow(decided);
        let mut registry = Registry::new(&[], Default::default(), Past::None, millis(0), 7);
        registry.go_by(millis(0), &effective.changes(&BTreeMap::new())).expect("there is room");
        Allocator { effective, registry, seq: 0 }
    }

    /// Returns its ask of the root for `name`, after a node wanted five permits.
    fn asks(&mut self, name: &str) -> RootAsk {
        self.seq += 1;
        self.registry.leases(millis(self.seq), &caller(self.seq), &[ask(name, None, 0, 0, 5)]);
        let due = self.registry.asks_above(
            millis(self.seq),
            &Upstream::Store(TimeSource::Store),
            Duration::from_millis(1),
        );
        let version = |limit: &str, asked: &str| self.effective.version_for(limit, asked);
        let asks = self.registry.root_asks(&due, version, self.effective.newest());
        let place = due.asks.iter().position(|ask| ask.limit == name).expect("it is due");
        asks.into_iter().nth(place).flatten().expect("the limit is in the store")
    }
}

/// Lets `ask` ask its root in the `table` as session `who`. Returns the ceiling, and whether the rules are contested.
fn ceiling(table: &mut Table, who: u64, ask: RootAsk) -> (u64, bool) {
    let mut clock = RootClock::new(0, TimeSource::Store);
    clock.on_answer(millis(0), millis(0), millis(0)).expect("it said nothing before");
    let timeline = Timeline::new("a");
    let head = Head::begin(1, &timeline, millis(0), true);
    let holder = Holder { id: SessionId(who), share: Share::EVEN, rtt: Duration::from_millis(1) };
    let cell = table.load(std::slice::from_ref(&ask.name)).remove(0);
    let mut exchange = Exchange::new(holder, 1, vec![(ask, cell)]);
    let swaps = exchange.swaps(&head, &clock, millis(0), || who);
    exchange.swapped(table.swap(&timeline, &swaps).expect("the timeline is right"));
    let answer = exchange.finish(millis(0)).remove(0);
    let reply = answer.answer.expect("no race was lost").expect("a good ask");
    (reply.answer.grant().expect("not refused").ceiling, answer.is_contested)
}

fn decided(all: &[(&str, Option<u64>)]) -> LimitOverrides {
    let mut overrides = LimitOverrides::default();
    for (name, put) in all {
        overrides.decide(name, Version::of_file(1), put.map(|put| json!(put))).expect("room");
    }
    overrides
}

/// The bug: a name that fell to a pattern when its limit was removed went on by the rules of the removed limit, because
/// the pattern is older. Of a limit in the file the version was even the same.
#[test]
fn a_name_that_falls_to_a_pattern_goes_by_its_rules_and_not_by_the_removed_ones() {
    for (name, of_file, puts) in [
        ("a", None, vec![("a", Some(1_000))]),
        ("a", Some(limit("a", 1_000)), vec![]),
        ("u/7", None, vec![("u/*", Some(1_000))]),
        ("u/7", Some(limit("u/*", 1_000)), vec![]),
    ] {
        let file: Vec<LimitConfig> = of_file.into_iter().chain([limit("*", 10)]).collect();
        let before = Allocator::new(&file, &decided(&puts)).asks(name);
        let mut table = Table::new(Timeline::new("a"));
        assert_eq!(ceiling(&mut table, 1, before.clone()), (1_000, false), "{name}, {puts:?}");
        let removed = if name == "a" { "a" } else { "u/*" };
        let all: Vec<_> = puts.iter().copied().chain([(removed, None)]).collect();
        let mut after = Allocator::new(&file, &decided(&all));
        assert_eq!(ceiling(&mut table, 2, after.asks(name)), (10, false), "{name}, {puts:?}");
        assert_eq!(
            ceiling(&mut table, 3, before),
            (10, false),
            "an allocator that does not know of it follows"
        );
        // Other names of the pattern never had another limit.
        let RootSpec { version, .. } = after.asks("other").spec;
        assert_eq!(version, Some(Version::of_file(1)));
    }
}
