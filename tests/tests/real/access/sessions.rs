//! A session belongs to the identity that began it, and a node's name to the identities that may use it.

use super::desk::{Desk, Way, ask};
use lessor_tls::HttpClient;
use serde_json::{Value, json};

const SESSION: u64 = 77;

fn leases(node: &str, seq: u64, limit: &str, want: u64) -> String {
    let ask = json!({ "limit": limit, "spent_total": 0, "held": 0, "want": want });
    json!({ "node": node, "session": SESSION, "seq": seq, "asks": [ask] }).to_string()
}

/// The attack: a peer that knows a session's number says goodbye for it or asks in its name, and the node spends on.
#[tokio::test]
async fn another_identity_neither_renews_nor_ends_a_session() {
    let desk = Desk::new(Way::Plain);
    let (owner, other) = (desk.token("a"), desk.token("b"));
    let allocator = desk.serve();
    let (owner, other) = (desk.http(Some(&owner)), desk.http(Some(&other)));
    let url = format!("{}/v1/leases", allocator.url);
    let granted = |body: &str| -> Value {
        let body: Value = serde_json::from_str(body).expect("JSON");
        body["grants"][0].clone()
    };
    let first = granted(&ask(&owner, "POST", &url, &leases("a-1", 1, "vendor", 100)).await.body);
    assert!(first["permits"].as_u64() > Some(0), "{first}");
    let stolen = ask(&other, "POST", &url, &leases("a-1", 2, "vendor", 100)).await;
    assert_eq!((stolen.status, &granted(&stolen.body)["error"]["code"]), (200, &json!("session_of_another")));
    let leave = format!("{}/v1/nodes/a-1/leave", allocator.url);
    let goodbye = |seq: u64| {
        let spent = json!([{ "limit": "vendor", "spent_total": 0, "held": 600 }]);
        json!({ "session": SESSION, "seq": seq, "spent": spent }).to_string()
    };
    let refused = ask(&other, "POST", &leave, &goodbye((1 << 53) - 1)).await;
    assert_eq!(refused.status, 403, "{}", refused.body);
    assert!(refused.body.contains("session_of_another"), "{}", refused.body);
    // The owner goes on as if nothing had happened.
    let body = leases("a-1", 2, "vendor", 1).replace("\"held\":0", &format!("\"held\":{}", first["permits"]));
    let next = granted(&ask(&owner, "POST", &url, &body).await.body);
    assert_eq!(next["error"], Value::Null, "{next}");
    let left = ask(&owner, "POST", &leave, &goodbye(3)).await;
    let left: Value = serde_json::from_str(&left.body).expect("JSON");
    assert!(left["returned"].as_u64() >= first["permits"].as_u64(), "{left}");
}

