//! Reading a request's body: JSON of bounded size, within a time limit, and within the room of all bodies. Handlers
//! that take a body call [`of`], [`of_stranger`] or [`Unread::read`].

use super::bodies::{Bodies, Held};
use super::problem::Problem;
use crate::addresses::Address;
use crate::audit::Origin;
use crate::shared::Shared;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, Request};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

/// The largest body, in bytes. A thousand asks with the longest names are 545 kB, and twice that leaves room for
/// escapes (a test sends 700 kB). A larger one would occupy the allocator for longer than a lease is worth.
pub(super) const BODY_MAX: usize = 1 << 20;

/// How many bytes of a body that is too large are read and discarded before the answer. A client that is answered while
/// it is still sending mostly sees a broken connection instead. The bound keeps the server from reading without end.
const DRAIN_MAX: usize = 16 << 20;

/// How long a body may take to arrive. Nodes send theirs in one piece; a longer time only helps peers that trickle.
const BODY_WAIT: Duration = Duration::from_secs(5);

/// Reads the body of `request`, which came by the routes.
pub(super) async fn of(shared: &Shared, request: Request<Body>) -> Result<Bytes, Problem> {
    let (bodies, address) = (shared.bodies(), address_of(&request));
    Unread::of(bodies, address, request)?.read(bodies).await
}

/// Reads the body of `request`, whose peer need not have proven an identity. It takes no room of other bodies.
pub(super) async fn of_stranger(shared: &Shared, request: Request<Body>) -> Result<Bytes, Problem> {
    let (bodies, address) = (shared.bodies_of_strangers(), address_of(&request));
    Unread::of(bodies, address, request)?.read(bodies).await
}

fn address_of(request: &Request<Body>) -> Option<Address> {
    request.extensions().get::<Origin>().and_then(|origin| origin.address)
}

/// A body that is not read yet. The head of its request, which is good, is gone.
pub(super) struct Unread<B> {
    address: Option<Address>,
    body: B,
}

impl<B> Unread<B> {
    /// Takes the body of `request` from `address`, to be read into `bodies`.
    ///
    /// # Errors
    /// If the body is not said to be JSON, or is said to be far too long.
    pub(super) fn of(
        bodies: &Bodies,
        address: Option<Address>,
        request: Request<B>,
    ) -> Result<Self, Problem> {
        check_media(request.headers())?;
        if declared_length(request.headers()) > DRAIN_MAX {
            return Err(too_large(bodies.largest()));
        }
        Ok(Unread { address, body: request.into_body() })
    }
}

impl<B: HttpBody<Data = Bytes> + Unpin> Unread<B> {
    /// Reads the body, which counts among `bodies` for as long as it is kept.
    pub(super) async fn read(self, bodies: &Bodies) -> Result<Bytes, Problem> {
        let mut collecting = pin!(collect(bodies, self.address, self.body));
        if let Some(body) = at_once(collecting.as_mut()).await {
            return body;
        }
        tokio::time::timeout(BODY_WAIT, collecting).await.unwrap_or_else(|_| {
            let detail = format!("the body took longer than {} s to arrive", BODY_WAIT.as_secs());
            Err(Problem::timeout(detail))
        })
    }
}

/// Returns the output of `reading` if all of the body has arrived already. Nearly every body has, and then needs no
/// timer. The connection hands a body over only after it was polled once, so `reading` is polled twice.
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

/// The part of a body that has arrived, if it comes in pieces.
struct Kept {
    bytes: Vec<u8>,
    held: Held,
}

impl Kept {
    /// Appends `more`.
    fn with(mut self, more: &[u8]) -> Result<Self, Problem> {
        let length = self.bytes.len() + more.len();
        let largest = self.held.largest;
        if length > largest {
            return Err(too_large(largest));
        }
        if length > self.bytes.capacity() {
            // The capacity doubles if there is room for that: a body that trickles is not copied for each of its
            // pieces.
            let twice = (2 * self.bytes.capacity()).clamp(length, largest);
            let room = [twice, length].into_iter().find(|room| self.held.grow_to(*room)).ok_or_else(full)?;
            self.bytes.reserve_exact(room - self.bytes.len());
        }
        self.bytes.extend_from_slice(more);
        Ok(self)
    }
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

async fn collect<B>(bodies: &Bodies, address: Option<Address>, mut body: B) -> Result<Bytes, Problem>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    let first = next_piece(&mut body).await?.unwrap_or_default();
    // Nearly all bodies come in one piece, which is neither copied nor waits for another one.
    if body.is_end_stream() && first.len() <= bodies.largest() {
        return Ok(first);
    }
    let held = bodies.begin(address);
    // After a refusal nothing of the body is kept, and the rest is discarded.
    let (mut kept, mut seen) = (Ok(Kept { bytes: vec![], held }), 0usize);
    let mut piece = Some(first);
    while let Some(bytes) = piece {
        seen = seen.saturating_add(bytes.len());
        kept = kept.and_then(|kept| kept.with(&bytes));
        if seen > DRAIN_MAX {
            break;
        }
        piece = next_piece(&mut body).await?;
    }
    kept.map(Bytes::from_owner)
}

