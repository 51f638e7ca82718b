//! The way to roots in a store that several allocators share: what [`crate::roots`] decides, carried to the store and back. It
//! answers as an allocator above would.

mod follow;
mod presence;
mod time;

use super::contested::Contested;
use super::dice;
use super::idle::Idle;
use super::transport::TransportError;
use crate::allocator::DueAbove;
use crate::cells::{BATCH_MAX, Cell, Cells, Swap, Swapped, Timeline, batches};
use crate::config::StoreConfig;
use crate::shared::Shared;
use lessor_ledger::pool::{Holder, LesseeId};
use lessor_ledger::roots::{
    Exchange, Families, HEAD, Head, Origin, RootAnswer, RootAsk, RootClock, RootError, Signer, Watch,
    cell_of, is_forgettable,
};
use lessor_ledger::share::Share;
use lessor_ledger::wrong::Wrong;
use lessor_protocol::clock::wall;
use lessor_protocol::trace::TARGET;
use lessor_protocol::wire::{GrantBody, LeasesRequest, LeasesResponse};
use lessor_protocol::{Answer, Moment, Refusal, RefusalReason};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;
use tracing::Instrument as _;
use tracing::field::Empty;

/// How often another allocator may be faster, in one exchange. An allocator that loses so often waits a little.
const TRIES: usize = 6;

/// When to ask again after that.
const LOST_RETRY: Duration = Duration::from_millis(20);

/// Cells that are remembered from one exchange to the next, so that they need not be loaded before they are swapped.
const REMEMBERED_MAX: usize = 4_096;

/// The way to the roots of one store.
pub(super) struct Rooted {
    cells: Cells,
    signer: Signer,
    is_fresh: bool,
    /// What is known of the time of the store, in the era that is known.
    clock: RootClock,
    /// Which clock is wrong if that does not fit.
    watch: Watch,
    era: Option<u64>,
    /// Whether it was found to be another one than it should be.
    has_stepped: bool,
    head: Option<(Cell, Head)>,
    /// What is in cells, as far as this allocator knows.
    known: BTreeMap<String, Cell>,
    /// When the head was signed last, on the own clock, and how often in a row that has failed.
    signed: Moment,
    failed: u32,
    /// When it was looked last what operators have put and removed, and in which life of the head.
    looked: Option<(Moment, (u64, u64))>,
    /// Roots that may be of no use after a while.
    idle: Idle,
    contested: Contested,
}

impl Rooted {
    pub(super) fn try_new(shared: &Shared, node: &str) -> Result<Self, TransportError> {
        let StoreConfig::Shared(store) = &shared.config().server.store else {
            return Err(TransportError::Unreachable("there is no store that is shared".to_owned()));
        };
        let cells = Cells::new(&store.cells).map_err(|error| broken(&error))?;
        Ok(Rooted {
            cells,
            signer: Signer { session: 0, node: node.to_owned() },
            is_fresh: shared.is_fresh(),
            clock: RootClock::new(shared.config().terms.drift_ppm()),
            watch: Watch::default(),
            era: None,
            has_stepped: false,
            head: None,
            known: BTreeMap::new(),
            signed: Moment::ORIGIN,
            failed: 0,
            looked: None,
            idle: Idle::default(),
            contested: Contested::default(),
        })
    }

