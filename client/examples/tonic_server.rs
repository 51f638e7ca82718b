//! A gRPC server that allows each user a number of calls, over all its processes together. Replace the standard health
//! service by your own. The server calls itself to show the answers.
//!
//! `lessor serve --config lessor.toml`, with a keyed limit "user", and then
//! `cargo run -p lessor --features tower --example tonic_server -- http://127.0.0.1:7400`

use lessor::layer::LimitLayer;
use std::time::Duration;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or("http://127.0.0.1:7400".to_owned());
    for (user, code, pushback) in run(&url).await? {
        println!("{user}: {code:?}, try again in {} ms", pushback.unwrap_or(0));
    }
    Ok(())
}

/// Returns the answers that some users get, with the milliseconds that they are told to wait.
pub(crate) async fn run(
    url: &str,
) -> Result<Vec<(&'static str, Code, Option<u64>)>, Box<dyn std::error::Error>> {
    let lessor = lessor::Client::connect(url).await?;
    // The first call of a user waits a round trip instead of being refused.
    let layer = LimitLayer::grpc(lessor.limit("user")).by_header("x-user").patience(Duration::from_secs(5));
    let (_, service) = tonic_health::server::health_reporter();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let server = format!("http://{}", listener.local_addr()?);
    let serve = Server::builder().layer(layer).add_service(service);
    tokio::spawn(serve.serve_with_incoming(TcpIncoming::from(listener)));

    let (mut health, mut answers) =
        (HealthClient::new(Channel::from_shared(server)?.connect().await?), vec![]);
    for user in ["alice", "alice", "bob"] {
        let mut call = Request::new(HealthCheckRequest { service: String::new() });
        call.metadata_mut().insert("x-user", user.parse()?);
        answers.push(match health.check(call).await {
            Ok(_) => (user, Code::Ok, None),
            Err(status) => {
                let pushback = status.metadata().get("grpc-retry-pushback-ms");
                let pushback = pushback.and_then(|wait| wait.to_str().ok()?.parse().ok());
                (user, status.code(), pushback)
            }
        });
    }
    lessor.shutdown().await;
    Ok(answers)
}
