//! A server that allows each user a number of requests, over all its processes together. It calls itself to show the
//! answers.
//!
//! `lessor serve --config lessor.toml`, with a keyed limit "user", and then
//! `cargo run -p lessor --features tower --example axum_server -- http://127.0.0.1:7400`

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use lessor::layer::LimitLayer;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or("http://127.0.0.1:7400".to_owned());
    for (user, status, body) in run(&url).await? {
        println!("{user}: {status} {body}");
    }
    Ok(())
}

/// Returns the answers that some users get.
pub(crate) async fn run(url: &str) -> Result<Vec<(&'static str, u16, String)>, Box<dyn std::error::Error>> {
    let lessor = lessor::Client::connect(url).await?;
    // The first request of a user waits for the allocator's answer instead of being refused.
    let layer = LimitLayer::<Body>::new(lessor.limit("user")).by_header("x-user");
    let app = Router::new().route("/", get(async || "an export")).layer(layer);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let server = format!("http://{}/", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });

    let (http, mut answers) = (reqwest::Client::new(), vec![]);
    for user in ["alice", "alice", "bob"] {
        let answer = http.get(&server).header("x-user", user).send().await?;
        answers.push((user, answer.status().as_u16(), answer.text().await?));
    }
    lessor.shutdown().await;
    Ok(answers)
}
