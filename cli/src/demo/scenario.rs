//! `export-per-user`: each user may export once every two seconds, and calls on several instances at once, more and
//! more often. However many calls there are, no user gets more than that, and no user much less.
//!
//! In reading order: [`arrivals`] (when calls come), [`report`] (the result).

mod arrivals;
mod report;

use super::LOG_LEVEL;
use super::fleet::{Done, Fleet, admissions};
use super::line::{DealtCall, Job, Tally};
use super::place::{self, Place};
use super::progress::{Progress, follow};
use super::served::Served;
use super::targets;
use crate::args::{DemoArgs, Store};
use crate::failure::Failure;
use crate::stop::Stop;
use crate::window::most_in_any;
use lessor_protocol::{Clock, Moment};
use report::Report;
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

/// The limit, keyed by user.
const LIMIT_NAME: &str = "export";

/// The time for one call of a user.
const PER: Duration = Duration::from_secs(2);

/// Duration of the scenario.
const LASTS: Duration = Duration::from_secs(600);

/// Longest wait of a call for a permit: longer than the time between two calls of a user at their rarest.
const PATIENCE: Duration = Duration::from_secs(1);

/// Returns the most calls of a user that fit in `lasts`, and the least that must be granted: 300 and 297 in ten
/// minutes.
fn most_and_least(lasts: Duration) -> (u64, u64) {
    let most = u64::try_from(lasts.as_nanos() / PER.as_nanos()).expect("hours at most");
    (most, (most * 99).div_ceil(100))
}

/// Returns the configuration of the allocator: the limit `export` of the example configuration. Its books are in a file
/// in `folder`, or in the server at `url`.
pub(super) fn config(store: Store, folder: &Path, url: Option<&str>) -> Result<String, Failure> {
    place::shown(&limit(), store, folder, url)
}

fn limit() -> String {
    let per = PER.as_secs();
    format!(
        "# Each user: one call every {per} s.\n\
         \n\
         [[limit]]\n\
         name  = \"{LIMIT_NAME}\"\n\
         keyed = true\n\
         rules = [{{ kind = \"token_bucket\", capacity = 1, refill = 1, per = \"{per}s\", initial = 1 }}]\n",
    )
}

/// Plays the scenario as `args` say, to its end or until an operator stops it.
pub(super) async fn run(args: &DemoArgs, stop: &mut Stop) -> Result<Report, Failure> {
    let speed = args.speed();
    let place = Place::open(args.store.unwrap_or_default(), args.store_url.as_deref()).await?;
    let hands: Vec<Vec<DealtCall>> =
        (0..args.nodes()).map(|node| arrivals::deal(node, args.users(), speed, args.seed)).collect();
    let served = Served::open(|folder| place.config(&limit(), folder), args.listen()).await?;
    let jobs = Job::replays(&hands, LIMIT_NAME, served.books().url(), PATIENCE, args.targets.is_some());
    let mut fleet = Fleet::launch(jobs, LOG_LEVEL).await?;
    targets::write(args.targets.as_deref(), &[served.books().url()], &fleet)?;

    let clock = Clock::since_boot();
    let start = clock.now();
    fleet.go(start).await?;
    let mut progress = Progress::new(args.progress, &[]);
    let lasts = LASTS.div_f64(speed);
    let end = async {
        tokio::select! {
            () = tokio::time::sleep(lasts) => {}
            () = stop.asked() => {}
        }
    };
    follow(&mut fleet, &mut progress, served.books(), end).await;
    let ran = clock.now().since(start);
    let done = fleet.stop().await;
    drop(served);
    let admitted = admitted(&hands, &done, args.users(), start + lasts);
    Ok(summary(args, place.store(), &done, admitted, ran))
}

/// Returns when each of `users` users was admitted before `end`, on any node.
fn admitted(hands: &[Vec<DealtCall>], done: &[Done], users: usize, end: Moment) -> Vec<Vec<Moment>> {
    let mut admitted: HashMap<String, Vec<Moment>> =
        (0..users).map(|user| (arrivals::name(user), vec![])).collect();
    for (user, at) in admissions(hands, done).filter(|(_, at)| *at < end) {
        admitted.entry(user.to_owned()).or_default().push(at);
    }
    admitted.into_values().collect()
}

/// Summarises the run. `admitted` is judged here and not by nodes: by the instants of all admissions, on the one clock
/// of the machine.
fn summary(
    args: &DemoArgs,
    store: Store,
    done: &[Done],
    mut admitted: Vec<Vec<Moment>>,
    ran: Duration,
) -> Report {
    let (speed, mut tally) = (args.speed(), Tally::default());
    done.iter().for_each(|node| tally.add(&node.tally));
    let lasts = LASTS.div_f64(speed);
    let (most, least) = most_and_least(lasts);
    let mut most_in_any_window = 0;
    let mut breaches = 0;
    for instants in &mut admitted {
        instants.sort_unstable();
        let each = instants.iter().map(|at| (*at, 1));
        most_in_any_window = most_in_any_window.max(most_in_any(each, lasts));
        breaches += instants.windows(2).filter(|pair| pair[1].since(pair[0]) < PER).count() as u64;
    }
    let granted = || admitted.iter().map(|instants| instants.len() as u64);
    Report {
        scenario: "export-per-user",
        users: admitted.len(),
        granted_min: granted().min().unwrap_or(0),
        granted_max: granted().max().unwrap_or(0),
        granted_must: least,
        granted_may: most,
        most_in_any_window,
        breaches,
        calls: tally.count(0).admitted + tally.count(0).refused,
        exchanges_per_1000_calls: tally.exchanges_per_1000_calls(),
        store: format!("{store:?}").to_lowercase(),
        nodes: done.len(),
        speed,
        seconds: ran.as_secs_f64(),
        is_whole: ran >= lasts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::fleet::replayed as done;

    #[test]
    fn users_are_counted_over_all_nodes_until_the_end() {
        let call = |user| DealtCall { due_ns: 0, client: arrivals::name(user) };
        let hands = [vec![call(0), call(1), call(0)], vec![call(0), call(0)]];
        let done = [done(&[(0, 5), (1, 6), (2, 30)]), done(&[(0, 9), (1, 40)])];
        let mut counts: Vec<usize> =
            admitted(&hands, &done, 3, Moment::from_nanos(40)).iter().map(Vec::len).collect();
        counts.sort_unstable();
        assert_eq!(counts, [0, 1, 3], "a user that got nothing is counted too");
    }

    #[test]
    fn what_must_come_is_never_rounded_down() {
        let of = |seconds| most_and_least(Duration::from_secs(seconds));
        assert_eq!(of(600), (300, 297));
        assert_eq!(of(20), (10, 10));
        assert_eq!(of(60), (30, 30));
    }

    #[test]
    fn the_limit_is_that_of_the_example() {
        let example = include_str!("../../../lessor.toml");
        let config = config(Store::Memory, Path::new(""), None).expect("plain");
        let rule = |text: &str| {
            let text: toml::Table = text.parse().expect("TOML");
            let limits = text["limit"].as_array().expect("a list of limits").clone();
            let limit = limits.into_iter().find(|limit| limit["name"].as_str() == Some(LIMIT_NAME));
            limit.expect("it is there")["rules"][0].clone()
        };
        for field in ["kind", "capacity", "refill", "per", "initial"] {
            assert_eq!(rule(&config)[field], rule(example)[field], "{field}");
        }
    }
}