/// Returns the next bytes, or `None` at the end.
async fn next_piece<B: HttpBody<Data = Bytes> + Unpin>(body: &mut B) -> Result<Option<Bytes>, Problem> {
    let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
    match frame {
        None => Ok(None),
        // A frame without data holds trailers, which the server does not read.
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
    // The server never decompresses: a few bytes cannot become gigabytes.
    if headers.contains_key(CONTENT_ENCODING) {
        return Err(Problem::wrong_media("the body must not be compressed: leave out content-encoding"));
    }
    Ok(())
}

/// Returns the declared length of the body in bytes, or zero if there is none.
fn declared_length(headers: &HeaderMap) -> usize {
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    length.and_then(|length| length.parse().ok()).unwrap_or_default()
}

fn too_large(largest: usize) -> Problem {
    Problem::too_large(format!("the body is larger than {largest} bytes"))
}

fn full() -> Problem {
    Problem::unavailable("bodies_full", "too many bodies are being read: send this one again")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse as _;
    use hyper::body::Frame;
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::task::Context;
    use tokio::task::JoinSet;

    /// A body of these pieces, which then ends or stalls.
    struct Said {
        pieces: VecDeque<Bytes>,
        ends: bool,
    }

    impl HttpBody for Said {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.pieces.pop_front() {
                Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
                None if self.ends => Poll::Ready(None),
                None => Poll::Pending,
            }
        }

        fn is_end_stream(&self) -> bool {
            self.ends && self.pieces.is_empty()
        }
    }

    fn request(count: usize, size: usize, ends: bool) -> Request<Said> {
        let pieces = (0..count).map(|_| Bytes::from(vec![b' '; size])).collect();
        let request = Request::post("/").header(CONTENT_TYPE, "application/json");
        request.body(Said { pieces, ends }).expect("a request")
    }

    /// The bug: each of thousands of connections could hold a megabyte at the same time.
    #[tokio::test(start_paused = true)]
    async fn large_bodies_that_trickle_take_bounded_memory_and_keep_out_no_short_one() {
        let bodies = Arc::new(Bodies::new(4, 4));
        let read = |bodies: Arc<Bodies>, said| async move {
            Unread::of(&bodies, None, said).expect("a good head").read(&bodies).await
        };
        let mut slow = JoinSet::new();
        for _ in 0..500 {
            let bodies = bodies.clone();
            slow.spawn(read(bodies, request(10, 60 << 10, false)));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let held = bodies.held();
        assert!((40 << 20..=48 << 20).contains(&held), "{held}");
        assert_eq!(read(bodies.clone(), request(3, 1_000, true)).await.expect("it is short").len(), 3_000);
        assert_eq!(
            read(bodies.clone(), request(1, 60 << 10, true)).await.expect("it is whole").len(),
            60 << 10
        );
        let refused = read(bodies.clone(), request(10, 60 << 10, true)).await.expect_err("there is no room");
        let answer = refused.into_response();
        assert!(answer.status() == 503 && answer.headers()["retry-after"] == "1", "{answer:?}");
        assert_eq!(bodies.held(), held, "a body that is refused takes nothing");
        while let Some(read) = slow.join_next().await {
            assert_eq!(read.expect("no panic").expect_err("it never ends").code(), "timeout");
        }
        assert_eq!(bodies.held(), 0);
        let large = read(bodies.clone(), request(10, 60 << 10, true)).await.expect("there is room");
        assert!(large.len() == 600 << 10 && bodies.held() >= large.len(), "until it is done with");
        drop(large);
        assert_eq!(bodies.held(), 0);
    }
}
