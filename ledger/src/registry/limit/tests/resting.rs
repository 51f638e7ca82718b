//! Property tests that compare limits. Pools that rest at every chance do, show and write down the same as pools that
//! never rest. A change that reaches one pool after another does the same as one that reaches all pools at once.

use super::*;
use crate::registry::rows::PoolRow;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Act {
    /// A session asks for a key. It has spent `spends` percent of what it holds.
    Ask {
        session: usize,
        key: usize,
        spends: u64,
        want: u64,
        demand_milli: u64,
    },
    Leave(usize, usize),
    Sweep(usize),
    TopUp(usize, u64),
    /// The limit changes to this many percent of its first permits.
    Change(u64, CarryOver),
    /// The next rows are written. They are durable at once, or with later ones.
    Write(bool),
}

/// What a session has spent and holds of one key.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    spent: u64,
    held: u64,
    until: Moment,
}

fn acts() -> impl Strategy<Value = Vec<(u64, Act)>> {
    let ask = (0..2_usize, 0..3_usize, 0..=100_u64, 0..40_u64, 0..20_000_u64).prop_map(
        |(session, key, spends, want, demand_milli)| Act::Ask { session, key, spends, want, demand_milli },
    );
    let change = (50..150_u64, prop::sample::select(CarryOver::ALL.to_vec()));
    let act = prop_oneof![
        8 => ask,
        1 => (0..2_usize, 0..3_usize).prop_map(|(session, key)| Act::Leave(session, key)),
        6 => (1..4_usize).prop_map(Act::Sweep),
        1 => (0..3_usize, 1..20_u64).prop_map(|(key, permits)| Act::TopUp(key, permits)),
        1 => change.prop_map(|(percent, carry_over)| Act::Change(percent, carry_over)),
        3 => any::<bool>().prop_map(Act::Write),
    ];
    let wait = prop_oneof![4 => 0..500_u64, 4 => 1_000..6_000_u64, 1 => 10_000..40_000_u64];
    prop::collection::vec((wait, act), 1..60)
}

fn config(kind: usize, percent: u64) -> LimitConfig {
    let most = percent * 2;
    let rule = [
        format!("kind = \"sliding_window\", limit = {most}, per = \"10s\", margin = \"0s\""),
        format!("kind = \"token_bucket\", capacity = {most}, refill = 20, per = \"1s\""),
        format!("kind = \"fixed_window\", limit = {most}, per = \"20s\""),
    ];
    let rule = &rule[kind];
    let text = format!("[[limit]]\nname = \"a\"\nkeyed = true\nkeys_max = 3\nrules = [{{ {rule} }}]\n");
    Config::parse(&text).expect("valid").limits[0].clone()
}

/// A limit, and the high-water marks of rows that are written and not durable.
struct Side {
    limit: Limit,
    marks: Vec<(PoolId, crate::pool::HighWater)>,
    after: After,
}

/// The treatment of all pools after each act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Rest,
    Wake,
    /// A pending change is applied to all pools.
    Reach,
    Nothing,
}

impl Side {
    fn new(kind: usize, is_written: bool, after: After) -> Self {
        let mut limit =
            Limit::new(config(kind, 100), lessor_protocol::ClockBounds::default(), Past::None, millis(0));
        if is_written {
            limit.begin_writing();
        }
        Side { limit, marks: vec![], after }
    }

    /// Does `act`. Returns its outcome as text.
    fn act(&mut self, now: Moment, act: Act, kind: usize, seq: u64, ask: Ask) -> String {
        let limit = &mut self.limit;
        let id = |key: usize| key_of(key);
        let holder = |session: usize| Holder { id: SessionId(session as u64 + 1), ..A };
        let came = match act {
            Act::Ask { session, key, .. } => {
                let answer = limit.renew(now, &id(key), holder(session), seq, ask);
                format!("{answer:?} {:?}", limit.left(&id(key)))
            }
            Act::Leave(session, key) => {
                let goodbye = Goodbye {
                    spent_total: ask.spent_total,
                    running: None,
                    held: Some(ask.held),
                    shadow_refused: 0,
                };
                format!("{:?}", limit.leave(now, &id(key), holder(session).id, seq, goodbye))
            }
            Act::Sweep(steps) => format!("{:?}", limit.sweep(now, steps)),
            Act::TopUp(key, permits) => format!("{:?}", limit.top_up(now, id(key), permits, None)),
            Act::Change(percent, carry_over) => {
                let (config, all) = (config(kind, percent), Bound::Unbounded);
                let preview = limit.preview(&config, carry_over, now, all, 9);
                format!("{preview:?} {:?}", limit.change(config, carry_over, now))
            }
            Act::Write(is_durable) => format!("{:?}", self.write(now, is_durable)),
        };
        for entry in self.limit.pools.entries() {
            match self.after {
                After::Rest => entry.rest(),
                After::Wake => _ = entry.wake(),
                After::Reach | After::Nothing => {}
            }
        }
        if self.after == After::Reach {
            self.limit.pools.reach_all(&mut self.limit.tally);
        }
        came
    }

