//! Mistakes that could be made here, each of which the simulator must notice. With `--cfg lessor_mutants` one of them
//! can be switched on for the current thread; without it [`is`] is a constant `false`, and no binary holds any of them.
//!
//! `tests/gate` is the gate, `docs/mutants.md` the table of what noticed each. The core asks [`is`] in
//! the line that the mistake would be made in; nothing that ships ever switches one on.

macro_rules! mutants {
    ($($(#[doc = $wrong:literal])+ $name:ident,)+) => {
        /// A mistake.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mutant {
            $($(#[doc = $wrong])+ $name,)+
        }

        #[cfg(lessor_mutants)]
        impl Mutant {
            /// All of them.
            pub const ALL: &[Mutant] = &[$(Mutant::$name),+];

            /// What is wrong, in a sentence.
            pub const fn wrong(self) -> &'static str {
                match self {
                    $(Mutant::$name => concat!($($wrong),+).trim_ascii(),)+
                }
            }
        }
    };
}

mutants! {
    /// A permit counts from when its lease was granted or last renewed, not from when it was spent at the latest.
    ChargeFromGrant,
    /// A sliding window is guessed: what this aligned window holds, and of the one before as much as overlaps.
    WeightedWindow,
    /// A lease may outlive the fixed window after the one that it was lent in.
    FixedNotClipped,
    /// A lease that reaches into the next fixed window is charged to the one before alone.
    AheadIsFree,
    /// An allocator that lost its books opens fixed windows at the next boundary, as if no lease reached beyond one.
    AheadForgotten,
    /// Charges are let go at the edge of a sub-window before their end, not after it.
    RoundedDown,
    /// The way to the vendor takes no time, whatever margin is configured.
    MarginIgnored,
    /// Windows and refill times are not stretched for a clock that runs fast.
    NoDriftInWindows,
    /// A bucket is refilled once, up to now, also for the time in which leases left it no room.
    LazyRefill,
    /// Permits that are out take no room in their bucket.
    FullBucket,
    /// A burned permit that proves unspent goes back into the bucket, which has minted another since.
    BucketCredit,
    /// The permit that is being minted counts as soon as it is begun.
    RefillRoundedUp,
    /// A full bucket keeps the part of a permit that it has no room for.
    FractionKept,
    /// What a bucket gains at intervals comes evenly.
    IntervalIsEven,
    /// A bucket may be twice as far in the red.
    DebtTwice,
    /// A bucket refills as if it were warm.
    WarmUpIgnored,
    /// A bucket is warmed by what it lends, spent or not.
    WarmedByGrant,
    /// A bucket that was warm stays warm.
    NeverCools,
    /// Calendar windows follow UTC, whatever their zone.
    CalendarInUtc,
    /// Each grant begins a first-use window anew.
    FirstUseRestarts,
    /// A node counts the term from when the answer came.
    FromReceipt,
    /// A repeated ask gets the full term again, and the node counts it from when it repeated the ask.
    FromLastRetry,
    /// Neither side of a lease allows for the drift of the other's clock.
    NoDriftInTerms,
    /// The clock that a daemon slews is believed.
    SlewTrusted,
    /// An allocator's clock is steered as fast as a daemon slews.
    SlewFollowed,
    /// The deadline is looked at when a node refills, not at every spend.
    DeadlineAtRefill,
    /// A reading of the clock is taken for exact for as long as the coarse clock shows the same.
    StepNotTaken,
    /// A reading of the clock is good for ever, whatever the coarse clock shows.
    TickNotLooked,
    /// The deadline is not looked at where a slot is striped.
    StripeUnchecked,
    /// A report leaves out what is in one of the stripes.
    StripeForgotten,
    /// A call that finds its stripe empty is refused, whatever the others hold.
    NoSweep,
    /// A renewal that ends sooner moves the end of the lease back, before the node has heard of it.
    EndMovesBack,
    /// A renewal moves the end of a lease only if it brings new permits.
    RenewalNotDated,
    /// A renewal is a new lease: the pool forgets what the node keeps of the old one.
    RenewalAsFresh,
    /// An ask says what was spent since the ask before, and the pool adds it up.
    SpentAsDelta,
    /// A repeated ask is answered anew.
    RepeatsAnsweredAnew,
    /// An ask that arrives after a newer one is answered like any other.
    OldAskAnswered,
    /// A node believes the answer to an older ask.
    OldAnswerBelieved,
    /// A node goes on with what its lease held when it ended, once another is granted.
    EndedIsKept,
    /// A node still spends what it says it gives back, until the answer is there.
    ReturnedIsSpent,
    /// A lease that ends without a word gives its permits back.
    EndedIsFree,
    /// What was lent first was spent first: reports are put to the leases that ended before to the live one.
    SpentToOldest,
    /// A burned permit that proves unspent is taken off the charges, also when it has left the window already.
    LateCredit,
    /// What one late report frees, the next one frees again.
    CreditTwice,
    /// A pool that leases from one above says that it does not hold what it has lent on.
    LentOnIsReturned,
    /// It says that nothing is in flight of what it has lent on.
    LentOnIsLanded,
    /// What it lends on may be spent for longer than it was itself lent it.
    LoanNotNested,
    /// What it was lent and did not lend on goes on beyond its end, once more is granted.
    LoanOutlived,
    /// It counts its term from when the answer arrives.
    LoanFromReceipt,
    /// Those below hold for as long as if the one above had not said for how long.
    HorizonNotNested,
    /// What is in flight has landed as soon as its pool is put away.
    FlightsPutAwayLand,
    /// Only the first rule of a limit is asked what it has left.
    FirstRuleOnly,
    /// Books that cannot be told from new ones, but for what is still charged, are forgotten.
    ForgottenWhileCharged,
    /// An allocator that lost its books lends at once.
    ForgottenOnRestart,
    /// An allocator that lost its books waits for windows to pass, as if no lease were live.
    NoTermOnRestart,
    /// An allocator that lost its books waits for leases to end, and not for what they spent to leave the windows.
    NoWindowOnRestart,
    /// The renewal of a rate lease fills its bucket up.
    RenewalRefills,
    /// A rate lease that is let go leaves a full bucket behind.
    LetGoIsFull,
    /// A new rate counts from when it is told, though its node may go by the old one.
    OldRateForgotten,
    /// A node mints from when it asked, not from when the rate came.
    MintsFromAsk,
    /// A node mints as fast as its clock, which may run fast.
    MintsWithoutDrift,
    /// What is lent of a rate is minted at the centre too.
    CentreMintsAll,
    /// The rate of a lease that ended is lent again with what its bucket may have held.
    EndedRateIsFull,
    /// A bucket whose books were lost starts full.
    BucketFullOnRestart,
    /// A limit that is changed forgets what is out.
    ChangeForgetsOut,
    /// Leases are extended although a limit that was lowered is exceeded by what is out.
    OverIsExtended,
    /// A rule that is new lends to leases that end after its window.
    NewRuleOutlived,
    /// A cap on what is in flight comes to a limit in use as other rules do, as if nothing were in flight.
    CapBeginsEmpty,
    /// Calls that were let begin under a cap are taken for ended as soon as the cap that took its place says.
    OldCallsForgotten,
    /// A paused pool still lends.
    PausedLends,
    /// An allocator that goes on with what it wrote down has forgotten that the limit is paused.
    PauseForgotten,
    /// An allocator that lost its books lends as soon as one node has told what it holds.
    ClaimsEndQuarantine,
    /// What a silent session had in flight is free as soon as its lease has ended.
    LandedAtEnd,
    /// A renewal forgets what the session says is in flight.
    RunningIgnored,
    /// A late report frees what was held when it was written, though it may have been spent since.
    UnkeptIsFree,
    /// An allocator that lost its books does not wait for calls in flight to end.
    NoFlightsOnRestart,
    /// What a session has in use when its lease ends has landed after the longest call, whatever it says.
    LapsedLands,
    /// A node goes on to hold what was in use when its lease ended, and spends it again once the call is over.
    LapsedIsHeld,
    /// What is reserved is held beyond the end of its lease, and given back then.
    ReservedOutlivesLease,
    /// A reservation gives the same permits back twice.
    GivenBackTwice,
    /// What a caller puts back after the end of its lease can be spent in the next one.
    AsideOutlivesLease,
    /// What is left of a lease that an allocator does not know goes on in the first one that it lends.
    LeftoverExtended,
    /// More sessions are told that they have a part of the reserve than it pays for.
    SeatsUncounted,
    /// A part of the reserve goes to the next session as soon as the one before may not spend it any more.
    SeatFreeAtEnd,
    /// An allocator that lost its books tells sessions at once that they have a part of the reserve.
    SeatsOnRestart,
    /// A node goes on with its part of the reserve after that has ended.
    SeatOutlived,
    /// A large call takes from a part of the reserve what is only due after it.
    SeatInAdvance,
    /// A reservation that is settled gives back what its call has cost.
    SettledIsFree,
    /// What is lent is charged to the limit that was asked, and to none above it.
    AboveNotCharged,
    /// What is lent is sized by the limit that was asked, whatever those above it have left.
    AboveNotAsked,
    /// A lease lasts as long as the limit that was asked allows, whatever window of those above it ends sooner.
    AboveNotClipped,
    /// After a loss of books a limit lends as soon as its own quarantine is over, whatever those above it wait for.
    AboveNotAwaited,
    /// Limits above take what was spent for given back.
    AboveTakesBack,
    /// What the vendor says is left is lent, be it more than the rules allow.
    VendorRaises,
    /// What is not lent because the vendor had less is never lent again.
    TrimNeverEnds,
    /// What a node heard of its vendor counts again each time that it is said.
    RepeatPausesAgain,
    /// A pool still lends while its vendor asks to be left alone.
    PausedByVendorLends,
    /// What may be lent by a record is not charged in it.
    BlockNotCharged,
    /// A lease may outlast the block that it was lent of.
    BlockNotNested,
    /// While a record is written, the block of the one before is lent as if that were not about to be replaced.
    OldBlockGoesOn,
    /// Answers leave before what they lend is written down.
    SeenBeforeDurable,
    /// What was out by a record is taken for spent when that was written.
    BlockEndsAtOnce,
    /// A record does not say what is in flight.
    FlightsNotWritten,
    /// After a restart a steady flow has a full bucket at once, whatever rates an earlier life has told.
    FlowKeptFull,
    /// A store swaps a cell whatever its version is.
    StaleSwapped,
    /// What a root would have answered is believed, though somebody else was faster.
    LateSwapBelieved,
    /// Whoever does not know that a limit in a store is below another one is lent it all the same, and does not charge that.
    ParentForgotten,
    /// Roots are kept as if all allocators knew exactly what time it is.
    BlurIgnored,
    /// A bucket in a store refills from when whoever told it of a permit took that to be, at the earliest.
    DoubtIgnored,
    /// A bucket that is put away before it begins to refill, begins then.
    PutAwayRefills,
    /// A store whose clock was set is believed as before.
    StepNotSeen,
    /// A store whose clock was set is believed by who had heard nothing of it since.
    SetTwiceIgnored,
    /// What was written before another time began is read as if that time had gone on.
    EraIgnored,
    /// What a store has lost is taken for never lent.
    RootLossIgnored,
    /// A root that was there and is not is made anew.
    GoneIsNew,
}

/// Whether `mutant` is switched on: never.
#[cfg(not(lessor_mutants))]
#[inline(always)]
pub const fn is(_mutant: Mutant) -> bool {
    false
}

// The proof: it is known while compiling.
#[cfg(not(lessor_mutants))]
const _: () = assert!(!is(Mutant::ChargeFromGrant));

#[cfg(lessor_mutants)]
pub use switch::{is, with};

#[cfg(lessor_mutants)]
mod switch {
    use super::Mutant;
    use std::cell::Cell;

    thread_local! {
        static ON: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Whether `mutant` is switched on in this thread.
    #[inline]
    pub fn is(mutant: Mutant) -> bool {
        ON.get() == Some(mutant)
    }

    /// Runs `act` with `mutant` switched on in this thread, until it returns or panics.
    pub fn with<T>(mutant: Mutant, act: impl FnOnce() -> T) -> T {
        struct Off;
        impl Drop for Off {
            fn drop(&mut self) {
                ON.set(None);
            }
        }
        let _off = Off;
        ON.set(Some(mutant));
        act()
    }
}
