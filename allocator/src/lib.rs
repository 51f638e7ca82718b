//! wip

pub mod pacing;
pub mod pool;
pub mod rules;
pub mod sizing;
