//! A client that is shut down gives back what it holds. In a long window those permits would otherwise count as spent
//! until the window ends.

use lessor::Client;
use lessor_allocator::cells::private::HeldPort;
use scenarios::fleet::{Fleet, eventually};
use scenarios::wire::Wire;
use std::time::Duration;
use tokio::time::sleep;

const YEARLY: &str = "[[limit]]\nname = \"yearly\"\nease_off = false\n\
    rules = [{ kind = \"fixed_window\", limit = 60, per = \"366d\" }]\n";

/// A client that is shut down repeats its goodbye for a while if the allocator cannot be reached: the allocator may be
/// restarting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_said_until_it_is_heard() {
    let fleet = Fleet::start(YEARLY).await;
    let allocator = fleet.url.trim_start_matches("http://").parse().expect("an address");
    let wire = Wire::to(allocator).await;
    let first = Client::builder(&format!("http://{}", wire.address())).node("first");
    let first = first.connect().await.expect("the allocator answers");
    let yearly = first.limit("yearly");
    yearly.acquire(1).await.expect("there are 60");
    eventually("permits that the first client holds", async || (yearly.available() > 0).then_some(())).await;
    let nowhere = HeldPort::any().expect("a free port");
    wire.lead_to(nowhere.address());
    let is_back = async {
        sleep(Duration::from_millis(300)).await;
        wire.lead_to(allocator);
    };
    tokio::join!(first.shutdown(), is_back);
    let second = fleet.client("second").await;
    let yearly = second.limit("yearly");
    for taken in 1..60 {
        let permit = yearly.acquire_within(1, Duration::from_secs(5)).await;
        assert!(permit.is_ok(), "{taken} of 60 are taken: {permit:?}");
    }
    second.shutdown().await;
    fleet.stop().await;
}
