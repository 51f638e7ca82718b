//! An application that exports its own spans: a subscriber of this thread, which keeps the spans that end.

use lessor_protocol::trace::TARGET;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use scenarios::subscribers;
use std::sync::{Arc, Mutex};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};

/// The spans of this thread, recorded until this value is dropped.
pub(crate) struct Kept {
    ended: Arc<Mutex<Vec<SpanData>>>,
    _provider: SdkTracerProvider,
    _guard: DefaultGuard,
}

#[derive(Debug)]
struct Keeper(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Keeper {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().expect("no panic").extend(batch);
        Ok(())
    }
}

impl Kept {
    pub(crate) fn here() -> Kept {
        subscribers::ask_all();
        let ended = Arc::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(Keeper(Arc::clone(&ended))).build();
        let spans = tracing_opentelemetry::layer().with_tracer(provider.tracer("app"));
        let is_ours =
            filter_fn(|span| span.is_span() && (span.target() == TARGET || span.name() == "request"));
        let guard =
            tracing::subscriber::set_default(tracing_subscriber::registry().with(spans.with_filter(is_ours)));
        Kept { ended, _provider: provider, _guard: guard }
    }

    /// Returns the spans of this name that have ended.
    pub(crate) fn ended(&self, name: &str) -> Vec<SpanData> {
        self.ended.lock().expect("no panic").iter().filter(|span| span.name == name).cloned().collect()
    }
}
