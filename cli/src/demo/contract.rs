//! The main job: a fleet of processes shares a vendor's contract and never breaks it. Starts an allocator, a strict
//! vendor and the nodes, lets them run, and reports what the vendor saw.
//!
//! In reading order: [`schedule`] (when nodes call), [`judge`] (the contract), [`shift`] (a change of it), [`vendor`]
//! (which enforces it), [`hot`] (a loop without a vendor), [`report`] (the table).

pub(super) mod hot;
pub(super) mod judge;
pub(super) mod report;
pub(super) mod schedule;
pub(super) mod shift;
pub(super) mod vendor;

use super::allocator::Hosted;
use super::books::Books;
use super::fleet::{Done, Fleet};
use super::killer::Killer;
use super::latency::{Timed, Took};
use super::line::{Found, Job, Proof, Tally, Work};
use super::place::{self, Place};
use super::progress::{Progress, follow};
use super::rotation::{Credentials, Rotation};
use super::served::Served;
use super::targets;
use super::{ANY_PORT, LOG_LEVEL};
use crate::args::{DemoArgs, Store};
use crate::failure::Failure;
use crate::stop::Stop;
use judge::{Judge, Seen};
use lessor_protocol::{Clock, TERM_MAX};
use lessor_sim::evenness::Even;
use report::{LimitReport, Report};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use vendor::Vendor;

/// The configuration of the allocator.
pub(super) const CONFIG: &str = include_str!("contract/lessor.toml");

/// Returns the configuration for an allocator that keeps its books in `store`: a file in `folder`, or the server at `url`.
pub(super) fn config(store: Store, folder: &Path, url: Option<&str>) -> Result<String, Failure> {
    place::shown(CONFIG, store, folder, url)
}

/// One limit of the contract, as the vendor enforces it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreed {
    pub(super) name: &'static str,
    pub(super) limit: u64,
    pub(super) window: Duration,
}

/// All calls.
pub(super) const REST: Agreed = Agreed { name: "vendor/rest", limit: 9000, window: Duration::from_secs(30) };

/// Pushes, which also count as calls.
pub(super) const MESSAGES: Agreed =
    Agreed { name: "vendor/messages", limit: 600, window: Duration::from_secs(30) };

/// By so much a run may be shorter than two windows, for the use of the contract to be measured. A contract may be used up
/// early in each window: over less than a whole window the share could be several times the contract.
const SHORTER: Duration = Duration::from_secs(1);

/// Interval at which the books are read once all nodes have left.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Creates the judge that holds a fleet to the contract.
pub(super) fn judge() -> Judge {
    Judge::new((REST.limit, REST.window), (MESSAGES.limit, MESSAGES.window))
}

/// Runs the demo for as long as `args` say, or until an operator stops it.
pub(super) async fn run(args: &DemoArgs, stop: &mut Stop) -> Result<Report, Failure> {
    if args.kill_every.is_none() && args.allocators == 1 && args.store.is_none() {
        let credentials = args.rotate_every.map(|_| Credentials::make()).transpose()?.map(Arc::new);
        let config = credentials.as_ref().map_or(Ok(CONFIG.to_owned()), |all| all.config(CONFIG))?;
        let tls = credentials.as_ref().map(|all| all.proof().tls());
        let allocator = Hosted::open(&config, args.listen(), tls).await?;
        let books = [allocator.books().clone()];
        let report = run_on(args, stop, &books, &books, vec![], credentials.as_ref()).await;
        allocator.close().await;
        return report;
    }
    let place = Place::open(args.store.unwrap_or_default(), args.store_url.as_deref()).await?;
    if place.is_shared() {
        let mut served = vec![];
        for number in 1..=args.allocators {
            let listen = args.listen().filter(|_| number == 1);
            let config = format!("[server]\nnode = \"allocator-{number}\"\n{CONFIG}");
            served.push(Served::open(|folder| place.config(&config, folder), listen).await?);
        }
        let books: Vec<Books> = served.iter().map(|served| served.books().clone()).collect();
        return run_on(args, stop, &books, &books, served, None).await;
    }
    let centre = Served::open(|folder| place.config(CONFIG, folder), args.listen()).await?;
    let books = [centre.books().clone()];
    let mut served = regions(args, books[0].url()).await?;
    let regions: Vec<Books> = served.iter().map(|served| served.books().clone()).collect();
    let asked = if regions.is_empty() { &books[..] } else { &regions };
    served.push(centre);
    run_on(args, stop, asked, &books, served, None).await
}

