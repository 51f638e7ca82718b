//! Suites that compute: simulated worlds, properties and recorded traffic, in virtual time. They are one binary, and no
//! test here waits for a clock.

mod corpus;
mod family;
mod play;
mod pool;
mod regions;
mod replay;
mod rules;
mod simulate;
mod simulation;
