//! A client of a vendor: each call takes a permit of the fleet's contract, and each answer is reported to the fleet.
//! The vendor is simulated, and refuses the fourth call.
//!
//! `lessor serve --config lessor.toml`, with a limit "vendor/rest", and then
//! `cargo run -p lessor --features reqwest-middleware --example vendor_client -- http://127.0.0.1:7400`

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::IntoResponse;
use axum::routing::get;
use lessor::outgoing::Outgoing;
use reqwest_middleware::ClientBuilder;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or("http://127.0.0.1:7400".to_owned());
    let (served, refused) = run(&url).await?;
    println!("{served} calls were served, {refused} refused");
    Ok(())
}

/// Makes calls until five are served. Returns how many were served and how many refused.
pub(crate) async fn run(url: &str) -> Result<(u64, u64), Box<dyn std::error::Error>> {
    let lessor = lessor::Client::connect(url).await?;
    let limit = lessor.limit("vendor/rest");
    // A redirect that reqwest follows by itself would reach the vendor without a permit.
    let inner = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
    let http = ClientBuilder::new(inner).with(Outgoing::waiting(limit)).build();
    let vendor = vendor().await?;
    let (mut served, mut refused) = (0, 0);
    while served < 5 {
        match http.get(&vendor).send().await?.status() {
            StatusCode::OK => served += 1,
            // The whole fleet pauses now, and so does the next call.
            _ => refused += 1,
        }
    }
    lessor.shutdown().await;
    Ok((served, refused))
}

/// Starts a vendor that refuses the fourth call and asks for a pause of a second.
async fn vendor() -> std::io::Result<String> {
    let calls = Arc::new(AtomicU64::new(0));
    let answer = async move || match calls.fetch_add(1, Ordering::Relaxed) {
        3 => (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "1")]).into_response(),
        _ => "hello".into_response(),
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/", get(answer))).await });
    Ok(url)
}
