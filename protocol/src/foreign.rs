//! Texts that other programs wrote, in a form that is safe for an error or a log line.

use std::error::Error;
use std::iter::successors;

/// Longest excerpt, in characters.
const EXCERPT_MAX: usize = 200;

/// Returns the beginning of `text`, without control characters.
pub fn excerpt(text: &str) -> String {
    text.chars().take(EXCERPT_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Returns an excerpt of `error` and its causes, joined in one line.
pub fn causes(error: &dyn Error) -> String {
    let said: Vec<String> =
        successors(Some(error), |&error| error.source()).map(ToString::to_string).collect();
    excerpt(&said.join(": "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;

    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<Layer>>);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn foreign_text_is_cut_and_kept_on_one_line() {
        assert_eq!(excerpt("a\nb\u{1b}[31m"), "a b [31m");
        assert_eq!(excerpt(&"x".repeat(1_000)).len(), EXCERPT_MAX);
    }

    #[test]
    fn an_error_is_said_with_each_of_its_causes() {
        let error =
            Layer("no answer", Some(Box::new(Layer("no\nroute", Some(Box::new(Layer("down", None)))))));
        assert_eq!(causes(&error), "no answer: no route: down");
        assert_eq!(causes(&Layer("down", None)), "down");
    }
}
