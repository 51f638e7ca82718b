//! How long a client lives, and what its callers are told when it ends. Mostly no allocator answers.

use super::*;
use crate::by_hand::{Caller, NOWHERE, Panics};
use crate::events::Event;
use crate::refusal::Refusal;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use lessor_protocol::wire::{LEASES_PATH, LeasesRequest};
use std::future::ready;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::task::{Context, Poll, Waker};
use tokio::net::TcpListener;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

fn client(runtime: &tokio::runtime::Runtime) -> Client {
    runtime.block_on(async { Client::builder(NOWHERE).build().expect("a good address") })
}

/// The bug: the pools of a client whose runtime was gone were never closed, and waiting callers were never woken.
#[test]
fn a_client_whose_runtime_is_gone_is_closed() {
    let runtime = runtime();
    let client = client(&runtime);
    let limit = client.limit("a");
    let mut events = client.events();
    let mut waits = Caller::new(limit.acquire(1));
    assert_eq!(waits.run(), None, "no permit is free");
    drop(runtime);
    assert_eq!(limit.try_acquire(1), Err(Refusal::Closed));
    assert_eq!(waits.run(), Some(Err(Refusal::Closed)), "the waiting caller is told");
    assert_eq!(Caller::new(client.limit("b").acquire(1)).run(), Some(Err(Refusal::Closed)));
    assert_eq!(Caller::new(client.shutdown()).run(), Some(()));
    assert!(std::iter::from_fn(|| events.try_next()).any(|event| event == Event::Closed));
}

/// The bug: a client closed only when its task ended by itself. Here the waker of a caller makes the task panic.
#[test]
fn a_client_whose_task_panicked_is_closed() {
    // One thread: the task runs only within `block_on`.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let client = client(&runtime);
    let limit = client.limit("a");
    let mut events = client.events();
    let panics = Arc::new(Panics::default());
    let waker = Waker::from(panics.clone());
    let mut context = Context::from_waker(&waker);
    let mut first = pin!(limit.acquire(1));
    assert_eq!(first.as_mut().poll(&mut context), Poll::Pending, "no permit is free");
    let mut waits = Caller::new(limit.acquire(1));
    assert_eq!(waits.run(), None, "the second caller is behind the first");
    runtime.block_on(async {
        // The task wakes the first in line after no allocator has answered.
        while !panics.has_panicked() {
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(limit.try_acquire(1), Err(Refusal::Closed));
    assert_eq!(waits.run(), Some(Err(Refusal::Closed)), "the waiting caller is told");
    assert_eq!(first.as_mut().poll(&mut context), Poll::Ready(Err(Refusal::Closed)));
    assert_eq!(Caller::new(client.limit("b").acquire(1)).run(), Some(Err(Refusal::Closed)));
    assert_eq!(Caller::new(client.shutdown()).run(), Some(()));
    assert!(std::iter::from_fn(|| events.try_next()).any(|event| event == Event::Closed));
}

/// The bug: a listener waited for ever while a handle to a limit was left.
#[test]
fn nothing_follows_the_event_that_says_that_the_client_is_closed() {
    let runtime = runtime();
    let client = client(&runtime);
    let _limit = client.limit("a");
    let mut events = client.events();
    runtime.block_on(async {
        client.shutdown().await;
        let mut last = None;
        while let Some(event) = tokio::time::timeout(Duration::from_secs(10), events.next())
            .await
            .expect("the client ends in time")
        {
            last = Some(event);
        }
        assert_eq!(last, Some(Event::Closed));
        assert_eq!(client.events().next().await, None, "no event follows");
    });
}

/// The bug: only the first call waited. A later one returned at once, and the process could end before the goodbye was
/// said.
#[tokio::test]
async fn each_call_of_shutdown_waits_until_the_goodbye_was_said() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("the listener is bound"));
    let heard = Arc::new(AtomicBool::new(false));
    let hears = heard.clone();
    let leave = async move || hears.store(true, Ordering::SeqCst);
    let router = Router::new().route("/v1/nodes/{node}/leave", post(leave));
    tokio::spawn(axum::serve(listener, router).into_future());
    let client = Client::builder(&url).build().expect("a good address");
    let limit = client.limit("a");
    assert_eq!(Caller::new(client.shutdown()).run(), None, "the first shutdown is dropped");
    client.clone().shutdown().await;
    assert!(heard.load(Ordering::SeqCst), "the second shutdown waits for the goodbye");
    assert_eq!(limit.try_acquire(1), Err(Refusal::Closed));
    client.shutdown().await;
}

/// The bug: one attempt could take all the time of a goodbye, and a busy allocator was asked only once.
#[tokio::test]
async fn a_goodbye_that_was_not_taken_in_is_said_again() {
    for first in [None, Some(StatusCode::TOO_MANY_REQUESTS), Some(StatusCode::SERVICE_UNAVAILABLE)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("the listener is bound"));
        let said = Arc::new(AtomicU64::new(0));
        let hears = said.clone();
        let leave = async move || match (hears.fetch_add(1, Ordering::SeqCst), first) {
            (0, None) => std::future::pending().await,
            (0, Some(status)) => status,
            _ => StatusCode::OK,
        };
        let router = Router::new().route("/v1/nodes/{node}/leave", post(leave));
        tokio::spawn(axum::serve(listener, router).into_future());
        let client = Client::builder(&url).build().expect("a good address");
        let _limit = client.limit("a");
        client.shutdown().await;
        assert_eq!(said.load(Ordering::SeqCst), 2, "the first answer is {first:?}");
    }
}

