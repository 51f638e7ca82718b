//! Patterns of rights: names, and beginnings of names followed by `*`.

use std::fmt;

/// Names and beginnings of names, as an operator wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patterns(Vec<Pattern>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    stem: String,
    is_whole: bool,
}

/// Longest pattern, in bytes.
const PATTERN_MAX: usize = 256;

impl Patterns {
    /// Parses `texts`. A `*` may only be at the end of a pattern.
    ///
    /// # Errors
    /// If a pattern is wrong. The error begins with the first wrong one, and says why.
    pub fn try_new<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let pattern = |text: &str| {
            let (stem, is_whole) = text.strip_suffix('*').map_or((text, true), |stem| (stem, false));
            let problem = match () {
                () if text.is_empty() => "is empty: \"*\" stands for all",
                () if text.len() > PATTERN_MAX => "is too long",
                () if stem.contains('*') => "has a * that is not at its end",
                () if stem.chars().any(|c| c.is_control() || c.is_whitespace()) => "has a blank in it",
                () => return Ok(Pattern { stem: stem.to_owned(), is_whole }),
            };
            let shown: String = text.chars().take(PATTERN_MAX).collect();
            Err(format!("{shown:?} {problem}"))
        };
        texts.into_iter().map(pattern).collect::<Result<_, _>>().map(Patterns)
    }

    /// Whether a pattern matches `name`.
    pub fn fit(&self, name: &str) -> bool {
        self.0.iter().any(
            |Pattern { stem, is_whole }| {
                if *is_whole { name == stem } else { name.starts_with(stem.as_str()) }
            },
        )
    }

    /// Whether a pattern matches all names.
    pub(crate) fn fit_all(&self) -> bool {
        self.0.iter().any(|pattern| pattern.stem.is_empty() && !pattern.is_whole)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The patterns as they were written.
    pub fn texts(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(Pattern::to_string)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.stem, if self.is_whole { "" } else { "*" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_as_a_whole_or_by_its_beginning() {
        let patterns = Patterns::try_new(["vendor/rest", "users/*"]).expect("good");
        for (name, fits) in [
            ("vendor/rest", true),
            ("vendor/rest2", false),
            ("users/", true),
            ("users/7", true),
            ("user", false),
        ] {
            assert_eq!(patterns.fit(name), fits, "{name}");
        }
        assert!(Patterns::try_new(["*"]).expect("good").fit("any") && !Patterns::default().fit("any"));
        assert_eq!(patterns.texts().collect::<Vec<_>>(), ["vendor/rest", "users/*"]);
    }

    #[test]
    fn what_is_no_pattern_is_refused_by_its_text() {
        for text in ["", "a*b", "**", "a b", "a\nb", &"x".repeat(300)] {
            let problem = Patterns::try_new([text]).expect_err(text);
            assert!(problem.len() < 400 && !problem.contains('\n'), "{problem}");
        }
    }
}
