//! The cost of encryption to an exchange. One server is unencrypted, one has a certificate, and one also requires
//! certificates of its peers. Each is measured with kept connections and with a new one for each exchange. Callers and
//! servers share one process.

use crate::sample::median;
use lessor_allocator::{Config, Server};
use lessor_protocol::CLOCK;
use lessor_protocol::wire::{AskBody, LeasesRequest, LeasesResponse};
use lessor_tls::dev_ca::{DevCa, Purpose, VALID};
use lessor_tls::{HttpClient, Tls};
use std::error::Error;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// Callers, each with one exchange at a time.
const CALLERS: u64 = 16;

/// Measurements of each row, in turn with the others. The median is shown.
const ROUNDS: usize = 3;

/// Timeout of an exchange.
const PATIENCE: Duration = Duration::from_secs(5);

type Broken = Box<dyn Error + Send + Sync>;

/// The encryption of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaks {
    Clear,
    Tls,
    Mutual,
}

const ALL: [(Speaks, &str); 3] =
    [(Speaks::Clear, "in clear"), (Speaks::Tls, "TLS"), (Speaks::Mutual, "TLS, certificates on both sides")];

/// Measures for `seconds` a round, and prints the table.
pub(crate) fn print(seconds: u64) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(measure(Duration::from_secs(seconds))).map_err(|error| error.to_string().into())
}

async fn measure(lasts: Duration) -> Result<(), Broken> {
    let folder = tempfile::tempdir()?;
    let ca = DevCa::open(folder.path())?;
    ca.sign(Purpose::Server, VALID)?.write(folder.path(), "server")?;
    ca.sign(Purpose::Client, VALID)?.write(folder.path(), "client")?;
    let mut servers = vec![];
    for (speaks, name) in ALL {
        servers.push((name, Host::start(speaks, folder.path()).await?));
    }
    println!("| connections | exchange | exchanges/s | ratio to clear text |");
    println!("|---|---|---:|---:|");
    for (kept, connections) in [(true, "kept"), (false, "a new one for each exchange")] {
        let mut taken = vec![vec![]; servers.len()];
        for _round in 0..ROUNDS {
            for (at, (_, server)) in servers.iter_mut().enumerate() {
                taken[at].push(server.exchanges_a_second(kept, lasts).await?);
            }
        }
        let taken: Vec<f64> = taken.into_iter().map(median).collect();
        for ((name, _), exchanges) in servers.iter().zip(&taken) {
            println!("| {connections} | {name} | {exchanges:.0} | {:.2} |", exchanges / taken[0]);
        }
    }
    for (_, server) in servers {
        server.stop().await?;
    }
    Ok(())
}

/// A server, and the next requests of its callers.
struct Host {
    url: String,
    http: HttpClient,
    callers: Vec<LeasesRequest>,
    stop: oneshot::Sender<()>,
    serving: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Host {
    async fn start(speaks: Speaks, folder: &Path) -> Result<Self, Broken> {
        let file = |name: &str| folder.join(name);
        let (certificate, key, ca) = (file("server.crt"), file("server.key"), file("ca.crt"));
        let client_ca =
            if speaks == Speaks::Mutual { format!(", client_ca = {ca:?}") } else { String::new() };
        let tls = format!("tls = {{ certificate = {certificate:?}, key = {key:?}{client_ca} }}");
        let config = format!(
            "[server]\n{}\n[store]\nkind = \"memory\"\n[[limit]]\nname = \"limit\"\n\
             rules = [{{ kind = \"sliding_window\", limit = 1000000000, per = \"30s\" }}]\n",
            if speaks == Speaks::Clear { "" } else { &tls }
        );
        let server = Server::open(Config::parse(&config)?, true)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(server.run(listener, async move {
            // A dropped sender stops the server too.
            let _ = stopped.await;
        }));
        let (scheme, tls) = match speaks {
            Speaks::Clear => ("http", None),
            Speaks::Tls => ("https", Some(Tls::new().ca(ca))),
            Speaks::Mutual => {
                ("https", Some(Tls::new().ca(ca).certificate(file("client.crt"), file("client.key"))))
            }
        };
        let caller = |number| LeasesRequest {
            node: format!("node-{number}"),
            session: number,
            epoch: 0,
            seq: 0,
            rtt_ms: 1,
            asks: vec![AskBody { limit: "limit".to_owned(), want: 10, demand: 5, ..AskBody::default() }],
        };
        let http = HttpClient::try_new(PATIENCE, tls)?;
        let callers = (1..=CALLERS).map(caller).collect();
        Ok(Host { url: format!("{scheme}://{address}/v1/leases"), http, callers, stop, serving })
    }

    /// Runs all callers, one exchange after the other, while `lasts` runs. Returns the exchanges a second.
    async fn exchanges_a_second(&mut self, kept: bool, lasts: Duration) -> Result<f64, Broken> {
        let (began, mut calls) = (CLOCK.now(), JoinSet::new());
        for caller in self.callers.drain(..) {
            calls.spawn(call(self.http.clone(), self.url.clone(), caller, kept, lasts));
        }
        let mut exchanges = 0;
        while let Some(called) = calls.join_next().await {
            let (caller, count) = called??;
            exchanges += count;
            self.callers.push(caller);
        }
        Ok(exchanges as f64 / CLOCK.now().since(began).as_secs_f64())
    }

    async fn stop(self) -> Result<(), Broken> {
        drop(self.http);
        drop(self.stop);
        Ok(self.serving.await??)
    }
}

/// Makes the exchanges of one caller, and returns their number.
async fn call(
    http: HttpClient,
    url: String,
    mut caller: LeasesRequest,
    kept: bool,
    lasts: Duration,
) -> Result<(LeasesRequest, u64), Broken> {
    let (end, mut count) = (CLOCK.now() + lasts, 0);
    while CLOCK.now() < end {
        caller.seq += 1;
        let mut request = http::Request::post(&url).header("content-type", "application/json");
        if !kept {
            request = request.header("connection", "close");
        }
        let mut response = http.send(request.body(serde_json::to_vec(&caller)?)?, PATIENCE).await?;
        let mut body = vec![];
        while let Some(piece) = response.chunk().await? {
            body.extend_from_slice(&piece);
        }
        let answer: LeasesResponse = serde_json::from_slice(&body)?;
        for (ask, grant) in caller.asks.iter_mut().zip(answer.grants) {
            ask.spent_total += grant.permits;
        }
        count += 1;
    }
    Ok((caller, count))
}
