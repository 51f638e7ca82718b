//! Reading a request's body: JSON, not too large, not too slow. Handlers that take one call [`read`].

use super::problem::Problem;
use axum::body::{Bytes, HttpBody};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, Request};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

/// The largest body. A thousand asks with the longest names are 545 kB (a test measures it); twice that leaves
/// room for escapes. More would let one request occupy the allocator for longer than a lease is worth.
pub(super) const BODY_MAX: usize = 1 << 20;

/// How much of a body that is too large is read and thrown away before the answer. A client that gets an answer
/// while it is still sending mostly sees a broken connection instead. But the server does not read without end.
const DRAIN_MAX: usize = 16 << 20;

/// How long a body may take to arrive. Nodes send theirs in one piece; longer only helps those who trickle.
const BODY_WAIT: Duration = Duration::from_secs(5);

/// The body of `request`.
pub(super) async fn read<B>(request: Request<B>) -> Result<Bytes, Problem>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    check_media(request.headers())?;
    if declared_length(request.headers()) > DRAIN_MAX {
        return Err(too_large());
    }
    let mut collecting = pin!(collect(request.into_body()));
    if let Some(body) = at_once(collecting.as_mut()).await {
        return body;
    }
    match tokio::time::timeout(BODY_WAIT, collecting).await {
        Ok(body) => body,
        Err(_) => {
            let detail = format!("the body took longer than {} s to arrive", BODY_WAIT.as_secs());
            Err(Problem::timeout(detail))
        }
    }
}

/// What `reading` comes to, if all of it has arrived already. Nearly every body has, and needs no timer. The connection hands a body
/// over once it was asked for it, so it is asked twice.
async fn at_once<T>(mut reading: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    let mut was_asked = false;
    poll_fn(|cx| match reading.as_mut().poll(cx) {
        Poll::Ready(read) => Poll::Ready(Some(read)),
        Poll::Pending if was_asked => Poll::Ready(None),
        Poll::Pending => {
            was_asked = true;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}

async fn collect<B: HttpBody<Data = Bytes> + Unpin>(mut body: B) -> Result<Bytes, Problem> {
    let first = next_piece(&mut body).await?.unwrap_or_default();
    // Nearly all come in one piece, which need not be copied.
    if body.is_end_stream() && first.len() <= BODY_MAX {
        return Ok(first);
    }
    let (mut kept, mut seen) = (vec![], 0usize);
    let mut piece = Some(first);
    while let Some(bytes) = piece {
        seen = seen.saturating_add(bytes.len());
        if seen <= BODY_MAX {
            kept.extend_from_slice(&bytes);
        } else {
            kept = vec![];
        }
        if seen > DRAIN_MAX {
            break;
        }
        piece = next_piece(&mut body).await?;
    }
    if seen > BODY_MAX { Err(too_large()) } else { Ok(kept.into()) }
}

/// The next bytes, or `None` at the end.
async fn next_piece<B: HttpBody<Data = Bytes> + Unpin>(body: &mut B) -> Result<Option<Bytes>, Problem> {
    let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
    match frame {
        None => Ok(None),
        // A frame without data has trailers, which the server does not read.
        Some(Ok(frame)) => Ok(Some(frame.into_data().unwrap_or_default())),
        Some(Err(_)) => Err(Problem::malformed("the body broke off")),
    }
}

fn check_media(headers: &HeaderMap) -> Result<(), Problem> {
    let media = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = media.and_then(|media| media.split(';').next()).unwrap_or_default();
    if !essence.trim().eq_ignore_ascii_case("application/json") {
        return Err(Problem::wrong_media("the body must be JSON: say content-type: application/json"));
    }
    // Nothing is ever unpacked: a few bytes cannot become gigabytes.
    if headers.contains_key(CONTENT_ENCODING) {
        return Err(Problem::wrong_media("the body must not be compressed: leave out content-encoding"));
    }
    Ok(())
}

/// What the sender says the length is; zero if it does not say.
fn declared_length(headers: &HeaderMap) -> usize {
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    length.and_then(|length| length.parse().ok()).unwrap_or_default()
}

fn too_large() -> Problem {
    Problem::too_large(format!("the body is larger than {BODY_MAX} bytes"))
}
