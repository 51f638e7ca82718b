//! Decisions outlive a restart, and give way to a file with new content.

use super::*;
use crate::config::Config;
use crate::samples;
use crate::store::Written;
use lessor_ledger::CarryOver;
use lessor_ledger::overrides::Decision;
use lessor_ledger::pool::Past;
use lessor_ledger::registry::Registry;
use lessor_ledger::registry::limit::PoolId;
use lessor_ledger::rule::Gap;
use lessor_protocol::{Moment, NodeName};
use serde_json::json;
use std::time::Duration;

const NOW: Moment = Moment::from_nanos(1_000_000_000_000);
const SECOND: Duration = Duration::from_secs(1);

fn limit(name: &str, limit: u64) -> String {
    samples::limits(&[(name, limit)])
}

fn config(limits: &[String]) -> Config {
    samples::config(&limits.concat())
}

/// Begins a life of the registry by that file, with a store.
fn began(file: &Config) -> Registry {
    let mut registry = Registry::new(&file.limits, file.clocks, Past::None, NOW, 1);
    registry.begin_writing(0);
    registry
}

fn put(registry: &mut Registry, text: String) {
    put_below(registry, text, None);
}

fn put_below(registry: &mut Registry, text: String, parent: Option<&str>) {
    let limit = config(&[text]).limits.remove(0);
    let limit = LimitConfig { parent: parent.map(str::to_owned), ..limit };
    registry.put(NOW, &limit, CarryOver::AsIs, false).expect("room");
}

/// Returns names and ceilings in a life with `file` after `written`, and the decisions that are dropped.
fn after(file: &Config, written: &Written) -> (Vec<(String, u64)>, Vec<String>) {
    let (limits, dropped) = limits_with_overrides(&file.limits, &written.decisions);
    let known = Config { limits, ..file.clone() };
    let mut registry = Registry::restored(&known.limits, known.clocks, written, Gap::Counted, NOW, 2);
    let limits = registry.limits(NOW).into_iter();
    let limits = limits.map(|(limit, figures)| (limit.name.to_string(), figures.ceiling)).collect();
    (limits, dropped.into_iter().map(|dropped| dropped.limit).collect())
}

fn named(limits: &[(&str, u64)]) -> Vec<(String, u64)> {
    limits.iter().map(|(name, ceiling)| (name.to_string(), *ceiling)).collect()
}

#[test]
fn a_limit_is_what_it_was_put_as_until_the_file_says_something_new_of_it() {
    let said = |a: u64, b: u64| config(&[limit("a", a), limit("b", b), limit("c", 3)]);
    let file = said(1, 2);
    let (mut registry, mut written) = (began(&file), Written::default());
    written.apply(&registry.write_down(NOW));
    assert!(written.decisions.is_empty());
    put(&mut registry, limit("a", 100));
    put(&mut registry, limit("new", 7));
    assert!(registry.remove("c"));
    let batch = registry.write_down(NOW);
    assert_eq!(batch.decisions.keys().collect::<Vec<_>>(), ["a", "c", "new"]);
    written.apply(&batch);
    assert_eq!(after(&file, &written), (named(&[("a", 100), ("b", 2), ("new", 7)]), vec![]));
    // The file says something new of `b`, and nothing new of the others.
    assert_eq!(after(&said(1, 20), &written), (named(&[("a", 100), ("b", 20), ("new", 7)]), vec![]));
    let other = after(&said(10, 2), &written);
    assert_eq!(other, (named(&[("a", 10), ("b", 2), ("new", 7)]), vec!["a".to_owned()]));
    // A limit that is put as the file has it needs no row.
    put(&mut registry, limit("a", 1));
    written.apply(&registry.write_down(NOW));
    assert_eq!(written.decisions.keys().collect::<Vec<_>>(), ["c", "new"]);
    // The file adopts the limits while the registry runs.
    registry.file_says(&config(&[limit("a", 1), limit("b", 2), limit("new", 7)]).limits);
    written.apply(&registry.write_down(NOW));
    assert!(written.decisions.is_empty());
}

#[test]
fn all_that_was_decided_is_written_once_more_by_the_next_life() {
    let file = config(&[limit("a", 1), limit("b", 2)]);
    let (mut registry, mut written) = (began(&file), Written::default());
    put(&mut registry, limit("a", 100));
    let node = NodeName::try_new("n").expect("valid");
    for decision in [Decision::Pause(Some(9 * SECOND)), Decision::Block(node)] {
        assert_eq!(registry.decide(NOW, "b", &decision), Some(Ok(false)));
        assert_eq!(registry.decide(NOW, "b", &decision), Some(Ok(true)));
    }
    assert_eq!(registry.decide(NOW, "c", &Decision::Resume), None);
    written.apply(&registry.write_down(NOW));
    let first = written.decisions.clone();
    for _ in 0..2 {
        let (limits, dropped) = limits_with_overrides(&file.limits, &written.decisions);
        assert_eq!(dropped, []);
        let known = Config { limits, ..file.clone() };
        let mut next =
            Registry::restored(&known.limits, known.clocks, &written, Gap::Counted, NOW + SECOND, 2);
        next.take_decisions(&file.limits, &written, Gap::Counted, NOW + SECOND);
        next.begin_writing(0);
        written.apply(&next.write_down(NOW));
        assert_eq!(written.decisions, first);
        let mut whole = next.begin_whole_batch(NOW);
        assert!(next.gather(NOW, &mut whole, usize::MAX));
        written.apply(&whole.into_batch());
        assert_eq!(written.decisions, first, "also to a store that is made anew");
        let suspension = next.limit("b").expect("it is there").suspension();
        assert_eq!(suspension.paused_until(NOW + SECOND), Some(NOW + 9 * SECOND));
        assert_eq!(suspension.blocked().len(), 1);
    }
}

