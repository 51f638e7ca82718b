//! Parts of the demo as separate processes: the vendor, and nodes that can start before any other process.

use lessor_allocator::cells::private::HeldPort;
use rustix::process::Signal;
use scenarios::fleet::eventually;
use scenarios::process::{Allocator, Running, lessor};
use serde_json::Value;
use std::process::{Command, Output};

const CONFIG: &str = include_str!("../../../cli/src/demo/contract/lessor.toml");

/// Starts a part and returns its URL, which it prints first.
fn start(args: &[&str]) -> (Running, String) {
    let mut running = Running::start(Command::new(lessor()).arg("demo").args(args));
    let url = running.listens();
    (running, url)
}

/// Ends a part in good order, and returns its last line.
fn end(mut running: Running) -> Value {
    running.signal(Signal::TERM);
    let line = running.line();
    assert_eq!(running.wait().code(), Some(0), "{line}");
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

async fn get(url: String) -> reqwest::Response {
    reqwest::get(&url).await.unwrap_or_else(|error| panic!("{url}: {error}"))
}

async fn is_ready(url: &str) -> bool {
    let status = get(format!("{url}/readyz")).await.status();
    let mut command = Command::new(lessor());
    command.args(["status", "--ready", "--server", url]);
    let said = tokio::task::spawn_blocking(move || command.output())
        .await
        .expect("no panic")
        .expect("the command runs");
    assert!(said.status.success() || !status.is_success(), "readyz says {status}: {said:?}");
    said.status.success()
}

/// Nodes that start before there is an allocator wait for it and make their calls then. The vendor never has to refuse
/// one.
#[tokio::test(flavor = "multi_thread")]
async fn a_vendor_and_nodes_run_by_themselves() {
    let (vendor, vendor_url) = start(&["vendor", "--listen", "127.0.0.1:0"]);
    let port = HeldPort::any().expect("a free port");
    let url = format!("http://{}", port.address());
    let nodes: Vec<(Running, String)> = ["1", "2"]
        .map(|number| {
            let args = ["--number", number, "--of", "2", "--listen", "127.0.0.1:0", "--allocator", &url];
            start(&[&["node", "--vendor", &vendor_url][..], &args[..]].concat())
        })
        .into();
    assert!(is_ready(&vendor_url).await);
    assert!(!is_ready(&nodes[0].1).await, "a node is ready before it has a lease");
    let _allocator = Allocator::start(CONFIG, &port.address().to_string(), true);
    let seen = async || -> Value { get(format!("{vendor_url}/seen")).await.json().await.expect("JSON") };
    eventually("the vendor sees both kinds of calls", async || {
        let seen = seen().await;
        let are_many = |kind: &str, many| seen[kind]["admitted"].as_u64() > Some(many);
        (are_many("calls", 200) && are_many("messages", 20)).then_some(())
    })
    .await;
    let mut admitted = 0;
    for (node, url) in nodes {
        assert!(is_ready(&url).await);
        // A node that asked before there was an allocator serves its metrics all the same.
        assert!(get(format!("{url}/metrics")).await.status().is_success());
        let did = tokio::task::spawn_blocking(move || end(node)).await.expect("no panic");
        assert_eq!(did["vendor_refused"], 0, "{did}");
        admitted +=
            did["vendor/rest"]["admitted"].as_u64().expect("a number") - did["unsent"].as_u64().expect("one");
    }
    let seen = end(vendor);
    assert_eq!(seen["calls"]["admitted"], admitted, "{seen}");
    assert_eq!([&seen["calls"]["too_many"], &seen["messages"]["too_many"]], [0, 0], "{seen}");
}

#[test]
fn what_a_part_cannot_be_is_exit_code_2_and_one_line() {
    let check = |args: &str, names: &str| {
        let output: Output = Command::new(lessor()).args(args.split(' ')).output().expect("the command runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args}: {said}");
        assert!(said.contains(names), "{args}: {said}");
    };
    check("demo node --number 3 --of 2", "--number 3");
    check("demo node --vendor vendor:7401", "--vendor");
    check("demo node --allocator nowhere", "nowhere");
    check("demo vendor --listen 7401", "--listen");
    check("status --ready --json", "--json");
    check("status --ready --live", "--live");
    let help = Command::new(lessor()).args(["demo", "node", "--help"]).output().expect("the command runs");
    assert!(String::from_utf8_lossy(&help.stdout).contains("Exit codes"));
}
