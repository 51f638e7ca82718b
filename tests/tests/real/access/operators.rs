//! Operators do what their roles allow, by the API and the command line.

use super::desk::{Desk, Way, ask, ask_if};
use scenarios::fleet::eventually;
use serde_json::{Value, json};

#[tokio::test]
async fn an_operator_sees_and_does_what_its_role_says() {
    let desk = Desk::new(Way::Plain);
    let [reader, operator, admin, prometheus] =
        ["reader", "operator", "admin", "prometheus"].map(|name| desk.token(name));
    let allocator = desk.serve();
    let status = async |token: &str, method: &str, path: &str, body: &str| {
        ask(&desk.http(Some(token)), method, &format!("{}{path}", allocator.url), body).await.status
    };
    // A limit that an identity may not see looks like one that does not exist.
    let seen = ask(&desk.http(Some(&reader)), "GET", &format!("{}/v1/limits", allocator.url), "").await;
    let seen: Value = serde_json::from_str(&seen.body).expect("JSON");
    let names: Vec<&Value> =
        seen["limits"].as_array().expect("a list").iter().map(|limit| &limit["name"]).collect();
    assert_eq!(names, [&json!("vendor")]);
    for name in ["other", "nowhere"] {
        assert_eq!(status(&reader, "GET", &format!("/v1/limits/{name}"), "").await, 403, "{name}");
        assert_eq!(status(&operator, "POST", &format!("/v1/limits/{name}/pause"), "{}").await, 403, "{name}");
        let rules = r#"{"rules":[{"kind":"sliding_window","limit":1,"per":"60s"}]}"#;
        assert_eq!(status(&admin, "PUT", &format!("/v1/limits/{name}"), rules).await, 403, "{name}");
    }
    assert_eq!(status(&operator, "POST", "/v1/limits/vendor/top-up", r#"{"permits":10}"#).await, 200);
    assert_eq!(status(&operator, "POST", "/v1/limits/vendor/top-up", r#"{"permits":11}"#).await, 403);
    assert_eq!(status(&admin, "POST", "/v1/limits/vendor/top-up", r#"{"permits":11}"#).await, 200);
    assert_eq!(status(&prometheus, "GET", "/metrics", "").await, 200);
    let metrics =
        ask(&desk.http(Some(&prometheus)), "GET", &format!("{}/metrics", allocator.url), "").await.body;
    let refused = metrics.lines().find(|line| line.starts_with("lessor_refused_total{reason=\"forbidden\"}"));
    assert_eq!(
        refused.and_then(|line| line.rsplit(' ').next()),
        Some("7"),
        "refusals: six for other limits, one for a top-up"
    );
}

#[tokio::test]
async fn a_command_shows_its_token_and_says_what_lacks() {
    let desk = Desk::new(Way::Tls);
    let (reader, operator) = (desk.token("reader"), desk.token("operator"));
    let allocator = desk.serve();
    let ca = desk.file("ca.crt").display().to_string();
    let run = |token: &str, args: &[&str]| {
        let args: Vec<&str> = args.iter().copied().chain(["--ca", &ca]).collect();
        let output = desk.lessor(&allocator, token, &args);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(run(&reader, &["status"]).0, Some(0));
    assert_eq!(run(&reader, &["limits", "list"]).0, Some(0));
    let (code, said) = run(&reader, &["limits", "pause", "vendor"]);
    assert!(code == Some(2) && said.contains("token:reader has no right to operate here (403)"), "{said}");
    let (code, said) = run("lessor_00000000_0", &["status"]);
    assert!(code == Some(2) && said.contains("no identity is proven") && said.contains("(401)"), "{said}");
    assert_eq!(run(&operator, &["limits", "pause", "vendor"]).0, Some(0));
    assert_eq!(run(&operator, &["limits", "resume", "vendor"]).0, Some(0));
}

/// A change of roles in the file takes effect as a change of limits does.
#[tokio::test]
async fn a_role_that_is_changed_holds_at_once() {
    let desk = Desk::new(Way::Plain);
    let reader = desk.token("reader");
    let allocator = desk.serve();
    let http = desk.http(Some(&reader));
    let url = format!("{}/v1/limits/other", allocator.url);
    assert_eq!(ask(&http, "GET", &url, "").await.status, 403);
    desk.roles_are("[[role]]\nname = \"eyes\"\nidentities = [\"token:reader\"]\nread = [\"*\"]\n");
    eventually("the file is read", async || (ask(&http, "GET", &url, "").await.status == 200).then_some(()))
        .await;
}

/// A site whose name leads to the allocator has no identity to show, so it can read nothing. A peer with an identity
/// can read by any name.
#[tokio::test]
async fn by_another_name_all_that_is_read_needs_an_identity() {
    use http::Request;
    let desk = Desk::new(Way::Plain);
    desk.roles_are(
        "[[role]]\nname = \"all\"\nidentities = [\"token:root\"]\nadmin = [\"*\"]\nmetrics = true\n",
    );
    let root = desk.token("root");
    let allocator = desk.serve();
    let read = async |path: &str, token: Option<&str>| {
        let request = Request::get(format!("{}{path}", allocator.url)).header("host", "evil.example:7400");
        let request = request.body(vec![]).expect("a request");
        let answer = desk.http(token).send(request, std::time::Duration::from_secs(5)).await;
        answer.expect("the server answers").status().as_u16()
    };
    for path in [
        "/v1/events",
        "/v1/events/recent",
        "/v1/status",
        "/v1/limits",
        "/v1/limits/vendor",
        "/v1/limits/vendor/pools",
        "/v1/whoami",
        "/metrics",
    ] {
        assert_eq!((read(path, None).await, read(path, Some(&root)).await), (401, 200), "{path}");
    }
    for path in ["/", "/page/main.js", "/livez", "/readyz"] {
        assert_eq!(read(path, None).await, 200, "{path} has no secret");
    }
}

/// Of sixteen connections, eight may listen for events: at most four of one identity, and six at one address.
#[tokio::test]
async fn one_identity_leaves_places_for_others_that_listen() {
    use http::Request;
    let desk = Desk::new(Way::Plain);
    let config = std::fs::read_to_string(desk.file("lessor.toml")).expect("a readable file");
    let config = config.replace("[server]\n", "[server]\nconnections_max = 16\n");
    std::fs::write(desk.file("lessor.toml"), config).expect("ours");
    let (one, other) = (desk.token("a"), desk.token("b"));
    let allocator = desk.serve();
    let mut held = vec![];
    for (token, streams, bound) in [
        (&one, 4, "4 connections of this identity listen"),
        (&other, 2, "6 connections of this address listen"),
    ] {
        let http = desk.http(Some(token));
        for count in 0..=streams {
            let request =
                Request::get(format!("{}/v1/events", allocator.url)).body(vec![]).expect("a request");
            let mut stream =
                http.send(request, std::time::Duration::from_secs(60)).await.expect("the server answers");
            let first = stream.chunk().await.expect("the stream goes on").expect("a piece");
            let first = String::from_utf8_lossy(&first).into_owned();
            match count < streams {
                true => assert_eq!((stream.status().as_u16(), first.as_str()), (200, ": listening\n\n")),
                false => {
                    assert_eq!(stream.status(), 503, "{first}");
                    assert!(first.contains("\"listeners_full\"") && first.contains(bound), "{first}");
                }
            }
            held.push(stream);
        }
    }
}

/// A listener hears of limits that it may lease or read, and of no others. Once its token is revoked it hears nothing
/// more.
#[tokio::test]
async fn events_of_other_limits_are_not_heard() {
    use http::Request;
    let desk = Desk::new(Way::Plain);
    let node = desk.token("a");
    desk.roles_are(
        "[[role]]\nname = \"nodes\"\nidentities = [\"token:a\"]\nlease = [\"vendor\"]\nas = [\"a-*\"]\n\
         [[role]]\nname = \"all\"\nidentities = [\"token:root\"]\nadmin = [\"*\"]\n",
    );
    let root = desk.token("root");
    let allocator = desk.serve();
    let (hears, root) = (desk.http(Some(&node)), desk.http(Some(&root)));
    let request = Request::get(format!("{}/v1/events", allocator.url)).body(vec![]).expect("a request");
    let mut stream =
        hears.send(request, std::time::Duration::from_secs(60)).await.expect("the server answers");
    assert_eq!(stream.status(), 200);
    stream.chunk().await.expect("the stream goes on").expect("a comment");
    for limit in ["other", "vendor"] {
        let pause = ask(&root, "POST", &format!("{}/v1/limits/{limit}/pause", allocator.url), "{}").await;
        assert_eq!(pause.status, 200);
    }
    let heard = stream.chunk().await.expect("the stream goes on").expect("an event");
    let heard = String::from_utf8_lossy(&heard).into_owned();
    assert!(heard.contains("\"vendor\"") && !heard.contains("other"), "{heard}");
    assert!(desk.token_command(&["revoke", "a"]).status.success());
    eventually("the token is revoked", async || {
        (ask(&hears, "GET", &format!("{}/v1/whoami", allocator.url), "").await.status == 401).then_some(())
    })
    .await;
    ask(&root, "POST", &format!("{}/v1/limits/vendor/resume", allocator.url), "{}").await;
    assert_eq!(stream.chunk().await.expect("the stream ends without an error"), None);
}

/// The bug: an operator of one limit put it below any other limit, and nodes of the first used the second up.
#[tokio::test]
async fn a_limit_is_put_below_another_one_by_an_operator_of_both() {
    let desk = Desk::new(Way::Plain);
    desk.roles_are(
        "[[role]]\nname = \"one\"\nidentities = [\"token:admin\"]\nadmin = [\"vendor\"]\n\
         [[role]]\nname = \"all\"\nidentities = [\"token:root\"]\nadmin = [\"*\"]\n",
    );
    let (admin, root) = (desk.token("admin"), desk.token("root"));
    let allocator = desk.serve();
    let put = async |token: &str, parent: Option<&str>, limit: u64, query: &str| {
        let mut body = json!({ "rules": [{ "kind": "sliding_window", "limit": limit, "per": "60s" }] });
        parent.into_iter().for_each(|parent| body["parent"] = json!(parent));
        let url = format!("{}/v1/limits/vendor{query}", allocator.url);
        let answer = ask(&desk.http(Some(token)), "PUT", &url, &body.to_string()).await;
        (answer.status, answer.body)
    };
    for (parent, query) in
        [("other", ""), ("other", "?confirm=true"), ("other", "?dry_run=true"), ("nowhere", "")]
    {
        let (status, said) = put(&admin, Some(parent), 600, query).await;
        let lacks = format!("token:admin has no right to put a limit below \\\"{parent}\\\" here");
        assert!(status == 403 && said.contains(&lacks), "{status} {said}");
    }
    assert_eq!(put(&root, Some("other"), 600, "").await.0, 200);
    // A limit may stay below its present parent.
    assert_eq!(put(&admin, Some("other"), 500, "").await.0, 200);
    let (status, said) = put(&admin, None, 500, "").await;
    assert!(status == 409 && said.contains("confirm_needed"), "{status} {said}");
    assert_eq!(put(&admin, None, 500, "?confirm=true").await.0, 200);
    assert_eq!(put(&admin, Some("other"), 500, "").await.0, 403);
}

/// The bug: an operator of one name of a pattern could not give the name a limit below the parent of the pattern, but one
/// without a parent. The reason of the confirmation had the figures of the pattern.
#[tokio::test]
async fn an_operator_of_one_name_may_leave_it_below_the_parent_of_its_pattern() {
    let desk = Desk::new(Way::Plain);
    desk.roles_are(
        "[[role]]\nname = \"one\"\nidentities = [\"token:admin\"]\nadmin = [\"api/x\"]\n\
         [[role]]\nname = \"all\"\nidentities = [\"token:root\"]\nadmin = [\"*\"]\n",
    );
    let (admin, root) = (desk.token("admin"), desk.token("root"));
    let allocator = desk.serve();
    let put = async |token: &str, path: &str, parent: Option<&str>, limit: u64| {
        let mut body = json!({ "rules": [{ "kind": "sliding_window", "limit": limit, "per": "60s" }] });
        parent.into_iter().for_each(|parent| body["parent"] = json!(parent));
        let url = format!("{}/v1/limits/{path}", allocator.url);
        let answer = ask_if(None, &desk.http(Some(token)), "PUT", &url, &body.to_string()).await;
        (answer.status, answer.body)
    };
    assert_eq!(put(&root, "api/*", Some("other"), 50).await.0, 201);
    let (status, said) = put(&root, "api/x", None, 50).await;
    assert!(status == 409 && said.contains("no longer be charged to \\\"other\\\""), "{status} {said}");
    for (parent, limit) in [(None, 50), (Some("other"), 501)] {
        let (status, said) = put(&admin, "api/x", parent, limit).await;
        let tells = ["api/*", "other", "501", " 50"].iter().any(|figure| said.contains(figure));
        assert!(status == 409 && said.contains("confirm_needed") && !tells, "{status} {said}");
    }
    let (status, said) = put(&admin, "api/x", Some("other"), 60).await;
    assert_eq!(status, 201, "{said}");
}
