//! How the server is run: the peers that are let in, and where decisions are written. Set once, before the first peer.

use super::Shared;
use crate::access::Access;
use crate::audit::Audit;
use crate::config::Exposure;
use crate::descriptors::FewDescriptors;
use crate::http::Bodies;
use crate::memory::ShortMemory;
use crate::open_secrets::OpenSecrets;
use lessor_ledger::rejection::quoted;
use lessor_protocol::Moment;
use lessor_protocol::lock_anyway::LockAnyway;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

/// How long an unusable answer of an upstream is a warning. An upstream that lends nothing is asked at least this often
/// while nodes want permits.
const UNFIT_FOR: Duration = Duration::from_secs(60);

/// Shortest time between two lines of the log about unusable answers of one upstream. Its limits may fail for reasons of
/// their own, by turns.
const UNFIT_TOLD_EVERY: Duration = Duration::from_secs(10);

/// Problems of the machine and of upstreams, as found at the last look.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// Files of secrets that every user can read.
    pub(crate) open_secrets: OpenSecrets,
    pub(crate) short_memory: ShortMemory,
    pub(crate) few_descriptors: FewDescriptors,
    pub(crate) unfit: UnfitAnswers,
}

/// Most limits whose unusable answers are told at a time. An upstream whose rights have changed refuses all of them.
const UNFIT_MAX: usize = 10;

/// The last unusable answer of each upstream for each limit.
#[derive(Debug, Default)]
pub(crate) struct UnfitAnswers(Mutex<BTreeMap<(String, String), UnfitAnswer>>);

/// When an unusable answer came, and what was wrong; and the same of the last one that was logged.
#[derive(Debug)]
struct UnfitAnswer {
    last: (Moment, String),
    logged: (Moment, String),
}

impl UnfitAnswers {
    /// Records an answer of `upstream` for `limit` that came at `now`. Returns whether to log it: another detail was
    /// logged last, or the same one long ago. Of many limits some are recorded.
    pub(crate) fn note(&self, upstream: &str, limit: &str, now: Moment, detail: &str) -> bool {
        let mut answers = self.0.lock_anyway();
        answers.retain(|_, answer| now.since(answer.last.0) < UNFIT_FOR);
        let name = (upstream.to_owned(), limit.to_owned());
        if answers.len() >= UNFIT_MAX && !answers.contains_key(&name) {
            return false;
        }
        let is_news = answers.get(&name).is_none_or(|UnfitAnswer { logged: (at, logged), .. }| {
            let quiet = if logged == detail { UNFIT_FOR } else { UNFIT_TOLD_EVERY };
            now.since(*at) >= quiet
        });
        let last = (now, detail.to_owned());
        match answers.get_mut(&name) {
            Some(answer) if !is_news => answer.last = last,
            _ => _ = answers.insert(name, UnfitAnswer { logged: last.clone(), last }),
        }
        is_news
    }

    /// Returns a warning about each limit whose last unusable answer is recent.
    pub(crate) fn warnings(&self, now: Moment) -> Vec<String> {
        let last = self.0.lock_anyway();
        let recent = last.iter().filter(|(_, answer)| now.since(answer.last.0) < UNFIT_FOR);
        let warning = |(upstream, limit): &(String, String), detail: &str| {
            format!("{upstream} does not lend {}: {detail}", quoted(limit))
        };
        recent.map(|(name, answer)| warning(name, &answer.last.1)).collect()
    }
}

impl Shared {
    /// Addresses that let in any peer of another machine.
    pub(crate) fn exposures(&self) -> &[Exposure] {
        self.exposures.get().map_or(&[], Vec::as_slice)
    }

    /// Identities and their rights; `None` if no identity is required, or the rights were not read yet.
    pub(crate) fn access(&self) -> Option<&Access> {
        self.access.get()
    }

    /// Sets the identities and their rights.
    pub(crate) fn set_access(&self, access: Access) {
        // A server serves once.
        let _ = self.access.set(access);
    }

    /// The audit log.
    pub(crate) fn audit(&self) -> &Audit {
        &self.audit
    }

    /// The bodies of requests that are being read.
    pub(crate) fn bodies(&self) -> &Bodies {
        &self.bodies
    }

    /// The bodies that are being read of peers that have not proven an identity.
    pub(crate) fn bodies_of_strangers(&self) -> &Bodies {
        &self.bodies_of_strangers
    }

    /// Problems of the machine and of upstreams.
    pub(crate) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Sets the exposed addresses.
    pub(crate) fn set_exposures(&self, exposures: Vec<Exposure>) {
        // A server serves once.
        let _ = self.exposures.set(exposures);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    /// The bug: a line with each exchange, for as long as an upstream lent nothing.
    #[test]
    fn an_upstream_that_lends_nothing_is_logged_once_a_minute() {
        let unfit = UnfitAnswers::default();
        let at = |tenths: u64| Moment::from_nanos((1_000 + tenths) * 100_000_000);
        let lines = |tenths: Range<u64>, detail: fn(u64) -> &'static str| {
            tenths.filter(|tenth| unfit.note("http://a", "x", at(*tenth), detail(*tenth))).count()
        };
        assert_eq!(lines(0..600, |_| "no such limit"), 1);
        assert_eq!(lines(600..601, |_| "no such limit"), 1, "a minute later");
        let by_turns = |tenth| if tenth % 2 == 0 { "no such limit" } else { "a flow" };
        assert!((5..=6).contains(&lines(700..1_300, by_turns)), "each ten seconds");
        assert_eq!(unfit.warnings(at(1_300)).len(), 1);
        // The bug: of two limits one was told of, and neither was named.
        assert!(unfit.note("http://a", "y", at(1_300), "a flow"));
        assert!(unfit.warnings(at(1_300))[1].starts_with("http://a does not lend \"y\": a flow"));
        let named =
            (0..100).filter(|n| unfit.note("http://a", &n.to_string(), at(1_300), "no right")).count();
        assert_eq!(named, UNFIT_MAX - 2);
        assert!(unfit.warnings(at(1_900)).is_empty());
    }
}
