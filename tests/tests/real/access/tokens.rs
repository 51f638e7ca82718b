//! Tokens come and go while a fleet is at work.

use super::desk::{Desk, Way, ask};
use lessor::{Client, Token};
use scenarios::process::lessor;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// Rotations, and the time in which they happen.
const ROTATIONS: u32 = 100;
const SPAN: Duration = Duration::from_secs(10);

/// Over and over, a new token is made and given to the node, and the old one is revoked. No call is refused because of
/// it, and a revoked token is refused while others come and go.
///
/// The bug: tokens that changed at each look were not read again, so revoked ones went on and new ones were refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_rotated_under_load_and_no_call_is_refused_for_it() {
    let desk = Desk::new(Way::Plain);
    let file = desk.file("node.token");
    let mut old = desk.token("a");
    std::fs::write(&file, &old).expect("a writable file");
    let allocator = desk.serve();
    let client = Client::builder(&allocator.url).node("a-1").token(Token::file(&file));
    let client = client.connect().await.expect("the allocator answers");
    let limit = client.limit("vendor");
    let (calls, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let caller = tokio::spawn({
        let (calls, refused) = (calls.clone(), refused.clone());
        async move {
            // Nine calls a second: a window of 600 a minute always allows that.
            let mut beat = tokio::time::interval(Duration::from_millis(110));
            loop {
                beat.tick().await;
                match tokio::time::timeout(Duration::from_secs(2), limit.acquire(1)).await {
                    Ok(Ok(())) => calls.fetch_add(1, Ordering::Relaxed),
                    Ok(Err(_)) | Err(_) => refused.fetch_add(1, Ordering::Relaxed),
                };
            }
        }
    });
    let mut beat = tokio::time::interval(SPAN / ROTATIONS);
    // After a slow rotation the next one would revoke a token before its node has sent it.
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let first = desk.http(Some(&old));
    let mut first_is_refused_after = None;
    for rotation in 0..ROTATIONS {
        let next = desk.token("a");
        std::fs::write(&file, &next).expect("a writable file");
        let id = old.split('_').nth(1).expect("an id");
        assert!(desk.token_command(&["revoke", id]).status.success());
        old = next;
        beat.tick().await;
        if first_is_refused_after.is_none() {
            let answer = ask(&first, "GET", &format!("{}/v1/limits", allocator.url), "").await;
            first_is_refused_after = (answer.status == 401).then_some(rotation);
        }
    }
    caller.abort();
    let (calls, refused) = (calls.load(Ordering::Relaxed), refused.load(Ordering::Relaxed));
    println!(
        "{ROTATIONS} rotations, {calls} calls, {refused} refused, {} exchanges failed",
        client.stats().failed_exchanges
    );
    assert!(calls > 60, "{calls}");
    assert!(
        first_is_refused_after.is_some_and(|rotations| rotations < ROTATIONS / 2),
        "{first_is_refused_after:?}"
    );
    assert_eq!(refused, 0);
    client.shutdown().await;
}

/// The bug: a reader that closed the pipe early, such as `head`, made `lessor token list` and `revoke` fail. A new token
/// that nothing reads is lost.
#[test]
fn only_a_new_token_needs_a_reader() {
    let desk = Desk::new(Way::Plain);
    let run = |args: &[&str]| {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = Command::new(lessor());
        command.arg("token").args(args).arg("--file").arg(desk.file("tokens.toml")).stdout(writer);
        let output = command.output().expect("the command runs");
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    };
    let (code, error) = run(&["new", "a"]);
    assert!(code == Some(1) && error.contains("cannot write to stdout"), "{error}");
    assert_eq!(run(&["list"]), (Some(0), String::new()));
    assert_eq!(run(&["revoke", "a"]), (Some(0), String::new()));
}

#[test]
fn the_file_of_tokens_is_for_its_owner_alone_and_has_no_token() {
    let desk = Desk::new(Way::Plain);
    std::fs::remove_file(desk.file("tokens.toml")).expect("the file can be removed");
    let token = desk.token("billing");
    let file = desk.file("tokens.toml");
    let text = std::fs::read_to_string(&file).expect("a readable file");
    let secret = token.rsplit('_').next().expect("a secret");
    assert!(secret.len() == 64 && !text.contains(secret) && text.contains("billing"), "{text}");
    assert_eq!(std::fs::metadata(&file).expect("the file is there").permissions().mode() & 0o777, 0o600);
    // A file that an allocator of another user may read keeps its permissions.
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640))
        .expect("the permissions can be set");
    let other = desk.token("billing");
    assert_eq!(std::fs::metadata(&file).expect("the file is there").permissions().mode() & 0o777, 0o640);
    let list = desk.token_command(&["list"]);
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    assert!(list.lines().count() == 3 && !list.contains(secret), "{list}");
    let id = other.split('_').nth(1).expect("an id").to_owned();
    assert!(desk.token_command(&["revoke", &id]).status.success());
    assert!(!desk.token_command(&["revoke", &id]).status.success(), "the token was revoked before");
    let folder: Vec<_> = std::fs::read_dir(desk.folder())
        .expect("the folder can be read")
        .flatten()
        .map(|file| file.file_name())
        .collect();
    assert!(!folder.iter().any(|name| name.to_string_lossy().starts_with(".tmp")), "{folder:?}");
}

#[test]
fn what_cannot_be_made_is_refused_and_changes_nothing() {
    let desk = Desk::new(Way::Plain);
    desk.token("a");
    let file = desk.file("tokens.toml");
    let before = std::fs::read_to_string(&file).expect("a readable file");
    for (args, said) in [
        (&["new", "a b"][..], "is no name for a token"),
        (&["new", ""], "is no name for a token"),
        (&["new", "a", "--valid", "0s"], "not between"),
        (&["revoke", "nowhere"], "there is no token"),
    ] {
        let output = desk.token_command(args);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && stderr.contains(said), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty());
    }
    assert_eq!(std::fs::read_to_string(&file).expect("a readable file"), before);
    std::fs::write(&file, "[[token]]\nid = 7\n").expect("a writable file");
    let output = desk.token_command(&["new", "a"]);
    assert!(output.status.code() == Some(2) && !output.stderr.is_empty());
}

/// Tokens that are made at the same time are all kept.
#[test]
fn tokens_that_are_made_at_once_are_all_there() {
    let desk = Desk::new(Way::Plain);
    std::thread::scope(|scope| {
        for index in 0..8 {
            let desk = &desk;
            scope.spawn(move || desk.token(&format!("n{index}")));
        }
    });
    let list = desk.token_command(&["list", "--json"]);
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).expect("JSON");
    assert_eq!(list["tokens"].as_array().expect("a list").len(), 8, "{list}");
}
