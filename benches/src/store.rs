//! The cost of writing down what a hot limit lends: how often the store is written, and how long that takes. More is
//! wanted of the limit than it has, with the shipped client and server. One server keeps its books in memory or in the
//! embedded store, or three share a Redis, a PostgreSQL or an etcd of one member.

use crate::allocator::STORES;
use lessor::Client;
use lessor_allocator::cells::private::PrivateServer;
use lessor_allocator::cells::{Cells, CellsConfig, StoreKind};
use lessor_allocator::{Config, Server};
use lessor_protocol::{CLOCK, Moment};
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// Permits a second of the limit.
const RATES: [u64; 3] = [100, 10_000, 1_000_000];

/// Nodes that share the limit, and calls a second of each node.
const NODES: u64 = 8;
const CALLS: u64 = 50;

/// Demand, in percent of the supply.
const WANTED: u64 = 150;

/// Servers that share a store, where it can be shared.
const SHARING: usize = 3;

/// Time until the bucket, which is full at first, is empty and leases match the demand.
const WARM_UP: Duration = Duration::from_secs(3);

/// One row of the table.
struct Row {
    store: &'static str,
    rate: u64,
    permits: u64,
    seconds: f64,
    cost: Cost,
}

/// Totals of the work done.
#[derive(Clone, Copy, Default)]
struct Cost {
    /// Batches that became durable or, in a shared store, roots that were swapped.
    commits: f64,
    /// Waits for the store: their number, and their time in all.
    waits: f64,
    wait_seconds: f64,
    exchanges: f64,
    /// Bytes that this process wrote to its disk.
    bytes: f64,
}

/// Measures each rate for `seconds`, and prints a row as soon as it is known.
pub(crate) fn print(seconds: u64) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    println!(
        "| store | permits/s | taken/s | exchanges/s | commits/s | commits per 1,000 permits | ms per wait | kB/s |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|");
    for rate in RATES {
        for store in STORES {
            let folder = tempfile::tempdir()?;
            println!(
                "{}",
                runtime.block_on(measure(store, rate, Duration::from_secs(seconds), folder.path()))?
            );
        }
    }
    Ok(())
}

async fn measure(
    store: &'static str,
    rate: u64,
    lasts: Duration,
    folder: &Path,
) -> Result<Row, Box<dyn Error>> {
    let (place, server) = place(store, folder).await?;
    let config = format!(
        "[store]\nkind = \"{store}\"\n{place}\n[[limit]]\nname = \"hot\"\n\
         rules = [{{ kind = \"token_bucket\", capacity = {rate}, refill = {rate}, per = \"1s\" }}]\n"
    );
    let (mut addresses, mut servers) = (vec![], vec![]);
    for _ in 0..if server.is_some() { SHARING } else { 1 } {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        addresses.push(listener.local_addr()?);
        let (stop, stopped) = oneshot::channel::<()>();
        let server = Server::open(Config::parse(&config)?, true)?.run(listener, async {
            // The server stops when the sender signals or is dropped.
            let _ = stopped.await;
        });
        servers.push((stop, tokio::spawn(server)));
    }
    let begin = CLOCK.now() + WARM_UP;
    let of = |node: u64| addresses[usize::try_from(node).expect("a few") % addresses.len()];
    let nodes = (0..NODES).map(|node| tokio::spawn(call(of(node), node, rate, (begin, begin + lasts))));
    let nodes: Vec<_> = nodes.collect();
    tokio::time::sleep(begin.since(CLOCK.now())).await;
    let before = all_costs(&addresses).await?;
    tokio::time::sleep((begin + lasts).since(CLOCK.now())).await;
    let cost = all_costs(&addresses).await?.since(before);
    let mut permits = 0;
    for node in nodes {
        permits += node.await??;
    }
    for (stop, server) in servers {
        // An error means that the server has ended by itself, which the next line reports.
        let _ = stop.send(());
        server.await??;
    }
    Ok(Row { store, rate, permits, seconds: lasts.as_secs_f64(), cost })
}

