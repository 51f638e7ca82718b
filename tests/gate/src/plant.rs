//! Plants mistakes: makes copies of the sources in which each can be switched on. The sources themselves know of none.
//!
//! A marked part becomes `if planted::is(N) { … } else { … }`, so one build has all mistakes. `tests/wrappers/mutants`
//! makes the compiler read the copies.

use crate::mutant::{Mutant, Place};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The crates that are copied, whether or not they have a mistake.
pub(crate) const CRATES: [&str; 5] = ["protocol", "holder", "ledger", "client", "sim"];

/// The switch, as a module of `lessor-protocol`.
const SWITCH: &str = "

/// Which mistake is switched on in this thread.
pub mod planted {
    use std::cell::Cell;

    thread_local! {
        static ON: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    /// Whether the mistake with this number is switched on in this thread.
    #[inline]
    pub fn is(mistake: usize) -> bool {
        ON.get() == mistake
    }

    /// Runs `act` with a mistake switched on in this thread, until it returns or panics.
    pub fn with<T>(mistake: usize, act: impl FnOnce() -> T) -> T {
        struct Off;
        impl Drop for Off {
            fn drop(&mut self) {
                ON.set(usize::MAX);
            }
        }
        let _off = Off;
        ON.set(mistake);
        act()
    }
";

/// A part of a text that one mistake replaces.
#[derive(Clone, Debug)]
struct Change {
    span: Range<usize>,
    mistake: usize,
    with: String,
    always: String,
}

/// Returns the sources of the crates that have mistakes in `root` with all `mutants` in them, by path.
///
/// # Errors
/// Says in words which file cannot be read, or which mistake has no place in it.
pub fn planted(root: &Path, mutants: &[Mutant]) -> Result<BTreeMap<PathBuf, String>, String> {
    let mut changes: BTreeMap<&Path, Vec<(usize, &Place)>> = BTreeMap::new();
    for (mistake, mutant) in mutants.iter().enumerate() {
        for place in &mutant.places {
            changes.entry(&place.file).or_default().push((mistake, place));
        }
    }
    let mut files = BTreeMap::new();
    for folder in CRATES {
        read_all(root, &Path::new(folder).join("src"), &mut files)?;
    }
    for (file, places) in changes {
        let text = files.get_mut(file).ok_or(format!("{} is in none of {CRATES:?}", file.display()))?;
        let switch = match file.starts_with("protocol") {
            true => "crate::planted::is",
            false => "lessor_protocol::planted::is",
        };
        let change = |(mistake, place): (usize, &Place)| {
            let span = find(text, &place.text);
            let span =
                span.map_err(|wrong| format!("{} in {}: {wrong}", mutants[mistake].name, file.display()))?;
            let (with, always) = (place.with.trim().to_owned(), place.always.clone());
            Ok(Change { span, mistake, with, always })
        };
        let changes: Result<Vec<Change>, String> = places.into_iter().map(change).collect();
        let changed = render(text, 0..text.len(), changes?, switch);
        *text = changed.map_err(|(a, b)| {
            let (a, b) = (&mutants[a].name, &mutants[b].name);
            format!("{a} and {b} overlap in {}: let one contain the other", file.display())
        })?;
    }
    let names: Vec<&str> = mutants.iter().map(|mutant| mutant.name.as_str()).collect();
    let protocol = files.get_mut(Path::new("protocol/src/lib.rs")).ok_or("protocol/src/lib.rs is missing")?;
    let names =
        format!("\n    /// Their names, by number.\n    pub const NAMES: &[&str] = &{names:?};\n}}\n");
    *protocol += &format!("{SWITCH}{names}");
    Ok(files)
}

/// Writes `files` into `folder`, except unchanged ones, and removes all others there.
///
/// # Errors
/// Says in words which file cannot be written.
pub fn write(folder: &Path, files: &BTreeMap<PathBuf, String>) -> Result<(), String> {
    let mut there = BTreeMap::new();
    for name in CRATES {
        let part = Path::new(name).join("src");
        if folder.join(&part).exists() {
            read_all(folder, &part, &mut there)?;
        }
    }
    let said = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    for gone in there.keys().filter(|path| !files.contains_key(*path)) {
        let path = folder.join(gone);
        std::fs::remove_file(&path).map_err(|error| said(&path, error))?;
    }
    // A file that has not changed keeps its age, and is not built again.
    for (path, text) in files.iter().filter(|(path, text)| there.get(*path) != Some(text)) {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).map_err(|error| said(parent, error))?;
        std::fs::write(&path, text).map_err(|error| said(&path, error))?;
    }
    Ok(())
}

/// Reads all sources below `folder` of `root`, and the tables they include, by their path from `root`.
fn read_all(root: &Path, folder: &Path, files: &mut BTreeMap<PathBuf, String>) -> Result<(), String> {
    let said = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in std::fs::read_dir(root.join(folder)).map_err(said)? {
        let entry = entry.map_err(said)?;
        let path = folder.join(entry.file_name());
        if entry.file_type().map_err(said)?.is_dir() {
            read_all(root, &path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "csv") {
            let text = std::fs::read_to_string(root.join(&path)).map_err(said)?;
            files.insert(path, text);
        }
    }
    Ok(())
}

/// Finds the part of `text` that `pattern` marks.
fn find(text: &str, pattern: &str) -> Result<Range<usize>, String> {
    let solid = |text: &str| -> String { text.chars().filter(|letter| !letter.is_whitespace()).collect() };
    let parts: Vec<String> = pattern.split(['⟦', '⟧']).map(solid).collect();
    let [before, marked, after] = &parts[..] else {
        return Err("mark one part, with ⟦ and ⟧".to_owned());
    };
    // The place of each letter of the text, without white space.
    let letters: Vec<(usize, char)> =
        text.char_indices().filter(|(_, letter)| !letter.is_whitespace()).collect();
    let (all, wanted) = (solid(text), format!("{before}{marked}{after}"));
    let mut found = all.match_indices(&wanted);
    let (first, others) = (found.next(), found.count());
    let Some((at, _)) = first else { return Err(format!("{:?} is not there", pattern.trim())) };
    if others > 0 {
        return Err(format!("{:?} is there {} times", pattern.trim(), others + 1));
    }
    let nth = |bytes: usize| all[..bytes].chars().count();
    let (begins, ends) = (nth(at + before.len()), nth(at + before.len() + marked.len()));
    let end_of = |letter: usize| letters[letter].0 + letters[letter].1.len_utf8();
    if begins == ends {
        let place = if begins == 0 { 0 } else { end_of(begins - 1) };
        return Ok(place..place);
    }
    Ok(letters[begins].0..end_of(ends - 1))
}

/// Returns the part `range` of `text` with `changes` in it. An error names two changes that overlap.
fn render(
    text: &str,
    range: Range<usize>,
    mut changes: Vec<Change>,
    switch: &str,
) -> Result<String, (usize, usize)> {
    changes.sort_by_key(|change| (change.span.start, std::cmp::Reverse(change.span.end)));
    // A change at the beginning of what another one marks comes before it.
    changes.sort_by_key(|change| (change.span.start, !change.span.is_empty()));
    let (mut done, mut result, mut changes) = (range.start, String::new(), changes.into_iter().peekable());
    while let Some(outer) = changes.next() {
        let span = outer.span.clone();
        let (mut same, mut inner) = (vec![outer], vec![]);
        while let Some(next) =
            changes.next_if(|next| next.span == span || (next.span.start < span.end && !span.is_empty()))
        {
            if next.span == span {
                same.push(next);
            } else if next.span.end <= span.end {
                inner.push(next);
            } else {
                return Err((same[0].mistake, next.mistake));
            }
        }
        result += &text[done..span.start];
        done = span.end;
        let clean = render(text, span, inner, switch)?;
        same.retain(|change| {
            result += &change.always;
            change.always.is_empty()
        });
        if same.is_empty() {
            result += &clean;
            continue;
        }
        let is_statement = clean.trim().is_empty() || clean.trim_end().ends_with([';', '}']);
        let (open, close) = if is_statement { (" ", " ") } else { ("(", ")") };
        result += open;
        for Change { mistake, with, .. } in &same {
            let _ = write!(result, "if {switch}({mistake}) {{ {with} }} else ");
        }
        let _ = write!(result, "{{ {clean} }}{close}");
    }
    result += &text[done..range.end];
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutant::{all, root};

    fn change(text: &str, pattern: &str, mistake: usize, with: &str) -> Change {
        Change {
            span: find(text, pattern).expect("it is there"),
            mistake,
            with: with.to_owned(),
            always: String::new(),
        }
    }

    #[test]
    fn every_mistake_has_its_place() {
        let mutants = all().expect("they can be read");
        assert!(mutants.len() >= 100, "{} mistakes", mutants.len());
        planted(&root(), &mutants).expect("each can be planted");
    }

    #[test]
    fn white_space_does_not_count_and_what_is_not_there_once_is_refused() {
        let text = "let a = b\n    .max(c);\nlet d = b.max(e);\n";
        assert_eq!(&text[find(text, "a = ⟦b.max(c)⟧;").expect("it is there")], "b\n    .max(c)");
        let place = find(text, "b.max(c); ⟦⟧").expect("it is there");
        assert_eq!((place.start, place.end), (22, 22));
        assert!(find(text, "⟦b.max(⟧").is_err_and(|wrong| wrong.ends_with("is there 2 times")));
        assert!(find(text, "⟦f⟧").is_err_and(|wrong| wrong.ends_with("is not there")));
        assert!(find(text, "a = b").is_err(), "nothing is marked");
    }

    #[test]
    fn each_is_a_branch_of_its_own() {
        let text = "let a = f(b); g(a);";
        let changes = vec![
            change(text, "a = ⟦f(b)⟧", 0, "1"),
            change(text, "f(⟦b⟧)", 1, "c"),
            change(text, "a = ⟦f(b)⟧", 2, "2"),
            change(text, "⟦g(a);⟧", 3, ""),
            change(text, "f(b);⟦⟧", 4, "h();"),
        ];
        let planted = render(text, 0..text.len(), changes, "is").expect("none overlaps");
        assert_eq!(
            planted,
            "let a = (if is(0) { 1 } else if is(2) { 2 } else { f((if is(1) { c } else { b })) }); \
             if is(4) { h(); } else {  }   if is(3) {  } else { g(a); } "
        );
    }

    #[test]
    fn two_that_overlap_are_named() {
        let text = "a + b + c";
        let changes = vec![change(text, "⟦a + b⟧", 0, "1"), change(text, "⟦b + c⟧", 1, "2")];
        assert_eq!(render(text, 0..text.len(), changes, "is"), Err((0, 1)));
    }
}
