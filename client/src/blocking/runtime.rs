//! The thread that runs a blocking client's background task, and how other threads wait: each parks until the future it
//! waits for wakes it. It knows nothing of limits.

use crate::transport::ExchangeError;
use lessor_protocol::lock_anyway::LockAnyway;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A thread with a runtime of its own. Dropping it ends both.
#[derive(Debug)]
pub(super) struct Runtime {
    handle: Handle,
    owned: Mutex<Option<Owned>>,
}

#[derive(Debug)]
struct Owned {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

/// Wakes a thread that waits for a future. The token of [`thread::park`] alone would not do: code inside a poll may park
/// and so consume it.
struct Unpark {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Runtime {
    pub(super) fn start() -> Result<Self, ExchangeError> {
        let (send, receive) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let run = move || {
            let built = Builder::new_current_thread().enable_all().build();
            let Ok(runtime) = built.map_err(|error| send.send(Err(error))) else { return };
            // The send fails only if the starting thread has given up: then this thread is told to stop as well.
            let _ = send.send(Ok(runtime.handle().clone()));
            let _ = runtime.block_on(stopped);
            // The thread does not wait for a name lookup that is still running.
            runtime.shutdown_background();
        };
        let no_thread = |error: std::io::Error| ExchangeError::NoThread(error.to_string());
        let thread = thread::Builder::new().name("lessor".to_owned()).spawn(run).map_err(no_thread)?;
        let handle = receive.recv().expect("the thread sends before it ends").map_err(no_thread)?;
        Ok(Runtime { handle, owned: Mutex::new(Some(Owned { stop, thread })) })
    }

    /// Parks the calling thread until `future` is done.
    pub(super) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        // Timers and sockets belong to our own runtime, even if this thread belongs to another one.
        let _entered = self.handle.enter();
        // In another runtime, the budget of the blocked task may be used up and would never be renewed.
        let mut future = pin!(tokio::task::unconstrained(future));
        let unpark = Arc::new(Unpark { thread: thread::current(), is_woken: AtomicBool::new(false) });
        let waker = Waker::from(unpark.clone());
        let mut cx = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                return output;
            }
            while !unpark.is_woken.swap(false, Ordering::AcqRel) {
                thread::park();
            }
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let owned = self.owned.lock_anyway().take();
        let Some(Owned { stop, thread }) = owned else { return };
        // An error means that the thread has ended already.
        let _ = stop.send(());
        // A thread must not join itself.
        if thread.thread().id() != thread::current().id() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::time::Duration;

    /// The bug: a wake-up was the token of the parked thread alone, which a lock or a channel inside a poll consumes.
    #[test]
    fn a_wake_up_during_a_poll_that_parks_is_not_lost() {
        let (send, done) = mpsc::channel();
        thread::spawn(move || {
            let mut polls = 0;
            let output = Runtime::start().expect("there are threads").wait(poll_fn(|cx| {
                polls += 1;
                if polls == 1 {
                    cx.waker().wake_by_ref();
                    thread::park_timeout(Duration::from_millis(1));
                    return Poll::Pending;
                }
                Poll::Ready(polls)
            }));
            send.send(output)
        });
        assert_eq!(done.recv_timeout(Duration::from_secs(10)), Ok(2), "parked for ever");
    }
}