/// Returns the place of `store` for a configuration, and the server that runs there, if it needs one.
pub(crate) async fn place(
    store: &str,
    folder: &Path,
) -> Result<(String, Option<PrivateServer>), Box<dyn Error>> {
    let kind = match store {
        "memory" => return Ok((String::new(), None)),
        "embedded" => return Ok((format!("path = {:?}", folder.join("hot.redb")), None)),
        "redis" => StoreKind::Redis,
        "etcd" => StoreKind::Etcd,
        _ => StoreKind::Postgres,
    };
    let server = PrivateServer::start(kind, folder, &[])?;
    Cells::new(&CellsConfig::new(server.url().parse()?))?.migrate().await?;
    Ok((format!("url = {:?}", server.url()), Some(server)))
}

/// Takes its part of the demand, call by call, and returns how much it got between the two moments.
async fn call(
    allocator: SocketAddr,
    node: u64,
    rate: u64,
    (from, until): (Moment, Moment),
) -> Result<u64, lessor::ExchangeError> {
    let client =
        Client::builder(&format!("http://{allocator}")).node(&format!("node-{node}")).connect().await?;
    let hot = client.limit("hot");
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / u32::try_from(CALLS).expect("a few"));
    let (mut calls, mut wanted, mut taken) = (0, 0, 0);
    loop {
        ticks.tick().await;
        let now = CLOCK.now();
        if now >= until {
            break;
        }
        calls += 1;
        // The permits due by now, so that a small rate is not rounded to zero.
        let due = calls * rate * WANTED / 100 / NODES / CALLS;
        let got = hot.try_acquire_up_to(due - wanted).unwrap_or(0);
        wanted = due;
        taken += if now >= from { got } else { 0 };
    }
    client.shutdown().await;
    Ok(taken)
}

/// Sums the costs of all servers.
async fn all_costs(addresses: &[SocketAddr]) -> Result<Cost, Box<dyn Error>> {
    let mut all = Cost::default();
    for address in addresses {
        let one = cost(*address).await?;
        all = Cost {
            commits: all.commits + one.commits,
            waits: all.waits + one.waits,
            wait_seconds: all.wait_seconds + one.wait_seconds,
            exchanges: all.exchanges + one.exchanges,
            bytes: one.bytes,
        };
    }
    Ok(all)
}

/// Reads the costs from the server's metrics, and the bytes from the kernel.
async fn cost(allocator: SocketAddr) -> Result<Cost, Box<dyn Error>> {
    let mut stream = TcpStream::connect(allocator).await?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let sum = |name: &str| -> f64 {
        let samples = text.lines().filter(|line| line.starts_with(name));
        samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let bytes = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok());
    Ok(Cost {
        commits: sum("lessor_store_commits_total") + sum("lessor_store_swaps_total{result=\"done\"}"),
        waits: sum("lessor_store_commit_seconds_count") + sum("lessor_store_swap_seconds_count"),
        wait_seconds: sum("lessor_store_commit_seconds_sum") + sum("lessor_store_swap_seconds_sum"),
        exchanges: sum("lessor_exchange_seconds_count"),
        bytes: bytes.unwrap_or(0.0),
    })
}

impl Cost {
    fn since(self, before: Cost) -> Cost {
        Cost {
            commits: self.commits - before.commits,
            waits: self.waits - before.waits,
            wait_seconds: self.wait_seconds - before.wait_seconds,
            exchanges: self.exchanges - before.exchanges,
            bytes: self.bytes - before.bytes,
        }
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Row { store, rate, permits, seconds, cost } = self;
        let a_second = |count: f64| count / seconds;
        let each = if cost.waits > 0.0 {
            format!("{:.2}", cost.wait_seconds / cost.waits * 1_000.0)
        } else {
            "-".to_owned()
        };
        write!(
            f,
            "| {store} | {rate} | {:.0} | {:.0} | {:.1} | {:.3} | {each} | {:.0} |",
            a_second(*permits as f64),
            a_second(cost.exchanges),
            a_second(cost.commits),
            cost.commits / (*permits as f64 / 1_000.0).max(f64::MIN_POSITIVE),
            a_second(cost.bytes) / 1_000.0,
        )
    }
}