/// Starts allocators that lease the contract from the one at `centre`, if there are to be several.
async fn regions(args: &DemoArgs, centre: &str) -> Result<Vec<Served>, Failure> {
    let mut regions = vec![];
    for number in (1..=args.allocators).filter(|_| args.allocators > 1) {
        let leased = [REST.name, MESSAGES.name].map(|name| {
            format!(
                "[[limit]]\nname = {}\nupstream = {}\n",
                toml::Value::from(name),
                toml::Value::from(centre)
            )
        });
        let config = format!("[server]\nnode = \"region-{number}\"\n{}", leased.concat());
        regions.push(Served::open(|folder| place::shown(&config, Store::Memory, folder, None), None).await?);
    }
    Ok(regions)
}

/// Runs the demo on the allocators that are `asked`; `books` show what is lent of the contract. Allocators that are
/// `served` by processes are killed all along if `args` say so. `credentials` are renewed all along.
async fn run_on(
    args: &DemoArgs,
    stop: &mut Stop,
    asked: &[Books],
    books: &[Books],
    served: Vec<Served>,
    credentials: Option<&Arc<Credentials>>,
) -> Result<Report, Failure> {
    let names = [REST.name, MESSAGES.name];
    let vendor = Vendor::open(judge(), ANY_PORT).await?;
    // If the allocator is killed on purpose, warnings that it cannot be reached are no news.
    let level = if args.kill_every.is_some() { "error" } else { LOG_LEVEL };
    let asked: Vec<String> = asked.iter().map(|books| books.url().to_owned()).collect();
    let mut fleet =
        Fleet::launch(jobs(args, &asked, vendor.url(), credentials.map(|all| all.proof())), level).await?;
    let allocators: BTreeSet<&str> =
        asked.iter().map(String::as_str).chain(books.iter().map(Books::url)).collect();
    targets::write(args.targets.as_deref(), &Vec::from_iter(allocators), &fleet)?;

    let clock = Clock::since_boot();
    let start = clock.now();
    vendor.measure_from(start);
    if let Some(seconds) = args.vendor_halves_at {
        vendor.halve_at(start + Duration::from_secs(seconds));
    }
    if let Some(seconds) = args.vendor_restores_at {
        vendor.restore_at(start + Duration::from_secs(seconds));
    }
    fleet.go(start).await?;
    let (mut killer, unharmed) = match args.kill_every.map(Duration::from_secs) {
        Some(every) => (Some(Killer::begin(served, every)), vec![]),
        None => (None, served),
    };
    let rotation = credentials
        .zip(args.rotate_every)
        .map(|(all, every)| Rotation::begin(all.clone(), books[0].clone(), every));
    let mut progress = Progress::new(args.progress, &names);
    let end = async {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(args.seconds)) => {}
            () = stop.asked() => {}
            () = Killer::broke(&mut killer) => {}
        }
    };
    follow(&mut fleet, &mut progress, &books[0], end).await;
    let (ran, in_time, shift) = (clock.now().since(start), vendor.seen(), vendor.shift());
    let (gap, even) = (vendor.longest_gap(), vendor.even(ran));

    // From now on no allocator is killed: nodes return what they hold.
    let spared = match killer {
        Some(killer) => Some(killer.end().await?),
        None => None,
    };
    let rotated = match rotation {
        Some(rotation) => Some(rotation.end().await?),
        None => None,
    };
    let done = fleet.stop().await;
    let mut stranded = outstanding(books, &names).await?;
    let within_a_term = clock.now() + TERM_MAX;
    while asked.len() > 1 && stranded > 0 && clock.now() < within_a_term {
        // Permits that nodes returned to a leasing allocator return from it with its next exchange.
        tokio::time::sleep(LOOK_EVERY).await;
        stranded = outstanding(books, &names).await?;
    }
    drop(unharmed);
    let most = done.iter().map(|node| node.tally.vendor_refused).max().unwrap_or(0);
    let seen = [0, 1].map(|at| (in_time[at], vendor.seen()[at], even[at]));
    let report = summary(&done, ran, seen, stranded, hot::run().await?);
    let shifted = shift.map(|(shift, in_window)| shift.report(start, done.len(), most, in_window));
    let kills = spared.map_or(0, |(_served, kills)| kills);
    let rotated = rotated.map(|rotated| rotated.with(&sum(&done)));
    Ok(Report { vendor_change: shifted, kills, rotated, longest_gap_ms: gap.as_millis() as u64, ..report })
}

/// Returns the permits lent out by all allocators.
async fn outstanding(books: &[Books], names: &[&str]) -> Result<u64, Failure> {
    let mut sum = 0;
    for books in books {
        sum += books.outstanding(names).await?;
    }
    Ok(sum)
}

