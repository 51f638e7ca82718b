//! Names, descriptions and histogram buckets of the client's metrics. `docs/metrics.md` has the same list, and a test
//! compares it with what a client shows.

use metrics::{describe_counter, describe_gauge, describe_histogram};

pub(super) const ADMITTED: &str = "lessor_client_admitted_permits_total";
pub(super) const REFUSED: &str = "lessor_client_refused_permits_total";
pub(super) const SHADOW: &str = "lessor_client_shadow_refused_permits_total";
pub(super) const PASSED: &str = "lessor_client_fallback_passed_permits_total";
pub(super) const FALLBACK: &str = "lessor_client_fallback";
pub(super) const VENDOR_REFUSED: &str = "lessor_client_vendor_refused_total";
pub(super) const AVAILABLE: &str = "lessor_client_available_permits";
pub(super) const WAITING: &str = "lessor_client_waiting_permits";
pub(super) const LEASE_AGE: &str = "lessor_client_lease_age_seconds";
pub(super) const WAIT_SECONDS: &str = "lessor_client_wait_seconds";
pub(super) const CHECK_SECONDS: &str = "lessor_client_check_seconds";
pub(super) const EXCHANGES: &str = "lessor_client_exchanges_total";
pub(super) const EXCHANGE_SECONDS: &str = "lessor_client_exchange_seconds";
pub(crate) const MOVES: &str = "lessor_client_moves_total";

/// From a call that meets no other thread to a call whose processor was taken away.
const CHECK_BUCKETS: [f64; 14] =
    [1e-8, 2e-8, 5e-8, 1e-7, 2e-7, 5e-7, 1e-6, 2e-6, 5e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1];

/// From a round trip to a wait that hardly any caller accepts.
const WAIT_BUCKETS: [f64; 14] =
    [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];

/// From a loopback to the default timeout of an exchange.
const EXCHANGE_BUCKETS: [f64; 12] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];

/// The histograms of this client with their buckets, for an exporter. An exporter that knows no buckets may show
/// quantiles instead, which cannot be added up over processes.
pub const HISTOGRAMS: &[(&str, &[f64])] =
    &[(CHECK_SECONDS, &CHECK_BUCKETS), (WAIT_SECONDS, &WAIT_BUCKETS), (EXCHANGE_SECONDS, &EXCHANGE_BUCKETS)];

/// Registers a description of each metric.
pub(super) fn describe() {
    describe_counter!(ADMITTED, "Permits that calls got");
    describe_counter!(REFUSED, "Permits of refused calls, by reason");
    describe_counter!(SHADOW, "Permits let pass in shadow mode that would have been refused");
    describe_counter!(PASSED, "Permits let pass in fallback, if it is safe_share or open");
    describe_gauge!(FALLBACK, "1 while the limit is in this fallback in this process");
    describe_counter!(
        VENDOR_REFUSED,
        "Vendor refusals handed to Limit::observe: 429, or 503 with Retry-After"
    );
    describe_gauge!(AVAILABLE, "Permits that can be spent without asking the allocator");
    describe_gauge!(WAITING, "Permits that waiting callers want");
    describe_gauge!(LEASE_AGE, "Time since the ask of the oldest live lease was sent; 0 without one");
    describe_histogram!(WAIT_SECONDS, "Time that callers stood in line, by outcome: admitted, refused, left");
    describe_histogram!(
        CHECK_SECONDS,
        "Duration of sampled calls of try_acquire, by outcome: admitted, refused"
    );
    describe_counter!(EXCHANGES, "Exchanges with an allocator, by result: ok, failed");
    describe_histogram!(EXCHANGE_SECONDS, "Time until an exchange was answered");
    describe_counter!(MOVES, "Moves of this process to another allocator");
}
