//! The thread that a blocking client's background task runs on, and how others wait: each parks its own thread until what
//! it waits for wakes it. It knows nothing of limits.

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
            // The send fails only if the thread that started this one has given up: then this one is told to stop as well.
            let _ = send.send(Ok(runtime.handle().clone()));
            let _ = runtime.block_on(stopped);
            // A name that is still being looked up delays no thread.
            runtime.shutdown_background();
        };
        let no_thread = |error: std::io::Error| ExchangeError::NoThread(error.to_string());
        let thread = thread::Builder::new().name("lessor".to_owned()).spawn(run).map_err(no_thread)?;
        let handle = receive.recv().expect("it sends before it ends").map_err(no_thread)?;
        Ok(Runtime { handle, owned: Mutex::new(Some(Owned { stop, thread })) })
    }

    /// Parks this thread until `future` is done.
    pub(super) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        // Timers and sockets are those of our own thread, also where this one belongs to another runtime.
        let _entered = self.handle.enter();
        // There the budget of the task that this blocks may be used up, and would not come back.
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
        // An error means that it has ended already.
        let _ = stop.send(());
        // A thread does not wait for itself.
        if thread.thread().id() != thread::current().id() {
            let _ = thread.join();
        }
    }
}
