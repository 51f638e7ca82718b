//! The client for code without async: the same calls, which wait by parking their thread. It owns a thread for its
//! background task and needs no runtime; called from inside one it blocks that thread, and never panics.

mod limit;
mod runtime;

pub use limit::Limit;

use crate::client::{Builder, Stats};
use crate::transport::ExchangeError;
use runtime::Runtime;
use std::fmt;
use std::sync::Arc;

/// A client for code without async.
///
/// ```no_run
/// use std::time::Duration;
///
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let lessor = lessor::blocking::Client::connect("http://127.0.0.1:7400")?;
/// let rest = lessor.limit("vendor/rest");
/// rest.acquire_within(1, Duration::from_secs(2))?; // parks this thread until it is its turn
/// lessor.shutdown();
/// # Ok(())
/// # }
/// ```
///
/// Its leases are refilled by a thread of its own, so it works in any thread, also in one that runs async code, which it
/// blocks like any other blocking call does. Clones are handles to the same client; the thread ends with the last handle
/// to the client or one of its limits.
///
/// A process must not fork with it, unless the child starts another program at once. The thread is not there in a child: calls that
/// wait there never end, nor does dropping the client. What is leased is there twice: a call that does not wait is admitted in both.
/// A process that forks workers connects in each of them.
#[derive(Clone)]
pub struct Client {
    client: crate::Client,
    runtime: Arc<Runtime>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.fmt(f)
    }
}

impl Client {
    /// A client of the allocator at `url` (`http://host:port`) that has answered once. For several of them, and other options,
    /// see [`crate::Client::builder`] and [`Builder::connect_blocking`].
    ///
    /// # Errors
    /// If the address is no good, no allocator answers there, or no thread can be started.
    pub fn connect(url: &str) -> Result<Client, ExchangeError> {
        crate::Client::builder(url).connect_blocking()
    }

    /// A handle to a limit, as [`crate::Client::limit`].
    pub fn limit(&self, name: &str) -> Limit {
        Limit::new(self.client.limit(name), self.runtime.clone())
    }

    /// Waits for anything that this library waits for, such as a call on several limits.
    ///
    /// ```no_run
    /// # fn example(lessor: lessor::blocking::Client) -> Result<(), lessor::Refusal> {
    /// let (rest, messages) = (lessor.limit("vendor/rest"), lessor.limit("vendor/messages"));
    /// lessor.wait(lessor::all([(rest.as_async(), 1), (messages.as_async(), 20)]).acquire())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.wait(future)
    }

    /// What it has done so far.
    pub fn stats(&self) -> Stats {
        self.client.stats()
    }

    /// Refuses every call from now on, reports what was spent and gives back the rest. Waits for the allocator to hear of
    /// it for up to a second.
    pub fn shutdown(&self) {
        self.runtime.wait(self.client.shutdown());
    }

    /// The same client for code that is async. It ends with this one's thread.
    pub fn as_async(&self) -> &crate::Client {
        &self.client
    }
}

impl Builder {
    /// Starts a client for code without async once an allocator has answered.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_blocking(self) -> Result<Client, ExchangeError> {
        let runtime = Arc::new(Runtime::start()?);
        let client = runtime.wait(self.connect())?;
        Ok(Client { client, runtime })
    }

    /// Starts a client for code without async, without waiting for an answer.
    ///
    /// # Errors
    /// If the address or the node's name is no good, or no thread can be started.
    pub fn build_blocking(self) -> Result<Client, ExchangeError> {
        let runtime = Arc::new(Runtime::start()?);
        let client = runtime.wait(async { self.build() })?;
        Ok(Client { client, runtime })
    }
}
