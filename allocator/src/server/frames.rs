//! Counts the frames that an HTTP/2 peer sends. A frame that asks for nothing costs the server as much as an answer,
//! and the peer next to nothing: a peer that sends too many is cut off. No byte is changed, and HTTP/1 is not parsed.

use super::budget::Budget;
use super::first_head::FirstHead;
use super::patience::Patience;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The first bytes of a connection over HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes of a frame's head: three of its length, its type, its flags, and four of its stream.
const HEAD: usize = 9;

/// Frame types.
const DATA: u8 = 0;
const HEADERS: u8 = 1;

/// Flag of the last frame of a stream.
const END_STREAM: u8 = 1;

/// Least payload of a data frame, in bytes. A smaller one costs more for its frame than for its bytes. The last frame
/// of a body may have any size.
const DATA_MIN: u32 = 256;

/// Bytes to a peer for which it may send one frame: it acknowledges each piece that it takes, and small pieces have 4
/// kB.
const BYTES_PER_FRAME: usize = 1_024;

/// A stream on which reading fails once the peer has sent too many frames that ask for nothing, or its address too many
/// bytes before a request. Writing fails once the peer does not read for too long.
#[derive(Debug)]
pub(super) struct Frames<S> {
    stream: S,
    patience: Patience,
    place: Place,
    budget: Arc<Budget>,
    /// Counts bytes until the first request is whole.
    first: Option<FirstHead>,
    /// Bytes written for which no frame was allowed yet.
    written: usize,
}

/// Position in the peer's bytes.
#[derive(Debug)]
enum Place {
    /// This many bytes of the preface have come.
    Preface(usize),
    /// This many bytes of this head have come.
    Head([u8; HEAD], usize),
    /// This many bytes are left before the next head.
    Payload(usize),
    /// The peer does not speak HTTP/2.
    Other,
}

impl<S> Frames<S> {
    pub(super) fn new(stream: S, budget: Arc<Budget>, first: FirstHead) -> Self {
        Frames {
            stream,
            patience: Patience::default(),
            place: Place::Preface(0),
            budget,
            first: Some(first),
            written: 0,
        }
    }

    /// Counts `count` bytes against the address, if the first request is not whole. Returns whether the peer may go on.
    fn may_send(&mut self, count: usize) -> bool {
        self.first.take_if(|first| first.is_over());
        self.first.as_mut().is_none_or(|first| first.take(count))
    }

    /// Parses `bytes` of the peer. Returns whether it may go on.
    fn hear(&mut self, mut bytes: &[u8]) -> bool {
        let mut costly = 0;
        while !bytes.is_empty() {
            match &mut self.place {
                Place::Other => return true,
                Place::Preface(had) => {
                    let rest = &PREFACE[*had..];
                    let count = rest.len().min(bytes.len());
                    if bytes[..count] != rest[..count] {
                        self.place = Place::Other;
                        return true;
                    }
                    bytes = &bytes[count..];
                    *had += count;
                    if *had == PREFACE.len() {
                        self.place = Place::Payload(0);
                    }
                }
                Place::Payload(left) => {
                    let count = (*left).min(bytes.len());
                    bytes = &bytes[count..];
                    *left -= count;
                    if *left == 0 {
                        self.place = Place::Head([0; HEAD], 0);
                    }
                }
                Place::Head(head, had) => {
                    let count = (HEAD - *had).min(bytes.len());
                    head[*had..*had + count].copy_from_slice(&bytes[..count]);
                    bytes = &bytes[count..];
                    *had += count;
                    if *had == HEAD {
                        let [high, middle, low, kind, flags, ..] = *head;
                        let length = u32::from_be_bytes([0, high, middle, low]);
                        if kind == HEADERS {
                            self.budget.request_frame();
                        } else if kind != DATA || (length < DATA_MIN && flags & END_STREAM == 0) {
                            costly += 1;
                        }
                        self.place = Place::Payload(length as usize);
                    }
                }
            }
        }
        costly == 0 || self.budget.take_frames(costly)
    }

