//! The one place that atomics of the slot come from, so that a model checker can stand in for them.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
