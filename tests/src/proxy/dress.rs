//! True answers in an unusual form, as old, lazy or busy intermediaries change HTTP. A client must understand them.

use super::message::Message;

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dress {
    /// HTTP/1.0 without a length: the end of the connection ends the answer.
    Old,
    /// Chunks of a few bytes, each with its length.
    Chunked,
    /// Preceded by several `100 Continue`.
    Announced,
    /// With a wrong content type.
    OtherMedia,
    /// With fields that a later version may have.
    Newer,
    /// Twice in a row.
    Twice,
}

impl Dress {
    /// All variants.
    pub const ALL: [Dress; 6] =
        [Dress::Old, Dress::Chunked, Dress::Announced, Dress::OtherMedia, Dress::Newer, Dress::Twice];

    /// Returns the bytes of `answer` in this form, and whether the connection ends with them.
    pub(crate) fn put_on(self, answer: &Message) -> (Vec<u8>, bool) {
        let status =
            answer.head.lines().next().and_then(|line| line.split_once(' ')).map_or("", |(_, rest)| rest);
        let body = answer.body.as_slice();
        let bytes = match self {
            Dress::Old => [format!("HTTP/1.0 {status}\r\n\r\n").as_bytes(), body].concat(),
            Dress::Chunked => {
                let head = format!("HTTP/1.1 {status}\r\ntransfer-encoding: chunked\r\n\r\n").into_bytes();
                let piece =
                    |piece: &[u8]| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
                let pieces = body.chunks(7).flat_map(piece);
                head.into_iter().chain(pieces).chain(*b"0\r\n\r\n").collect()
            }
            Dress::Announced => {
                ["HTTP/1.1 100 Continue\r\n\r\n".repeat(3).into_bytes(), answer.bytes()].concat()
            }
            Dress::OtherMedia => Message::answer(status, "text/html; charset=utf-16", body).bytes(),
            Dress::Newer => {
                let body = String::from_utf8_lossy(body).replacen('{', r#"{"hint":[{"a":null}],"#, 1);
                Message::answer(status, "application/json", body).bytes()
            }
            Dress::Twice => answer.bytes().repeat(2),
        };
        (bytes, self == Dress::Old)
    }
}
