//! `lessor serve --otlp`: sends spans to a collector, as OTLP over HTTP. A separate thread sends them in batches from a
//! queue that drops spans when it is full. A collector that is slow, wrong or gone costs spans, and no time of another
//! thread.

use crate::failure::Failure;
use crate::logging::{self, Format};
use lessor_protocol::trace::TARGET;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData};
use reqwest::Url;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry};

/// Longest time that one batch may take, retries included. A larger value would drop more spans while a collector
/// hangs.
const EXPORT_WITHIN: Duration = Duration::from_secs(3);

/// Longest time that the end of the process waits for the last batch.
const END_WITHIN: Duration = Duration::from_secs(2);

/// Name of this process at a collector if no operator sets another.
const SERVICE: &str = "lessor";

/// The environment variable in which an operator sets that name, for any program.
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";

/// The environment variable with attributes of the process. The name may be one of them.
const RESOURCE_ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";

/// The exporter of spans. When it is dropped, it sends the last ones.
#[derive(Debug)]
pub(crate) struct Spans(SdkTracerProvider);

/// Parses the address of a collector. The command line does not do it: its error would show the address, and the
/// password in it.
fn parse(text: &str) -> Result<Url, String> {
    if text.contains('@') {
        return Err("the URL must not have a name or a password: set OTEL_EXPORTER_OTLP_HEADERS".to_owned());
    }
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    match url.scheme() {
        "http" if !url.cannot_be_a_base() && url.query().is_none() => Ok(url),
        _ => Err("use http://host:port".to_owned()),
    }
}

/// Sends log lines to stderr, and spans to `collector` if there is one. Called once, before anything else and before
/// there is a runtime.
pub(crate) fn install(
    collector: Option<&str>,
    format: Format,
    filter: EnvFilter,
) -> Result<Option<Spans>, Failure> {
    let Some(collector) = collector else {
        logging::install(format, filter);
        return Ok(None);
    };
    let cannot = |error: &dyn std::fmt::Display| Failure::Run(format!("cannot export spans: {error}"));
    let collector = parse(collector).map_err(|problem| Failure::Input(format!("--otlp: {problem}")))?;
    let provider = provider(&collector).map_err(|error| cannot(&error))?;
    let spans = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer(SERVICE))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_target(false)
        .with_level(false)
        // Only our spans: no log lines, which may hold keys, and no spans of libraries.
        .with_filter(filter_fn(|metadata| metadata.is_span() && metadata.target() == TARGET));
    Registry::default().with(spans).with(logging::lines(format, filter)).init();
    Ok(Some(Spans(provider)))
}

/// Returns the name of this process at a collector, from the values of [`SERVICE_NAME`] and [`RESOURCE_ATTRIBUTES`].
/// `None` leaves the name in the attributes. An empty value counts as unset.
fn service_name<'a>(name: &'a str, attributes: &str) -> Option<&'a str> {
    if !name.is_empty() {
        return Some(name);
    }
    let mut pairs = attributes.split(',').filter_map(|pair| pair.split_once('='));
    // The library uses the last of several.
    let named = pairs.rfind(|(key, _)| key.trim() == "service.name");
    let is_named = named.is_some_and(|(_, value)| !value.trim().is_empty());
    (!is_named).then_some(SERVICE)
}

fn provider(collector: &Url) -> Result<SdkTracerProvider, Box<dyn std::error::Error>> {
    let http = reqwest::blocking::Client::builder()
        .timeout(EXPORT_WITHIN)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .build()?;
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(http)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!("{}/v1/traces", collector.as_str().trim_end_matches('/')))
        .with_timeout(EXPORT_WITHIN)
        .build()?;
    let resource = Resource::builder();
    let of_env = [SERVICE_NAME, RESOURCE_ATTRIBUTES].map(|name| std::env::var(name).unwrap_or_default());
    let [name, attributes] = of_env.each_ref().map(String::as_str);
    let resource = match service_name(name, attributes) {
        Some(name) => resource.with_service_name(name.to_owned()),
        None => resource,
    };
    // Sampler, limits and batches are set in the environment, by the names that OpenTelemetry has for them.
    let exporter = Exporter { inner: exporter, is_failing: AtomicBool::new(false) };
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build()).build())
}

impl Drop for Spans {
    fn drop(&mut self) {
        // Spans that were not sent by then are lost, and the log has said so.
        let _ = self.0.shutdown_with_timeout(END_WITHIN);
    }
}

/// The library's exporter, which logs once that it fails, and once that it works again.
#[derive(Debug)]
struct Exporter {
    inner: SpanExporter,
    is_failing: AtomicBool,
}

impl opentelemetry_sdk::trace::SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let exported = self.inner.export(batch).await;
        let was_failing = self.is_failing.swap(exported.is_err(), Ordering::Relaxed);
        match &exported {
            Err(error) if !was_failing => {
                tracing::warn!(%error, "the collector does not take spans: they are lost until it does");
            }
            Ok(()) if was_failing => tracing::info!("the collector takes spans again"),
            _ => {}
        }
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_where_spans_can_go() {
        let ok = |text| parse(text).map(|url| url.to_string());
        assert_eq!(ok("http://127.0.0.1:4318"), Ok("http://127.0.0.1:4318/".to_owned()));
        for wrong in ["127.0.0.1:4318", "https://collector", "http://collector/?key=1", ""] {
            assert!(ok(wrong).is_err(), "{wrong}");
        }
        let secret = ok("http://ops:hunter2@collector:4318").expect_err("it has a password");
        assert!(!secret.contains("hunter2"), "{secret}");
    }

    /// The bugs: the name in the attributes gave way to the default, and an empty variable counted as a name.
    #[test]
    fn the_name_of_the_process_is_as_the_environment_says() {
        for (name, attributes, expected) in [
            ("", "", Some(SERVICE)),
            ("", "region=eu", Some(SERVICE)),
            ("", "service.name=, region=eu", Some(SERVICE)),
            ("", "service.namespace=a,name=b,service.name", Some(SERVICE)),
            ("", "region=eu, service.name = lessor-eu", None),
            ("lessor-eu", "", Some("lessor-eu")),
            ("lessor-eu", "service.name=other", Some("lessor-eu")),
        ] {
            assert_eq!(service_name(name, attributes), expected, "{name:?} {attributes:?}");
        }
    }
}
