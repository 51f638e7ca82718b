//! A middleware for `reqwest-middleware`: each outgoing request takes permits of its limits, waits for them or is
//! refused, and the vendor's answer is reported to the fleet.
//!
//! Permits stay reserved until the request goes out, and are spent only then. So while one limit keeps a request
//! waiting, its permits of other limits do not age. Where a limit caps calls in flight, the permits are in use until
//! the answer has been read.

mod held;
#[cfg(test)]
mod tests;

use crate::all::all;
use crate::guard::Guard;
use crate::limit::Limit;
use crate::local_pool::CLOCK;
use crate::refusal::Refusal;
use crate::reservation::Reservation;
use http::Extensions;
use lessor_protocol::lock_anyway::LockAnyway;
use reqwest::{Request, Response, Url};
use reqwest_middleware::{Error, Middleware, Next};
use std::collections::BTreeSet;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Takes permits of one or several limits for each request, all of them or none, and observes each answer.
///
/// ```no_run
/// # fn example(lessor: lessor::Client) -> Result<(), reqwest::Error> {
/// use lessor::outgoing::Outgoing;
///
/// let messages = lessor.limit("vendor/messages");
/// let outgoing = Outgoing::waiting(lessor.limit("vendor/rest")).and_by(move |request| {
///     if request.url().path().ends_with("/messages") { vec![(messages.clone(), 20)] } else { vec![] }
/// });
/// let inner = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
/// let http = reqwest_middleware::ClientBuilder::new(inner).with(outgoing).build();
/// # Ok(())
/// # }
/// ```
///
/// # Order
/// Add it last, behind every middleware that waits or resends a request: `.with(retry).with(outgoing)`. Then each
/// attempt takes its own permits, right before it is sent. A middleware behind it resends a request without a permit,
/// and so does the inner client by a policy of its own, `reqwest::ClientBuilder::retry`. Without such a policy, it resends
/// only what the vendor has not begun to process.
///
/// Two `Outgoing` in one client take the permits of both at once, in the place of the last one. So a retry between the
/// two costs permits of both for each attempt. Add the two side by side: if a middleware between them waits, the permits
/// of the first are spent in vain and taken again. If the first limit has a steady flow, give both limits to one
/// `Outgoing`: a turn in the flow that is given back is lost.
///
/// # Redirects
/// Build the inner client with `.redirect(Policy::none())`, as above. Otherwise it follows up to ten redirects behind the
/// middleware, and each of these requests reaches the vendor without a permit. An answer that comes from another URL
/// than its request is logged once for each limit. A middleware before `Outgoing` may follow redirects itself: each
/// request then takes its own permits.
///
/// # Calls in flight
/// Where a limit caps calls in flight, the permits of a request are in use until the body of its answer was read or
/// dropped. An answer that is kept unread keeps its permits. A request that times out, fails or is dropped before its
/// answer counts for as long as a call may take, because the vendor may still be working on it. A request that found no
/// connection does not count.
#[derive(Clone)]
pub struct Outgoing {
    costs: Vec<Cost>,
    patience: Option<Duration>,
    /// Limits of which a redirected request was logged.
    redirected: Arc<Mutex<BTreeSet<Arc<str>>>>,
}

/// Chooses the limits of a request, and its cost on each.
type Choice = dyn Fn(&Request) -> Vec<(Limit, u64)> + Send + Sync;

#[derive(Clone)]
enum Cost {
    /// The same cost for each request.
    Each(Limit, u64),
    By(Arc<Choice>),
}

/// What one request takes and has taken, for another `Outgoing` that is nearer to the vendor.
#[derive(Clone)]
struct Taken {
    parts: Vec<(Limit, u64)>,
    /// Reserved permits; empty once the request goes out.
    reserved: Arc<Mutex<Vec<Reservation>>>,
}

impl Outgoing {
    /// Takes one permit of `limit` for each request, and waits for it without a time limit.
    pub fn waiting(limit: Limit) -> Self {
        Outgoing { costs: vec![Cost::Each(limit, 1)], patience: None, redirected: Arc::default() }
    }

    /// Takes one permit of `limit` for each request, and waits for at most `patience`; zero refuses at once. The error
    /// holds the [`Refusal`].
    pub fn refusing(limit: Limit, patience: Duration) -> Self {
        Outgoing::waiting(limit).within(patience)
    }

    /// Takes the permits that `choose` returns for each request, and waits for them without a time limit. A request
    /// that costs nothing passes.
    pub fn by(choose: impl Fn(&Request) -> Vec<(Limit, u64)> + Send + Sync + 'static) -> Self {
        Outgoing { costs: vec![], patience: None, redirected: Arc::default() }.and_by(choose)
    }

    /// Takes `permits` of another limit too. A limit that is named twice costs the sum.
    #[must_use]
    pub fn and(mut self, limit: Limit, permits: u64) -> Self {
        self.costs.push(Cost::Each(limit, permits));
        self
    }