    /// One exchange with the roots that `due` asks.
    pub(super) async fn leases(
        &mut self,
        shared: &Shared,
        due: &DueAbove,
        request: &LeasesRequest,
    ) -> Result<LeasesResponse, TransportError> {
        self.signer.session = request.session;
        if self.head.is_none() {
            self.open(shared).await?;
        }
        let origins = {
            let overlay = shared.commons().overlay();
            let (version, known) = (|name: &str| overlay.version_of(name), overlay.newest());
            shared.with(|allocator, _| allocator.origins(&due.askers, version, known))
        };
        let answers = self.ask(shared, due, request, origins).await;
        if answers.is_err() {
            // Whatever was on its way may be there, or another store.
            self.known.clear();
            self.head = None;
        }
        let answers = answers?;
        let grants = due.asks.iter().zip(answers);
        let grants = grants.map(|(ask, answer)| {
            let (limit, key) = (ask.limit.as_str(), ask.key.as_deref());
            match answer {
                Some(Ok(answer)) => GrantBody::of(limit, key, answer),
                Some(Err(RootError::Ask(error))) => GrantBody::wrong(limit, key, Wrong::from(error).body()),
                Some(Err(RootError::HeadIsOld | RootError::Gone | RootError::NoTime)) | None => {
                    GrantBody::of(limit, key, LOST)
                }
                Some(Err(error @ RootError::Below(_))) => {
                    self.contested.tell_of_above(limit, shared.commons().overlay().file(), &error);
                    GrantBody::of(limit, key, REFUSED)
                }
                Some(Err(error @ (RootError::Format | RootError::TooLarge(_)))) => {
                    tracing::warn!(limit, %error, "nothing is leased from the store");
                    GrantBody::of(limit, key, REFUSED)
                }
            }
        });
        let (session, seq) = (request.session, request.seq);
        Ok(LeasesResponse { epoch: 0, session, seq, grants: grants.collect() })
    }

    /// Reads the head, and makes it or changes it where that must be.
    async fn open(&mut self, shared: &Shared) -> Result<(), TransportError> {
        for _ in 0..TRIES {
            let mut now = self.look_at_clock(shared).await?;
            let (timeline, mut cells) =
                self.cells.load(&[HEAD.to_owned()]).await.map_err(|error| broken(&error))?;
            if !self.clock.follow(&timeline) {
                now = self.look_at_clock(shared).await?;
            }
            let found = cells.pop().flatten();
            let mut head = match &found {
                Some(cell) => read(cell)?,
                None => {
                    tracing::info!(store = %timeline, "nothing is known of this store: its time begins");
                    // An allocator that knew a head before has lent by it.
                    Head::begin(dice(), &timeline, now, self.is_fresh && self.era.is_none())
                }
            };
            let now = self.go_by(shared, &head, now).await?;
            if self.is_in_doubt(&head, &timeline, now) {
                return self.doubts(shared, &timeline, found, head, now).await;
            }
            let is_first = self.era.is_none();
            if self.has_stepped {
                tracing::error!("the clock of the store was set: what was lent counts as if that were now");
                head.begin_era(now);
                self.watch.forget();
            } else if is_first && head.may_have_stepped(now, wall()) {
                tracing::warn!(
                    "no allocator watched the clock of the store: what was lent counts as if that were now"
                );
                head.begin_era(now);
            }
            if head.timeline() != timeline {
                let before = head.timeline();
                tracing::error!(%before, now = %timeline, "the store may have lost what was written last: quarantine");
                head.lose(&timeline, now);
            }
            head.sign(&self.signer, now);
            if self.swap_head(shared, &timeline, found, head).await? {
                return self.follow(shared).await;
            }
        }
        Err(broken(&"its head changes all the time"))
    }

    /// Signs the head that is known.
    async fn sign_head(&mut self, shared: &Shared) -> Result<(), TransportError> {
        for _ in 0..TRIES {
            let now = self.look_at_clock(shared).await?;
            let Some((cell, mut head)) = self.head.take().filter(|_| !self.has_stepped) else {
                return self.open(shared).await;
            };
            let now = self.go_by(shared, &head, now).await?;
            head.sign(&self.signer, now);
            let timeline = head.timeline();
            if self.swap_head(shared, &timeline, Some(cell), head).await? {
                return self.follow(shared).await;
            }
        }
        Ok(())
    }

