//! The client for code without async: the same calls, which wait by parking their thread. The client owns a thread for
//! its background task and needs no runtime. Inside a runtime it blocks the calling thread, and never panics.

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
/// A thread of its own refills its leases, so the client works in any thread. In a thread that runs async code, it
/// blocks like any other blocking call. Clones are handles to the same client. The thread ends with the last handle to
/// the client or to one of its limits. A [`Guard`](crate::Guard) and a [`Reservation`](crate::Reservation) are no such
/// handles: keep one until the call is over. Otherwise nothing reports the end of the call, and its permits count as in
/// flight for as long as a call may take. [`Client::shutdown`] gives everything back; a client that is just dropped
/// does not.
///
/// A process with a client must not fork, unless the child starts another program at once. The child lacks the
/// background thread: calls that wait there never end, nor does dropping the client. Both processes hold the same
/// lease, so calls that do not wait are admitted in both. A process that forks workers connects in each worker.
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
    /// Connects to the allocator at `url` (`http://host:port`) and waits for its first answer. For several allocators,
    /// and other options, see [`crate::Client::builder`] and [`Builder::connect_blocking`].
    ///
    /// # Errors
    /// If the address is invalid, no allocator answers there, or no thread can be started.
    pub fn connect(url: &str) -> Result<Client, ExchangeError> {
        crate::Client::builder(url).connect_blocking()
    }

    /// Returns a handle to a limit, as [`crate::Client::limit`].
    pub fn limit(&self, name: &str) -> Limit {
        Limit::new(self.client.limit(name), self.runtime.clone())
    }

    /// Waits for a future of this crate, such as a call on several limits.
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

    /// Returns what this client has done so far.
    pub fn stats(&self) -> Stats {
        self.client.stats()
    }

    /// Refuses every call from now on, reports what was spent and gives back the rest. Waits up to a second for the
    /// allocator to hear of it.
    pub fn shutdown(&self) {
        self.runtime.wait(self.client.shutdown());
    }

    /// Returns the same client for async code. It ends with the thread of this one.
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
    /// As [`Builder::build`], or if no thread can be started.
    pub fn build_blocking(self) -> Result<Client, ExchangeError> {
        let runtime = Arc::new(Runtime::start()?);
        let client = runtime.wait(async { self.build() })?;
        Ok(Client { client, runtime })
    }
}
