//! How a balance is carried over when its limit is changed while leases are out. Operators choose a mode, and ledgers
//! apply it. No mode takes back a lease: what is out stays charged until it ends.

/// The way in which the balance of a rule is carried over into a rule of the same kind and period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CarryOver {
    /// Charges stay; the level of a bucket is cut to its capacity.
    #[default]
    AsIs,
    /// What is left stays the same part of the limit.
    Proportional,
    /// What is left changes by as much as the limit.
    Additive,
    /// The rule begins anew, with what is out charged to it.
    Reset,
}

impl CarryOver {
    /// All modes.
    pub const ALL: [CarryOver; 4] =
        [CarryOver::AsIs, CarryOver::Proportional, CarryOver::Additive, CarryOver::Reset];

    /// Returns its name on the wire and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            CarryOver::AsIs => "as_is",
            CarryOver::Proportional => "proportional",
            CarryOver::Additive => "additive",
            CarryOver::Reset => "reset",
        }
    }

    /// Returns the mode called `name`.
    pub fn named(name: &str) -> Option<CarryOver> {
        CarryOver::ALL.into_iter().find(|carry_over| carry_over.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_named_by_its_own_word() {
        let named = ["as_is", "proportional", "additive", "reset"].map(CarryOver::named);
        assert_eq!(named, CarryOver::ALL.map(Some));
        assert_eq!(CarryOver::ALL.map(CarryOver::name), ["as_is", "proportional", "additive", "reset"]);
        assert_eq!(CarryOver::named(""), None);
    }
}
