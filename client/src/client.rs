//! The client: it makes handles to limits and owns the background task.

use crate::events::Events;
use crate::limit::Limit;
use crate::listener::Listener;
use crate::node_name::default_name;
use crate::refiller::Refiller;
use crate::session_numbers::SessionNumbers;
use crate::shared::Shared;
use crate::ticks::{HotClock, Ticks};
use crate::transport::{Credentials, ExchangeError, Transport, shown};
use lessor_holder::timing::EXCHANGE_TIMEOUT;
use lessor_protocol::lock_anyway::LockAnyway;
use lessor_protocol::{ClockBounds, NodeName};
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// Leases quota from an allocator and spends it locally.
///
/// Make one client per process and keep it: all limits of the process share its exchanges. Clones are handles to the
/// same client. Each clone, each handle to one of its limits, and each call in flight and reservation keeps the client
/// alive. [`Client::shutdown`] gives everything back, and waits until the allocator has heard of it. When the last handle
/// is just dropped, the client gives everything back in the background. What the allocator does not hear of ends with
/// its leases, within two seconds.
///
/// The client lives on the runtime on which it was built. When that runtime is gone, the client is closed as by
/// [`Client::shutdown`], and what it held ends with its leases.
///
/// A process with a client must not fork, unless the child starts another program at once. The child lacks the threads
/// of the runtime, so calls that wait there never end. Both processes hold the same lease, so calls that do not wait
/// are admitted in both. A process that forks workers connects in each worker.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    task: Arc<Task>,
}

/// Prints one line, and never a key.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({:?})", self.shared)
    }
}

/// Ends the background task when it is dropped with the last handle.
#[derive(Debug)]
pub(crate) struct Task {
    stop: Mutex<Option<oneshot::Sender<()>>>,
    /// Closed once the task is over; nothing is sent on it.
    over: watch::Receiver<()>,
}

/// Options of a [`Client`], from [`Client::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    urls: Vec<String>,
    node: Option<String>,
    clocks: ClockBounds,
    timeout: Duration,
    seed: Option<u64>,
    clock: HotClock,
    credentials: Credentials,
}

/// Counts of what a client has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Exchanges with the allocator that the client has tried.
    pub exchanges: u64,
    /// Exchanges that failed, a part of `exchanges`.
    pub failed_exchanges: u64,
    /// How often the client began to listen to an allocator's stream of events.
    pub listening: u64,
    /// How often the client moved to another allocator, see [`Builder::or`].
    pub moves: u64,
}

impl Client {
    /// Connects to the allocator at `url` and waits for its first answer. The address is `http://host:port`,
    /// `https://host:port`, or `unix:` and the path of a socket.
    ///
    /// # Errors
    /// If the address is invalid, no allocator answers there, or no tokio runtime is running. Use [`Builder::build`] to
    /// start without an allocator: calls are refused until one answers.
    ///
    /// # Panics
    /// As [`Builder::connect`].
    pub async fn connect(url: &str) -> Result<Client, ExchangeError> {
        Client::builder(url).connect().await
    }

    /// Returns the options of a client of the allocator at `url`.
    pub fn builder(url: &str) -> Builder {
        Builder {
            urls: vec![url.to_owned()],
            node: None,
            clocks: ClockBounds::default(),
            timeout: EXCHANGE_TIMEOUT,
            seed: None,
            clock: HotClock::default(),
            credentials: Credentials::default(),
        }
    }

    /// Returns a handle to a limit. The first lease is asked for at once.
    ///
    /// A name that no limit can have gives a handle that refuses everything with [`crate::Refusal::UnknownLimit`]. So
    /// does a limit that the allocator does not know.
    ///
    /// Limits are never forgotten. A limit from which the allocator lends nothing is asked for every five seconds for as
    /// long as it is called. So names are for what operators configure; for values that users choose, take a
    /// [`Limit::key`]. Beyond 65,536 names, a handle refuses everything with [`crate::Refusal::Full`].
    pub fn limit(&self, name: &str) -> Limit {
        Limit::new(self.shared.pool(name, None), self.shared.clone()).of(Some(self.task.clone()))
    }

