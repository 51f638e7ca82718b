//! The start with a store: a life that resumes what earlier ones wrote there.

use super::{Shared, epoch};
use crate::clock::EpochClock;
use crate::config::Config;
use crate::earlier_decisions::{Dropped, limits_with_overrides};
use crate::journal::Journal;
use crate::store::{Embedded, Found, Lost, StoreError, Written};
use lessor_ledger::pool::Past;
use lessor_ledger::registry::Registry;
use std::path::Path;
use std::sync::Arc;

/// What operators are told when `--fresh` has an effect on new limits at most.
const FRESH_KNOWN: &str = "--fresh is ignored, except for limits that the store does not know, and for these, \
                             too, while permits may count of a limit that is gone from the configuration, or that a \
                             lost store knew: the store knows what earlier runs lent. Leave the option out. To begin afresh, stop the allocator, \
                             remove its store, and start it with --fresh";

/// What operators are told when `--fresh` has no effect, because a store was there that cannot be believed.
const FRESH_LOST: &str = "--fresh is ignored: a store was there, so earlier runs may have lent, and it does not say what. \
                          To begin afresh, stop the allocator, remove its store, and start it with --fresh";

impl Shared {
    /// Makes a life that writes its grants to the store at `path`, and resumes what is written there. If the store is
    /// lost, all limits begin in quarantine, unless there is none and the life is `fresh`. A store goes before `fresh`,
    /// also one that is lost, as it shows an earlier life: the option may be a part of the command that starts the
    /// allocator again after each crash.
    ///
    /// # Errors
    /// If the store cannot be used.
    pub(crate) fn open(config: Config, fresh: bool, path: &Path) -> Result<Arc<Self>, StoreError> {
        let (mut store, found) = Embedded::open(path)?;
        let path = path.display();
        let clock = EpochClock::new(store.course(), config.clocks);
        let now = clock.now();
        let mut is_fresh = fresh;
        let mut ignored = FRESH_KNOWN;
        let (mut registry, restored) = match found {
            Ok(Found { written, gap }) => {
                let known = with_overrides(&config, &written);
                // A store without limits is one of a run that ended before it wrote down anything.
                is_fresh &= written.limits.is_empty();
                let (mut registry, pools) = match is_fresh {
                    true => (Registry::new(&known.limits, config.clocks, Past::None, now, epoch()), 0),
                    false => {
                        let pools = written.pools.len();
                        tracing::info!(%path, pools, ?gap, "resuming from the store");
                        (Registry::restored(&known.limits, config.clocks, &written, gap, now, epoch()), pools)
                    }
                };
                if fresh && !is_fresh {
                    let begun = registry.begin_unknown_afresh(&known.limits, config.clocks, &written, now);
                    if !begun.is_empty() {
                        tracing::info!(%path, limits = ?begun, "beginning afresh what the store does not know");
                    }
                }
                registry.take_decisions(&config.limits, &written, gap, now);
                (registry, pools)
            }
            Err(lost) => {
                is_fresh &= lost == Lost::Gone;
                ignored = FRESH_LOST;
                let past = if is_fresh {
                    tracing::info!(%path, store = %lost, "beginning afresh");
                    Past::None
                } else {
                    Past::Lost(now)
                };
                let mut registry = Registry::new(&config.limits, config.clocks, past, now, epoch());
                if lost != Lost::Gone {
                    registry.doubt_earlier_runs(now);
                }
                // The limits of a region wait for nothing: their upstream knows what is out.
                match registry.quarantined_here(now).len() {
                    0 if is_fresh => {}
                    0 => tracing::info!(%path, store = %lost, "no earlier books, and no limit needs them"),
                    limits => tracing::warn!(
                        %path, store = %lost, limits,
                        "no earlier books: quarantine; on a first start use --fresh"
                    ),
                }
                (registry, 0)
            }
        };
        let fresh_warning = (fresh && !is_fresh).then_some(ignored);
        if let Some(warning) = fresh_warning {
            tracing::warn!(%path, "{warning}");
        }
        registry.begin_writing(0);
        let batch = registry.write_down(clock.now());
        store.commit(&batch, clock.course())?;
        registry.raise_high_water(&batch);
        let shared = Arc::new(Shared { fresh_warning, ..Shared::of(config, is_fresh, clock, registry) });
        shared.metrics.store().restored(restored);
        let journal = Journal::start(&shared, store, batch.number);
        // No other thread can have set it.
        let _ = shared.journal.set(journal);
        Ok(shared)
    }

    /// Returns a warning that `--fresh` has an effect on new limits at most, if so.
    pub(crate) fn fresh_warning(&self) -> Option<String> {
        self.fresh_warning.map(str::to_owned)
    }
}

/// Returns the file `config` with the limits that operators have put and removed over the API.
fn with_overrides(config: &Config, written: &Written) -> Config {
    let (limits, dropped) = limits_with_overrides(&config.limits, &written.decisions);
    for Dropped { limit, problem } in dropped {
        tracing::warn!(%limit, %problem, "what was put over the API is dropped: the file holds");
    }
    Config { limits, ..config.clone() }
}