/// The bug: `Client::builder(url).build()?.limit("a")` was closed at once.
#[test]
fn a_limit_keeps_its_client_alive_until_it_is_gone() {
    let runtime = runtime();
    let client = client(&runtime);
    let mut events = client.events();
    let limit = client.limit("a");
    let key = limit.key("k").with_priority(crate::Priority::High);
    drop((client, limit));
    runtime.block_on(async {
        let unreachable = tokio::time::timeout(Duration::from_secs(10), async {
            while events.next().await != Some(Event::Unreachable) {}
        });
        unreachable.await.expect("the background task goes on asking");
        assert!(matches!(key.try_acquire(1), Err(refusal) if refusal != Refusal::Closed));
        drop(key);
        let closed =
            tokio::time::timeout(Duration::from_secs(10), async { while events.next().await.is_some() {} });
        closed.await.expect("the client ends with its last handle");
    });
}

/// The bug: a client ended with its last handle while a call was in flight. Nothing reported the end of the call, or gave
/// back what was reserved.
#[tokio::test]
async fn a_call_in_flight_and_a_reservation_keep_their_client_alive_and_then_it_says_goodbye() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("the listener is bound"));
    let (sender, mut said) = tokio::sync::mpsc::unbounded_channel();
    let leave = async move || sender.send(()).expect("the test listens");
    let router = Router::new().route("/v1/nodes/{node}/leave", post(leave));
    tokio::spawn(axum::serve(listener, router).into_future());
    let client = Client::builder(&url).build().expect("a good address");
    let limit = client.limit("a");
    let (guard, reservation) = (limit.guard(1, true), limit.reservation(Some(0), 1));
    let uncounted = (limit.guard(1, false), limit.reservation(None, 1));
    let task = Arc::downgrade(&client.task);
    drop((client, limit));
    assert_eq!(task.strong_count(), 2);
    drop(reservation);
    assert_eq!(task.strong_count(), 1);
    drop(guard);
    assert_eq!(task.strong_count(), 0, "a call that is not counted has nothing to report");
    tokio::time::timeout(Duration::from_secs(10), said.recv()).await.expect("a goodbye");
    drop(uncounted);
}

#[test]
fn what_is_shown_of_a_client_and_its_limits_is_short_and_names_no_key() {
    let runtime = runtime();
    let client = client(&runtime);
    let limit = client.limit("vendor/rest").key("secret-user");
    let shown = [format!("{client:?}"), format!("{limit:?}"), format!("{:?}", crate::all([(&limit, 1)]))];
    println!("{shown:#?}");
    for shown in shown {
        assert!(shown.len() <= 120 && !shown.contains("secret-user") && !shown.contains('\n'), "{shown}");
    }
    assert!(format!("{limit:?}").contains("vendor/rest"));
}

/// Returns the session that a client with these options names in its first exchange. The random numbers of this thread
/// are reset before.
async fn session(options: impl FnOnce(Builder) -> Builder) -> u64 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("the listener is bound"));
    let (sender, mut sessions) = tokio::sync::mpsc::unbounded_channel();
    let hears = move |Json(request): Json<LeasesRequest>| {
        sender.send(request.session).expect("the test listens");
        ready(StatusCode::INTERNAL_SERVER_ERROR)
    };
    tokio::spawn(axum::serve(listener, Router::new().route(LEASES_PATH, post(hears))).into_future());
    fastrand::seed(1);
    options(Client::builder(&url)).connect().await.expect_err("each exchange fails");
    sessions.recv().await.expect("the request was sent")
}

/// The bug: the default was `node-` and the process id, which is 1 in each container. So a block of one node stopped all
/// of them.
#[tokio::test]
async fn a_client_without_a_name_is_named_after_its_host() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("the listener is bound"));
    let (sender, mut nodes) = tokio::sync::mpsc::unbounded_channel();
    let hears = move |Json(request): Json<LeasesRequest>| {
        sender.send(request.node.to_string()).expect("the test listens");
        ready(StatusCode::INTERNAL_SERVER_ERROR)
    };
    tokio::spawn(axum::serve(listener, Router::new().route(LEASES_PATH, post(hears))).into_future());
    Client::connect(&url).await.expect_err("each exchange fails");
    let node = nodes.recv().await.expect("the request was sent");
    assert_eq!(node, default_name());
    assert_ne!(node, format!("node-{}", std::process::id()));
}

/// The bug: the number came from the generator of jitter. A process that knows its seed can predict the session.
#[tokio::test]
async fn the_session_of_a_client_without_a_seed_comes_from_no_seed() {
    let by_seed = |builder: Builder| builder.seed(7);
    assert_eq!(session(by_seed).await, session(by_seed).await, "the same seed, the same session");
    assert_ne!(session(|builder| builder).await, session(|builder| builder).await);
}
