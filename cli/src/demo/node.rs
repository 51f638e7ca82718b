//! One node of a demo: a process like any other that uses the client library. The demo starts it with a hidden
//! subcommand and gives it orders. It never outlives the demo, and prints nothing but news on stdout.
//!
//! In reading order: [`orders`] (orders of the demo), [`caller`] (the contract), [`sender`] (calls on their way to the
//! vendor), [`player`] (the replay), [`metrics`].

pub(super) mod caller;
pub(super) mod metrics;
mod orders;
mod player;
mod sender;

use super::fleet::to_line;
use super::line::{Job, News, Order, Report, Tally, Work};
use crate::failure::Failure;
use crate::runtime;
use caller::Caller;
use lessor::Client;
use lessor_protocol::Moment;
use orders::Orders;
use player::Player;
use std::io::Write as _;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, timeout};

/// Interval at which a node reports its totals.
pub(super) const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// Longest time that returning all permits may take. Well below the time after which the demo kills a node.
const SHUTDOWN_WITHIN: Duration = Duration::from_secs(3);

/// Runs until the work is done or the demo says stop. It uses one thread, as the smallest of services would.
pub(crate) fn run() -> Result<(), Failure> {
    let runtime = runtime::on_this_thread()?;
    let outcome = runtime.block_on(live(Orders::listen()));
    // The thread that listens to stdin may still be reading: do not wait for it.
    runtime.shutdown_background();
    outcome
}

async fn live(mut orders: Orders) -> Result<(), Failure> {
    let Some(Order::Job(job)) = orders.next().await else {
        return Err(Failure::Run(
            "this command is for the demo's own use: the first line must be a job".into(),
        ));
    };
    // Before the client, so that its metrics are counted from the beginning.
    let metrics = if job.metrics { Some(metrics::serve().await?) } else { None };
    let client = connect(&job).await?;
    say(&News::Ready { metrics });
    let Some(Order::Go { at_ns }) = orders.next().await else {
        return Ok(());
    };
    let report = work(&client, job.work, Moment::from_nanos(at_ns), &mut orders).await?;
    say(&News::Done(leave(client, report).await));
    Ok(())
}

async fn connect(job: &Job) -> Result<Client, Failure> {
    let Some((first, others)) = job.allocators.split_first() else {
        return Err(Failure::Run(format!("{} was given no allocator", job.name)));
    };
    let builder = others.iter().fold(Client::builder(first), |builder, other| builder.or(other));
    let builder = match &job.proof {
        Some(proof) => proof.given_to(builder),
        None => builder,
    };
    let client = builder.node(&job.name).connect().await;
    client.map_err(|error| Failure::Run(format!("{} cannot connect: {error}", job.name)))
}

async fn work(client: &Client, work: Work, start: Moment, orders: &mut Orders) -> Result<Report, Failure> {
    match work {
        Work::Contract { vendor, node, nodes, seed } => {
            let schedule = super::contract::schedule::Schedule::new(node, nodes, seed);
            let caller = Caller::new(client, &vendor, schedule, (node, nodes))?;
            // The next order can only be to stop.
            let until = async {
                let _ = orders.next().await;
            };
            Ok(caller.run(start, until, say_progress).await)
        }
        Work::Replay { limit, calls, patience_ns } => {
            let patience = Duration::from_nanos(patience_ns);
            Ok(Player::new(client, &limit, calls, patience).run(start, orders).await)
        }
    }
}

/// Returns all permits. The exchange that does it is counted, too.
pub(super) async fn leave(client: Client, mut report: Report) -> Report {
    if timeout(SHUTDOWN_WITHIN, client.shutdown()).await.is_err() {
        tracing::warn!(within = ?SHUTDOWN_WITHIN, "the allocator did not take back this node's permits");
    }
    let stats = client.stats();
    (report.tally.exchanges, report.tally.failed_exchanges) = (stats.exchanges, stats.failed_exchanges);
    report
}

/// Writes one line to stdout. If stdout has no reader any more, the thread that listens to stdin is about to end this
/// process.
fn say(news: &News) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(&to_line(news)).and_then(|()| stdout.flush());
}

fn say_progress(tally: Tally) {
    say(&News::Progress(tally));
}

/// A timer that does not try to catch up after a pause.
fn ticks(every: Duration) -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
