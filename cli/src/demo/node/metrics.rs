//! Serves the metrics of a node as a service would, on a free port of loopback.

use crate::failure::Failure;
use axum::Router;
use axum::routing::get;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpListener;

/// Interval at which samples are put into their buckets; until then each sample takes memory.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Starts counting, and serves the metrics for as long as the node lives. Returns the address.
pub(super) async fn serve() -> Result<SocketAddr, Failure> {
    let exporter = recorder()?;
    let cannot = |error| Failure::Run(format!("cannot serve metrics: {error}"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    let router = Router::new().route("/metrics", get(async move || exporter.render()));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

/// Starts counting, with fitting buckets. Must be called within a runtime, which keeps the samples small.
pub(in crate::demo) fn recorder() -> Result<PrometheusHandle, Failure> {
    let exporter = install().map_err(|error| Failure::Run(format!("cannot count metrics: {error}")))?;
    let upkeep = exporter.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP_EVERY).await;
            upkeep.run_upkeep();
        }
    });
    Ok(exporter)
}

fn install() -> Result<PrometheusHandle, BuildError> {
    let mut exporter = PrometheusBuilder::new();
    for &(name, buckets) in lessor::HISTOGRAMS {
        exporter = exporter.set_buckets_for_metric(Matcher::Full(name.to_owned()), buckets)?;
    }
    exporter.install_recorder()
}
