//! Excerpts of a store's texts, safe for an error or a log line.

/// Longest excerpt, in characters.
const EXCERPT_MAX: usize = 200;

/// Returns the beginning of `text`, without control characters.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(EXCERPT_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
