//! A real Prometheus with the configuration of `dashboards/prometheus`, which scrapes the processes of a test more
//! often.

use super::{metrics, read};
use lessor_allocator::cells::private::HeldPort;
use metrics_exporter_prometheus::PrometheusHandle;
use reqwest::Url;
use scenarios::process::Running;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// The metrics of this process, which is the one that calls.
static EXPORTER: LazyLock<PrometheusHandle> = LazyLock::new(|| metrics::exporter().expect("the first one"));

/// A Prometheus that scrapes four times a second.
pub(super) struct Prometheus {
    url: String,
    _running: Running,
    _port: HeldPort,
    _folder: tempfile::TempDir,
}

/// Serves the metrics of this process. To be called before there is any client.
pub(super) async fn export() -> String {
    LazyLock::force(&EXPORTER);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("the listener is bound").to_string();
    tokio::spawn(metrics::serve(listener, EXPORTER.clone()));
    address
}

impl Prometheus {
    /// Starts a Prometheus with these `alerts`, which scrapes these `allocators` and `process`.
    pub(super) fn start(alerts: &str, allocators: &[&str], process: &str) -> Self {
        let config = read("dashboards/prometheus/prometheus.yml").replace("5s", "250ms");
        let (list, one) = (format!("{allocators:?}"), format!("{:?}", [process]));
        let filled = config.replace(r#"["allocator:7400"]"#, &list).replace(r#"["process:9400"]"#, &one);
        assert!(
            filled.contains(&list) && filled.contains(&one),
            "prometheus.yml names other targets: {config}"
        );
        Self::run(&filled, alerts)
    }

    /// Starts a Prometheus that reads its targets from a file.
    pub(super) fn finding(targets: &Path) -> Self {
        let found = format!("{{ files: [{targets:?}], refresh_interval: 1s }}");
        let config = format!(
            "global:\n  scrape_interval: 250ms\nscrape_configs:\n  - job_name: demo\n    file_sd_configs: [{found}]\n"
        );
        Self::run(&config, "groups: []")
    }

    fn run(config: &str, alerts: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("prometheus.yml");
        std::fs::write(&file, config).expect("a writable file");
        std::fs::write(folder.path().join("alerts.yml"), alerts).expect("a writable file");
        // Prometheus cannot let the system choose its port.
        let port = HeldPort::any().expect("a free port");
        let address = port.address();
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stderr(Stdio::null());
        let running = Running::start(&mut command);
        Prometheus { url: format!("http://{address}"), _running: running, _port: port, _folder: folder }
    }

    /// Returns the answer at `path`, or why there is none yet.
    pub(super) async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, String> {
        let url = Url::parse_with_params(&format!("{}{path}", self.url), query).expect("a URL");
        let answer = reqwest::get(url).await.map_err(|error| error.to_string())?;
        let body = answer.text().await.map_err(|error| error.to_string())?;
        let body: Value = serde_json::from_str(&body).map_err(|error| format!("{error}: {body}"))?;
        if body["status"] == "success" && body["warnings"].is_null() {
            Ok(body["data"].clone())
        } else {
            Err(body.to_string())
        }
    }

    /// Returns the present samples of `expr` that are finite numbers.
    pub(super) async fn samples(&self, expr: &str) -> Result<Vec<f64>, String> {
        let data = self.get("/api/v1/query", &[("query", expr)]).await?;
        let values = data["result"].as_array().into_iter().flatten().map(|sample| &sample["value"][1]);
        let values = values.filter_map(|value| value.as_str()?.parse::<f64>().ok());
        Ok(values.filter(|value| value.is_finite()).collect())
    }

    /// Returns the names of the alerts that fire now.
    pub(super) async fn firing(&self) -> Result<BTreeSet<String>, String> {
        let data = self.get("/api/v1/alerts", &[]).await?;
        let alerts = data["alerts"].as_array().into_iter().flatten();
        let firing = alerts.filter(|alert| alert["state"] == "firing");
        Ok(firing.filter_map(|alert| Some(alert["labels"]["alertname"].as_str()?.to_owned())).collect())
    }
}
