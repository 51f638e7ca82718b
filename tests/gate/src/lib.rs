//! The mutation gate: mistakes that could be made in the sources, each of which the simulator must notice.
//!
//! In reading order: [`mutant`] (a mistake as its file in `tests/mutants` describes it), [`plant`] (copies of the
//! sources with all mistakes in them), [`scenario`] (fleets in which a mistake is looked for), `hunt` (how soon each is
//! noticed; only in a planted build).

pub mod mutant;
pub mod plant;
pub mod scenario;

#[cfg(planted)]
pub mod hunt;
