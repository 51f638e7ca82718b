//! Leases from roots in a shared store: carries the calls of a [`Member`] to the store and back, and reports what it
//! notices to operators. It answers as an upstream allocator would.

use super::contested::Contested;
use super::transport::TransportError;
use crate::cells::{BATCH_MAX, Cells, CellsError, Swap, Swapped, batches};
use crate::config::StoreConfig;
use crate::shared::Shared;
use crate::shared_store_status::Work;
use lessor_ledger::overrides::{LimitOverrides, Suspensions, Version};
use lessor_ledger::registry::DueAbove;
use lessor_ledger::rejection::AskRejection;
use lessor_ledger::roots::{
    Call, HEAD, Host, Member, MemberError, Next, Notice, OVERRIDES, Reply, RootAsk, RootError, Said,
    limit_of, to_pool,
};
use lessor_protocol::clock::wall;
use lessor_protocol::trace::TARGET;
use lessor_protocol::wire::{GrantBody, LeasesRequest, LeasesResponse, SafeShareBody};
use lessor_protocol::{Moment, entropy};
use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;
use tracing::Instrument as _;
use tracing::field::Empty;

/// Failed signatures in a row that are no longer chance: another allocator may be faster, or a call late.
const SILENT_AFTER: u32 = 3;

/// The roots of one store.
pub(super) struct Rooted {
    cells: Cells,
    member: Member,
    contested: Contested,
    /// Whether the log says that the store fails.
    is_announced: bool,
}

/// Outcome of each ask.
type Answers = Vec<Option<Result<Reply, RootError>>>;

impl Rooted {
    pub(super) fn try_new(shared: &Shared, node: &str) -> Result<Self, TransportError> {
        let StoreConfig::Shared(store) = &shared.config().server.store else {
            return Err(TransportError::Unreachable("no shared store is configured".to_owned()));
        };
        let cells = Cells::new(&store.cells).map_err(|error| broken(&error.into()))?;
        let mut member =
            Member::new(node.to_owned(), shared.config().clocks.drift_ppm(), store.time_source());
        if store.cells.url.is_cluster() {
            member = member.on_several_servers();
        }
        Ok(Rooted { cells, member, contested: Contested::default(), is_announced: false })
    }

    /// Does one exchange with the roots that `due` asks. Also returns the part of each grant for each guaranteed group.
    pub(super) async fn leases(
        &mut self,
        shared: &Shared,
        due: &DueAbove,
        request: &LeasesRequest,
    ) -> Result<(LeasesResponse, Vec<Vec<u64>>), TransportError> {
        let mut here = Here { shared, due: Some(due), contested: &mut self.contested };
        let rtt = Duration::from_millis(request.rtt_ms);
        let first = self.member.ask(request.session, request.seq, rtt, shared.now(), &mut here);
        let answers = carry(&mut self.cells, &mut self.member, &mut here, first).await;
        let asked = due.askers.iter().zip(&due.asks);
        let grants = asked.zip(answers.map_err(|error| broken(&error))?);
        let grants = grants.map(|((asker, ask), answer)| {
            let (limit, key) = (ask.limit.as_str(), ask.key.as_deref());
            if let Some(Err(error @ (RootError::Below(_) | RootError::Format | RootError::TooLarge(_)))) =
                &answer
            {
                let version = shared.shared_store_status().overrides().file();
                self.contested.tell_of_unleased(asker.limit(), version, error);
            }
            match to_pool(answer) {
                Ok(Reply { answer, safe, groups }) => {
                    let body = GrantBody::of(limit, key, answer);
                    (GrantBody { safe: safe.map(SafeShareBody::of), ..body }, groups)
                }
                Err(error) => (GrantBody::wrong(limit, key, AskRejection::from(error).body()), vec![]),
            }
        });
        let (grants, groups) = grants.unzip();
        let (session, seq) = (request.session, request.seq);
        Ok((LeasesResponse { epoch: 0, session, seq, grants }, groups))
    }

    /// Signs the head, if it is time to. After repeated failures the allocator is reported as not ready, even if there
    /// is nothing to exchange.
    pub(super) async fn sign(&mut self, shared: &Shared, session: u64) {
        let mut here = Here { shared, due: None, contested: &mut self.contested };
        let Some(first) = self.member.sign(session, shared.now(), &mut here) else { return };
        let signed = carry(&mut self.cells, &mut self.member, &mut here, first).await;
        if let (Some(head), Some(now)) = (self.member.head(), self.member.time(shared.now())) {
            shared.metrics().roots().allocators(shared.shared_store_status().are_here(head.here(now)));
        }
        if let Some(head) = self.member.head() {
            let version = shared.shared_store_status().overrides().file();
            shared.shared_store_status().newest_file_is(head.newest().file);
            self.contested.tell_of_newer(version, head.newest().file);
        }
        match signed {
            Ok(_) => {
                if mem::take(&mut self.is_announced) {
                    tracing::info!("the store answers again");
                }
                shared.shared_store_status().fell_silent(Work::Signing, None);
            }
            Err(error) if self.member.failed() >= SILENT_AFTER => {
                if !mem::replace(&mut self.is_announced, true) {
                    tracing::warn!(%error, "the store fails or does not answer: this allocator is not ready");
                }
                shared.shared_store_status().fell_silent(Work::Signing, Some(broken(&error).to_string()));
            }
            Err(error) => tracing::debug!(%error, "the store's head is not signed"),
        }
    }

