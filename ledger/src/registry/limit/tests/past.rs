//! Checkpoints that cannot be used: what was lent before them, and calls of earlier rules, are waited for.

use super::*;

/// What was lent before a checkpoint that cannot be used is out for as long as after a loss, even if the limit is
/// changed meanwhile.
#[test]
fn a_pool_whose_record_is_of_no_use_stays_shut_when_the_limit_is_changed() {
    let with = |limit: u64| {
        let rule =
            format!("{{ kind = \"sliding_window\", limit = {limit}, per = \"10s\", margin = \"0s\" }}");
        Config::parse(&format!("[[limit]]\nname = \"a\"\nrules = [{rule}]")).expect("valid").limits.remove(0)
    };
    let clocks = ClockBounds::try_new(0).expect("no drift");
    let mut first = Limit::new(with(10), clocks, Past::None, millis(0));
    first.begin_writing();
    let lent =
        first.renew(millis(0), &PoolId::default(), A, 1, Ask { want: 10, waiting: 10, ..Ask::default() });
    assert!(lent.expect("a good ask").permits() > 0);
    let (version, _) = first.row(millis(0), 1);
    let id = unwritten(&mut first).remove(0);
    let row = first.pool_row(millis(0), &id, version).expect("of that version");
    let (row, _) = row.expect("it is there");
    // A row of another version says nothing, not even what is out.
    for (version, lends) in [(version, true), (version + 1, false)] {
        let mut after = Limit::new(with(10), clocks, Past::None, millis(100));
        after.resume(millis(100));
        after.restore(id.clone(), &row, version, Gap::Counted, millis(100));
        after.change(with(20), CarryOver::AsIs, millis(200));
        let ask = Ask { want: 20, waiting: 20, ..Ask::default() };
        let lent = after.renew(millis(300), &PoolId::default(), A, 1, ask).expect("a good ask").permits();
        assert_eq!(lent > 0, lends, "version {version}");
    }
}

/// The bug: a checkpoint that could not be used made the limit forget that calls of its earlier rules may still run.
#[test]
fn a_pool_whose_record_is_of_no_use_still_waits_for_calls_of_earlier_rules() {
    let rule = "{ kind = \"concurrency\", limit = 10, longest = \"1m\" }";
    let text = format!("[[limit]]\nname = \"a\"\nrules = [{rule}]");
    let config = || Config::parse(&text).expect("valid").limits.remove(0);
    let clocks = ClockBounds::try_new(0).expect("no drift");
    let mut first = Limit::new(config(), clocks, Past::None, millis(0));
    first.begin_writing();
    let ask = Ask { want: 10, waiting: 10, running: Some(0), ..Ask::default() };
    first.renew(millis(0), &PoolId::default(), A, 1, ask).expect("a good ask");
    let (version, _) = first.row(millis(0), 1);
    let id = unwritten(&mut first).remove(0);
    let (row, _) = first.pool_row(millis(0), &id, version).expect("of that version").expect("a row");
    // Calls of an hour began before the rules changed.
    let past = Past::Other { until: millis(0), calls_end: millis(3_600_000) };
    let mut after = Limit::new(config(), clocks, past, millis(100));
    after.resume(millis(100));
    after.restore(id, &row, version + 1, Gap::Counted, millis(100));
    let mut lent = |seq, at| {
        let lent = after.renew(millis(at), &PoolId::default(), A, seq, ask);
        lent.expect("a good ask").permits()
    };
    assert_eq!(lent(1, 600_000), 0, "they may still run");
    assert!(lent(2, 3_700_000) > 0);
}
