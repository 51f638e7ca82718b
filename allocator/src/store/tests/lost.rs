//! A store that is lost is replaced in one step, and one that may be whole is left as it is.

use super::super::aside;
use super::*;

/// The bug: a lost store was set aside before there was another one. After a death in between it was as if there had been
/// no earlier life, and `--fresh` was believed.
#[test]
fn a_lost_store_stays_where_it_is_until_another_one_has_its_first_batch() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.redb");
    let names = || {
        let names = std::fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("a file"));
        let mut names: Vec<String> =
            names.map(|entry| entry.file_name().into_string().expect("text")).collect();
        names.sort_unstable();
        names
    };
    // A first start that ends early leaves no store, either.
    drop(Embedded::open(&path).expect("it can be made"));
    assert_eq!(names(), ["a.redb.new", "a.redb.new.seal"]);
    drop(filled(&path));
    assert_eq!(names(), ["a.redb", "a.redb.seal"]);
    std::fs::remove_file(seal::beside(&path)).expect("it is there");
    for _ in 0..2 {
        let (store, found) = Embedded::open(&path).expect("it can be opened");
        assert_eq!(found.expect_err("no seal"), Lost::Older);
        assert!(matches!(Embedded::open(&path), Err(StoreError::Taken(_))), "it is being replaced");
        drop(store);
        assert_eq!(names(), ["a.redb", "a.redb.new", "a.redb.new.seal"]);
    }
    assert_eq!(reopened(&path).expect_err("no seal"), Lost::Older);
    assert_eq!(names(), ["a.redb", "a.redb.lost", "a.redb.seal"]);
    assert_eq!(reopened(&path).expect("it is the new one").written, Written::default());
}

/// The bug: a lost store could not be replaced on a file system without links, so no start was possible.
#[test]
fn a_lost_store_is_copied_where_there_are_no_links() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, name) = (folder.path().join("a.redb"), folder.path().join("a.redb.lost"));
    std::fs::write(&path, "lost").expect("a file");
    aside::keep(&path, |_, _| Err(std::io::ErrorKind::PermissionDenied.into())).expect("it can be copied");
    let texts = [&path, &name].map(|path| std::fs::read_to_string(path).expect("a file"));
    assert_eq!(texts, ["lost", "lost"]);
}

/// The bug: a seal that the system could not read counted as none, and a store of a later version as damaged. Both were
/// set aside.
#[test]
fn a_store_that_may_be_whole_is_left_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.redb");
    let seal = seal::beside(&path);
    drop(filled(&path));
    let kept = std::fs::read(&seal).expect("a file");
    let refused = |says: &str| {
        let error = Embedded::open(&path).map(|_| ()).expect_err("it cannot be read").to_string();
        assert!(error.contains(says), "{error}");
        assert!(matches!(Embedded::check(&path), Err(StoreError::Unusable { .. })));
    };
    std::fs::remove_file(&seal).expect("it is there");
    std::fs::create_dir(&seal).expect("the name is free");
    refused("a.redb.seal: Is a directory");
    std::fs::remove_dir(&seal).expect("it is empty");
    std::fs::write(&seal, &kept).expect("a file");
    assert_eq!(reopened(&path).expect("it is whole").written.limits.len(), 2);
    let (mut store, _) = Embedded::open(&path).expect("it can be opened");
    store.of_format(2);
    commit(&mut store, &batch(2)).expect("there is room");
    drop(store);
    refused("its format is 2, this version reads 1");
    assert!(!folder.path().join("a.redb.lost").exists());
}
