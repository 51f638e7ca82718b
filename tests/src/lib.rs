//! Scenarios that try to break Lessor's two promises, with real processes and a real network.
//!
//! In reading order: for whole processes [`process`] (the real binary, its addresses and its signals) and [`faults`] (its disk and
//! its clock), for the real transport [`proxy`] (a bad network on loopback) and [`vendor`] (counts what was admitted), for callers
//! [`fleet`] (a server for one test). [`servers`] are the stores that several allocators share, each a server of the test's own,
//! [`cluster`] and [`etcd`] several of those that are one store, [`wire`] what leads there, and [`shim`] what a process does not know of. [`core_waits`] tells how busy the machine was with other
//! programs. Whole fleets in virtual time are `lessor-sim`.

pub mod cluster;
pub mod core_waits;
pub mod etcd;
#[cfg(target_os = "linux")]
pub mod faults;
pub mod fleet;
pub mod process;
pub mod proxy;
pub mod servers;
pub mod shim;
pub mod vendor;
pub mod wire;
