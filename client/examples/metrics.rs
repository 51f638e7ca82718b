//! Exports what a client does to Prometheus, beside the process's other metrics: at /metrics, on a port of its own.
//!
//! `lessor serve --config lessor.toml`, with a limit "vendor/rest", and then
//! `cargo run -p lessor --example metrics -- http://127.0.0.1:7400 127.0.0.1:9400`

use axum::Router;
use axum::routing::get;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use std::time::Duration;
use tokio::net::TcpListener;

/// Interval in which samples are put into their buckets: until then each takes memory.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or("http://127.0.0.1:7400".to_owned());
    let listener = TcpListener::bind(args.next().unwrap_or("127.0.0.1:9400".to_owned())).await?;
    let exporter = exporter()?;
    let rest = lessor::Client::connect(&url).await?.limit("vendor/rest");
    tokio::spawn(async move {
        while rest.acquire(1).await.is_ok() {
            // Call the vendor.
        }
    });
    Ok(serve(listener, exporter).await?)
}

/// Installs an exporter of what this process counts. It must come before any client, which describes its metrics when
/// it is made.
pub(crate) fn exporter() -> Result<PrometheusHandle, BuildError> {
    let mut exporter = PrometheusBuilder::new();
    // A histogram without buckets would be shown as quantiles, which cannot be added up over processes.
    for &(name, buckets) in lessor::HISTOGRAMS {
        exporter = exporter.set_buckets_for_metric(Matcher::Full(name.to_owned()), buckets)?;
    }
    exporter.install_recorder()
}

/// Serves the metrics over HTTP.
pub(crate) async fn serve(listener: TcpListener, exporter: PrometheusHandle) -> std::io::Result<()> {
    let upkeep = exporter.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP_EVERY).await;
            upkeep.run_upkeep();
        }
    });
    axum::serve(listener, Router::new().route("/metrics", get(async move || exporter.render()))).await
}
