//! Names that fall from one pattern to another.

use super::*;
use crate::CarryOver;
use crate::registry::rows::Written;
use crate::rule::Gap;

const RULE: &str = "rules = [{ kind = \"sliding_window\", limit = 10, per = \"10s\", margin = \"0s\" }]";

fn config(text: &str) -> Config {
    Config::parse(text).expect("valid")
}

fn limits(names: &[&str]) -> Config {
    let limit = |name: &&str| format!("[[limit]]\nname = {name:?}\n{RULE}\n");
    config(&names.iter().map(limit).collect::<String>())
}

fn put(registry: &mut Registry, name: &str, now: u64) {
    registry.put(millis(now), &limits(&[name]).limits[0], CarryOver::AsIs, false).expect("room");
}

fn lent(registry: &Registry, name: &str, now: u64) -> u64 {
    let lent = |session| {
        // Others each time: none says that it spent nothing of what it was lent.
        let node = Caller { session: 100 * now + session, ..caller(now) };
        registry.leases(millis(now), &node, &[ask(name, None, 0, 0, 10)]).grants.remove(0).permits
    };
    (1..30).map(lent).sum()
}

fn write(registry: &mut Registry, written: &mut Written, now: u64) {
    let batch = registry.write_down(millis(now));
    written.apply(&batch);
    registry.raise_high_water(&batch);
}

/// The bug: a pattern was removed, its names fell to a shorter one, and when it came back it lent all of that once more. So it did at
/// the next start, where the file had it again.
#[test]
fn a_pattern_that_comes_back_waits_for_what_was_lent_meanwhile() {
    let both = limits(&["u/*", "u/a*"]);
    for starts_again in [false, true] {
        let (mut registry, mut written) = (both.registry(Past::None, millis(0), 7), Written::default());
        registry.begin_writing(0);
        write(&mut registry, &mut written, 0);
        let before = lent(&registry, "u/a0", 10);
        write(&mut registry, &mut written, 11);
        assert!(registry.remove("u/a*"));
        let meanwhile = lent(&registry, "u/a1", 20);
        assert!(before > 8 && meanwhile > 8, "{before} and {meanwhile}");
        write(&mut registry, &mut written, 21);
        match starts_again {
            true => registry = both.restored(&written, Gap::Counted, millis(30), 8),
            false => put(&mut registry, "u/a*", 30),
        }
        assert_eq!(lent(&registry, "u/a1", 4_000), 0, "{starts_again}");
        assert!(before + lent(&registry, "u/a0", 4_010) <= 10, "{starts_again}");
        // By other names nothing was lent.
        assert_eq!(lent(&registry, "u/b", 4_020), 10, "{starts_again}");
        assert_eq!(lent(&registry, "u/a0", 14_000), 10, "{starts_again}: its pool waits for nothing else");
        assert_eq!(lent(&registry, "u/a1", 60_000), 10, "{starts_again}: all of that has left the window");
    }
}

/// The bug: after a start a pattern waited for what a limit had lent that was not configured any more. It was removed, too, and the name
/// fell to a shorter pattern that waited for nothing.
#[test]
fn a_name_waits_though_the_pattern_is_removed_that_waited_for_it() {
    let (mut registry, mut written) =
        (limits(&["*", "u/*", "u/7"]).registry(Past::None, millis(0), 7), Written::default());
    registry.begin_writing(0);
    write(&mut registry, &mut written, 0);
    assert!(lent(&registry, "u/7", 10) > 8 && lent(&registry, "v", 10) > 8);
    write(&mut registry, &mut written, 11);
    let mut registry = limits(&["*", "u/*"]).restored(&written, Gap::Counted, millis(30), 8);
    assert!(registry.remove("u/*"));
    assert_eq!(lent(&registry, "u/7", 40), 0);
    assert_eq!((lent(&registry, "u/8", 50), lent(&registry, "w", 60)), (10, 10), "nothing was lent by these");
    registry.sweep_retired(millis(4_000), 10);
    assert_eq!(lent(&registry, "u/7", 4_000), 0);
    registry.sweep_retired(millis(60_000), 10);
    assert_eq!(lent(&registry, "u/7", 60_000), 10, "all of that has left the window");
}