    /// Subscribes to what happens to this client from now on: allocators become unreachable and reachable, limits enter
    /// and leave fallback, are paused and change. A slow listener misses the oldest events; nothing waits for it.
    ///
    /// ```no_run
    /// # async fn example(lessor: lessor::Client) {
    /// let mut events = lessor.events();
    /// while let Some(event) = events.next().await {
    ///     if let lessor::Event::FallbackEntered { limit, fallback } = event {
    ///         eprintln!("{limit} is {fallback} until the allocator answers again");
    ///     }
    /// }
    /// # }
    /// ```
    pub fn events(&self) -> Events {
        self.shared.listen()
    }

    /// Returns what this client has done so far.
    pub fn stats(&self) -> Stats {
        Stats {
            exchanges: self.shared.exchanges.load(Ordering::Relaxed),
            failed_exchanges: self.shared.failed_exchanges.load(Ordering::Relaxed),
            listening: self.shared.listening.load(Ordering::Relaxed),
            moves: self.shared.moves.load(Ordering::Relaxed),
        }
    }

    /// Refuses every call from now on, reports what was spent and gives back the rest.
    ///
    /// Waits up to a second for the allocator to hear of it. A second call, by any handle, waits for the same shutdown.
    /// The shutdown runs on the client's runtime: it does not end while that runtime is stalled and not dropped.
    ///
    /// # Cancel safety
    /// Dropping the future does not undo the shutdown: the client says goodbye in the background. Another call waits
    /// for it.
    pub async fn shutdown(&self) {
        let stop = self.task.stop.lock_anyway().take();
        if let Some(stop) = stop {
            // An error means that the runtime is gone, and the task with it.
            let _ = stop.send(());
        }
        let mut over = self.task.over.clone();
        while over.changed().await.is_ok() {}
        self.shared.close();
    }
}

