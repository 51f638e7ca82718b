//! Tokens signed by an identity provider, whose keys change while the allocator serves.

use super::desk::{Desk, Way, ask};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use scenarios::fleet::eventually;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

fn openssl(folder: &Path, args: &[&str]) -> Vec<u8> {
    let output = Command::new("openssl").args(args).current_dir(folder).output().expect("openssl runs");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Makes a new RS256 key in the file `name`, and returns its JWKS.
fn key(folder: &Path, name: &str) -> Value {
    openssl(folder, &["genrsa", "-out", name, "2048"]);
    let modulus =
        String::from_utf8(openssl(folder, &["rsa", "-in", name, "-noout", "-modulus"])).expect("text");
    let digits = modulus.trim().trim_start_matches("Modulus=");
    let bytes: Vec<u8> = (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("digits"))
        .collect();
    json!({ "keys": [{ "kty": "RSA", "kid": name, "use": "sig", "alg": "RS256", "n": BASE64URL.encode(&bytes), "e": "AQAB" }] })
}

/// Signs a token for `sub` with the key in the file `name`.
fn token(folder: &Path, name: &str, sub: &str) -> String {
    let header = json!({ "alg": "RS256", "typ": "JWT", "kid": name });
    let claims = json!({ "iss": "https://login", "aud": ["lessor"], "sub": sub, "exp": 4_000_000_000_u64 });
    let text = format!("{}.{}", BASE64URL.encode(header.to_string()), BASE64URL.encode(claims.to_string()));
    fs::write(folder.join("text"), &text).expect("a file");
    openssl(folder, &["dgst", "-sha256", "-sign", name, "-out", "signature", "text"]);
    format!("{text}.{}", BASE64URL.encode(fs::read(folder.join("signature")).expect("a readable file")))
}

#[tokio::test]
async fn a_token_of_a_provider_is_believed_as_long_as_its_key_is_in_the_file() {
    let desk = Desk::new(Way::Plain);
    let folder = desk.folder();
    let keys = desk.file("jwks.json");
    fs::write(&keys, key(folder, "first").to_string()).expect("a file");
    let config = fs::read_to_string(desk.file("lessor.toml")).expect("a readable file");
    let jwt = format!("jwt = {{ keys = {keys:?}, issuer = \"https://login\", audience = \"lessor\" }}\n");
    let config = config.replacen("[auth]\n", &format!("[auth]\n{jwt}"), 1);
    let config = config.replace("[\"token:reader\"]", "[\"token:reader\", \"jwt:team/reader\"]");
    fs::write(desk.file("lessor.toml"), config).expect("a writable file");
    let (reader, stranger) = (token(folder, "first", "team/reader"), token(folder, "first", "team/other"));
    let allocator = desk.serve();
    let url = format!("{}/v1/limits/vendor", allocator.url);
    let status = async |token: &str| ask(&desk.http(Some(token)), "GET", &url, "").await.status;
    assert_eq!(status(&reader).await, 200);
    assert_eq!(status(&stranger).await, 403, "a known identity without a role");
    // A token of the tokens file has no role that is given to a provider's token of the same name.
    let own = desk.token("team/reader");
    eventually("the file is read", async || (status(&own).await == 403).then_some(())).await;
    let forged = {
        let other = tempfile::tempdir().expect("a folder");
        key(other.path(), "first");
        token(other.path(), "first", "team/reader")
    };
    assert_eq!(status(&forged).await, 401);
    // The provider changes to another key.
    let next = key(folder, "next");
    let new = desk.file("new.json");
    fs::write(&new, next.to_string()).expect("a file");
    fs::rename(&new, &keys).expect("the file can be renamed");
    let later = token(folder, "next", "team/reader");
    eventually("the new key is believed", async || (status(&later).await == 200).then_some(())).await;
    assert_eq!(status(&reader).await, 401, "the old key is not believed");
    // A broken file changes nothing.
    fs::write(&keys, "{\"keys\":").expect("a writable file");
    eventually("the log names the broken file", async || {
        let log = fs::read_to_string(desk.file("log")).expect("a readable file");
        log.lines().any(|line| line.contains("are refused") && line.contains("jwks.json")).then_some(())
    })
    .await;
    assert_eq!(status(&later).await, 200);
}