    fn write(&mut self, now: Moment, is_durable: bool) -> Vec<Option<Option<PoolRow>>> {
        let (version, _) = self.limit.row(now, 1);
        let mut rows = vec![];
        for id in unwritten(&mut self.limit) {
            let row = self.limit.pool_row(now, &id, version);
            rows.push(row.map(|row| {
                row.map(|(row, mark)| {
                    self.marks.push((id, mark));
                    row
                })
            }));
        }
        if is_durable {
            for (id, mark) in std::mem::take(&mut self.marks) {
                self.limit.raise_high_water(&id, mark);
            }
        }
        rows
    }

    fn look(&mut self, now: Moment) -> String {
        let views = self.limit.views(now, Bound::Unbounded, 9);
        let holdings = self.limit.holdings(now, Bound::Unbounded, 9);
        let known = (self.limit.take_uncovered(), self.limit.is_unwritten());
        format!("{:?} {views:?} {holdings:?} {known:?}", self.limit.figures(now))
    }
}

fn key_of(key: usize) -> PoolId {
    super::key(["x", "y", "z"][key])
}

/// Lets both sides do all `acts`, and compares the outcomes. The figures are compared after each act if `looked_at`,
/// else at the end.
fn both_do(
    [mut one, mut other]: [Side; 2],
    kind: usize,
    acts: Vec<(u64, Act)>,
    looked_at: bool,
) -> Result<(), TestCaseError> {
    let mut held = [[Held::default(); 3]; 2];
    let mut now = millis(0);
    for (seq, (wait, act)) in (1..).zip(acts) {
        now = now + Duration::from_millis(wait);
        let mut ask = Ask::default();
        if let Act::Ask { session, key, .. } | Act::Leave(session, key) = act {
            let it = &mut held[session][key];
            if now >= it.until {
                it.held = 0;
            }
            if let Act::Ask { spends, want, demand_milli, .. } = act {
                let spends = it.held * spends / 100;
                (it.spent, it.held) = (it.spent + spends, it.held - spends);
                ask = Ask { want, demand_milli, ..ask };
            }
            ask = Ask { spent_total: it.spent, held: it.held, ..ask };
        }
        let came = other.act(now, act, kind, seq, ask);
        prop_assert_eq!(&one.act(now, act, kind, seq, ask), &came);
        if looked_at {
            prop_assert_eq!(one.look(now), other.look(now));
        }
        if let Act::Ask { session, key, .. } = act {
            let again = Holder { id: SessionId(session as u64 + 1), ..A };
            let it = &mut held[session][key];
            let answer = other.limit.renew(now, &key_of(key), again, seq, ask);
            prop_assert_eq!(&one.limit.renew(now, &key_of(key), again, seq, ask), &answer);
            match answer {
                Ok(Answer::Grant(grant)) => {
                    it.held = grant.kept + grant.permits;
                    it.until = now + grant.term * 9 / 10;
                }
                Ok(Answer::Refusal(_)) => {}
                Err(_) => *it = Held::default(),
            }
        } else if let Act::Leave(session, key) = act {
            held[session][key] = Held::default();
        }
    }
    prop_assert_eq!(one.look(now), other.look(now));
    Ok(())
}

proptest! {
    #[test]
    fn resting_changes_nothing(kind in 0..3_usize, is_written: bool, acts in acts()) {
        let sides = [After::Rest, After::Wake].map(|after| Side::new(kind, is_written, after));
        both_do(sides, kind, acts, true)?;
    }

    #[test]
    fn a_change_that_reaches_pools_later_is_one_that_reached_all_at_once(
        kind in 0..3_usize, is_written: bool, acts in acts()
    ) {
        let sides = [After::Nothing, After::Reach].map(|after| Side::new(kind, is_written, after));
        both_do(sides, kind, acts, false)?;
    }
}

/// The key has a window of a day. A session used it once, and no session uses it any more.
#[test]
fn the_pool_of_an_idle_key_rests_in_few_bytes_until_it_is_used() {
    let rule = "{ kind = \"fixed_window\", limit = 100, per = \"1d\" }";
    let text = format!("[[limit]]\nname = \"a\"\nkeyed = true\nrules = [{rule}]\n");
    let config = Config::parse(&text).expect("valid");
    let mut limit = Limit::new(config.limits[0].clone(), config.clocks, Past::None, millis(0));
    assert_eq!(ask(&mut limit, 0, "x", 1, 0, 3), Ok(3));
    assert_eq!(ask(&mut limit, 100, "x", 2, 3, 0), Ok(0));
    let bytes =
        |limit: &mut Limit| limit.pools.entries().map(|entry| entry.resting_bytes()).collect::<Vec<_>>();
    limit.sweep(millis(500), 1);
    assert_eq!(bytes(&mut limit), [None], "its session may ask at any moment");
    limit.sweep(millis(8_000), 1);
    let rest = bytes(&mut limit)[0].expect("its session has been quiet for long");
    assert!(rest <= 128, "{rest} bytes");
    audit(&mut limit, millis(9_000));
    assert_eq!(limit.view(millis(9_000), &key("x")).map(|view| view.available), Some(97));
    assert!(bytes(&mut limit)[0].is_some(), "it woke for a moment only");
    assert_eq!(ask(&mut limit, 10_000, "x", 3, 3, 9), Ok(9));
    assert_eq!(bytes(&mut limit), [None], "it is in use");
}
