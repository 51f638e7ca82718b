//! The policy that decides how many permits a node gets: Lessor's, or another system's to compare with. `lessor
//! simulate` picks one and the world runs it; `rival` has what a rival does.

lessor_protocol::words! {
    /// A way to size leases. Tables have this order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Policy {
        /// The shipping pool, refill and slot.
        Lessor = "lessor",
        /// Each node has an even share of the limit for itself.
        StaticSplit = "static_split",
        /// All leases are of one size.
        FixedLeases = "fixed_leases",
        /// Leases of ten seconds of the average use, and 5,000.
        TenAverages = "ten_averages",
        /// Leases of five seconds of the average use, and a tenth more.
        FiveAverages = "five_averages",
    }
}

impl Policy {
    /// Returns the name above a column.
    pub fn heading(self) -> &'static str {
        match self {
            Policy::Lessor => "lessor",
            Policy::StaticSplit => "static split",
            Policy::FixedLeases => "fixed leases",
            Policy::TenAverages => "10·avg + 5000",
            Policy::FiveAverages => "1.1·5·avg",
        }
    }

    /// Says which part of the policy is simulated, and which is not.
    pub fn explained(self) -> &'static str {
        match self {
            Policy::Lessor => "The shipping pool, refill and slot. Left out: sockets and threads.",
            Policy::StaticSplit => {
                "Each node applies the limit's rules alone, to limit/nodes. Left out: nodes that come and go."
            }
            Policy::FixedLeases => {
                "Leases of limit/(10·nodes) from an exact central counter. A node asks for the next one when a tenth \
                 is left. A lease lasts until it is spent, at most for a window. Left out: giving back."
            }
            Policy::TenAverages => {
                "CockroachDB's tenants: 10 s of the average use plus 5000, minus what is held. A node asks below \
                 max(5000, a tenth of the last grant). Left out: debt, trickle and fallback rate, which exceed the \
                 cap."
            }
            Policy::FiveAverages => {
                "TiKV's resource groups: 1.1 · 5 s of the average use, minus what is held. A node asks below a tenth \
                 of 5 s. Left out: loans, trickle and fill-rate shares, which exceed the cap."
            }
        }
    }
}
