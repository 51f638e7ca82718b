//! The thread that runs a blocking client's background task, and how other threads wait: each parks until the future it
//! waits for wakes it. It knows nothing of limits.

use crate::transport::ExchangeError;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
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

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
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
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut cx = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                return output;
            }
            thread::park();
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Owned { stop, thread }) = owned else { return };
        // An error means that the thread has ended already.
        let _ = stop.send(());
        // A thread must not join itself.
        if thread.thread().id() != thread::current().id() {
            let _ = thread.join();
        }
    }
}
