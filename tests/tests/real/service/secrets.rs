//! Secrets come from files, and the allocator warns about a file that other users can read.

use super::{CONFIG, ended, folder, log, serve, started, until};
use lessor_allocator::cells::StoreKind;
use scenarios::process::lessor;
use scenarios::servers::Server;
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

fn set_mode(file: &Path, mode: u32) {
    set_permissions(file, Permissions::from_mode(mode)).expect("the permissions can be set");
}

/// The file is like one of systemd's `LoadCredential=` (`packaging/lessor.service`): one line, in a folder of its own.
#[test]
fn the_password_of_a_store_comes_from_a_file() {
    let warning = "every user of this machine can read the password";
    for kind in [StoreKind::Redis, StoreKind::Postgres, StoreKind::Etcd] {
        let server = Server::shared(kind);
        let (password, name) = (server.password(), kind.name());
        let url =
            server.url().replace(&format!(":{password}@"), if kind == StoreKind::Redis { "" } else { "@" });
        assert!(!url.contains(&password));
        let store = |file: &str, prefix: &str| {
            format!("[store]\nkind = {name:?}\nurl = {url:?}\nprefix = {prefix:?}\n{file}{CONFIG}")
        };
        let (folder, file) = folder("");
        let word = folder.path().join("store-password");
        let named = format!("password_file = {word:?}\n");
        std::fs::write(&file, store(&named, "of.file")).expect("a writable file");
        for (text, mode) in [(format!("{password}\n"), 0o400), (password.clone(), 0o644)] {
            let _ = std::fs::remove_file(&word);
            std::fs::write(&word, text).expect("a writable file");
            set_mode(&word, mode);
            let migrated = Command::new(lessor())
                .args(["store", "migrate", "--store-prefix", "of.file", "--store-url", &url])
                .arg("--store-password-file")
                .arg(&word)
                .output();
            let migrated = migrated.expect("the command runs");
            assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
            let (running, url) = started(&file, "info");
            let is_ready = || {
                let asked = Command::new(lessor()).args(["status", "--ready", "--server", &url]).output();
                asked.expect("the command runs").status.success()
            };
            until("the store accepts the new password", is_ready);
            let said = log(&file);
            assert_eq!(said.contains(warning), mode == 0o644, "{said}");
            assert!(!said.contains(&password), "{said}");
            assert_eq!(ended(running), Some(0));
        }
        let checked = Command::new(lessor()).arg("check").arg(&file).output().expect("the command runs");
        let shown = String::from_utf8_lossy(&checked.stdout);
        assert!(shown.contains(&named) && !shown.contains(&password), "{shown}");
    }
}

#[test]
fn a_password_file_that_cannot_be_used_ends_the_start_with_code_2() {
    let (folder, file) = folder("");
    let word = folder.path().join("word");
    let store =
        format!("[store]\nkind = \"redis\"\nurl = \"redis://127.0.0.1:1\"\npassword_file = {word:?}\n");
    std::fs::write(&file, format!("{store}{CONFIG}")).expect("a writable file");
    let refused = |part: &str| {
        let said = serve(&file, "error").output().expect("the command runs");
        let words = String::from_utf8_lossy(&said.stderr).into_owned();
        assert_eq!(said.status.code(), Some(2), "{words}");
        let named = format!("store.password_file: {}: ", word.display());
        assert!(words.contains(&named) && words.contains(part) && !words.contains("s3cret"), "{words}");
    };
    refused("No such file");
    assert!(Command::new("mkfifo").arg(&word).status().expect("the command runs").success());
    refused("no regular file");
    std::fs::remove_file(&word).expect("the file can be removed");
    std::fs::write(&word, "s3cret\nof two lines\n").expect("a writable file");
    refused("more than one line");
    // Some secret managers make links.
    std::fs::rename(&word, folder.path().join("..data")).expect("the file can be renamed");
    symlink(folder.path().join("..data"), &word).expect("a link");
    refused("more than one line");
}

#[test]
fn a_configuration_with_a_password_that_others_can_read_is_warned_about() {
    let warning = "every user of this machine can read the password in store.url";
    for (url, mode, is_warned) in [
        ("redis://:s3cret@127.0.0.1:1", 0o644, true),
        ("redis://:s3cret@127.0.0.1:1", 0o600, false),
        ("redis://127.0.0.1:1", 0o644, false),
    ] {
        let (_folder, file) = folder(&format!("[store]\nkind = \"redis\"\nurl = {url:?}\n{CONFIG}"));
        set_mode(&file, mode);
        let (running, _url) = started(&file, "warn");
        let said = log(&file);
        assert!(said.contains(warning) == is_warned && !said.contains("s3cret"), "{url} {mode:o}: {said}");
        assert_eq!(ended(running), Some(0));
    }
}