/// The bug: a top-up was made twice if the allocator died before its answer and the caller sent it again.
#[test]
fn a_top_up_that_is_sent_again_after_a_restart_is_not_made_again() {
    let file = config(&[limit("a", 10)]);
    let (mut registry, mut written) = (began(&file), Written::default());
    let top_up = |registry: &mut Registry| {
        let limit = registry.limit("a").expect("it is there");
        let was_made = limit.top_up(NOW, PoolId::default(), 5, Some("march"));
        let available = limit.view(NOW, &PoolId::default()).map(|view| view.available);
        registry.note_decision("a");
        (was_made, available)
    };
    assert_eq!(top_up(&mut registry), (Ok(true), Some(15)));
    written.apply(&registry.write_down(NOW));
    let mut next = Registry::restored(&file.limits, file.clocks, &written, Gap::Counted, NOW, 2);
    next.take_decisions(&file.limits, &written, Gap::Counted, NOW);
    assert_eq!(top_up(&mut next), (Ok(false), Some(15)));
    let by = |registry: &mut Registry| {
        registry.limit("a").expect("it is there").topped_up_as("march").expect("it was made").permits
    };
    assert_eq!(by(&mut next), Some(5));
    // A store of an earlier version knows the name, but not the permits.
    let mut older = written.clone();
    older.decisions.get_mut("a").expect("it is there").topped_up_by.clear();
    let mut from_older = Registry::restored(&file.limits, file.clocks, &older, Gap::Counted, NOW, 4);
    from_older.take_decisions(&file.limits, &older, Gap::Counted, NOW);
    assert_eq!((by(&mut from_older), top_up(&mut from_older).0), (None, Ok(false)));
    // The same holds in a life that begins because the books broke, though it has none of the added permits: they may
    // be spent.
    let mut after = Registry::new(&file.limits, file.clocks, Past::Lost(NOW), NOW, 3);
    after.keep_decisions_of(&mut next, NOW);
    assert_eq!((by(&mut after), top_up(&mut after).0), (Some(5), Ok(false)));
}

#[test]
fn what_does_not_fit_the_file_any_more_is_dropped_and_nothing_else() {
    let file = config(&[limit("a", 10), limit("b", 20), limit("c", 30)]);
    let (mut registry, mut written) = (began(&file), Written::default());
    put_below(&mut registry, limit("a", 1), Some("b"));
    put_below(&mut registry, limit("new", 2), Some("later"));
    put(&mut registry, limit("later", 3));
    put(&mut registry, limit("c", 4));
    written.apply(&registry.write_down(NOW));
    let all = named(&[("a", 1), ("b", 20), ("c", 4), ("later", 3), ("new", 2)]);
    assert_eq!(after(&file, &written), (all, vec![]));
    // `b` is gone. `new` does not need it, once `later` is there.
    let file = config(&[limit("a", 10), limit("c", 30)]);
    let most = named(&[("a", 10), ("c", 4), ("later", 3), ("new", 2)]);
    assert_eq!(after(&file, &written), (most, vec!["a".to_owned()]));
    // A row of a later version.
    let row = written.decisions.get_mut("c").and_then(|row| row.put.as_mut()).expect("it was put");
    row.limit = Some(serde_json::json!({ "rules": [], "later": 1 }));
    let (_, dropped) = limits_with_overrides(&file.limits, &written.decisions);
    assert!(dropped.iter().any(|dropped| dropped.limit == "c" && dropped.problem.contains("later")));
}

/// The bug: a number that the file may have was too large for the form in which decisions are read. The limit was back
/// after a restart.
#[test]
fn a_limit_with_the_largest_numbers_stays_removed() {
    const MOST: &str = "9007199254740991";
    let large = format!(
        "[[limit]]\nname = \"a*\"\nkeyed = true\nkeys_max = {MOST}\nnames_max = {MOST}\nlessees_max = {MOST}\n\
         priorities = {{ n = {MOST} }}\nguaranteed = {{ n = {MOST} }}\n\
         rules = [{{ kind = \"fixed_window\", limit = {MOST}, per = \"1s\" }}]\n"
    );
    let file = config(&[large, limit("b", 1)]);
    let (mut registry, mut written) = (began(&file), Written::default());
    assert!(registry.remove("a*"));
    written.apply(&registry.write_down(NOW));
    assert_eq!(after(&file, &written), (named(&[("b", 1)]), vec![]));
}

/// The bug: a decision from before there were such bounds was dropped, and the higher limit of the file held.
#[test]
fn a_decision_with_more_than_a_file_may_have_holds() {
    let file = config(&[limit("a", 1_000)]);
    let (mut registry, mut written) = (began(&file), Written::default());
    put(&mut registry, limit("a", 400));
    written.apply(&registry.write_down(NOW));
    let nodes = |end: &str| (0..300).map(|node| (format!("n{node}{end}"), json!(1))).collect::<Value>();
    let more = [
        ("guaranteed", nodes("")),
        ("weights", nodes("*")),
        ("priorities", json!({ "n": 1_u64 << 53 })),
        ("lessees_max", json!(1_u64 << 53)),
    ];
    for (member, value) in more {
        let mut written = written.clone();
        let row = written.decisions.get_mut("a").and_then(|row| row.put.as_mut()).expect("it was put");
        row.limit.as_mut().expect("a limit")[member] = value;
        assert_eq!(after(&file, &written), (named(&[("a", 400)]), vec![]), "{member}");
    }
}
