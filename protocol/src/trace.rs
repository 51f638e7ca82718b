//! Spans, and how they continue in another process: the header `traceparent` of the W3C's trace context leads from a
//! node to its allocator, and from there to the allocator above.
//!
//! Without the feature `opentelemetry` no header is sent, and one that arrives is ignored. Spans are made all the same,
//! for subscribers. Without a subscriber, a span costs a look at a flag. No span holds private data: no keys, no
//! addresses with passwords, no texts of other parties.

use tracing::Span;

/// Target of all spans, which have level DEBUG. A log that does not ask for this target gets no longer.
pub const TARGET: &str = "lessor::span";

/// Name of the header.
pub const TRACEPARENT: &str = "traceparent";

/// Returns the header for requests that `span` makes. `None` where the span is not exported.
pub fn traceparent(span: &Span) -> Option<String> {
    led::traceparent(span)
}

/// Makes `span`, which was not entered yet, a child of the span that `traceparent` names. A malformed header is
/// ignored: it is no reason to serve its sender worse.
pub fn lead(span: &Span, traceparent: Option<&str>) {
    led::lead(span, traceparent);
}

/// Whether `text` has the form of version 00, or begins with it in a later version. The library would pad parts that
/// are too short.
#[cfg(any(feature = "opentelemetry", test))]
fn is_well_formed(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').take(5).collect();
    let is_hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let has_form = |wanted: usize, part: &str| part.len() == wanted && is_hex(part);
    let [version, trace, span, flags, ref more @ ..] = parts[..] else { return false };
    let goes_on = more.is_empty() || version != "00";
    let form = [(2, version), (32, trace), (16, span), (2, flags)];
    goes_on && version != "ff" && form.into_iter().all(|(wanted, part)| has_form(wanted, part))
}

/// The newest span that left work to a later task, which works for other spans, too.
#[derive(Debug, Default)]
pub struct Cause(led::Cause);

impl Cause {
    /// Makes `span` the cause from now on.
    pub fn note(&self, span: &Span) {
        self.0.note(span);
    }

    /// Makes `span`, which was not entered yet, a child of the cause, and forgets the cause.
    pub fn lead(&self, span: &Span) {
        self.0.lead(span);
    }
}

/// Implementation with the libraries of OpenTelemetry.
#[cfg(feature = "opentelemetry")]
mod led {
    use super::TRACEPARENT;
    use crate::lock_anyway::LockAnyway;
    use opentelemetry::Context;
    use opentelemetry::propagation::TextMapPropagator as _;
    use opentelemetry::trace::{SpanContext, TraceContextExt as _};
    use opentelemetry_sdk::propagation::TraceContextPropagator;
    use std::collections::HashMap;
    use std::sync::Mutex;
    use tracing::Span;
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;

    pub(super) fn traceparent(span: &Span) -> Option<String> {
        if span.is_disabled() {
            return None;
        }
        let mut said = HashMap::new();
        TraceContextPropagator::new().inject_context(&span.context(), &mut said);
        said.remove(TRACEPARENT)
    }

    pub(super) fn lead(span: &Span, traceparent: Option<&str>) {
        let good = traceparent.filter(|text| !span.is_disabled() && super::is_well_formed(text));
        let Some(traceparent) = good else { return };
        let said = HashMap::from([(TRACEPARENT.to_owned(), traceparent.to_owned())]);
        let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &said);
        if context.span().span_context().is_valid() {
            // It fails where the span is not exported; then it needs no parent.
            let _ = span.set_parent(context);
        }
    }

    #[derive(Debug, Default)]
    pub(super) struct Cause(Mutex<Option<SpanContext>>);

    impl Cause {
        pub(super) fn note(&self, span: &Span) {
            if !span.is_disabled() {
                let context = span.context().span().span_context().clone();
                *self.0.lock_anyway() = Some(context);
            }
        }

        pub(super) fn lead(&self, span: &Span) {
            if span.is_disabled() {
                return;
            }
            let context = self.0.lock_anyway().take();
            if let Some(context) = context.filter(SpanContext::is_valid) {
                let _ = span.set_parent(Context::new().with_remote_span_context(context));
            }
        }
    }
}

/// Implementation without the libraries of OpenTelemetry.
#[cfg(not(feature = "opentelemetry"))]
mod led {
    use tracing::Span;

    pub(super) fn traceparent(_: &Span) -> Option<String> {
        None
    }

    pub(super) fn lead(_: &Span, _: Option<&str>) {}

    #[derive(Debug, Default)]
    pub(super) struct Cause;

    impl Cause {
        pub(super) fn note(&self, _: &Span) {}

        pub(super) fn lead(&self, _: &Span) {}
    }
}

#[cfg(test)]
mod tests {
    use super::is_well_formed;

    #[test]
    fn only_the_form_of_the_recommendation_is_believed() {
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        assert!(is_well_formed(&format!("00-{trace}-{span}-01")));
        assert!(is_well_formed(&format!("01-{trace}-{span}-01-what-is-to-come")));
        for wrong in [
            String::new(),
            format!("00-{trace}-{span}"),
            format!("00-{trace}-{span}-01-more"),
            format!("ff-{trace}-{span}-01"),
            format!("0-{trace}-{span}-01"),
            format!("00-{}-{span}-01", &trace[2..]),
            format!("00-{trace}-{}-01", &span[1..]),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00-{trace}-{span}-0g"),
        ] {
            assert!(!is_well_formed(&wrong), "{wrong}");
        }
    }
}
