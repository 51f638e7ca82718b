//! Bounds on the cost of one HTTP/2 connection: answers that its peer does not take, and frames that ask for nothing.
//! HTTP/1 needs no such bounds: an answer is sent as soon as it is made, which [`super::patience`] bounds.
//!
//! Time is counted in looks of the connection's task, one every [`LOOK_EVERY`], so a request reads no clock.

use super::patience::WRITE_WAIT;
use crate::http;
use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use lessor_protocol::lock_anyway::LockAnyway;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Interval of looks. Deadlines are half of it late on average.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Looks within which a piece of an answer must be taken: as long as a write to an HTTP/1 peer may take.
const TAKEN_WITHIN: u32 = looks(WRITE_WAIT);

/// Looks without a request after which a connection is asked to end. A client that asks less often pays a handshake
/// each time.
const IDLE_MAX: u32 = looks(Duration::from_secs(60));

/// Bytes of answers that a connection may leave untaken; a single answer may be larger. Four of the largest answers to
/// a node fit. With a larger bound, thousands of peers that do not read would hold megabytes each.
pub(super) const UNTAKEN_MAX: usize = 1 << 20;

/// Frames, besides requests and their bodies, that a peer may send at once, and how many more each look and each
/// request allow. A client sends a few at the start, some for each request, and one for each piece of an answer that it
/// takes.
pub(super) const FRAMES_BURST: u32 = 1_000;
const FRAMES_PER_LOOK: u32 = 200;
const FRAMES_PER_REQUEST: u32 = 4;

const fn looks(wait: Duration) -> u32 {
    wait.as_secs().div_ceil(LOOK_EVERY.as_secs()) as u32
}

/// What one connection uses, against its bounds.
#[derive(Debug)]
pub(super) struct Budget(Mutex<Used>);

#[derive(Debug)]
struct Used {
    /// Whether a request has come.
    was_asked: bool,
    /// Looks so far.
    looks: u32,
    /// The look at which the last request began or ended.
    busy_at: u32,
    /// Requests that are not fully answered.
    requests: usize,
    /// Pieces of answers that were handed over and not taken, each with the look at which that was. Numbers rise.
    pieces: BTreeMap<u64, u32>,
    next_piece: u64,
    /// Bytes of answers that were made and not taken.
    untaken: usize,
    /// Frames, besides requests, that may still come.
    frames: u32,
}

/// Outcome of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The peer does not read its answers.
    Unread,
    /// The connection was idle, and should end by itself.
    Done,
    /// The connection is within its bounds.
    Fine,
}

impl Default for Budget {
    fn default() -> Self {
        Budget(Mutex::new(Used {
            was_asked: false,
            looks: 0,
            busy_at: 0,
            requests: 0,
            pieces: BTreeMap::new(),
            next_piece: 0,
            untaken: 0,
            frames: FRAMES_BURST,
        }))
    }
}

impl Budget {
    /// Begins a request.
    pub(super) fn begin(self: &Arc<Self>) -> Begun {
        let mut used = self.0.lock_anyway();
        (used.requests, used.busy_at, used.was_asked) = (used.requests + 1, used.looks, true);
        Begun { budget: self.clone(), reserved: 0 }
    }

    /// Whether a request has come over HTTP/2.
    pub(super) fn is_used(&self) -> bool {
        self.0.lock_anyway().was_asked
    }

    /// Checks the bounds; to be called every [`LOOK_EVERY`].
    pub(super) fn look(&self) -> Found {
        let mut used = self.0.lock_anyway();
        used.looks = used.looks.saturating_add(1);
        used.frames = FRAMES_BURST.min(used.frames + FRAMES_PER_LOOK);
        let oldest = used.pieces.first_key_value().map(|(_, look)| *look);
        if oldest.is_some_and(|look| used.looks - look > TAKEN_WITHIN) {
            return Found::Unread;
        }
        let is_idle = used.requests == 0 && used.looks - used.busy_at > IDLE_MAX;
        if is_idle { Found::Done } else { Found::Fine }
    }

    /// Allows the frames that go with a request, whose head has come.
    pub(super) fn request_frame(&self) {
        self.give_frames(FRAMES_PER_REQUEST);
    }

    /// Allows `count` more frames.
    pub(super) fn give_frames(&self, count: u32) {
        let mut used = self.0.lock_anyway();
        used.frames = FRAMES_BURST.min(used.frames.saturating_add(count));
    }

    /// Takes `count` frames. Returns whether that many were allowed.
    pub(super) fn take_frames(&self, count: u32) -> bool {
        let mut used = self.0.lock_anyway();
        let left = used.frames.checked_sub(count);
        used.frames = left.unwrap_or_default();
        left.is_some()
    }
}

/// A request that is not fully answered.
#[derive(Debug)]
pub(super) struct Begun {
    budget: Arc<Budget>,
    /// Bytes of its answer that are not handed over yet.
    reserved: usize,
}