    /// Takes the permits that `choose` returns for each request too.
    #[must_use]
    pub fn and_by(mut self, choose: impl Fn(&Request) -> Vec<(Limit, u64)> + Send + Sync + 'static) -> Self {
        self.costs.push(Cost::By(Arc::new(choose)));
        self
    }

    /// Waits for at most `patience`; zero refuses at once.
    #[must_use]
    pub fn within(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    fn parts(&self, request: &Request) -> Vec<(Limit, u64)> {
        let parts = self.costs.iter().map(|cost| match cost {
            Cost::Each(limit, permits) => vec![(limit.clone(), *permits)],
            Cost::By(choose) => choose(request),
        });
        parts.flatten().collect()
    }

    /// Whether no redirected request of `limit` was logged yet; it counts as logged then.
    fn is_news(&self, limit: &Limit) -> bool {
        self.redirected.lock_anyway().insert(limit.pool().name().limit.clone())
    }

    /// Reserves what `parts` cost, and returns reservations that are good now.
    async fn reserve(&self, parts: &[(Limit, u64)]) -> Result<Vec<Reservation>, Refusal> {
        let (call, began) = (all(parts), CLOCK.now());
        loop {
            let reserved = match self.patience {
                None => call.reserve().await?,
                Some(Duration::ZERO) => call.try_reserve()?,
                Some(patience) => {
                    call.reserve_within(patience.saturating_sub(CLOCK.now().since(began))).await?
                }
            };
            // One lease may have ended just when another was taken from.
            if let Some(good) = all_good(reserved) {
                return Ok(good);
            }
        }
    }
}

/// Whether an answer from the URL `answered` belongs to another request than the one to `sent`. No fragment is ever sent.
fn comes_from_elsewhere(sent: &Url, answered: &Url) -> bool {
    let shown = |url: &Url| {
        let mut url = url.clone();
        url.set_fragment(None);
        url
    };
    sent != answered && shown(sent) != shown(answered)
}

/// Returns `reserved` if all of it is good now. Otherwise gives back the part that is.
fn all_good(reserved: Vec<Reservation>) -> Option<Vec<Reservation>> {
    if reserved.iter().all(Reservation::is_good) {
        return Some(reserved);
    }
    give_back(reserved);
    None
}

/// Gives back permits that are reserved and not spent, before they are taken again.
fn give_back(reserved: impl IntoIterator<Item = Reservation>) {
    for mut reservation in reserved {
        reservation.refund(reservation.permits());
    }
}

impl Taken {
    /// Begins the call, at the cost that is reserved.
    fn begin(&self) -> Vec<Guard> {
        self.reserved.lock_anyway().drain(..).map(Reservation::begin).collect()
    }
}

/// One attempt to send a request. When it ends, refused and dropped attempts included, the extensions are as they were
/// before, so that another attempt takes the same permits.
struct Attempt<'a> {
    extensions: &'a mut Extensions,
    /// Taken by the `Outgoing` that is farther from the vendor.
    farther: Option<Taken>,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.extensions.remove::<Taken>();
        if let Some(farther) = self.farther.take() {
            self.extensions.insert(farther);
        }
    }
}

/// Prints no key.
impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = self.costs.iter().map(|cost| match cost {
            Cost::Each(limit, permits) => format!("{permits} of {}", limit.name()),
            Cost::By(_) => "by request".to_owned(),
        });
        write!(f, "Outgoing({}, patience {:?})", limits.collect::<Vec<_>>().join(", "), self.patience)
    }
}

#[async_trait::async_trait]
impl Middleware for Outgoing {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let own = self.parts(&request);
        let sent = request.url().clone();
        // Taken by an `Outgoing` that is farther from the vendor: its permits would age while this one waits.
        let farther = extensions.remove::<Taken>();
        let attempt = Attempt { extensions, farther };
        let mut parts = own.clone();
        if let Some(farther) = &attempt.farther {
            give_back(farther.reserved.lock_anyway().drain(..));
            parts.extend_from_slice(&farther.parts);
        }
        let reserved = self.reserve(&parts).await.map_err(Error::middleware)?;
        let taken = Taken { parts, reserved: Arc::new(Mutex::new(reserved)) };
        attempt.extensions.insert(taken.clone());
        let mut unanswered = held::Unanswered::default();
        let answer = {
            let mut sending = pin!(next.run(request, attempt.extensions));
            poll_fn(|cx| {
                let polled = sending.as_mut().poll(cx);
                // An `Outgoing` nearer to the vendor has taken the permits over by now; otherwise the request is on its
                // way.
                unanswered.add(taken.begin());
                polled
            })
            .await
        };
        let (response, guards) = unanswered.end(answer)?;
        let is_redirected = comes_from_elsewhere(&sent, response.url());
        for (limit, _) in &own {
            limit.observe(response.status(), response.headers());
            if is_redirected && self.is_news(limit) {
                tracing::warn!(
                    limit = limit.name(),
                    "an answer comes from another URL than its request: redirects that are followed behind `Outgoing` take \
                     no permits; build the inner client with `.redirect(Policy::none())`"
                );
            }
        }
        Ok(held::until_read(response, guards))
    }
}