    /// Allows frames for `count` bytes that were written.
    fn wrote(&mut self, count: usize) {
        if matches!(self.place, Place::Head(..) | Place::Payload(_)) {
            self.written += count;
            let frames = self.written / BYTES_PER_FRAME;
            if frames > 0 {
                self.written %= BYTES_PER_FRAME;
                self.budget.give_frames(u32::try_from(frames).unwrap_or(u32::MAX));
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Frames<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, into))?;
        if !self.may_send(into.filled().len() - before) {
            return Poll::Ready(Err(io::Error::other(
                "peers of this address send too much before a request",
            )));
        }
        if matches!(self.place, Place::Other) || self.hear(&into.filled()[before..]) {
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(Err(io::Error::other("the peer sends too many frames that ask for nothing")))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Frames<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        let count = ready!(self.patience.bounded(cx, written))?;
        self.wrote(count);
        Poll::Ready(Ok(count))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        let count = ready!(self.patience.bounded(cx, written))?;
        self.wrote(count);
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    // Hyper flushes after the last byte is written.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if flushed.is_ready() {
            self.patience = Patience::default();
        }
        self.patience.bounded(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.patience.bounded(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::Address;
    use crate::server::budget::FRAMES_BURST;
    use crate::server::first_head::FirstHeads;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).expect("small").to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
        frame.resize(HEAD + payload, 0);
        frame
    }

    fn frames() -> Frames<()> {
        let first = FirstHeads::new().begin(Address::Unix, Arc::default());
        Frames::new((), Arc::new(Budget::default()), first)
    }

    /// The same frames are counted however the bytes are cut into pieces.
    #[test]
    fn frames_that_ask_for_nothing_are_counted_and_requests_are_not() {
        let costly = [(4, 0, 18), (6, 0, 8), (2, 0, 5), (8, 0, 4), (9, 0, 1_000), (DATA, 0, 3)];
        let free = [(HEADERS, 5, 40), (DATA, 0, 20_000), (DATA, END_STREAM, 3)];
        for size in [1, 2, 7, 9, 10, 1_000, 1 << 20] {
            let mut frames = frames();
            assert!(frames.hear(PREFACE));
            let mut said = vec![];
            let rounds = FRAMES_BURST as usize / costly.len();
            for (kind, flags, payload) in costly.repeat(rounds) {
                said.extend(frame(kind, flags, payload));
            }
            for (kind, flags, payload) in free.repeat(2) {
                said.extend(frame(kind, flags, payload));
            }
            assert!(said.chunks(size).all(|piece| frames.hear(piece)), "in pieces of {size}");
            let more = frame(6, 0, 8).repeat(20);
            assert!(!more.chunks(size).all(|piece| frames.hear(piece)), "in pieces of {size}");
        }
    }

    #[test]
    fn what_is_written_allows_more() {
        let mut frames = frames();
        let pings = frame(6, 0, 8).repeat(FRAMES_BURST as usize);
        assert!(frames.hear(PREFACE) && frames.hear(&pings));
        // The answers to the pings allow a few more frames.
        (0..FRAMES_BURST).for_each(|_| frames.wrote(17));
        assert!(!frames.hear(&pings[..17 * 20]));
        (0..10).for_each(|_| frames.wrote(100 << 10));
        assert!(frames.hear(&pings));
    }

    #[test]
    fn of_what_is_no_http_2_nothing_is_counted() {
        for text in ["GET / HTTP/1.1\r\n", "PRI * HTTP/1.1\r\n", "\0\0\0"] {
            let mut frames = frames();
            assert!(frames.hear(text.as_bytes()));
            assert!((0..FRAMES_BURST * 2).all(|_| frames.hear(&frame(6, 0, 8))), "{text}");
        }
    }
}