    /// Writes `head` in the place of `before`; `false` if it is another one by now, which is known then.
    async fn swap_head(
        &mut self,
        shared: &Shared,
        timeline: &Timeline,
        before: Option<Cell>,
        mut head: Head,
    ) -> Result<bool, TransportError> {
        head.keep_gates(&shared.commons().gates());
        let (newest, above) = {
            let overlay = shared.commons().overlay();
            (overlay.newest(), shared.parents())
        };
        head.keep_newest(newest);
        head.keep_families(&Families::new(newest, above));
        let next = Cell { version: dice(), value: head.write() };
        let expected = before.map(|cell| cell.version);
        let swap = Swap { name: HEAD.to_owned(), expected, next: Some(next.clone()) };
        let swapped = self.cells.swap(timeline, &[swap]).await.map_err(|error| broken(&error))?;
        match swapped.into_iter().next() {
            Some(Swapped::Done) => {
                (self.era, self.has_stepped) = (Some(head.era()), false);
                self.head = Some((next, head));
                Ok(true)
            }
            Some(Swapped::Other(_)) | None => {
                self.head = None;
                Ok(false)
            }
        }
    }

    /// What is in the cells of these names, however many, the last looked at last.
    async fn load(&mut self, names: &[String]) -> Result<Vec<Option<Cell>>, TransportError> {
        let mut cells = vec![];
        for names in names.chunks(BATCH_MAX) {
            cells.extend(self.cells.load(names).await.map_err(|error| broken(&error))?.1);
        }
        Ok(cells)
    }

    /// Does these swaps, however many. After an error it is unknown which were done.
    async fn swap(&mut self, timeline: &Timeline, swaps: &[Swap]) -> Result<Vec<Swapped>, TransportError> {
        let mut swapped = vec![];
        for swaps in batches(swaps) {
            let span = tracing::debug_span!(
                target: TARGET, "swap", otel.kind = "client", otel.status_code = Empty, cells = swaps.len(),
            );
            let done = self.cells.swap(timeline, swaps).instrument(span.clone()).await;
            if done.is_err() {
                span.record("otel.status_code", "ERROR");
            }
            swapped.extend(done.map_err(|error| broken(&error))?);
        }
        Ok(swapped)
    }

    /// Takes roots away that cannot be told from new ones: those of keys that no node uses.
    async fn sweep(&mut self, shared: &Shared) -> Result<(), TransportError> {
        let known = self.head.as_ref().map(|(_, head)| head.clone());
        let (Some(head), Some(now)) = (known, self.clock.now(shared.now())) else { return Ok(()) };
        let due = self.idle.due(shared.now());
        let swept = self.take_away(&head, now, &due).await;
        // Keeps roots that are still of use, and all of them where that is unknown.
        for (at, (name, origin)) in due.into_iter().enumerate() {
            if swept.as_ref().map_or(true, |kept| kept[at]) {
                self.idle.again(name, origin, shared.now());
            }
        }
        swept.map(drop)
    }

    /// Takes those of `due` away that are of no use `now`; which of them still are.
    async fn take_away(
        &mut self,
        head: &Head,
        now: Moment,
        due: &[(String, Origin)],
    ) -> Result<Vec<bool>, TransportError> {
        let names: Vec<String> = due.iter().map(|(name, _)| name.clone()).collect();
        let cells = self.load(&names).await?;
        let kept = due.iter().zip(&cells).map(|((_, origin), cell)| {
            cell.as_ref().is_some_and(|cell| !is_forgettable(origin, head, &cell.value, now))
        });
        let kept: Vec<bool> = kept.collect();
        let useless = names.into_iter().zip(cells).zip(&kept).filter(|(_, is_kept)| !**is_kept);
        let swaps = useless.filter_map(|((name, cell), _)| Some((name, cell?)));
        let swaps = swaps.map(|(name, cell)| Swap { name, expected: Some(cell.version), next: None });
        let swaps: Vec<Swap> = swaps.collect();
        // An allocator that asks one of these roots meanwhile is faster, and the root stays.
        self.swap(&head.timeline(), &swaps).await?;
        swaps.iter().for_each(|swap| _ = self.known.remove(&swap.name));
        Ok(kept)
    }

    /// The head is this by now.
    fn goes_on(&mut self, cell: Option<Cell>) -> Result<(), TransportError> {
        let changed = || broken(&"its head is another one now");
        let (cell, known) = (cell.ok_or_else(changed)?, self.head.take().ok_or_else(changed)?);
        if cell.version == known.0.version {
            self.head = Some(known);
            return Ok(());
        }
        let head = read(&cell)?;
        if !head.goes_on_from(&known.1) {
            return Err(changed());
        }
        self.head = Some((cell, head));
        Ok(())
    }