fn jobs(args: &DemoArgs, allocators: &[String], vendor: &str, proof: Option<Proof>) -> Vec<Job> {
    let job = |node| Job {
        name: format!("demo-{}", node + 1),
        allocators: allocators.to_vec(),
        proof: proof.clone(),
        metrics: args.targets.is_some(),
        work: Work::Contract { vendor: vendor.to_owned(), node, nodes: args.nodes(), seed: args.seed },
    };
    (0..args.nodes()).map(job).collect()
}

/// Summarises the run. `seen` has, for each limit, what the vendor had seen when the time was up and when all nodes had
/// left, and how even its use was.
fn summary(
    done: &[Done],
    ran: Duration,
    seen: [(Seen, Seen, Option<Even>); 2],
    stranded: u64,
    hot: Took,
) -> Report {
    let tally = sum(done);
    let mut timed = Timed::new();
    for node in done {
        if let Some(Found::Contract(buckets)) = &node.found {
            timed.add(buckets);
        }
    }
    if tally.unsent > 0 {
        tracing::warn!(calls = tally.unsent, "admitted, but not sent: too late, or the connection broke");
    }
    let limits = [(0, REST), (1, MESSAGES)].map(|(at, agreed)| {
        let (in_time, seen, even) = seen[at];
        let used = utilisation(agreed, in_time.admitted_after_first, ran);
        LimitReport::new(agreed, tally.count(at), seen, used).evenly(even)
    });
    Report {
        limits: limits.into(),
        batches: timed.took(),
        hot_loop: hot,
        exchanges_per_1000_calls: tally.exchanges_per_1000_calls(),
        stranded,
        vendor_change: None,
        kills: 0,
        rotated: None,
        longest_gap_ms: 0,
        nodes: done.len(),
        seconds: ran.as_secs_f64(),
    }
}

/// Adds up the totals of all nodes.
fn sum(done: &[Done]) -> Tally {
    let mut tally = Tally::default();
    done.iter().for_each(|node| tally.add(&node.tally));
    tally
}

/// Returns the share of the contract that was used after the first window, which starts from an empty one and could
/// hold a whole burst. `None` if too little of the run came after that.
fn utilisation(agreed: Agreed, admitted_after_first: u64, ran: Duration) -> Option<f64> {
    let measured = ran.checked_sub(agreed.window).filter(|&measured| measured + SHORTER >= agreed.window)?;
    let windows = measured.as_secs_f64() / agreed.window.as_secs_f64();
    Some(admitted_after_first as f64 / (agreed.limit as f64 * windows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utilisation_is_the_share_of_the_contract_after_the_first_window() {
        let check = |admitted, seconds, expected: Option<f64>| {
            let found = utilisation(REST, admitted, Duration::from_secs(seconds));
            let close = |(a, b): (f64, f64)| (a - b).abs() < 1e-9;
            assert_eq!(found.is_some(), expected.is_some(), "after {seconds} s");
            assert!(found.zip(expected).is_none_or(close), "{found:?} is not {expected:?}");
        };
        check(9000, 60, Some(1.0));
        check(4500, 60, Some(0.5));
        check(0, 60, Some(0.0));
        check(13_500, 75, Some(1.0));
        // The bug: 155 % of a contract that was kept, because the first third of a window may have all of it.
        check(4_650, 40, None);
        check(50, 30, None);
        check(0, 5, None);
    }

    #[test]
    fn books_in_a_file_are_a_section_of_their_own() {
        let of = |store| config(store, Path::new("a \"folder\""), None).expect("a path in Unicode");
        let stored: toml::Table = of(Store::Embedded).parse().expect("TOML");
        assert_eq!(stored["store"]["path"].as_str(), Some("a \"folder\"/demo.redb"));
        assert_eq!(stored["store"]["kind"].as_str(), Some("embedded"));
        assert!(of(Store::Memory).ends_with("[store]\nkind = \"memory\"\n"));
    }

    #[test]
    fn the_allocator_is_told_what_the_vendor_enforces() {
        let config: toml::Table = CONFIG.parse().expect("the shipped configuration is TOML");
        let limits = config["limit"].as_array().expect("a list of limits");
        for (limit, agreed) in limits.iter().zip([REST, MESSAGES]) {
            let rule = &limit["rules"][0];
            assert_eq!(limit["name"].as_str(), Some(agreed.name));
            assert_eq!(rule["limit"].as_integer(), i64::try_from(agreed.limit).ok());
            assert_eq!(rule["per"].as_str(), Some(format!("{}s", agreed.window.as_secs()).as_str()));
        }
    }
}
