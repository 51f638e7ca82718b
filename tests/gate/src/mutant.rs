//! The mistakes under `tests/mutants`, one file each, as [`crate::plant`] reads them.
//!
//! ```text
//! A node counts the term from when the answer came.      what is wrong
//! in: Any                                                where it is looked for: a scenario
//!
//! at: holder/src/refill.rs                               a file; as often as the mistake has places
//! | holder_end(⟦first_sent⟧, grant.term)                 text that is there once, and in it what is replaced
//! = now                                                  by what; nothing leaves it out
//!
//! at: holder/src/refill.rs
//! | mod stuck; ⟦⟧
//! + fn helper() {}                                       what is always in the copy, for the other places
//! ```
//!
//! White space does not count. The marked part is a whole expression, whole statements, or a place between two
//! statements.

use crate::scenario::Scenario;
use std::path::{Path, PathBuf};

/// A mistake that could be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// The name of the mistake, and of its file.
    pub name: String,
    /// The mistake in a sentence.
    pub wrong: String,
    /// The fleets in which it is looked for.
    pub scenario: Scenario,
    /// The places in the sources that it changes.
    pub places: Vec<Place>,
}

/// A place in the sources that a mistake changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The file, from the root of the repository.
    pub file: PathBuf,
    /// The text at the place, with ⟦ and ⟧ around the part that is replaced.
    pub text: String,
    /// The text in place of the marked part.
    pub with: String,
    /// Text that stands there whether or not the mistake is switched on.
    pub always: String,
}

/// Returns the root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads all mistakes, in the order of their names.
///
/// # Errors
/// Says in words which file cannot be read.
pub fn all() -> Result<Vec<Mutant>, String> {
    let folder = root().join("tests/mutants");
    let files = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut mutants = vec![];
    for file in files {
        let path = file.map_err(|error| error.to_string())?.path();
        if path.extension().is_some_and(|extension| extension == "mutant") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let text =
                std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            mutants.push(Mutant::read(&name, &text).map_err(|wrong| format!("{name}: {wrong}"))?);
        }
    }
    mutants.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(mutants)
}

impl Mutant {
    /// Reads the mistake called `name` from `text`.
    ///
    /// # Errors
    /// Says in words why `text` describes no mistake.
    pub fn read(name: &str, text: &str) -> Result<Mutant, String> {
        let mut lines = text.lines();
        let wrong = lines.next().unwrap_or_default().trim().to_owned();
        if !wrong.ends_with('.') {
            return Err(format!("{wrong:?} is no sentence"));
        }
        let scenario =
            lines.next().and_then(|line| line.strip_prefix("in: ")).ok_or("its scenario is missing")?;
        let scenario = Scenario::named(scenario.trim()).ok_or(format!("{scenario:?} is no scenario"))?;
        let mut places: Vec<Place> = vec![];
        for line in lines.filter(|line| !line.trim().is_empty()) {
            if let Some(file) = line.strip_prefix("at: ") {
                places.push(Place { file: file.trim().into(), ..Place::default() });
                continue;
            }
            let place = places.last_mut().ok_or(format!("{line:?} comes before a file"))?;
            match line.split_at_checked(1) {
                Some(("|", text)) => place.text += &format!("{}\n", text.strip_prefix(' ').unwrap_or(text)),
                Some(("=", with)) => place.with += &format!("{}\n", with.strip_prefix(' ').unwrap_or(with)),
                Some(("+", always)) => {
                    place.always += &format!("{}\n", always.strip_prefix(' ').unwrap_or(always));
                }
                _ => return Err(format!("{line:?} begins with none of `at: `, `| `, `= ` and `+ `")),
            }
        }
        if places.is_empty() {
            return Err("it changes nothing".to_owned());
        }
        Ok(Mutant { name: name.to_owned(), wrong, scenario, places })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_read_with_all_of_its_places() {
        let text = "It is wrong.\nin: Any\n\nat: a/b.rs\n| let a =\n|     ⟦1⟧;\n= 2\n\nat: c.rs\n| x; ⟦⟧\n= y();\n= z();\n";
        let mutant = Mutant::read("Wrong", text).expect("it is one");
        assert_eq!((mutant.wrong.as_str(), mutant.scenario), ("It is wrong.", Scenario::Any));
        let [first, second] = &mutant.places[..] else { panic!("{:?}", mutant.places) };
        assert_eq!((first.text.as_str(), first.with.as_str()), ("let a =\n    ⟦1⟧;\n", "2\n"));
        assert_eq!((second.file.as_path(), second.with.as_str()), (Path::new("c.rs"), "y();\nz();\n"));
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in [
            "",
            "Wrong.\n",
            "Wrong.\nin: Nowhere\n",
            "Wrong.\nin: Any\n",
            "Wrong.\nin: Any\n| x\n",
            "Wrong.\nin: Any\nat: a.rs\nx\n",
        ] {
            assert!(Mutant::read("Wrong", text).is_err(), "{text:?}");
        }
    }
}