impl Builder {
    /// Adds another allocator that may be asked, at `url`. It leases the same limits from the same upstream, or lends
    /// from a quota of its own, such as its half of the contract. There may be many.
    ///
    /// The client begins with one of them by chance and stays with it while it answers well. When an exchange fails, or
    /// the allocator says that it is stopping, the client asks the next one at once. Once all have failed in a row, it
    /// pauses after each failure. It does not go back by itself.
    ///
    /// After a move the client spends what the previous allocator lent until that lease ends. Those permits count as
    /// spent at the previous allocator, and no allocator extends them.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let lessor = lessor::Client::builder("http://10.0.0.1:7400").or("http://10.0.0.2:7400").connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn or(mut self, url: &str) -> Self {
        self.urls.push(url.to_owned());
        self
    }

    /// Sets the name of this process: the allocator shows it, and blocks, weights, priorities and the right `as` go by
    /// it. Default: the name of the host and the process id, such as `web-3-4711`. A container's host is itself.
    #[must_use]
    pub fn node(mut self, name: &str) -> Self {
        self.node = Some(name.to_owned());
        self
    }

    /// Sets the bounds on clock drift. They must be the same as the allocator's.
    #[must_use]
    pub fn clocks(mut self, clocks: ClockBounds) -> Self {
        self.clocks = clocks;
        self
    }

    /// Sets how long one exchange may take. Default: one second. While there is another allocator to ask, an exchange
    /// has a quarter of it, or four round trips.
    #[must_use]
    pub fn exchange_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Seeds the random numbers of this client: its session number and its jitter. For tests that must repeat: two
    /// clients with the same seed and node name are one session to the allocator. Without a seed, the session number
    /// comes from the operating system, and no other process can predict it.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Chooses the clock that tells callers that time has passed. Default: [`HotClock::Coarse`].
    #[must_use]
    pub fn clock(mut self, clock: HotClock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the token that identifies this client to allocators. When it is refused, the client reads it again and
    /// retries if it has changed, or if it was just read from a file.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let token = lessor::Token::file("/run/secrets/lessor");
    /// let lessor = lessor::Client::builder("http://127.0.0.1:7400").token(token).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn token(mut self, token: lessor_files::Token) -> Self {
        self.credentials.token = Some(token);
        self
    }

    /// Sets how the client speaks to `https://` addresses. Default: it trusts the authorities that this machine trusts,
    /// and shows no certificate. Addresses with `http://` stay unencrypted.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let tls = lessor::Tls::new().ca("ca.crt").certificate("client.crt", "client.key");
    /// let lessor = lessor::Client::builder("https://10.0.0.1:7400").tls(tls).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: lessor_tls::Tls) -> Self {
        self.credentials.tls = tls;
        self
    }

    /// Starts the client without waiting for an answer.
    ///
    /// # Errors
    /// If a certificate file, a token, an address or the node's name is invalid, or no tokio runtime is running.
    ///
    /// # Panics
    /// The client's task panics, and closes the client, if the runtime has no timers or no network:
    /// `enable_all` of tokio's builder enables both.
    pub fn build(self) -> Result<Client, ExchangeError> {
        let (refiller, listener, shared) = self.prepare()?;
        Ok(start(refiller, listener, shared))
    }

    /// Starts the client once an allocator has answered.
    ///
    /// # Errors
    /// As [`Builder::build`], and if no allocator gives a good answer. With several allocators, the error is that of
    /// the last one.
    ///
    /// # Panics
    /// If the runtime has no timers or no network: `enable_all` of tokio's builder enables both.
    pub async fn connect(self) -> Result<Client, ExchangeError> {
        let (mut refiller, listener, shared) = self.prepare()?;
        refiller.greet().await?;
        Ok(start(refiller, listener, shared))
    }

    fn prepare(self) -> Result<(Refiller, Listener, Arc<Shared>), ExchangeError> {
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(ExchangeError::NoRuntime);
        }
        let node = self.node.unwrap_or_else(default_name);
        if let Err(error) = NodeName::try_new(&node) {
            let reason = format!("the node's name {error}");
            return Err(ExchangeError::Address { url: shown(&self.urls[0]), reason });
        }
        let transport = |url: &String| Transport::try_new(url, self.timeout, &self.credentials);
        let transports: Vec<Transport> = self.urls.iter().map(transport).collect::<Result<_, _>>()?;
        let ticks = Ticks::try_new(self.clock).map_err(|error| ExchangeError::NoThread(error.to_string()))?;
        let (mut rng, numbers) = match self.seed {
            Some(seed) => {
                let mut rng = fastrand::Rng::with_seed(seed);
                let numbers = SessionNumbers::Seeded(rng.fork());
                (rng, numbers)
            }
            None => (unseeded(), SessionNumbers::System),
        };
        let shared = Arc::new(Shared::new(ticks));
        let listener_rng = rng.fork();
        let refiller = Refiller::new(
            shared.clone(),
            transports.clone(),
            self.timeout,
            node.clone(),
            self.clocks,
            (rng, numbers),
        );
        let listener =
            Listener::new(shared.clone(), transports, refiller.current_allocator(), node, listener_rng);
        Ok((refiller, listener, shared))
    }
}

fn start(refiller: Refiller, listener: Listener, shared: Arc<Shared>) -> Client {
    let (stop, stopped) = oneshot::channel();
    // An error means that it is set already.
    let _ = shared.wake_list.runtime.set(tokio::runtime::Handle::current());
    let closes = Closes(shared.clone());
    let (runs, over) = watch::channel(());
    tokio::spawn(async move {
        // Dropped after the client is closed.
        let _runs = runs;
        let _closes = closes;
        // The refiller decides when the task is over; the listener runs no longer.
        tokio::select! {
            () = refiller.run(stopped) => {}
            () = listener.run() => {}
        }
    });
    Client { shared, task: Arc::new(Task { stop: Mutex::new(Some(stop)), over }) }
}

/// Closes the client when the background task is over: stopped, panicked, or dropped with its runtime.
struct Closes(Arc<Shared>);

impl Drop for Closes {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where a client's random numbers come from")]
fn unseeded() -> fastrand::Rng {
    fastrand::Rng::new()
}

#[cfg(test)]
mod tests;
