//! Tests that measure how much of a limit is used. A small limit is used less if reports come late, and on a busy
//! machine all of them do. So `tests/run` runs these tests after all other real ones, and time in which their threads
//! wait for a core is taken off.

use super::family::what_is_below_is_charged_above_too;
use super::kinds::{flows_and_intervals_hold_through_two, no_more_are_in_flight_than_may_be};
use super::stopped::{
    one_that_is_stopped_strands_nothing, one_that_stops_beside_a_slow_store_strands_nothing,
};
use super::{Store, the_newest_configuration_holds_for_all};
use scenarios::core_waits::CoreWaits;
use scenarios::servers::Server;
use std::time::Duration;

/// How long the threads of a test wait for a core: those of its nodes, two allocators, and their store.
pub(super) struct Stalls<'a> {
    server: &'a Server,
    waits: CoreWaits,
}

impl Stalls<'_> {
    /// Returns the permits that must have been used of `a_second` a second within `span`, which has ended: `percent` of
    /// what there is in the time without waits. Two allocators work side by side, each for half of the permits, so each
    /// is held up by half of all waits.
    pub(super) fn least_used(&self, percent: u64, a_second: u64, span: Duration) -> u64 {
        let waited = self.waits.until_now(&self.server.processes()) / 2;
        let goes_on = u64::try_from(span.saturating_sub(waited).as_millis()).expect("a short time");
        println!("within {span:?} each allocator waited {waited:?} for a core");
        a_second * goes_on * percent / 100 / 1_000
    }
}

impl Store {
    /// Begins to count how long a test of this store waits for a core.
    pub(super) fn stalls(&self) -> Stalls<'_> {
        Stalls { server: &self.server, waits: CoreWaits::begin(&self.server.processes()) }
    }
}

on_stores! {
    each: one_that_is_stopped_strands_nothing, one_that_stops_beside_a_slow_store_strands_nothing;
    redis: flows_and_intervals_hold_through_two, the_newest_configuration_holds_for_all;
    postgres: no_more_are_in_flight_than_may_be;
    etcd: flows_and_intervals_hold_through_two, what_is_below_is_charged_above_too;
}
