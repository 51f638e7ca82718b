//! Tests that measure how much of a limit is used. A small limit is used less if reports come late, and on a busy
//! machine all of them do. So `tests/run` runs these tests after all other real ones, and time in which their threads
//! wait for a core is taken off.

use super::family::what_is_below_is_charged_above_too;
use super::kinds::{flows_and_intervals_hold_through_two, no_more_are_in_flight_than_may_be};
use super::stopped::{
    one_that_is_stopped_strands_nothing, one_that_stops_beside_a_slow_store_strands_nothing,
};
use super::trouble::who_is_cut_off_from_the_store_lends_nothing_and_the_other_all;
use super::{LIMIT, PER, Store, USED_PERCENT, first_call, the_newest_configuration_holds_for_all};
use lessor_allocator::cells::StoreKind;
use scenarios::core_waits::CoreWaits;
use scenarios::fleet::eventually;
use std::time::Duration;

/// How long the threads of a test wait for a core: those of its nodes, two allocators, and their store.
pub(super) struct Stalls<'a> {
    store: &'a Store,
    waits: CoreWaits,
}

impl Stalls<'_> {
    /// Returns the permits that must have been used of `a_second` a second within `span`, which has ended: `percent` of
    /// what there is in the time without waits. Two allocators work side by side, each for half of the permits, so each
    /// is held up by half of all waits.
    pub(super) fn least_used(&self, percent: u64, a_second: u64, span: Duration) -> u64 {
        // Threads wait beside each other, so their sum may be more than there is.
        let waited = (self.waits.until_now(&self.store.processes()) / 2).min(span / 2);
        let goes_on = u64::try_from(span.saturating_sub(waited).as_millis()).expect("a short time");
        println!("within {span:?} each allocator waited {waited:?} for a core");
        a_second * goes_on * percent / 100 / 1_000
    }
}

impl Store {
    /// Begins to count how long a test of this store waits for a core.
    pub(super) fn stalls(&self) -> Stalls<'_> {
        Stalls { store: self, waits: CoreWaits::begin(&self.processes()) }
    }

    fn processes(&self) -> Vec<u32> {
        [&self.server].into_iter().chain(&self.others).flat_map(|server| server.processes()).collect()
    }
}

async fn two_use_all_there_is_and_no_more(kind: StoreKind) {
    two_use_all_of(&Store::shared(kind, "two").await, kind.name()).await;
}

pub(super) async fn two_use_all_of(store: &Store, shown: &str) {
    let two = store.two().await;
    first_call(&two.vendor, &two.limits).await;
    let (before, stalls) = (two.vendor.count(), store.stalls());
    two.call_for(6 * PER).await;
    let (used, least) = (two.vendor.count() - before, stalls.least_used(USED_PERCENT, LIMIT, 6 * PER));
    let page = async |url: &str, path: &str| {
        let answer = reqwest::get(format!("{url}{path}")).await.expect("the server answers");
        answer.text().await.expect("a text")
    };
    eventually("the allocators by their names", async || {
        page(&two.west.url, "/v1/status").await.contains(r#""sharing":["east","west"]"#).then_some(())
    })
    .await;
    println!("{shown}: {used} of {} used through two allocators, at least {least} expected", 6 * LIMIT);
    eventually("an allocator knows of the other", async || {
        page(&two.east.url, "/metrics").await.contains("\nlessor_store_allocators 2\n").then_some(())
    })
    .await;
    assert!(used >= least, "{used} of {least}");
    for client in &two.clients {
        client.clone().shutdown().await;
    }
    two.stop().await;
}

on_stores! {
    each: two_use_all_there_is_and_no_more,
        one_that_is_stopped_strands_nothing,
        one_that_stops_beside_a_slow_store_strands_nothing;
    redis: flows_and_intervals_hold_through_two, the_newest_configuration_holds_for_all;
    postgres: no_more_are_in_flight_than_may_be,
        who_is_cut_off_from_the_store_lends_nothing_and_the_other_all;
    etcd: flows_and_intervals_hold_through_two, what_is_below_is_charged_above_too;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_use_all_there_is_of_an_etcd_of_three_members() {
    super::members::two_use_all_there_is_and_no_more().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_use_all_there_is_of_a_cluster() {
    super::cluster::two_use_all_there_is_and_no_more().await;
}
