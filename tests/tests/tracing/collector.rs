//! A collector of spans in this process. It decodes what it receives by the types of the library, or fails as it is
//! told to.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::ResourceSpans;
use prost::Message as _;
use scenarios::fleet::eventually;
use std::sync::{Arc, Mutex};

/// How the collector treats what it receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Takes,
    Refuses,
    NeverAnswers,
}

/// A span, as far as the tests here look at it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) service: String,
    pub(crate) name: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) is_error: bool,
    /// The whole span, as debug text.
    #[expect(dead_code, reason = "read when it is printed")]
    pub(crate) whole: String,
}

#[derive(Debug)]
struct Desk {
    mood: Mutex<Mood>,
    batches: Mutex<u64>,
    seen: Mutex<Vec<Seen>>,
}

/// A collector that stops when it is dropped.
#[derive(Debug)]
pub(crate) struct Collector {
    pub(crate) url: String,
    desk: Arc<Desk>,
    server: tokio::task::JoinHandle<()>,
}

impl Collector {
    pub(crate) async fn open(mood: Mood) -> Collector {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback is there");
        let url = format!("http://{}", listener.local_addr().expect("the listener is bound"));
        let desk =
            Arc::new(Desk { mood: Mutex::new(mood), batches: Mutex::default(), seen: Mutex::default() });
        let app = Router::new().route("/v1/traces", post(take)).with_state(desk.clone());
        let server =
            tokio::spawn(async move { axum::serve(listener, app).await.expect("the collector goes on") });
        Collector { url, desk, server }
    }

    pub(crate) fn becomes(&self, mood: Mood) {
        *self.desk.mood.lock().expect("no panic") = mood;
    }

    /// Batches that came, accepted or not.
    pub(crate) fn batches(&self) -> u64 {
        *self.desk.batches.lock().expect("no panic")
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.desk.seen.lock().expect("no panic").clone()
    }

    /// Returns what `find` finds in all spans so far, once it finds something.
    pub(crate) async fn eventually<T>(&self, what: &str, find: impl Fn(&[Seen]) -> Option<T>) -> T {
        eventually(what, async || find(&self.seen())).await
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn take(State(desk): State<Arc<Desk>>, body: Bytes) -> StatusCode {
    let mood = *desk.mood.lock().expect("no panic");
    *desk.batches.lock().expect("no panic") += 1;
    match mood {
        Mood::Refuses => StatusCode::BAD_REQUEST,
        Mood::NeverAnswers => std::future::pending().await,
        Mood::Takes => {
            let request = ExportTraceServiceRequest::decode(body).expect("OTLP");
            desk.seen.lock().expect("no panic").extend(request.resource_spans.iter().flat_map(spans));
            StatusCode::OK
        }
    }
}

fn spans(of: &ResourceSpans) -> Vec<Seen> {
    let attributes = of.resource.iter().flat_map(|resource| &resource.attributes);
    let service =
        attributes.filter(|pair| pair.key == "service.name").map(|pair| format!("{:?}", pair.value));
    let service = service.collect::<String>();
    let spans = of.scope_spans.iter().flat_map(|scope| &scope.spans);
    let seen = spans.map(|span| Seen {
        service: service.clone(),
        name: span.name.clone(),
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        is_error: span.status.as_ref().is_some_and(|status| status.code == 2),
        whole: format!("{span:?}"),
    });
    seen.collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