    /// What the roots answer.
    async fn ask(
        &mut self,
        shared: &Shared,
        due: &DueAbove,
        request: &LeasesRequest,
        origins: Vec<Option<Origin>>,
    ) -> Result<Vec<Option<Result<Answer, RootError>>>, TransportError> {
        let mut places = vec![];
        let mut asks = vec![];
        for (ask, origin) in due.asks.iter().zip(origins) {
            let place = origin.is_some().then_some(asks.len());
            places.push(place);
            if let Some(origin) = origin {
                asks.push(RootAsk { name: cell_of(&ask.limit, ask.key.as_deref()), origin, ask: ask.ask() });
            }
        }
        let mut unknown: Vec<String> = asks
            .iter()
            .map(|ask| &ask.name)
            .filter(|name| !self.known.contains_key(*name))
            .cloned()
            .collect();
        if !unknown.is_empty() {
            // Looked at after them: one that is not there is new only where the head is what it was.
            unknown.push(HEAD.to_owned());
            let mut cells = self.load(&unknown).await?;
            self.goes_on(cells.pop().flatten())?;
            self.known.extend(unknown.into_iter().zip(cells).filter_map(|(name, cell)| Some((name, cell?))));
        }
        let Some((_, head)) = self.head.clone() else { return Err(broken(&"its head is not known")) };
        let timeline = head.timeline();
        let rtt = Duration::from_millis(request.rtt_ms);
        let holder = Holder { id: LesseeId(request.session), share: Share::EVEN, rtt };
        let asks =
            asks.into_iter().map(|ask| (self.known.remove(&ask.name), ask)).map(|(cell, ask)| (ask, cell));
        let asks: Vec<_> = asks.collect();
        self.idle.used(asks.iter().map(|(ask, _)| ask), shared.now());
        let mut exchange = Exchange::new(holder, request.seq, asks);
        for _ in 0..TRIES {
            let swaps = exchange.swaps(&head, &self.clock, shared.now(), dice);
            if swaps.is_empty() {
                break;
            }
            let began = shared.now();
            let swapped = self.swap(&timeline, &swaps).await;
            let took = shared.now().since(began);
            let late = match swapped {
                Ok(swapped) => exchange.swapped(swapped),
                Err(error) => {
                    shared.metrics().roots().failed(swaps.len());
                    return Err(error);
                }
            };
            shared.metrics().roots().swapped(swaps.len() - late, late, took);
        }
        if exchange.has_made() {
            let cell = self.load(&[HEAD.to_owned()]).await?.pop().flatten();
            if self.goes_on(cell).is_err() {
                exchange.is_emptied();
            }
        }
        let mut answers = vec![];
        for RootAnswer { name, cell, answer, is_contested } in exchange.finish(shared.now()) {
            if is_contested {
                self.contested.tell(&name, shared.commons().overlay().file());
            }
            if let Some(cell) = cell
                && self.known.len() < REMEMBERED_MAX
            {
                self.known.insert(name, cell);
            }
            if matches!(answer, Some(Err(RootError::HeadIsOld | RootError::Gone))) {
                self.head = None;
            }
            answers.push(answer);
        }
        Ok(places.into_iter().map(|place| answers.get(place?).cloned().flatten()).collect())
    }
}

/// Another allocator was faster, again and again.
const LOST: Answer = Answer::Refusal(Refusal { reason: RefusalReason::Other, retry_after: LOST_RETRY });

/// What is in the store is of no use here.
const REFUSED: Answer =
    Answer::Refusal(Refusal { reason: RefusalReason::Other, retry_after: Duration::from_secs(1) });

fn read(cell: &Cell) -> Result<Head, TransportError> {
    Head::read(&cell.value).map_err(|why| broken(&format!("its head is of no use: {why}")))
}

fn broken(error: &impl Display) -> TransportError {
    TransportError::Unreachable(error.to_string())
}
