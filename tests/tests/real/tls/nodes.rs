//! Nodes, allocators and operators that connect to an allocator with certificates.

use super::desk::{Desk, get, serve, serve_by};
use lessor::Client;
use lessor_tls::dev_ca::{DevCa, Purpose, VALID};
use lessor_tls::{HttpClient, Tls};
use scenarios::fleet::eventually;
use scenarios::process::{Allocator, Node, Running, lessor};
use serde_json::Value;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(5);

/// Returns the command of a node, with the certificates of `desk`.
fn spender(desk: &Desk) -> Command {
    let (certificate, key) = desk.files("client");
    let mut command = Command::new(env!("CARGO_BIN_EXE_spender"));
    command.env("LESSOR_CA", desk.ca()).env("LESSOR_CERT", certificate).env("LESSOR_KEY", key);
    command
}

#[tokio::test]
async fn a_node_leases_and_spends_by_its_certificate() {
    let desk = Desk::new();
    let allocator = serve(&desk, true);
    let mut node = Node::start_by(&mut spender(&desk), &allocator.url, "vendor", "a");
    assert_eq!(node.acquire(20, 5_000).len(), 20);
    node.quit();
    // Without a certificate, with one of another authority, or in clear, the same process is refused.
    let other = Desk::new();
    let (certificate, key) = other.files("client");
    let without = Tls::new().ca(desk.ca());
    for tls in [without.clone(), without.certificate(certificate, key), Tls::new().ca(other.ca())] {
        let refused = Client::builder(&allocator.url).tls(tls).connect().await.map(|_| ());
        let said = refused.expect_err("this client is refused").to_string();
        assert!(said.contains("alert") || said.contains("certificate"), "{said}");
    }
    let clear = Client::connect(&allocator.url.replace("https", "http")).await.map(|_| ());
    assert!(clear.is_err(), "the allocator answers in plain HTTP");
    let nowhere = Client::builder(&allocator.url).tls(Tls::new().ca("/nowhere.crt")).build().map(|_| ());
    assert!(nowhere.expect_err("no file").to_string().starts_with("TLS: /nowhere.crt: "));
}

/// Both sides change to a new authority while they run.
#[tokio::test]
async fn a_client_shows_the_certificate_that_is_there_when_it_connects() {
    let desk = Desk::new();
    let allocator = serve(&desk, true);
    let url = format!("{}/livez", allocator.url);
    // The client keeps trusting the authority of the server, and has read its own certificate.
    let server_ca = desk.file("server-ca.crt");
    std::fs::copy(desk.ca(), &server_ca).expect("a file");
    let (certificate, key) = desk.files("client");
    let tls = Tls::new().ca(server_ca).certificate(certificate, key);
    let client = HttpClient::try_new(SOON, Some(tls)).expect("good files");
    let next = DevCa::try_new().expect("random numbers");
    std::fs::write(desk.ca(), next.certificate()).expect("a writable file");
    let old = || desk.client_of(desk.file("server-ca.crt"));
    eventually("the server trusts another authority", async || get(&old(), &url).await.err()).await;
    assert!(get(&client, &url).await.is_err(), "the old certificate is refused");
    next.sign(Purpose::Client, VALID).expect("good").write(desk.folder(), "client").expect("it is ours");
    assert_eq!(get(&client, &url).await, Ok(200), "the new certificate is accepted");
}

#[tokio::test]
async fn a_limit_is_leased_from_an_allocator_by_certificate() {
    let desk = Desk::new();
    let centre = serve(&desk, true);
    let (certificate, key) = desk.files("client");
    let config = format!(
        "[store]\nkind = \"memory\"\n[upstream_tls]\nca = {:?}\ncertificate = {certificate:?}\nkey = {key:?}\n\
         [[limit]]\nname = \"vendor\"\nupstream = {:?}\n",
        desk.ca(),
        centre.url
    );
    let region = Allocator::start(&config, "127.0.0.1:0", true);
    let mut node = Node::start(env!("CARGO_BIN_EXE_spender"), &region.url, "vendor", "a");
    assert_eq!(node.acquire(20, 5_000).len(), 20);
    node.quit();
}

/// Problems with the files are reported before an address is bound.
#[test]
fn certificates_for_an_upstream_that_cannot_be_used_are_refused_at_the_start() {
    let desk = Desk::new();
    let config = "[upstream_tls]\nca = \"/nowhere.crt\"\n[[limit]]\nname = \"vendor\"\nupstream = \"https://127.0.0.1:1\"\n";
    std::fs::write(desk.file("lessor.toml"), config).expect("a file");
    let output = Command::new(lessor()).args(["serve", "--config"]).arg(desk.file("lessor.toml")).output();
    let output = output.expect("the command runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("upstream_tls: /nowhere.crt: "), "{said}");
}

#[test]
fn operators_ask_by_certificate() {
    let desk = Desk::new();
    let allocator = serve(&desk, true);
    let ask = |args: &[&str], files: &[&str]| -> Output {
        let mut command = Command::new(lessor());
        command.args(args).args(["--server", &allocator.url]);
        for file in files {
            let name = if *file == "ca" { "ca.crt".to_owned() } else { file.replace("cert", "crt") };
            let path = if *file == "ca" { desk.file(&name) } else { desk.file(&format!("client.{name}")) };
            command.arg(format!("--{file}")).arg(path);
        }
        command.output().expect("the command runs")
    };
    let all = ["ca", "cert", "key"];
    for args in
        [&["status"][..], &["status", "--ready"], &["limits", "list"], &["top", "--once", "--every", "100ms"]]
    {
        let output = ask(args, &all);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let shown = ask(&["limits", "get", "vendor", "--json"], &all).stdout;
    assert_eq!(serde_json::from_slice::<Value>(&shown).expect("JSON")["name"], "vendor");
    for (files, code, words) in [
        (&["ca"][..], 1, "CertificateRequired"),
        (&[][..], 1, "certificate"),
        (&["ca", "cert"], 2, "without --key"),
        (&["ca", "key"], 2, "without --cert"),
    ] {
        let output = ask(&["status"], files);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(words), "{said}");
    }
}

/// The nodes of a demo take certificates, too.
#[tokio::test]
async fn a_node_of_the_demo_asks_by_certificate() {
    let desk = Desk::new();
    let limits = "[[limit]]\nname = \"vendor/rest\"\nrules = [{ kind = \"fixed_window\", limit = 10, per = \"1s\" }]\n";
    let allocator = serve_by(&desk, desk.command_with(true, limits));
    let (certificate, key) = desk.files("client");
    let mut command = Command::new(lessor());
    command.args(["demo", "node", "--number", "1", "--of", "1", "--vendor", "http://127.0.0.1:1"]);
    command.args(["--allocator", &allocator.url]).arg("--ca").arg(desk.ca());
    command.arg("--cert").arg(certificate).arg("--key").arg(key);
    let running = Running::start(command.stderr(Stdio::null()));
    let status = format!("{}/v1/status", allocator.url);
    eventually("the node has a lease", async || {
        let text = super::desk::text(&desk.client(), &status).await.ok()?;
        let body: Value = serde_json::from_str(&text).ok()?;
        (body["sessions"].as_u64()? == 1).then_some(())
    })
    .await;
    drop(running);
}
