//! Lives of an allocator that end at a certain call, each on the files that the one before has left. A client takes and
//! spends all that they lend, at once. If a grant was lent before it was written, the next life would lend it again,
//! which is too much for the window.

use super::{CLOCK, judge, pause};
use lessor_protocol::Moment;
use scenarios::faults::Faulty;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::runtime::Runtime;

/// A window is longer than a restart takes, and leases outlast the sync that they wait for.
const LIMIT: u64 = 1_000;
const PER: Duration = Duration::from_millis(400);
const CONFIG: &str = r#"
[[limit]]
name = "vendor"
term = { min = "100ms" }
rules = [{ kind = "sliding_window", limit = 1000, per = "400ms", margin = "0s" }]
"#;

/// For how long the next life is asked for all that it has.
const NEXT: Duration = Duration::from_millis(150);

/// How soon it lends again after a store was waited out: two seconds and a window, and time for a busy machine.
const LENT_WITHIN: Duration = Duration::from_secs(4);

/// How long an answer may take. A later one is of no use.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Pause before the next ask if there was nothing, and while a lost store is waited out. Then as much is lent to a later
/// ask.
const AGAIN: Duration = Duration::from_millis(2);
const WAITS_AGAIN: Duration = Duration::from_millis(20);

/// Allocators side by side: they wait more than they work.
const SIDE_BY_SIDE: usize = 6;

/// A client that wants all permits and spends them at once.
struct Greedy {
    runtime: Runtime,
    http: reqwest::Client,
    session: u64,
    seq: u64,
    /// Permits spent in this session.
    total: u64,
    spent: Vec<(Moment, u64)>,
}

impl Greedy {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let http = reqwest::Client::builder().timeout(ANSWER_WITHIN).no_proxy().build();
        let (runtime, http) = (runtime.expect("a runtime"), http.expect("a client"));
        Greedy { runtime, http, session: 0, seq: 0, total: 0, spent: vec![] }
    }

    /// Begins a session for a life. The permits of the session before are spent.
    fn begin(&mut self) {
        (self.session, self.seq, self.total) = (self.session + 1, 0, 0);
    }

    /// Asks again and again for `longest`, or `until` something is so.
    fn ask_until(&mut self, allocator: &Faulty, longest: Duration, until: impl Fn() -> bool) {
        let began = CLOCK.now();
        while !until() && CLOCK.now().since(began) < longest {
            if !self.ask(allocator) {
                pause(AGAIN);
            }
        }
    }

    /// Asks until something is lent, for `longest`. Returns whether it was.
    fn wait_for(&mut self, allocator: &Faulty, longest: Duration) -> bool {
        let began = CLOCK.now();
        while CLOCK.now().since(began) < longest {
            if self.ask(allocator) {
                return true;
            }
            pause(WAITS_AGAIN);
        }
        false
    }

    /// Asks once for everything. Returns whether that brought something.
    fn ask(&mut self, allocator: &Faulty) -> bool {
        self.seq += 1;
        let ask = json!({
            "limit": "vendor", "spent_total": self.total, "held": 0, "want": LIMIT, "waiting": LIMIT, "largest": 1,
        });
        let body = json!({ "node": "greedy", "session": self.session, "seq": self.seq, "asks": [ask] });
        let url = format!("{}/v1/leases", allocator.url());
        let asked = CLOCK.now();
        let answer: reqwest::Result<Value> =
            self.runtime.block_on(async { self.http.post(url).json(&body).send().await?.json().await });
        let Ok(answer) = answer else { return false };
        let grant = &answer["grants"][0];
        let permits = grant["permits"].as_u64().unwrap_or(0);
        let now = CLOCK.now();
        // Shortened for drift, as nodes do it.
        let term = Duration::from_millis(grant["term_ms"].as_u64().unwrap_or(0)) * 99 / 100;
        if permits > 0 && now.since(asked) < term {
            self.total += permits;
            self.spent.push((now, permits));
        }
        permits > 0
    }
}

/// From which moment calls of a life count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    /// From its start: the calls by which it mends the files of the life before count, too.
    Start,
    /// Once it listens: the number of calls before that differs from life to life.
    Listening,
}

/// The outcome of lives that ended as they were set to.
#[derive(Default)]
struct Deaths {
    /// The calls and files at which lives ended, with their number.
    calls: BTreeMap<String, usize>,
    /// How often a store was set aside and waited out.
    lost: usize,
    spent: u64,
}

impl Deaths {
    fn count(&self) -> usize {
        self.calls.values().sum()
    }

    fn add(mut self, other: Deaths) -> Deaths {
        for (call, count) in other.calls {
            *self.calls.entry(call).or_default() += count;
        }
        self.lost += other.lost;
        self.spent += other.spent;
        self
    }

    /// Runs one life after another. Each ends as the next of `ends` says, with calls that count from `from` on. It
    /// begins after what `before` does.
    fn one_by_one(ends: &[String], from: From, before: fn(&mut Faulty, &mut Greedy)) -> Deaths {
        let (mut allocator, mut greedy, mut deaths) =
            (Faulty::start(CONFIG), Greedy::new(), Deaths::default());
        for end in ends {
            before(&mut allocator, &mut greedy);
            allocator.set(if from == From::Start { end } else { "" });
            greedy.begin();
            if allocator.live() {
                allocator.set(end);
                greedy.ask_until(&allocator, ANSWER_WITHIN, || allocator.is_dead());
            }
            let (call, file) = allocator.died();
            *deaths.calls.entry(format!("{call} {file}")).or_default() += 1;

            // Another life follows at once, in the same window. Then nothing happens until that window is over.
            allocator.set("");
            greedy.begin();
            assert!(allocator.live(), "the allocator does not start after {end:?}");
            let (is_lost, spent) = (allocator.file("lessor.redb.lost"), greedy.spent.len());
            if is_lost.exists() {
                std::fs::remove_file(is_lost).expect("the file can be removed");
                deaths.lost += 1;
                greedy.ask_until(&allocator, NEXT, || false);
                assert_eq!(greedy.spent.len(), spent, "the allocator does not wait after {end:?}");
                assert!(
                    greedy.wait_for(&allocator, LENT_WITHIN),
                    "the allocator lends nothing after {end:?}"
                );
            }
            greedy.ask_until(&allocator, NEXT, || false);
            pause(PER);
        }
        deaths.spent = greedy.spent.iter().map(|(_, permits)| permits).sum();
        judge(LIMIT, PER, greedy.spent);
        deaths
    }

