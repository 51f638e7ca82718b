//! One HTTP/1.1 message whose head tells its length, as client and server send each other. The proxy reads and writes
//! it whole; this module does not look at its meaning.

use std::io;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// A request or an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The first line and the header fields, with the empty line that ends them.
    pub head: String,
    /// The body, as long as the head says.
    pub body: Vec<u8>,
}

impl Message {
    /// Reads the next message. Returns `None` if `from` ends before one begins.
    ///
    /// # Errors
    /// If the message breaks off, or does not tell its length in a way that this proxy reads.
    pub async fn read(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Message>> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if from.read_line(&mut head).await? == 0 {
                return if head.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
        let mut body = vec![0; length(&head)?];
        from.read_exact(&mut body).await?;
        Ok(Some(Message { head, body }))
    }

    /// Returns an answer with `status` (such as `200 OK`), the content type `media` and `body`.
    pub fn answer(status: &str, media: &str, body: impl Into<Vec<u8>>) -> Message {
        let body = body.into();
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: {media}\r\ncontent-length: {length}\r\n\r\n");
        Message { head, body }
    }

    /// Returns the message as bytes on the wire.
    pub fn bytes(&self) -> Vec<u8> {
        [self.head.as_bytes(), &self.body].concat()
    }
}

/// Returns the length of the body by `head`, which must tell it.
fn length(head: &str) -> io::Result<usize> {
    let field = |line: &str| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())
    };
    let length = head.lines().find_map(field).flatten();
    length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("no length in {head:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_are_told_apart_and_a_broken_one_is_an_error() {
        let first = Message::answer("200 OK", "text/plain", "abc");
        let mut wire: &[u8] =
            &[first.bytes(), b"GET / HTTP/1.1\r\nContent-Length: 0\r\n\r\nPO".to_vec()].concat();
        assert_eq!(Message::read(&mut wire).await.expect("whole"), Some(first));
        let second = Message::read(&mut wire).await.expect("whole").expect("a second message");
        assert_eq!((second.head.lines().next(), second.body.len()), (Some("GET / HTTP/1.1"), 0));
        assert!(Message::read(&mut wire).await.is_err(), "the message breaks off");
        assert_eq!(Message::read(&mut wire).await.expect("an end"), None);
        assert!(Message::read(&mut b"GET / HTTP/1.1\r\n\r\n".as_slice()).await.is_err(), "no length");
    }
}
