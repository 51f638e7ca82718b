//! Names that fall to another limit when one is put. A pattern that lent by such a name still knows sessions there. They
//! count from zero at the new limit, and would come back to the pattern like that once the new limit is removed.

use super::{LimitConfig, Registry};
use lessor_protocol::Moment;

impl Registry {
    /// Gives up what patterns have by the name of `config`, or by names that fall to it if that is a pattern. See
    /// [`Limit::hand_over`](super::limit::Limit::hand_over).
    pub(super) fn hand_over(&mut self, now: Moment, config: &LimitConfig) {
        let name = config.name.as_str();
        let (stem, is_pattern) = name.strip_suffix('*').map_or((name, false), |stem| (stem, true));
        // Names of a shorter pattern fall to a longer one, and not the other way round.
        let ends = 0..stem.len() + usize::from(!is_pattern);
        for pattern in ends.filter_map(|end| stem.get(..end)).map(|shorter| format!("{shorter}*")) {
            for limits in [&mut self.limits, &mut self.retired] {
                if let Some(limit) = limits.get_mut(&pattern) {
                    limit.hand_over(now, stem, is_pattern, config.upstream.as_ref());
                }
            }
        }
    }
}