impl Begun {
    /// Counts `response` until its peer has taken it. If too much is untaken, a refusal takes its place.
    pub(super) fn answer(mut self, response: Response) -> Response {
        let size = usize::try_from(HttpBody::size_hint(response.body()).lower()).unwrap_or(usize::MAX);
        let response = if self.reserve(size) { response } else { http::answers_untaken() };
        response.map(|body| Body::new(Counted { body, begun: self }))
    }

    fn reserve(&mut self, size: usize) -> bool {
        let mut used = self.budget.0.lock_anyway();
        if used.untaken > 0 && used.untaken.saturating_add(size) > UNTAKEN_MAX {
            return false;
        }
        used.untaken += size;
        self.reserved = size;
        true
    }

    /// Counts `bytes` until they are dropped.
    fn piece(&mut self, bytes: Bytes) -> Bytes {
        if bytes.is_empty() {
            return bytes;
        }
        let mut used = self.budget.0.lock_anyway();
        let number = used.next_piece;
        let look = used.looks;
        used.pieces.insert(number, look);
        used.next_piece += 1;
        let of_reserved = self.reserved.min(bytes.len());
        self.reserved -= of_reserved;
        used.untaken += bytes.len() - of_reserved;
        drop(used);
        Bytes::from_owner(Piece { bytes, number, budget: self.budget.clone() })
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let mut used = self.budget.0.lock_anyway();
        (used.requests, used.busy_at) = (used.requests - 1, used.looks);
        used.untaken -= self.reserved;
    }
}

/// A piece of an answer, until it is written to the connection.
struct Piece {
    bytes: Bytes,
    number: u64,
    budget: Arc<Budget>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mut used = self.budget.0.lock_anyway();
        used.pieces.remove(&self.number);
        used.untaken -= self.bytes.len();
    }
}

/// The body of an answer, whose pieces are counted.
#[derive(Debug)]
struct Counted {
    body: Body,
    begun: Begun,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)?) else { return Poll::Ready(None) };
        Poll::Ready(Some(Ok(frame.map_data(|bytes| self.begun.piece(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    fn budget() -> Arc<Budget> {
        Arc::new(Budget::default())
    }

    async fn pieces(response: Response) -> Vec<Bytes> {
        let mut body = response.into_body();
        let mut pieces = vec![];
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            pieces.extend(frame.expect("it has no errors").into_data());
        }
        pieces
    }

    #[tokio::test]
    async fn answers_that_are_not_taken_are_bounded_in_bytes_and_none_is_refused_where_all_are() {
        let (budget, large) = (budget(), || Response::new(Body::from(vec![b'x'; UNTAKEN_MAX / 2])));
        let mut held = vec![];
        for _ in 0..2 {
            held.push(pieces(budget.begin().answer(large())).await);
        }
        let refused = budget.begin().answer(large());
        assert_eq!(refused.status(), 503);
        drop(refused);
        held.pop();
        let made = budget.begin().answer(large());
        assert_eq!(made.status(), 200);
        assert_eq!(budget.begin().answer(large()).status(), 503, "one that is only made counts as well");
        drop((made, held));
        let larger = Response::new(Body::from(vec![b'x'; UNTAKEN_MAX * 2]));
        assert_eq!(budget.begin().answer(larger).status(), 200, "alone it may be of any size");
        let used = budget.0.lock_anyway();
        assert_eq!((used.untaken, used.requests, used.pieces.len()), (0, 0, 0), "nothing is left behind");
    }

    #[tokio::test]
    async fn a_piece_that_is_taken_late_is_noticed_and_one_in_time_is_not() {
        let budget = budget();
        let held = pieces(budget.begin().answer(Response::new(Body::from("x")))).await;
        for _ in 0..TAKEN_WITHIN {
            assert_eq!(budget.look(), Found::Fine);
        }
        assert_eq!(budget.look(), Found::Unread);
        drop(held);
        assert_eq!(budget.look(), Found::Fine);
    }

    #[test]
    fn a_connection_is_done_when_it_was_idle() {
        let idle = budget();
        let found: Vec<Found> = (0..=IDLE_MAX).map(|_| idle.look()).collect();
        assert_eq!((found[0], found[IDLE_MAX as usize]), (Found::Fine, Found::Done));
        let busy = budget();
        let _begun = busy.begin();
        assert!((0..=2 * IDLE_MAX).all(|_| busy.look() == Found::Fine));
    }

    #[test]
    fn frames_come_back_with_looks_and_requests() {
        let budget = budget();
        assert!(budget.take_frames(FRAMES_BURST) && !budget.take_frames(1));
        budget.request_frame();
        assert!(budget.take_frames(FRAMES_PER_REQUEST) && !budget.take_frames(1));
        budget.look();
        assert!(budget.take_frames(FRAMES_PER_LOOK) && !budget.take_frames(1));
    }
}