    /// Runs the lives of a few allocators side by side.
    fn of(ends: &[String], from: From, before: fn(&mut Faulty, &mut Greedy)) -> Deaths {
        let parts: Vec<Vec<String>> = (0..SIDE_BY_SIDE)
            .map(|part| ends.iter().skip(part).step_by(SIDE_BY_SIDE).cloned().collect())
            .collect();
        std::thread::scope(|scope| {
            let chains: Vec<_> = parts
                .iter()
                .map(|part| scope.spawn(move || Deaths::one_by_one(part, from, before)))
                .collect();
            let deaths = chains.into_iter().map(|chain| chain.join().expect("no life complains"));
            deaths.fold(Deaths::default(), Deaths::add)
        })
    }
}

/// Calls that a life makes until it has read its store, mended it, and written four batches.
const CALLS: usize = 46;

/// A death before a call finds the files as the call before has left them, so no life dies after a call. Clients have
/// been told no less by then.
#[test]
fn killed_at_every_step_of_writing_down_it_goes_on_and_no_window_holds_too_much() {
    let ends: Vec<String> =
        (1..=CALLS).flat_map(|at| [0, 2].map(move |how| format!("die_at {at}\ndie_how {how}\n"))).collect();
    let deaths = Deaths::of(&ends, From::Start, |_, _| {});
    println!("killed before and in the middle of {CALLS} calls: {:?}", deaths.calls);
    println!("{} points tested, {} permits spent, none too many", deaths.count(), deaths.spent);
    assert_eq!((deaths.count(), deaths.lost), (2 * CALLS, 0), "deaths, and stores lost");
}

/// A power cut loses all that was written and not synced, or every other write of it. Each sync takes a while, so that
/// permits that a client receives too early are spent.
#[test]
fn what_a_power_cut_loses_was_told_to_no_client() {
    let ends: Vec<String> = (1..=CALLS)
        .flat_map(|at| (1..3).map(move |cut| format!("sync_ms 10\ndie_at {at}\ncut {cut}\n")))
        .collect();
    let deaths = Deaths::of(&ends, From::Start, |_, _| {});
    println!("cut off before {CALLS} calls, with two kinds of loss: {:?}", deaths.calls);
    println!("{} points tested, {} permits spent, none too many", deaths.count(), deaths.spent);
    assert_eq!((deaths.count(), deaths.lost), (2 * CALLS, 0), "deaths, and stores lost");
}

/// Calls that a life makes to replace a store that failed to sync, and some more.
const ANEW: usize = 25;

/// Between two renames there is a store with the seal of another one. It is waited out, which costs only time.
#[test]
fn killed_while_it_makes_a_new_store_it_has_the_old_one_the_new_one_or_waits() {
    let ends: Vec<String> = (1..=ANEW).map(|at| format!("fail_at 1\ndie_at {at}\n")).collect();
    let deaths = Deaths::of(&ends, From::Listening, |_, _| {});
    println!("killed before {ANEW} calls that make a store anew: {:?}", deaths.calls);
    println!("{} points tested, {} stores waited out", deaths.count(), deaths.lost);
    assert_eq!(deaths.count(), ANEW);
    let renamed = |file: &str| deaths.calls.get(&format!("rename {file}")).copied();
    let both = ["lessor.redb.new.seal", "lessor.redb.new"].map(renamed);
    assert_eq!(both, [Some(1), Some(1)], "deaths before each rename");
    assert_eq!(deaths.lost, 1, "between the two renames");
}

/// Calls that a life makes, once it has read a lost store, until another one is in its place.
const REPLACED: usize = 20;

/// Each life is told to begin afresh, as by a service manager. The permits of the life before still count.
#[test]
fn killed_while_it_replaces_a_lost_store_it_waits_though_it_is_told_to_begin_afresh() {
    let end = |at: usize, how: u8| format!("only lessor.redb.\ndie_at {at}\ndie_how {how}\n");
    // The call after the last one comes only once all is over that was lent before.
    let ends: Vec<String> = (1..=REPLACED).map(|at| end(at, 0)).chain([end(REPLACED, 1)]).collect();
    let lose = |allocator: &mut Faulty, greedy: &mut Greedy| {
        greedy.ask_until(allocator, NEXT, || false);
        allocator.kill();
        std::fs::remove_file(allocator.file("lessor.redb.seal")).expect("the store has a seal");
    };
    let deaths = Deaths::of(&ends, From::Start, lose);
    println!("killed before {REPLACED} calls that replace a lost store: {:?}", deaths.calls);
    assert_eq!(deaths.count(), REPLACED + 1);
    let calls = ["link lessor.redb.lost", "rename lessor.redb.new.seal", "rename lessor.redb.new"];
    let died = calls.map(|call| deaths.calls.get(call).copied());
    assert_eq!(died, [Some(1), Some(1), Some(2)], "deaths before each step, and after the last");
}