/// A limit that is not allowed looks like one that does not exist.
#[tokio::test]
async fn an_identity_leases_what_its_role_says_as_the_nodes_that_it_says() {
    let desk = Desk::new(Way::Plain);
    let token = desk.token("a");
    let allocator = desk.serve();
    let (http, url) = (desk.http(Some(&token)), format!("{}/v1/leases", allocator.url));
    let foreign = ask(&http, "POST", &url, &leases("b-1", 1, "vendor", 1)).await;
    assert_eq!(foreign.status, 403, "identity a may not lease as b-1: {}", foreign.body);
    assert!(foreign.body.contains(r#"no right to lease as node \"b-1\""#), "{}", foreign.body);
    let error = async |limit: &str, seq: u64| -> Value {
        let answer = ask(&http, "POST", &url, &leases("a-1", seq, limit, 1)).await;
        let body: Value = serde_json::from_str(&answer.body).expect("JSON");
        assert_eq!(answer.status, 200, "{body}");
        body["grants"][0]["error"].clone()
    };
    let (there, nowhere) = (error("other", 1).await, error("nowhere", 2).await);
    assert_eq!(there["code"], json!("forbidden"));
    assert_eq!(there, nowhere, "the answer shows whether a limit exists");
    assert_eq!(error("vendor", 3).await, Value::Null);
    // A goodbye does not tell them apart either.
    let leave = format!("{}/v1/nodes/a-1/leave", allocator.url);
    for limit in ["other", "nowhere"] {
        let spent = json!([{ "limit": limit, "spent_total": 0 }]);
        let body = json!({ "session": SESSION, "seq": 9, "spent": spent }).to_string();
        assert_eq!(ask(&http, "POST", &leave, &body).await.status, 403, "{limit}");
    }
}

/// The attack: one node reports that the vendor asks all to wait, and the limit is paused for all.
#[tokio::test]
async fn what_a_role_does_not_believe_pauses_nothing() {
    let desk = Desk::new(Way::Plain);
    let role = |name: &str, more: &str| {
        format!(
            "[[role]]\nname = {name:?}\nidentities = [\"token:{name}\"]\nlease = [\"vendor\"]\nas = [\"{name}-*\"]\n{more}\n"
        )
    };
    desk.roles_are(&(role("a", "observe = false") + &role("b", "")));
    let tokens = ["a", "b"].map(|name| desk.token(name));
    let allocator = desk.serve();
    let url = format!("{}/v1/leases", allocator.url);
    let [liar, node] = tokens.map(|token| desk.http(Some(&token)));
    let waits = |node: &str, seq: u64| {
        let observed = json!({ "number": seq, "refused_total": seq, "wait_ms": 30_000 });
        let ask = json!({ "limit": "vendor", "spent_total": 0, "held": 0, "want": 1, "observed": observed });
        json!({ "node": node, "session": SESSION, "seq": seq, "asks": [ask] }).to_string()
    };
    let granted = async |http: &HttpClient, body: &str| -> Value {
        let answer = ask(http, "POST", &url, body).await;
        let body: Value = serde_json::from_str(&answer.body).expect("JSON");
        assert_eq!((answer.status, &body["grants"][0]["error"]), (200, &Value::Null), "{body}");
        body["grants"][0].clone()
    };
    // What a session reports of the vendor counts from its second ask on.
    for (http, name) in [(&liar, "a-1"), (&node, "b-1")] {
        assert_eq!(granted(http, &leases(name, 1, "vendor", 1)).await["permits"], 1);
    }
    granted(&liar, &waits("a-1", 2)).await;
    assert_eq!(
        granted(&node, &leases("b-2", 1, "vendor", 1)).await["permits"],
        1,
        "the limit is paused by a node that may not report"
    );
    granted(&node, &waits("b-1", 2)).await;
    let paused = granted(&node, &leases("b-3", 1, "vendor", 1)).await;
    assert!(paused["retry_after_ms"].as_u64() > Some(20_000), "node b may report a pause: {paused}");
}

#[tokio::test]
async fn a_client_whose_identity_changes_begins_another_session() {
    let desk = Desk::new(Way::Plain);
    let (first, second) = (desk.token("a"), desk.token("b"));
    let file = desk.file("node.token");
    std::fs::write(&file, first).expect("a writable file");
    let allocator = desk.serve();
    let client = lessor::Client::builder(&allocator.url).node("a-1").token(lessor::Token::file(&file));
    let client = client.connect().await.expect("the allocator answers");
    let limit = client.limit("vendor");
    limit.acquire(10).await.expect("there are permits");
    std::fs::write(&file, second).expect("a writable file");
    assert!(desk.token_command(&["revoke", "a"]).status.success());
    // Nearly all that the pool has: some permits are lent to the other session, which belongs to `b`.
    for _ in 0..40 {
        let taken = tokio::time::timeout(super::desk::PATIENCE * 4, limit.acquire(10)).await;
        taken.expect("the call ends in time").expect("there are permits");
    }
    client.shutdown().await;
}

/// A client without a right reports that, and does not hang.
#[tokio::test]
async fn a_client_is_told_that_it_is_not_let_in() {
    let desk = Desk::new(Way::Tls);
    let token = desk.token("stranger");
    let allocator = desk.serve();
    let client = |token: Option<&str>| {
        let builder = lessor::Client::builder(&allocator.url).node("a-1").tls(desk.tls());
        match token {
            Some(token) => builder.token(lessor::Token::new(token)),
            None => builder,
        }
    };
    let said = client(None).connect().await.map(|_| ()).expect_err("a client without a token").to_string();
    assert!(said.contains("401"), "{said}");
    let said =
        client(Some(&token)).connect().await.map(|_| ()).expect_err("a token without a right").to_string();
    assert!(said.contains("403") && !said.contains(&token), "{said}");
    let nowhere =
        lessor::Client::builder(&allocator.url).token(lessor::Token::file("/nowhere/token")).build();
    assert!(nowhere.map(|_| ()).expect_err("no file").to_string().contains("/nowhere/token"));
}

/// The bug: any number of goodbyes was answered, each of which may name a thousand pools.
#[tokio::test]
async fn an_identity_says_goodbye_no_more_often_than_it_may_ask() {
    let desk = Desk::new(Way::Plain);
    let config = std::fs::read_to_string(desk.file("lessor.toml")).expect("a readable file");
    let slow = config.replace("[auth]\n", "[auth]\nexchanges_per_second_max = 1\n");
    std::fs::write(desk.file("lessor.toml"), slow).expect("a writable file");
    let [one, other] = ["a", "b"].map(|name| desk.http(Some(&desk.token(name))));
    let allocator = desk.serve();
    let leave = async |http| {
        let url = format!("{}/v1/nodes/a-1/leave", allocator.url);
        ask(http, "POST", &url, r#"{"session":1,"seq":1,"spent":[]}"#).await
    };
    let mut refused = None;
    // One exchange a second is allowed, and a hundred goodbyes take less than a hundred seconds.
    for _ in 0..100 {
        let answer = leave(&one).await;
        if answer.status != 200 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("the fast node is refused");
    assert!(refused.status == 429 && refused.body.contains("too_many_exchanges"), "{}", refused.body);
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(leave(&other).await.status, 200);
}
