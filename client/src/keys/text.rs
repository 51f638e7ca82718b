//! A key beside what a call reads of its pool, if it is short. It is written when the pool is made, while no caller looks,
//! and read under the lock of its part of the map.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const WORDS: usize = 5;

/// Longest key that is kept here: comparing a longer one waits twice more for memory. The textual forms of a UUID and of an
/// address fit.
const SHORT: usize = WORDS * 8;

/// The text of a key.
#[derive(Debug, Default)]
pub(crate) struct KeyText {
    words: [AtomicU64; WORDS],
    /// 0 if it is long, or there is none: no key is empty.
    len: AtomicU8,
}

impl KeyText {
    pub(crate) fn set(&self, key: Option<&str>) {
        let key = key.filter(|key| key.len() <= SHORT).unwrap_or_default();
        for (word, value) in self.words.iter().zip(words(key)) {
            word.store(value, Ordering::Relaxed);
        }
        self.len.store(key.len() as u8, Ordering::Relaxed);
    }

    /// Whether it is `key`; `None` if it is not here.
    #[inline]
    pub(crate) fn is(&self, key: &str) -> Option<bool> {
        let len = usize::from(self.len.load(Ordering::Relaxed));
        (len > 0).then(|| len == key.len() && self.is_each(key))
    }

    /// If it is as long.
    #[inline]
    fn is_each(&self, key: &str) -> bool {
        let (whole, rest) = key.as_bytes().as_chunks();
        let Some((words, behind)) = self.words.split_at_checked(whole.len()) else { return false };
        let is = |own: &AtomicU64, value| own.load(Ordering::Relaxed) == value;
        words.iter().zip(whole).all(|(own, bytes)| is(own, u64::from_le_bytes(*bytes)))
            && (rest.is_empty() || behind.first().is_some_and(|own| is(own, word(rest))))
    }
}

/// Eight bytes at a time, and zeros behind the last.
fn words(key: &str) -> impl Iterator<Item = u64> {
    let (whole, rest) = key.as_bytes().as_chunks();
    whole.iter().copied().map(u64::from_le_bytes).chain((!rest.is_empty()).then(|| word(rest)))
}

/// Up to seven bytes, in few steps: each is read once or twice, which is the same.
#[inline]
fn word(bytes: &[u8]) -> u64 {
    let at = |place: usize| u64::from(bytes[place]) << (8 * place);
    match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            let shift = 8 * (bytes.len() - 4);
            u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << shift
        }
        _ => at(0) | at(bytes.len() / 2) | at(bytes.len() - 1),
    }
}
