//! The scenarios: their names in the files of mistakes, and the fleets that they draw.

use super::apart::{cut_off, handed_on, in_vain, slewed};
use super::family::{above, above_restarts, written_above};
use super::live::{capped, lowered, new_windows, paused, paused_restarts, removed};
use super::restarts::{restarts, written, written_cap, written_flow};
use super::*;
use lessor_ledger::share::Safe;
use lessor_sim::generator;
use lessor_sim::generator::overlong::overlong;
use lessor_sim::generator::topologies;
use lessor_sim::topology::Fate;

/// Declares the kinds of fleets, finds them by name, and draws one from a seed: from the setup that the swarm
/// draws from it, and from random numbers other than those of the swarm and of the run.
macro_rules! scenarios {
    (|$seed:ident, $setup:ident, $dice:ident| $($(#[$doc:meta])* $scenario:ident => $drawn:expr,)*) => {
        /// A kind of fleet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Scenario { $($(#[$doc])* $scenario,)* }

        impl Scenario {
            /// Returns the scenario called `name`.
            pub fn named(name: &str) -> Option<Scenario> {
                match name {
                    $(stringify!($scenario) => Some(Scenario::$scenario),)*
                    _ => None,
                }
            }

            /// Draws a fleet.
            pub(super) fn draw(self, $seed: u64) -> Setup {
                let $setup = generator::draw($seed);
                let $dice = &mut fastrand::Rng::with_seed($seed ^ 0x6c61_6e64_0000_0000);
                match self {
                    $(Scenario::$scenario => $drawn,)*
                }
            }
        }
    };
}

scenarios! {
    |seed, setup, dice|

    /// Any fleet that the generator draws.
    Any => setup,
    /// A window of minutes in full use, on quick links: a permit that is free a thousandth of it too early is taken.
    FullWindow => full_window(setup, dice),
    /// A bucket of one to three permits, and asks that get lost: the whole bucket is out when a lease ends unheard.
    TinyBucket => tiny_bucket(setup, dice),
    /// Fixed windows that are nearly used up, and messages that take seconds: asks written in one window arrive in the
    /// next.
    LateAsks => late_asks(setup, dice),
    /// Fixed windows of a tenth of a second, on links as slow as that: leases reach over every boundary, and end
    /// unheard.
    ShortWindow => short_window(setup, dice),
    /// An allocator that dies every few seconds and is back at once, without other faults.
    Restarts => restarts(setup, dice),
    /// As `Restarts`, with a bucket as the only rule.
    BucketRestarts => {
        let rule = bucket(dice.u64(1..=1_000), dice.u64(1..=5) * SECOND);
        restarts(alone(setup, rule, 3.0), dice)
    },
    /// A limit that is lowered to a few permits while a node holds a good part of it, and gives nothing back.
    Lowered => lowered(setup, dice),
    /// Limits of minutes, with leases of seconds, that become short fixed windows again and again.
    NewWindows => new_windows(setup, dice),
    /// A window in full use, which gets a cap on calls in flight. The cap changes to one of shorter calls, and goes
    /// again.
    Capped => capped(setup, dice),
    /// A limit in full use that is paused and resumed.
    Paused => paused(setup, dice),
    /// As `Paused`, under an allocator that dies every second and writes down the pause.
    PausedRestarts => paused_restarts(setup, dice),
    /// As `LateAsks`, with windows of first use, beyond which no lease reaches.
    LateReports => late_reports(setup, dice),
    /// Sliding windows in full use whose vendor is as far away as their margin allows.
    FarVendor => far_vendor(setup, dice),
    /// As `Restarts`, with fixed windows as the only rule, in slow use: leases last long and often reach over a
    /// boundary.
    FixedRestarts => {
        let per = Duration::from_millis(dice.u64(2_000..=5_000));
        let rule = FixedWindow::try_new(dice.u64(100..=1_000), per).expect("numbers in range");
        let mut setup = restarts(alone(setup, Rule::FixedWindow(rule), 0.3), dice);
        setup.lasts = 60 * SECOND;
        setup
    },
    /// A steady flow that all nodes want, and asks that get lost: rates change hands, and leases end unheard.
    Flow => flow(setup, dice),
    /// A steady flow of which each node has a part that changes all the time, and many answers that get lost.
    FlowParts => flow_parts(setup, dice),
    /// A bucket with one of its options, full within a second or two, in bursts with pauses between them.
    OddBucket => odd_bucket(setup, dice),
    /// Windows of first use, or of a calendar.
    OddWindow => odd_window(setup, dice),
    /// A cap on calls in flight as the only rule, and messages that get lost or take seconds: leases end unheard.
    Cap => {
        let mut setup = cap(setup, 1..=6, dice);
        setup.faults.chance = [(Fault::Loss, 0.2), (Fault::LongDelay, 0.2)].into();
        setup.lasts = 100 * SECOND;
        setup
    },
    /// As `Cap`, under an allocator that dies every minute, without other faults.
    CapRestarts => {
        let mut setup = restarts(cap(setup, 10..=30, dice), dice);
        // Longer than the quarantine, so that the pool opens again while calls are in flight.
        setup.faults.every.insert(Fault::AllocatorRestart, (60 * SECOND, MILLI));
        setup.lasts = 200 * SECOND;
        setup
    },
    /// A limit in full use whose vendor reports less left than it should have.
    Outside => near(generator::outside(paused(setup, dice), dice)),
    /// A short window in full use by calls that reserve more than they need, and messages that get lost. Leases end
    /// while calls go on, and bring less than was reserved when they are renewed.
    Reserving => reserving(setup, dice),
    /// One or two nodes whose calls mostly come to nothing (nine in ten), because they find another limit short.
    /// Threads are stopped while they have set permits aside.
    InVain => in_vain(setup, dice),
    /// A window in full use, up to half of which is the reserve for safe shares. Links are cut for longer than a share
    /// may last, and nodes die.
    CutOff => cut_off(setup, dice),
    /// As `CutOff`, with one share at a time that lasts for less than a window.
    HandedOn => handed_on(setup, dice),
    /// As `CutOff`, under an allocator that dies once in a while.
    CutOffRestarts => {
        let mut setup = cut_off(setup, dice);
        // Longer than the books take to begin again.
        setup.plan.sharing.safe = Some(Safe { nodes: 1, lasts: Duration::from_secs(30) });
        setup.faults.every.insert(Fault::Cut, (SECOND, 30 * SECOND));
        setup.faults.every.insert(Fault::AllocatorRestart, (20 * SECOND, MILLI));
        setup
    },
    /// A window in full use by nodes whose links are cut, while their clocks or the allocator's are slewed.
    Slewed => slewed(setup, dice),
    /// A limit with plenty below a scarce one, with another period.
    Above => above(setup, dice),
    /// A limit of a short window below a scarce one of a long window, under an allocator that dies once in a while.
    AboveRestarts => above_restarts(setup, dice),
    /// A short window under an allocator that dies every second and writes down what it lends.
    Written => written(setup, dice),
    /// As `Written`, with a cap on calls in flight beside a window, in full use by calls of seconds.
    WrittenCap => written_cap(setup, dice),
    /// As `Written`, with the steady flow of `Flow`.
    WrittenFlow => written_flow(setup, dice),
    /// Regions that lease from one allocator and lend on, see [`lessor_sim::generator::topologies`].
    Regions => topologies::regions(seed),
    /// Allocators that share a store.
    Stored => topologies::store(seed),
    /// A shared store in full use, which loses cells.
    StoreLoses => topologies::store_fated(seed, &[Fate::Copied, Fate::Emptied, Fate::Behind]),
    /// A shared store in full use, while processes die. The store is emptied as one of them asks for the first time.
    StoreEmptied => topologies::store_emptied(seed),
    /// A shared store in full use, whose clock is set.
    StoreSet => topologies::store_fated(seed, &[Fate::Set]),
    /// As `StoreSet`, with the clock set again before all have heard of it.
    StoreSetTwice => topologies::store_fated(seed, &[Fate::SetTwice]),
    /// A shared store in full use of a short window.
    StoreClose => topologies::store_close(seed),
    /// A shared store in full use of a bucket of a few permits, or one that is emptied.
    StoreSmall => topologies::store_small(seed),
    /// A shared store without a clock: in full use of a short window, or with faults.
    StoreClockless => match seed % 2 {
        0 => topologies::store_clockless_close(seed),
        _ => topologies::store_clockless(seed),
    },
    /// A shared store whose nodes go on with a part of the reserve while no allocator answers.
    StoreSafe => topologies::store_safe_close(seed),
    /// Safe shares whose number and length change in the configuration of one allocator, or of several.
    SafeChanged => match seed % 2 {
        0 => topologies::safe_changed(seed),
        _ => topologies::store_safe_changed(seed),
    },
    /// As `SafeChanged`, of allocators that share a store.
    StoreSafeChanged => topologies::store_safe_changed(seed),
    /// As `SafeChanged`, with changes of the reserve and the rules too.
    SafeRulesChanged => match seed % 2 {
        0 => topologies::store_safe_changed_rules(seed),
        _ => topologies::safe_changed_rules(seed),
    },
    /// One allocator whose reserve becomes a small one, and that then dies or whose limit begins anew.
    SafeAnew => topologies::safe_anew(seed),
    /// As `Stored`, while files change, of one allocator after the other.
    StoreChanged => match seed % 4 {
        1 => topologies::store_changed(seed),
        3 => topologies::store_changed_caps(seed / 4),
        _ => topologies::store_changed_close(seed),
    },
    /// As `StoreChanged`, while operators also put the limit over the API of some allocator.
    StorePut => topologies::store_put(seed),
    /// As `Stored`, while operators pause and block, and the store may lose what it had.
    StoreDecided => topologies::store_decided(seed),
    /// As `Stored`, with a limit below another one.
    StoreFamily => topologies::store_family(seed),
    /// As `Regions`, with a cap on calls in flight.
    RegionsCapped => topologies::regions_capped(seed),
    /// As `Regions`, with a limit that operators change and pause again and again.
    RegionsPaused => topologies::regions_paused(seed),
    /// As `Stored`, with rules that have options.
    StoreRules => topologies::store_rules(seed),
    /// A shared store in full use, whose clock is set while all its allocators are dead.
    StoreUnwatched => topologies::store_unwatched(seed),
    /// As `Stored`, with a cap on calls in flight.
    StoreCapped => topologies::store_capped(seed),
    /// A cap on calls in flight, and calls longer than the longest time, see [`lessor_sim::generator::overlong`].
    Overlong => overlong(seed),
    /// Limits below a scarce one, under an allocator that dies every second and writes down what it lends.
    WrittenAbove => written_above(setup, dice),
    /// A limit in full use that operators remove and put again.
    Removed => removed(setup, dice),
}
