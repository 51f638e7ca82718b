//! One connection of a client, from its first byte to its end: each request meets the fault of the moment. The proxy
//! owns it; it outlives no proxy.

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
    /// To the next request.
    On,
    /// It ends in good order.
    Close,
    /// It is reset.
    Reset,
    /// It stays open, and whatever is said is swallowed.
    Dead,
}

/// What the client hears.
struct Said {
    bytes: Vec<u8>,
    /// Between two bytes of it; `None` sends all at once.
    pause: Option<Duration>,
    next: Next,
}

/// Serves one client until it goes, the network is cut, or the proxy is dropped.
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
        // A failure means that the client has reset it first.
        Next::Reset => drop(stream.get_ref().set_zero_linger()),
        Next::Dead => swallow(&mut stream).await,
    }
}

/// One request after the other, until one of them or the client ends it.
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

/// What comes of one request. `None` is a silence that does not end.
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
            // After the first was answered and before the client hears of it: at once.
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

/// Reads until the client has had enough. What it says goes nowhere.
async fn swallow(stream: &mut BufReader<TcpStream>) {
    let mut nowhere = [0; 1 << 10];
    while stream.read(&mut nowhere).await.is_ok_and(|count| count > 0) {}
}
