//! Certificates that are renewed again and again while calls go on.

use super::desk::{Desk, get, serve};
use lessor_tls::HttpClient;
use scenarios::fleet::eventually;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Renewals, each of which takes effect before the next.
const ROTATIONS: usize = 100;

/// Pause between two calls, and before a new certificate is looked for. Handshakes without any keep a processor busy.
const CALM: Duration = Duration::from_millis(50);

/// Calls until `is_over`, in turn on a connection that is kept and on a new one. Adds the calls to `done`.
async fn calls(client: impl Fn() -> HttpClient, url: String, is_over: Arc<AtomicBool>, done: Arc<AtomicU64>) {
    let kept = client();
    while !is_over.load(Ordering::Relaxed) {
        assert_eq!(get(&kept, &url).await, Ok(200), "a call on an open connection");
        assert_eq!(get(&client(), &url).await, Ok(200), "a call on a new connection");
        done.fetch_add(2, Ordering::Relaxed);
        sleep(CALM).await;
    }
}

#[tokio::test]
async fn no_call_fails_while_a_certificate_is_renewed_a_hundred_times() {
    let desk = Arc::new(Desk::new());
    let allocator = serve(&desk, true);
    let (is_over, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut callers = JoinSet::new();
    for _ in 0..2 {
        let (desk, url) = (desk.clone(), format!("{}/livez", allocator.url));
        callers.spawn(calls(move || desk.client(), url, is_over.clone(), done.clone()));
    }
    for rotation in 0..ROTATIONS {
        let renewed = desk.renew();
        sleep(CALM).await;
        eventually("the new certificate is shown", async || {
            (desk.shown_by(&allocator).await == renewed).then_some(())
        })
        .await;
        assert!(callers.try_join_next().is_none(), "a call failed at renewal {rotation}");
    }
    is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = callers.join_next().await {
        ended.expect("no call failed");
    }
    assert!(done.load(Ordering::Relaxed) > ROTATIONS as u64, "fewer calls than renewals");
}
