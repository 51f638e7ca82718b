//! `lessor demo node`: a node in its own process, until it is told to stop. It waits for no other process. Without an
//! allocator it makes no call; without a vendor its calls are lost.

use super::{NodeArgs, page};
use crate::demo::contract::schedule::Schedule;
use crate::demo::contract::{MESSAGES, REST};
use crate::demo::line::Tally;
use crate::demo::node::caller::Caller;
use crate::demo::node::{PROGRESS_EVERY, leave, metrics};
use crate::demo::print;
use crate::failure::Failure;
use crate::runtime;
use crate::stop::Stop;
use lessor::{Client, ExchangeError, Tls, Token};
use lessor_protocol::Clock;
use reqwest::Url;
use serde_json::{Value, json};
use std::time::Duration;

/// Interval at which the log reports its totals.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Runs until SIGTERM or SIGINT, returns all permits, and prints the totals. It uses one thread, as the smallest of
/// services would.
pub(super) fn run(args: &NodeArgs) -> Result<(), Failure> {
    let (number, nodes) = (usize::from(args.number), usize::from(args.of));
    if number > nodes {
        return Err(Failure::Input(format!("--number {number} is more than --of {nodes}")));
    }
    let vendor = vendor(&args.vendor)?;
    let runtime = runtime::on_this_thread()?;
    runtime.block_on(async {
        let mut stop = Stop::install()?;
        let recorded = metrics::recorder()?;
        let client =
            client(&args.allocators, args.tls.tls()?, args.token.token(), &format!("demo-{number}"))?;
        if let Some(listen) = args.listen {
            page::open(listen, recorded, client.clone()).await?;
        }
        let schedule = Schedule::new(number - 1, nodes, args.seed);
        let caller = Caller::new(&client, &vendor, schedule, (number - 1, nodes))?;
        let report = caller.run(Clock::since_boot().now(), stop.asked(), log()).await;
        let report = leave(client, report).await;
        print(format!("{}\n", as_json(&report.tally)))
    })
}

fn client(allocators: &[String], tls: Tls, token: Option<Token>, name: &str) -> Result<Client, Failure> {
    let (first, others) = allocators.split_first().expect("there is a default");
    let builder = others.iter().fold(Client::builder(first), |builder, other| builder.or(other));
    let builder = builder.node(name).tls(tls);
    let builder = match token {
        Some(token) => builder.token(token),
        None => builder,
    };
    builder.build().map_err(|error| {
        let is_input =
            matches!(error, ExchangeError::Address { .. } | ExchangeError::Tls(_) | ExchangeError::Token(_));
        let said = format!("--allocator: {error}");
        if is_input { Failure::Input(said) } else { Failure::Run(said) }
    })
}

/// Checks the address of the vendor, and returns it as the prefix of paths.
fn vendor(url: &str) -> Result<String, Failure> {
    let wrong = |problem: String| Failure::Input(format!("--vendor is {url:?}: {problem}"));
    let parsed = Url::parse(url).map_err(|error| wrong(error.to_string()))?;
    if parsed.scheme() != "http" || parsed.cannot_be_a_base() || parsed.query().is_some() {
        return Err(wrong("use http://host:port".to_owned()));
    }
    Ok(parsed.as_str().trim_end_matches('/').to_owned())
}

/// Logs some of the totals that it receives.
fn log() -> impl FnMut(Tally) {
    let (every, mut count) = (LOG_EVERY.as_nanos() / PROGRESS_EVERY.as_nanos(), 0);
    move |tally| {
        count += 1;
        if count % every == 0 {
            tracing::info!(did = %as_json(&tally), "calls so far");
        }
    }
}

fn as_json(tally: &Tally) -> Value {
    let of = |limit| {
        let count = tally.count(limit);
        json!({ "admitted": count.admitted, "refused": count.refused })
    };
    json!({
        REST.name: of(0),
        MESSAGES.name: of(1),
        "exchanges": tally.exchanges,
        "unsent": tally.unsent,
        "vendor_refused": tally.vendor_refused,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vendor_is_where_calls_can_go() {
        assert_eq!(vendor("http://vendor:7401/").ok().as_deref(), Some("http://vendor:7401"));
        assert_eq!(vendor("http://vendor/api").ok().as_deref(), Some("http://vendor/api"));
        for wrong in ["vendor:7401", "vendor", "https://vendor", "http://vendor/?a=b", ""] {
            assert!(matches!(vendor(wrong), Err(Failure::Input(_))), "{wrong}");
        }
    }
}
