//! The page of a node that runs by itself: its metrics, and whether an allocator has answered.

use crate::failure::Failure;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse as _;
use axum::routing::get;
use lessor::Client;
use metrics_exporter_prometheus::PrometheusHandle;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The text format of Prometheus.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves the page of `client` at `listen`, until the task is aborted.
pub(super) async fn open(
    listen: SocketAddr,
    recorded: PrometheusHandle,
    client: Client,
) -> Result<JoinHandle<()>, Failure> {
    let cannot = |error| Failure::Run(format!("the node cannot listen on {listen}: {error}"));
    let listener = TcpListener::bind(listen).await.map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    let _ = crate::demo::print(format!("listening on http://{address}\n"));
    let app = Router::new()
        .route("/readyz", get(async |State(client): State<Client>| readyz(&client)))
        .with_state(client)
        .route("/metrics", get(async move || ([(CONTENT_TYPE, TEXT)], recorded.render()).into_response()));
    Ok(tokio::spawn(async move {
        // Ends only with the task: axum retries failed accepts itself.
        let _ = axum::serve(listener, app).await;
    }))
}

/// Whether the node is ready: once answered, it goes on by itself, whatever becomes of its allocators.
fn readyz(client: &Client) -> StatusCode {
    let stats = client.stats();
    match stats.exchanges > stats.failed_exchanges {
        true => StatusCode::NO_CONTENT,
        false => StatusCode::SERVICE_UNAVAILABLE,
    }
}
