//! Replays real traffic: each client of a trace has its own limit, and its requests land on any node and wait for a
//! permit for a while. Reports the admitted requests, beside those that an omniscient limiter would have admitted.
//!
//! In reading order: [`trace`] (the file), [`deal`] (which node gets which request), [`report`] (the table).

mod deal;
pub(super) mod report;
mod trace;

use super::LOG_LEVEL;
use super::allocator::Hosted;
use super::fleet::{Done, Fleet, admissions};
use super::line::{DealtCall, Job, Tally};
use super::progress::{Progress, follow};
use super::targets;
use crate::args::DemoArgs;
use crate::failure::Failure;
use crate::stop::Stop;
use crate::window::most_in_any;
use lessor_ledger::Rule;
use lessor_ledger::exact::{Limiter, Verdict};
use lessor_ledger::rule::SlidingWindow;
use lessor_protocol::{Clock, Moment};
use report::{LimitReport, Report};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;
use trace::Request;

/// The limit, keyed by client.
const LIMIT_NAME: &str = "client";

/// Calls of one client in any window.
const LIMIT: u64 = 30;

/// The window, in the trace's own time.
const WINDOW: Duration = Duration::from_secs(60);

/// How long a request waits for a permit, in the trace's own time: a tenth of the window.
const PATIENCE: Duration = Duration::from_secs(6);

/// Returns the configuration of the allocator at `speed`. It has no margin: the admission itself is judged, without a
/// vendor behind it.
pub(super) fn config(speed: f64) -> String {
    // Rounded up to a whole millisecond: the limit is never looser than the one that is judged.
    let window_ms = WINDOW.div_f64(speed).as_nanos().div_ceil(1_000_000);
    format!(
        "# Each client of the trace: {LIMIT} calls in any {} s of its time, replayed at {speed} times its pace.\n\
         \n\
         [[limit]]\n\
         name  = \"{LIMIT_NAME}\"\n\
         keyed = true\n\
         rules = [{{ kind = \"sliding_window\", limit = {LIMIT}, per = \"{window_ms}ms\", margin = \"0s\" }}]\n",
        WINDOW.as_secs(),
    )
}

/// Replays `file` as `args` say, to its end or until an operator stops it.
pub(super) async fn run(args: &DemoArgs, file: &Path, stop: &mut Stop) -> Result<Report, Failure> {
    let requests = trace::read(file)?;
    let hands = deal::deal(&requests, args.nodes(), args.speed(), args.seed);
    let allocator = Hosted::open(&config(args.speed()), args.listen(), None).await?;
    let patience = PATIENCE.div_f64(args.speed());
    let url = allocator.books().url();
    let jobs = Job::replays(&hands, LIMIT_NAME, url, patience, args.targets.is_some());
    let mut fleet = Fleet::launch(jobs, LOG_LEVEL).await?;
    targets::write(args.targets.as_deref(), &[allocator.books().url()], &fleet)?;

    let clock = Clock::since_boot();
    let start = clock.now();
    fleet.go(start).await?;
    let mut progress = Progress::new(args.progress, &[]);
    follow(&mut fleet, &mut progress, allocator.books(), stop.asked()).await;
    let ran = clock.now().since(start);
    let done = fleet.stop().await;
    allocator.close().await;

    // All requests, unless an operator stopped it early.
    let played = requests.partition_point(|request| request.offset.div_f64(args.speed()) <= ran);
    let requests = &requests[..played];
    let most = most_of_any_client(&hands, &done, WINDOW.div_f64(args.speed()));
    Ok(summary(args, requests, &done, most, ran))
}

/// Returns how many of the requests one exact limiter of each client admits, with the same patience.
fn central_admits(requests: &[Request]) -> u64 {
    let rule = SlidingWindow::try_new(LIMIT, WINDOW, Duration::ZERO).expect("numbers in range");
    let mut clients: HashMap<&str, Limiter> = HashMap::new();
    let served = requests.iter().filter(|request| {
        let now = Moment::ORIGIN + request.offset;
        let limiter = clients.entry(&request.client);
        let limiter = limiter.or_insert_with(|| Limiter::new(&[Rule::SlidingLog(rule)], now));
        let verdict = limiter.acquire(now, 1, Some(PATIENCE)).verdict;
        // Kept, they would take as much memory as the trace.
        limiter.admitted().for_each(drop);
        matches!(verdict, Verdict::Served(_))
    });
    served.count() as u64
}

/// Returns the most admissions of any client in any window, over all nodes.
fn most_of_any_client(hands: &[Vec<DealtCall>], done: &[Done], window: Duration) -> u64 {
    let mut instants: HashMap<&str, Vec<Moment>> = HashMap::new();
    for (client, at) in admissions(hands, done) {
        instants.entry(client).or_default().push(at);
    }
    let most = |instants: &mut Vec<Moment>| {
        instants.sort_unstable();
        most_in_any(instants.iter().map(|at| (*at, 1)), window)
    };
    instants.values_mut().map(most).max().unwrap_or(0)
}

fn summary(
    args: &DemoArgs,
    requests: &[Request],
    done: &[Done],
    max_in_any_window: u64,
    ran: Duration,
) -> Report {
    let central_admitted = central_admits(requests);
    let mut tally = Tally::default();
    for node in done {
        tally.add(&node.tally);
    }
    let count = tally.count(0);
    let clients: HashSet<&str> = requests.iter().map(|request| request.client.as_str()).collect();
    let limit = LimitReport {
        name: LIMIT_NAME,
        limit: LIMIT,
        window_s: WINDOW.as_secs(),
        admitted: count.admitted,
        refused: count.refused,
        max_in_any_window,
    };
    Report {
        limits: [limit],
        requests: requests.len() as u64,
        clients: clients.len() as u64,
        central_admitted,
        admitted_share_of_central: count.admitted as f64 / central_admitted.max(1) as f64,
        exchanges_per_1000_calls: tally.exchanges_per_1000_calls(),
        nodes: done.len(),
        speed: args.speed(),
        seconds: ran.as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::fleet::replayed as done;

    fn call(client: &str) -> DealtCall {
        DealtCall { due_ns: 0, client: client.to_owned() }
    }

    #[test]
    fn a_client_is_judged_over_all_nodes() {
        let hands = [vec![call("a"), call("b"), call("a")], vec![call("b"), call("a")]];
        let done = [done(&[(0, 0), (1, 5), (2, 30)]), done(&[(1, 9)])];
        let most = |nanos| most_of_any_client(&hands, &done, Duration::from_nanos(nanos));
        // Client a was admitted at 0, 9 and 30.
        assert_eq!(most(9), 1);
        assert_eq!(most(10), 2);
        assert_eq!(most(31), 3);
    }

    #[test]
    fn the_central_limiter_counts_each_client_apart_and_is_as_patient() {
        let request = |client: &str, seconds: u64| Request {
            client: client.to_owned(),
            offset: Duration::from_secs(seconds),
        };
        let mut requests: Vec<Request> = (0..LIMIT).map(|_| request("a", 0)).collect();
        // Of these, one would wait for seven seconds, and one waits for six.
        requests.extend([request("b", 53), request("a", 53), request("a", 54)]);
        assert_eq!(central_admits(&requests), LIMIT + 2);
    }

    #[test]
    fn windows_shrink_with_the_speed() {
        assert!(config(60.0).contains("per = \"1000ms\", margin = \"0s\""));
        assert!(config(1.0).contains("per = \"60000ms\""));
    }
}