    /// Returns when to sign again.
    pub(super) fn signs_next(&self) -> Moment {
        self.member.signs_next()
    }

    /// Takes this allocator's signature off the head, if it is there.
    pub(super) async fn leave(&mut self, shared: &Shared) {
        let mut here = Here { shared, due: None, contested: &mut self.contested };
        let Some(first) = self.member.leave(shared.now(), &mut here) else { return };
        if let Err(error) = carry(&mut self.cells, &mut self.member, &mut here, first).await {
            tracing::debug!(%error, "the store's head still lists this allocator");
        }
    }
}

/// Carries the calls of `member` to the store and back, from `next` on, until its job is done.
///
/// # Cancel safety
/// If the future is dropped, `member` gives the job up once the next one begins.
async fn carry(
    cells: &mut Cells,
    member: &mut Member,
    here: &mut Here<'_>,
    mut next: Next,
) -> Result<Answers, MemberError> {
    loop {
        match next {
            Next::Done(answers) => return answers,
            Next::Call(call) => {
                let said = do_call(cells, call).await;
                next = member.on_answer(said, here.shared.now(), here);
            }
        }
    }
}

/// Does a call, in as many parts as the store needs.
pub(super) async fn do_call(cells: &mut Cells, call: Call) -> Result<Said, CellsError> {
    match call {
        Call::Time => cells.time().await.map(Said::Time),
        Call::Load(names) => {
            let (mut timeline, mut loaded) = (None, vec![]);
            for names in names.chunks(BATCH_MAX) {
                let (on, cells) = cells.load(names).await?;
                timeline = Some(on);
                loaded.extend(cells);
            }
            let timeline = match timeline {
                Some(timeline) => timeline,
                None => cells.timeline().await?,
            };
            Ok(Said::Loaded(timeline, loaded))
        }
        Call::Swap(timeline, swaps) => {
            let mut swapped = vec![];
            for swaps in batches(&swaps) {
                swapped.extend(swap(cells, &timeline, swaps).await?);
            }
            Ok(Said::Swapped(swapped))
        }
    }
}

/// Swaps one batch. Batches of roots are traced as spans.
async fn swap(
    cells: &mut Cells,
    timeline: &lessor_ledger::cells::Timeline,
    swaps: &[Swap],
) -> Result<Vec<Swapped>, CellsError> {
    if swaps.iter().any(|swap| swap.name == HEAD || swap.name == OVERRIDES) {
        return cells.swap(timeline, swaps).await;
    }
    let span = tracing::debug_span!(
        target: TARGET, "swap", otel.kind = "client", otel.status_code = Empty, cells = swaps.len(),
    );
    let done = cells.swap(timeline, swaps).instrument(span.clone()).await;
    if done.is_err() {
        span.record("otel.status_code", "ERROR");
    }
    done
}

/// The allocator, as a member or a publication sees it.
pub(super) struct Here<'a> {
    pub(super) shared: &'a Shared,
    /// The asks of an exchange.
    pub(super) due: Option<&'a DueAbove>,
    pub(super) contested: &'a mut Contested,
}

