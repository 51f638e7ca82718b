//! Keys are made here, and sign tokens that are correct except for one thing.

use super::*;
use proptest::prelude::*;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

/// A provider with one key of each curve.
struct Provider {
    p256: EcdsaKeyPair,
    ed25519: Ed25519KeyPair,
    random: SystemRandom,
}

fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Provider {
    fn new() -> Self {
        let random = SystemRandom::new();
        let p256 =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("random bytes");
        let ed25519 = Ed25519KeyPair::generate_pkcs8(&random).expect("random bytes");
        Provider {
            p256: EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, p256.as_ref(), &random)
                .expect("a key"),
            ed25519: Ed25519KeyPair::from_pkcs8(ed25519.as_ref()).expect("a key"),
            random,
        }
    }

    fn jwks(&self) -> Value {
        let (point, other) = (self.p256.public_key().as_ref(), self.ed25519.public_key().as_ref());
        json!({ "keys": [
            { "kty": "EC", "crv": "P-256", "kid": "p", "use": "sig", "x": encoded(&point[1..33]), "y": encoded(&point[33..]) },
            { "kty": "OKP", "crv": "Ed25519", "kid": "e", "alg": "EdDSA", "x": encoded(other) },
            { "kty": "oct", "k": "c2VjcmV0" },
            { "kty": "EC", "crv": "P-521", "x": "AA", "y": "AA" },
        ] })
    }

    fn signed(&self, header: &Value, claims: &Value) -> String {
        let text =
            format!("{}.{}", encoded(header.to_string().as_bytes()), encoded(claims.to_string().as_bytes()));
        let signature = match header["alg"].as_str() {
            Some("EdDSA") => self.ed25519.sign(text.as_bytes()).as_ref().to_vec(),
            _ => self.p256.sign(&self.random, text.as_bytes()).expect("random bytes").as_ref().to_vec(),
        };
        format!("{text}.{}", encoded(&signature))
    }
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds)
}

fn issuer() -> Issuer {
    Issuer { issuer: "https://login".to_owned(), audience: "lessor".to_owned() }
}

fn claims() -> Value {
    json!({ "iss": "https://login", "aud": "lessor", "sub": "billing", "exp": 1_700_000_600, "nbf": 1_699_999_990 })
}

fn with(mut value: Value, field: &str, other: Value) -> Value {
    value[field] = other;
    value
}

#[test]
fn a_token_that_a_key_of_the_file_has_signed_names_its_subject() {
    let provider = Provider::new();
    let jwks = Jwks::parse(&provider.jwks().to_string()).expect("good");
    for header in [
        json!({ "alg": "ES256", "kid": "p" }),
        json!({ "alg": "EdDSA", "kid": "e" }),
        json!({ "alg": "ES256" }),
    ] {
        let token = provider.signed(&header, &claims());
        let subject = jwks.subject(&token, &issuer(), at(0)).expect("it is good");
        assert_eq!((subject.name.as_str(), subject.expires), ("billing", at(630)));
        assert_eq!(
            jwks.subject(&token, &issuer(), at(629)).map(|subject| subject.name),
            Ok("billing".to_owned())
        );
        assert_eq!(jwks.subject(&token, &issuer(), at(630)), Err(Unproven::Expired));
    }
    let many =
        provider.signed(&json!({ "alg": "ES256" }), &with(claims(), "aud", json!(["other", "lessor"])));
    assert!(jwks.subject(&many, &issuer(), at(0)).is_ok());
}

#[test]
fn a_token_that_is_wrong_in_one_thing_proves_nothing() {
    let (provider, other) = (Provider::new(), Provider::new());
    let jwks = Jwks::parse(&provider.jwks().to_string()).expect("good");
    let header = json!({ "alg": "ES256", "kid": "p" });
    let mut wrong: Vec<(String, String)> = [
        ("iss", json!("https://evil")),
        ("iss", json!(null)),
        ("aud", json!("other")),
        ("aud", json!([])),
        ("sub", json!("")),
        ("sub", json!("a b")),
        ("sub", json!(7)),
        ("exp", json!("1700000600")),
        ("exp", json!(null)),
        ("exp", json!(-1)),
        ("exp", json!(1e300)),
        ("nbf", json!("0")),
        ("nbf", json!(1_700_000_100)),
    ]
    .into_iter()
    .map(|(field, value)| {
        (format!("{field} {value}"), provider.signed(&header, &with(claims(), field, value)))
    })
    .collect();
    for value in [
        json!({ "alg": "none" }),
        json!({ "alg": "HS256", "kid": "p" }),
        json!({ "alg": "EdDSA", "kid": "p" }),
        json!({ "alg": "ES256", "kid": "e" }),
        json!({ "alg": "ES256", "kid": "nowhere" }),
        json!({ "alg": "ES256", "kid": "p", "crit": ["b64"] }),
        json!({ "kid": "p" }),
    ] {
        wrong.push((value.to_string(), provider.signed(&value, &claims())));
    }
    wrong.push(("another provider".to_owned(), other.signed(&header, &claims())));
    let good = provider.signed(&header, &claims());
    let (text, _) = good.rsplit_once('.').expect("three parts");
    wrong.push(("no signature".to_owned(), format!("{text}.")));
    wrong.push(("another claim".to_owned(), {
        let (head, rest) = good.split_once('.').expect("three parts");
        let (_, signature) = rest.split_once('.').expect("three parts");
        let claims = encoded(with(claims(), "sub", json!("root")).to_string().as_bytes());
        format!("{head}.{claims}.{signature}")
    }));
    for (name, token) in wrong {
        assert_eq!(jwks.subject(&token, &issuer(), at(0)), Err(Unproven::Unknown), "{name}");
    }
}

/// A field that is there twice is not used: the one that was meant is unknown.
#[test]
fn a_claim_that_is_there_twice_proves_nothing() {
    let provider = Provider::new();
    let jwks = Jwks::parse(&provider.jwks().to_string()).expect("good");
    let header = json!({ "alg": "ES256" }).to_string();
    let claims = claims().to_string().replacen('{', "{\"sub\":\"root\",", 1);
    let text = format!("{}.{}", encoded(header.as_bytes()), encoded(claims.as_bytes()));
    let signature = provider.p256.sign(&provider.random, text.as_bytes()).expect("random bytes");
    let token = format!("{text}.{}", encoded(signature.as_ref()));
    assert_eq!(jwks.subject(&token, &issuer(), at(0)), Err(Unproven::Unknown));
}

#[test]
fn what_is_no_file_of_keys_says_where() {
    for (text, said) in [
        ("", "line 1"),
        ("{}", "line 1"),
        (r#"{"keys":[]}"#, "no key"),
        (r#"{"keys":[{"kty":"oct","k":"AA"}]}"#, "no key"),
        (r#"{"keys":[{"kty":"RSA","n":"AA"}]}"#, "keys[0].e is missing"),
        (r#"{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}"#, "keys[0].x is not 32 bytes"),
        (r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"?"}]}"#, "keys[0].x is not base64url"),
    ] {
        let error = Jwks::parse(text).expect_err(text).to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
}

proptest! {
    #[test]
    fn any_text_is_a_token_or_none(token in "[A-Za-z0-9_.-]{0,200}", text in "(?s).{0,200}") {
        let jwks = Jwks::parse(&Provider::new().jwks().to_string()).expect("good");
        prop_assert_eq!(jwks.subject(&token, &issuer(), at(0)), Err(Unproven::Unknown));
        prop_assert_eq!(jwks.subject(&text, &issuer(), at(0)), Err(Unproven::Unknown));
        let _ = Jwks::parse(&text);
    }
}
