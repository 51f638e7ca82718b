//! A node that obeys a test line by line, for tests with real processes: `spender URL LIMIT NAME`.
//!
//! `spend N`, `acquire N PATIENCE_MS`, `enter N TAKES_MS PATIENCE_MS` and `run MILLIS` answer with the instants of the
//! admissions, in nanoseconds of the machine's clock. `rush MILLIS GAP_US` calls from a thread of its own. It answers
//! `in a rush` after the first admission, and later with one instant for each millisecond in which some calls were
//! admitted. `leave` ends the calls that were entered.
//! `available` answers with a number. `quit` gives all permits back and ends the process.

use lessor::{Builder, Client, Limit, Tls};
use lessor_protocol::CLOCK;
use std::future::poll_fn;
use std::io::BufRead;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::watch;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut args = std::env::args().skip(1);
    let mut next = || args.next().expect("usage: spender URL LIMIT NAME");
    let (url, limit, name) = (next(), next(), next());
    let client =
        by_certificate(Client::builder(&url)).node(&name).connect().await.expect("the allocator answers");
    let limit = client.limit(&limit);
    println!("connected");
    let mut orders = orders();
    let mut entered = watch::Sender::new(());
    while let Some(order) = orders.recv().await {
        let words: Vec<&str> = order.split_whitespace().collect();
        let number = |i: usize| words[i].parse::<u64>().expect("a number");
        match words[0] {
            "spend" => say(&(0..number(1)).filter_map(|_| spend(&limit)).collect::<Vec<_>>()),
            "acquire" => say(&acquire(&limit, number(1), Duration::from_millis(number(2))).await),
            "enter" => {
                let (takes, patience) = (Duration::from_millis(number(2)), Duration::from_millis(number(3)));
                say(&enter(&limit, number(1), takes, patience, &entered).await);
            }
            "leave" => {
                let calls = std::mem::take(&mut entered);
                calls.send_replace(());
                calls.closed().await;
                say(&[]);
            }
            "run" => say(&run(&limit, Duration::from_millis(number(1))).await),
            "rush" => {
                let (limit, span) = (limit.clone(), Duration::from_millis(number(1)));
                let gap = Duration::from_micros(number(2));
                limit.acquire(1).await.expect("the allocator lends");
                println!("in a rush");
                say(&tokio::task::spawn_blocking(move || rush(&limit, span, gap)).await.expect("no panic"));
            }
            "available" => println!("{}", limit.available()),
            "quit" => break,
            other => panic!("what is {other:?}?"),
        }
    }
    client.shutdown().await;
}

/// Adds the certificates that the environment names, if any.
fn by_certificate(builder: Builder) -> Builder {
    let file = |name| std::env::var_os(name);
    match (file("LESSOR_CA"), file("LESSOR_CERT"), file("LESSOR_KEY")) {
        (Some(ca), Some(certificate), Some(key)) => {
            builder.tls(Tls::new().ca(ca).certificate(certificate, key))
        }
        _ => builder,
    }
}

/// Returns the lines of stdin. A separate thread reads them, so leases are refilled while no line comes.
fn orders() -> tokio::sync::mpsc::Receiver<String> {
    let (send, orders) = tokio::sync::mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if send.blocking_send(line).is_err() {
                break;
            }
        }
    });
    orders
}

/// Tries one call and returns the instant just after its admission, which is never earlier than the admission.
fn spend(limit: &Limit) -> Option<u64> {
    limit.try_acquire(1).ok().map(|()| CLOCK.now().as_nanos())
}

async fn acquire(limit: &Limit, calls: u64, patience: Duration) -> Vec<u64> {
    let mut admitted = vec![];
    for _ in 0..calls {
        if limit.acquire_within(1, patience).await.is_ok() {
            admitted.push(CLOCK.now().as_nanos());
        }
    }
    admitted
}

/// Enters calls that go on while further orders are obeyed. Each ends after `takes` or when `entered` says so. Returns
/// the instants just before their admissions.
async fn enter(
    limit: &Limit,
    calls: u64,
    takes: Duration,
    patience: Duration,
    entered: &watch::Sender<()>,
) -> Vec<u64> {
    let mut admitted = vec![];
    for _ in 0..calls {
        let mut call = pin!(limit.enter_within(1, patience));
        let (asked, outcome) = poll_fn(|context| {
            let now = CLOCK.now();
            call.as_mut().poll(context).map(|outcome| (now, outcome))
        })
        .await;
        if let Ok(guard) = outcome {
            admitted.push(asked.as_nanos());
            let mut left = entered.subscribe();
            tokio::spawn(async move {
                // The call ends in either case: told to leave, or its time over.
                let _ = tokio::time::timeout(takes, left.changed()).await;
                drop(guard);
            });
        }
    }
    admitted
}

async fn run(limit: &Limit, span: Duration) -> Vec<u64> {
    let mut admitted = vec![];
    let mut tick = tokio::time::interval(Duration::from_millis(1));
    let end = CLOCK.now() + span;
    while CLOCK.now() < end {
        tick.tick().await;
        admitted.extend(spend(limit));
    }
    admitted
}

/// Calls without pause or with `gap` in between, and returns the instants just before admissions: a thread that is
/// stopped after its call was decided must not count as late.
fn rush(limit: &Limit, span: Duration, gap: Duration) -> Vec<u64> {
    const MILLI: u64 = 1_000_000;
    let mut admitted: Vec<u64> = vec![];
    let begin = CLOCK.now();
    loop {
        let before = CLOCK.now();
        if before.since(begin) >= span {
            return admitted;
        }
        let is_noted = admitted.last().is_some_and(|last| last / MILLI == before.as_nanos() / MILLI);
        if limit.try_acquire(1).is_ok() && !is_noted {
            admitted.push(before.as_nanos());
        }
        if !gap.is_zero() {
            std::thread::park_timeout(gap);
        }
    }
}

fn say(admitted: &[u64]) {
    println!("{}", admitted.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
}
