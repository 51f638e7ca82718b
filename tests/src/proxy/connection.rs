//! One connection of a client, from its first byte to its end: each request meets the fault that is set when it
//! arrives. The proxy owns the connection, which never outlives it.

use super::fault::Fault;
use super::message::Message;
use super::{Link, write};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::sleep;

/// How a connection goes on.
enum Next {
    /// The next request is read.
    On,
    /// The connection ends in good order.
    Close,
    /// The connection is reset.
    Reset,
    /// The connection stays open, and all that the client sends is swallowed.
    Dead,
}

/// The bytes that a client receives for its request.
struct Said {
    bytes: Vec<u8>,
    /// The pause between two bytes; `None` sends all bytes at once.
    pause: Option<Duration>,
    next: Next,
}

/// Serves one client until it leaves, the network is cut, or the proxy is dropped.
pub(super) async fn serve(stream: TcpStream, link: Arc<Link>, fault: watch::Receiver<Fault>) {
    let mut cut = fault.clone();
    let mut stream = BufReader::new(stream);
    let next = tokio::select! {
        biased;
        _ = cut.wait_for(|fault| *fault == Fault::Cut) => Next::Reset,
        next = converse(&mut stream, &link, &fault) => next.unwrap_or(Next::Close),
    };
    match next {
        Next::On | Next::Close => {}
        // A failure means that the client has reset the connection first.
        Next::Reset => drop(stream.get_ref().set_zero_linger()),
        Next::Dead => swallow(&mut stream).await,
    }
}

/// Serves one request after another, until a fault or the client ends the connection.
async fn converse(
    stream: &mut BufReader<TcpStream>,
    link: &Link,
    fault: &watch::Receiver<Fault>,
) -> io::Result<Next> {
    while let Some(request) = Message::read(stream).await? {
        link.requests.fetch_add(1, Ordering::AcqRel);
        let fault = *fault.borrow();
        let Some(said) = meet(fault, request, link).await else { return Ok(Next::Dead) };
        write(stream.get_mut(), &said.bytes, said.pause).await?;
        match said.next {
            Next::On => {}
            next @ (Next::Close | Next::Reset | Next::Dead) => return Ok(next),
        }
    }
    Ok(Next::Close)
}

/// Treats one request by the fault. `None` is a silence that does not end.
async fn meet(fault: Fault, request: Message, link: &Link) -> Option<Said> {
    let on = |answer: Message| Said { bytes: answer.bytes(), pause: None, next: Next::On };
    let nothing = |next| Said { bytes: vec![], pause: None, next };
    let now = Duration::ZERO;
    Some(match fault {
        Fault::None => on(link.send(request, now, None).await.ok()?),
        Fault::Cut => nothing(Next::Reset),
        Fault::Deaf => nothing(Next::Dead),
        Fault::Mute => {
            drop(link.send(request, now, None));
            nothing(Next::Dead)
        }
        Fault::AnswerLost => {
            link.send(request, now, None).await.ok()?;
            nothing(Next::Reset)
        }
        Fault::Delay { there, back } => {
            let answer = link.send(request, there, None).await.ok()?;
            sleep(back).await;
            on(answer)
        }
        Fault::Repeat { later } => {
            let answer = link.send(request.clone(), now, None).await.ok()?;
            // The copy is sent after the first answer, and before the client receives it.
            let _ = link.send(request.clone(), now, None).await;
            drop(link.send(request, later, None));
            on(answer)
        }
        Fault::Trickle { pause } => {
            let answer = link.send(request, now, Some(pause)).await.ok()?;
            Said { pause: Some(pause), ..on(answer) }
        }
        Fault::Garbled(malformed) => {
            let answer = link.send(request.clone(), now, None).await.ok()?;
            let (bytes, ends) = malformed.spoil(&request, &answer);
            Said { bytes, pause: None, next: if ends { Next::Close } else { Next::On } }
        }
        Fault::Dressed(dress) => {
            let (bytes, ends) = dress.put_on(&link.send(request, now, None).await.ok()?);
            Said { bytes, pause: None, next: if ends { Next::Close } else { Next::On } }
        }
    })
}

/// Reads and drops all bytes until the client leaves.
async fn swallow(stream: &mut BufReader<TcpStream>) {
    let mut nowhere = [0; 1 << 10];
    while stream.read(&mut nowhere).await.is_ok_and(|count| count > 0) {}
}
