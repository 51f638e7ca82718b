//! The text of a short key, beside what a call reads of its pool. It is written when the pool is made, before any
//! caller looks, and read under the lock of its part of the map.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const WORDS: usize = 5;

/// Longest key, in bytes, that is kept here: comparing a longer one waits for memory twice more. The text of a UUID or
/// of an IP address fits.
const SHORT: usize = WORDS * 8;

/// The text of a key.
#[derive(Debug, Default)]
pub(crate) struct KeyText {
    words: [AtomicU64; WORDS],
    /// Length in bytes; 0 if the key is long or there is none, because no key is empty.
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

    /// Whether the text is `key`; `None` if no text is kept here.
    #[inline]
    pub(crate) fn is(&self, key: &str) -> Option<bool> {
        let len = usize::from(self.len.load(Ordering::Relaxed));
        (len > 0).then(|| len == key.len() && self.is_each(key))
    }

    /// Whether the text is `key`, given that both have the same length.
    #[inline]
    fn is_each(&self, key: &str) -> bool {
        let (whole, rest) = key.as_bytes().as_chunks();
        let Some((words, behind)) = self.words.split_at_checked(whole.len()) else { return false };
        let is = |own: &AtomicU64, value| own.load(Ordering::Relaxed) == value;
        words.iter().zip(whole).all(|(own, bytes)| is(own, u64::from_le_bytes(*bytes)))
            && (rest.is_empty() || behind.first().is_some_and(|own| is(own, word(rest))))
    }
}

/// Splits `key` into words of eight bytes, the last one padded with zeros.
fn words(key: &str) -> impl Iterator<Item = u64> {
    let (whole, rest) = key.as_bytes().as_chunks();
    whole.iter().copied().map(u64::from_le_bytes).chain((!rest.is_empty()).then(|| word(rest)))
}

/// Packs one to seven bytes into a word in few steps. A byte may be read twice, into the same place.
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
