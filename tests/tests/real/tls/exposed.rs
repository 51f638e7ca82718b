//! Allocators that listen on an address which other machines can reach.

use super::desk::{Desk, get};
use scenarios::fleet::eventually;
use scenarios::process::{Running, lessor};
use std::fs::{self, File};
use std::process::{Command, Output};

const LIMIT: &str = "[store]\nkind = \"memory\"\n[[limit]]\nname = \"a\"\nrules = [{ kind = \"fixed_window\", limit = 1, per = \"1s\" }]\n";

/// Returns `lessor serve` with this `[server]` section, on `listen` if that is given.
fn command(desk: &Desk, server: &str, listen: Option<&str>) -> Command {
    let file = desk.file("lessor.toml");
    fs::write(&file, format!("[server]\n{server}\n{LIMIT}")).expect("a writable file");
    let mut command = Command::new(lessor());
    command.args(["serve", "--fresh", "--config"]).arg(file);
    if let Some(listen) = listen {
        command.args(["--listen", listen]);
    }
    command
}

#[test]
fn an_address_that_other_machines_reach_is_refused_at_the_start() {
    let desk = Desk::new();
    let (certificate, key) = desk.files("server");
    let encrypted = format!("tls = {{ certificate = {certificate:?}, key = {key:?} }}");
    for (server, listen) in [
        ("", Some("0.0.0.0:0")),
        ("", Some("[::]:0")),
        ("listen = \"0.0.0.0:0\"", None),
        (encrypted.as_str(), Some("0.0.0.0:0")),
    ] {
        let log = File::create(desk.file("log")).expect("a writable file");
        let mut running = Running::start(command(&desk, server, listen).stderr(log));
        assert_eq!(running.line(), "", "the allocator listens");
        assert_eq!(running.wait().code(), Some(2));
        assert!(desk.logged(&["which other machines reach", "insecure = true"]).is_some());
    }
}

#[tokio::test]
async fn what_is_insecure_is_said_as_long_as_it_serves() {
    let desk = Desk::new();
    let log = File::create(desk.file("log")).expect("a writable file");
    let mut running = Running::start(command(&desk, "insecure = true", Some("0.0.0.0:0")).stderr(log));
    let url = running.listens().replace("0.0.0.0", "127.0.0.1");
    let words = ["WARN", "any of them is let in and is spoken in clear"];
    eventually("the log warns", async || desk.logged(&words)).await;
    let output: Output =
        Command::new(lessor()).args(["status", "--server", &url]).output().expect("the command runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("any of them is let in"), "{said}");
    // With certificates on both sides there is nothing to warn about.
    let server = desk.setting(true);
    let log = File::create(desk.file("log")).expect("a writable file");
    let mut running = Running::start(command(&desk, &server, Some("0.0.0.0:0")).stderr(log));
    let url = running.listens().replace("0.0.0.0", "127.0.0.1");
    assert_eq!(get(&desk.client(), &format!("{url}/livez")).await, Ok(200));
    assert_eq!(desk.logged(&["WARN"]), None);
}

/// The containers listen on all addresses of a network of their own.
#[test]
fn what_compose_runs_is_not_refused() {
    for text in [
        include_str!("../../../../packaging/compose/embedded.toml"),
        include_str!("../../../../packaging/compose/redis.toml"),
        include_str!("../../../../packaging/compose/postgres.toml"),
    ] {
        let config = lessor_allocator::Config::parse(text).expect("we ship it");
        let exposure = config.exposure(&"0.0.0.0:7400".parse().expect("an address"));
        assert!(exposure.is_some_and(|exposure| exposure.is_accepted));
    }
}
