//! Scenarios that try to break Lessor's two promises.
//!
//! In reading order: [`mod@reference`] (a rule kept by remembering every spend: what is true) with [`civil`] (calendars)
//! and [`warming`] (the curve of a cold bucket), [`world`] (the shipping pool, refill and slot on drifting clocks with a
//! bad network between them), [`overlong`] (calls that last longer than any should), [`regions`] (nodes, regions that lend on, and a centre), for whole processes [`process`] (the real binary, its addresses and its signals) and [`faults`] (its disk and its clock), and for
//! the real transport [`proxy`] (a bad network on loopback) and [`vendor`] (who counts what was admitted), for callers
//! [`fleet`] (a server for one test).
//! [`servers`] are the stores that several allocators share, each a server of the test's own, [`wire`] what leads there, and
//! [`shim`] what a process does not know of.
//! [`sim`] is a whole fleet in virtual time, under load and faults, with an oracle that sees everything.

pub mod civil;
#[cfg(target_os = "linux")]
pub mod faults;
pub mod fleet;
pub mod overlong;
pub mod process;
pub mod proxy;
pub mod reference;
pub mod regions;
pub mod servers;
pub mod shim;
pub mod sim;
pub mod vendor;
pub mod warming;
pub mod wire;
pub mod world;
