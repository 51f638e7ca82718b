//! The part of the last ask by which its answer is judged. It holds no more than that, because each key has one.

use lessor_protocol::{Ask, Moment};

/// The ask that was written last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// When it was written.
    pub(super) at: Moment,
    /// Whether no answer to it is expected any more.
    pub(super) is_answered: bool,
    /// Whether spending was stopped after it was written: its answer does not know of that.
    pub(super) is_stopped_since: bool,
    /// Whether it reports spends that no ask before reported and had answered with a grant. No other answer shows that an
    /// allocator took a report in.
    pub(super) has_untold: bool,
    /// The fields of the ask: see [`Ask`].
    pub(super) spent_total: u64,
    pub(super) held: u64,
    pub(super) want: u64,
    pub(super) shadow_refused: u64,
    pub(super) unguarded: u64,
    /// Whether it reported callers that wait.
    pub(super) has_line: bool,
    /// Whether it reported permits in flight or in use.
    pub(super) has_calls: bool,
}

impl Asked {
    /// Remembers `ask`, written at `now`, after the ask `before`.
    pub(super) fn new(ask: &Ask, now: Moment, before: Option<Asked>) -> Self {
        let (was_untold, spent_before) =
            before.map_or((false, 0), |before| (before.has_untold, before.spent_total));
        Asked {
            at: now,
            is_answered: false,
            is_stopped_since: false,
            has_untold: was_untold || ask.spent_total > spent_before,
            spent_total: ask.spent_total,
            held: ask.held,
            want: ask.want,
            shadow_refused: ask.shadow_refused,
            unguarded: ask.unguarded,
            has_line: ask.waiting > 0,
            has_calls: ask.running.unwrap_or(0) > 0 || ask.busy > 0,
        }
    }
}
