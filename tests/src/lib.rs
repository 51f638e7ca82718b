//! Scenarios that try to break Lessor's two promises, with real processes and a real network.
//!
//! In reading order:
//!
//! - whole processes: [`process`] (the real binary, its addresses and signals), [`faults`] (its disk and its clock),
//!   [`shim`] (the library that makes those faults);
//! - the real transport: [`proxy`] (a bad network on loopback), [`vendor`] (counts admissions);
//! - callers: [`fleet`] (a server for one test), [`subscribers`] (to what is logged on one thread);
//! - stores that several allocators share: [`servers`] (one server), [`cluster`] and [`etcd`] (several servers that are
//!   one store), [`wire`] (the connection to a store);
//! - [`core_waits`]: how busy the machine was with other programs.
//!
//! Whole fleets in virtual time are `lessor-sim`.

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
pub mod subscribers;
pub mod vendor;
pub mod wire;
