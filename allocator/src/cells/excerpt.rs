//! What a store said, as it can stand in an error or a log line.

/// Characters of it that are shown.
const EXCERPT_MAX: usize = 200;

/// The beginning of `text`, without control characters.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(EXCERPT_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
