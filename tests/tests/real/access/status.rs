//! The status that an identity may read names no limit that the identity may not read. Only readers of all limits see
//! where secrets are.

use super::desk::{Allocator, Desk, Way, ask};
use scenarios::fleet::eventually;
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

const ROLES: &str = r#"
[[role]]
name = "all"
identities = ["token:all"]
read = ["*"]
[[role]]
name = "part"
identities = ["token:part"]
read = ["vendor*"]
"#;

async fn status(desk: &Desk, allocator: &Allocator, token: &str) -> Value {
    let answer = ask(&desk.http(Some(token)), "GET", &format!("{}/v1/status", allocator.url), "").await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    serde_json::from_str(&answer.body).expect("JSON")
}

#[tokio::test]
async fn a_reader_of_some_limits_is_told_of_no_others_and_of_no_secrets() {
    let desk = Desk::new(Way::Plain);
    desk.roles_are(ROLES);
    let (all, part) = (desk.token("all"), desk.token("part"));
    fs::set_permissions(desk.file("tokens.toml"), Permissions::from_mode(0o644))
        .expect("the permissions can be set");
    let allocator = desk.serve();
    let secret = eventually("the allocator looks at its files", async || {
        let warnings = status(&desk, &allocator, &all).await["warnings"].to_string();
        warnings.contains("auth.tokens is ").then_some(warnings)
    })
    .await;
    assert!(secret.contains("tokens.toml, which every user of this machine can read"), "{secret}");
    let shown = desk.lessor(&allocator, &all, &["status"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("auth.tokens is "), "{shown:?}");
    assert_eq!(status(&desk, &allocator, &part).await["warnings"], serde_json::json!([]));
    // The file loses a limit that `part` may not read.
    let file = desk.file("lessor.toml");
    let text = fs::read_to_string(&file).expect("a readable file");
    let (without, _) = text.rsplit_once("[[limit]]").expect("the file has two limits");
    fs::write(&file, without).expect("a writable file");
    eventually("the file is taken over", async || {
        let warnings = status(&desk, &allocator, &all).await["warnings"].to_string();
        warnings.contains("lacks \\\"other\\\"").then_some(())
    })
    .await;
    assert_eq!(status(&desk, &allocator, &part).await["warnings"], serde_json::json!([]));
    // Then the file is broken, at the limit that `part` may not read.
    let broken = text.replace("name = \"other\"", "name = \"other\"\nweights = { a = 0 }");
    fs::write(&file, broken).expect("a writable file");
    eventually("the file is refused", async || {
        let refused = status(&desk, &allocator, &all).await["checks"]["config"]["reason"].to_string();
        refused.contains("other").then_some(())
    })
    .await;
    let config = &status(&desk, &allocator, &part).await["checks"]["config"];
    assert_eq!(*config, serde_json::json!({ "ok": false, "reason": "the file is refused: see the log" }));
    let probed = ask(&desk.http(Some(&part)), "GET", &format!("{}/readyz", allocator.url), "").await;
    assert!(!probed.body.contains("other"), "{}", probed.body);
    // Once no other user can read the tokens, there is no warning.
    fs::set_permissions(desk.file("tokens.toml"), Permissions::from_mode(0o600))
        .expect("the permissions can be set");
    eventually("the allocator looks again", async || {
        let warnings = status(&desk, &allocator, &all).await["warnings"].to_string();
        (!warnings.contains("auth.tokens")).then_some(())
    })
    .await;
}