impl Host for Here<'_> {
    fn draw(&mut self) -> u64 {
        entropy::number()
    }

    fn wall(&self) -> Moment {
        wall()
    }

    fn is_fresh(&self) -> bool {
        self.shared.is_fresh() && !self.shared.shared_store_status().has_lost_member()
    }

    fn asks(&mut self) -> Vec<Option<RootAsk>> {
        let Some(due) = self.due else { return vec![] };
        let overrides = self.shared.shared_store_status().overrides();
        let version = |name: &str, asked: &str| overrides.version_for(name, asked);
        let known = overrides.newest();
        self.shared.beside(|registry, _| registry.root_asks(due, version, known))
    }

    fn suspensions(&self) -> Suspensions {
        self.shared.shared_store_status().suspensions().clone()
    }

    fn configuration(&self) -> (Version, BTreeMap<String, String>) {
        let overrides = self.shared.shared_store_status().overrides();
        (overrides.newest(), self.shared.parents())
    }

    fn overrides(&self) -> LimitOverrides {
        self.shared.shared_store_status().overrides().known().clone()
    }

    fn follow_overrides(&mut self, there: &LimitOverrides) {
        self.shared.follow_overrides(there);
    }

    fn follow_suspensions(&mut self, suspensions: &Suspensions, there: Moment) {
        self.shared.follow_suspensions(suspensions, there);
    }

    fn hold_back(&mut self) {
        self.shared.with(|registry, now| registry.hold_back_store(now));
    }

    fn tell(&mut self, notice: Notice) {
        let roots = self.shared.metrics().roots();
        match notice {
            Notice::Begins(store) => {
                tracing::info!(%store, "the store has no head: its time begins");
            }
            Notice::StoreStepped => {
                tracing::error!("the clock of the store was set: what was lent before counts as lent now");
            }
            Notice::Unwatched => tracing::warn!(
                "no allocator watched the clock of the store: what was lent before counts as lent now"
            ),
            Notice::TimeBegins => tracing::warn!(
                "no allocator knew the time of the store: it goes on by this allocator's clock, and what was lent \
                 before counts as lent now"
            ),
            Notice::KeepsTime => tracing::info!("this allocator keeps the time of the store from now on"),
            Notice::OwnStepped => tracing::error!(
                "the clock of this machine stood still or was slewed: other allocators agree with the store's clock"
            ),
            Notice::Moved(before, now) => {
                tracing::error!(%before, %now, "the store may have lost what was written last: quarantine");
            }
            Notice::OverridesRewritten => {
                tracing::warn!(
                    "the store had lost limits put and removed over the API: they were written again"
                );
            }
            Notice::NoRoom => tracing::error!(
                "the store has lost limits put over the API, and has no room to write them again"
            ),
            Notice::ManyIdle => tracing::warn!(
                "more roots of keys are in use than this allocator remembers: it does not take away the others, which \
                 stay in the store until it asks them again"
            ),
            Notice::Contested(cell) => {
                let version = self.shared.shared_store_status().overrides().file();
                let limit = self.shared.beside(|registry, _| registry.configured_for(limit_of(&cell)?));
                limit.into_iter().for_each(|limit| self.contested.tell(&limit, version));
            }
            Notice::Swapped { done, late, took } => roots.swapped(done, late, took),
            Notice::NotSwapped(swaps) => roots.failed(swaps),
        }
    }
}

fn broken(error: &MemberError) -> TransportError {
    TransportError::Unreachable(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::{Fault, Memory};
    use crate::samples::{LIMIT, STORE, allocator};
    use std::fmt;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::sync::{Arc, Mutex};
    use tokio::time::{sleep, timeout};
    use tracing::field::{Field, Visit};
    use tracing::subscriber::NoSubscriber;
    use tracing::{Dispatch, Event, Metadata, Subscriber, span};

    /// Keeps the lines that are logged.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    impl Visit for Lines {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            if field.name() == "message" {
                self.0.lock().expect("no panic").push(format!("{value:?}"));
            }
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, event: &Event<'_>) {
            event.record(&mut self.clone());
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    /// The bug: the log said that the store fails, and never that it answers again.
    #[tokio::test]
    async fn the_end_of_a_failure_that_was_announced_is_announced() {
        let lines = Lines::default();
        // Beside a second subscriber, `tracing` does not ask a thread of another test whether a line is wanted here.
        let _of_other_threads = Dispatch::new(NoSubscriber::new());
        let _logged = tracing::subscriber::set_default(lines.clone());
        let shared = allocator(&[STORE, LIMIT].concat());
        let mut rooted = Rooted::try_new(&shared, "a").expect("a store");
        let left = Arc::new(AtomicU32::new(0));
        let faults = left.clone();
        rooted.cells = Cells::Memory(Memory::new().failing(move || {
            let failed = faults.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
            failed.map_or(Fault::None, |_| Fault::Lost)
        }));
        let (fails, over) =
            ("the store fails or does not answer: this allocator is not ready", "the store answers again");
        for (failures, told) in [(SILENT_AFTER - 1, 0), (SILENT_AFTER + 1, 1), (0, 1), (SILENT_AFTER, 2)] {
            left.store(failures, SeqCst);
            let signed = rooted.member.signed();
            // Until a later signature than the last one succeeds.
            let signing = async {
                while left.load(SeqCst) > 0 || rooted.member.failed() > 0 || rooted.member.signed() == signed
                {
                    rooted.sign(&shared, 1).await;
                    sleep(Duration::from_millis(1)).await;
                }
            };
            timeout(Duration::from_secs(30), signing).await.expect("a signature succeeds");
            let lines = lines.0.lock().expect("no panic").clone();
            let count = |text: &str| lines.iter().filter(|line| *line == text).count();
            assert_eq!((count(fails), count(over)), (told, told), "after {failures}: {lines:?}");
        }
    }
}
