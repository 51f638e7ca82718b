//! What becomes of a balance when its limit is changed while leases are out. Operators choose it, ledgers act on it; it
//! counts nothing. No mode takes back a lease: what is out stays charged until it ends.

/// How the balance of a rule is carried over into one of the same kind and period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carry {
    /// What is charged stays charged; the level of a bucket is cut to what it can hold.
    #[default]
    AsIs,
    /// The same part of the limit is left as before.
    Proportional,
    /// What is left changes by as much as the limit.
    Additive,
    /// The rule begins anew, with what is out charged to it.
    Reset,
}

impl Carry {
    /// All of them.
    pub const ALL: [Carry; 4] = [Carry::AsIs, Carry::Proportional, Carry::Additive, Carry::Reset];

    /// Its name on the wire and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Carry::AsIs => "as_is",
            Carry::Proportional => "proportional",
            Carry::Additive => "additive",
            Carry::Reset => "reset",
        }
    }

    /// The one called `name`.
    pub fn named(name: &str) -> Option<Carry> {
        Carry::ALL.into_iter().find(|carry| carry.name() == name)
    }
}
