//! `lessor top`: the limits of an allocator, live in a terminal, those that need an operator first. It requests what
//! the page requests; it changes nothing.
//!
//! In reading order: [`rows`] (the figures of two looks), [`screen`] (the drawing), and in this file the requests and
//! the loop.

mod args;
mod rows;
mod screen;

pub(crate) use args::{TOP_EXAMPLE, TopArgs, TopSort};

use crate::failure::Failure;
use crate::limits::Server;
use crate::print::print;
use crate::runtime;
use lessor_protocol::CLOCK;
use lessor_protocol::lock_anyway::LockAnyway;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use rows::{Look, Row};
use screen::{Next, Screen};
use serde_json::Value;
use std::io::IsTerminal as _;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Builder;

/// Interval at which keys are read: with a longer one, a press feels late.
const KEYS_EVERY: Duration = Duration::from_millis(50);

/// The result of one look at the allocator.
#[derive(Debug)]
pub(crate) enum Seen {
    /// All limits, and the top sessions and keys of the chosen one.
    Look(Box<(Look, Option<Value>)>),
    /// The allocator cannot be asked.
    Away(String),
}

/// Shows the limits until the operator quits, or once.
pub(crate) fn run(args: &TopArgs) -> Result<(), Failure> {
    let runtime = runtime::start(Builder::new_multi_thread().worker_threads(1))?;
    let server = Server::try_new(&args.server)?;
    if args.once || args.json || !std::io::stdout().is_terminal() {
        let text = runtime.block_on(once(&server, args))?;
        return print(text);
    }
    let (sender, seen) = sync_channel(1);
    let chosen = Arc::new(Mutex::new(None));
    let asker = runtime.spawn(ask(server, args.every, chosen.clone(), sender));
    let shown = ratatui::try_init()
        .and_then(|mut terminal| watch(&mut terminal, Screen::new(args.sort), &seen, &chosen));
    // If it failed, there may be nothing to restore.
    let _ = ratatui::try_restore();
    asker.abort();
    shown.map_err(|error| Failure::Run(format!("the terminal cannot be used: {error}")))
}

/// Looks twice, because rates need two looks.
async fn once(server: &Server, args: &TopArgs) -> Result<String, Failure> {
    let first = look(server).await?;
    tokio::time::sleep(args.every).await;
    let second = look(server).await?;
    let mut rows = rows::rows(&second, Some(&first));
    rows::sort(&mut rows, args.sort);
    Ok(if args.json {
        serde_json::json!({ "limits": rows.iter().map(Row::json).collect::<Vec<Value>>() }).to_string() + "\n"
    } else {
        rows::table(&rows)
    })
}

async fn look(server: &Server) -> Result<Look, Failure> {
    let body = server.look(&["v1", "limits"]).await?.good()?;
    Ok(Look::of(CLOCK.now(), &body))
}

/// Looks at the interval `every`, also at the limit that is `chosen`, and sends the result.
async fn ask(server: Server, every: Duration, chosen: Arc<Mutex<Option<String>>>, seen: SyncSender<Seen>) {
    loop {
        let of = chosen.lock_anyway().clone();
        let found = match look(&server).await {
            Ok(look) => {
                let top = match &of {
                    Some(name) => {
                        server.look(&["v1", "limits", name, "top"]).await.and_then(|top| top.good()).ok()
                    }
                    None => None,
                };
                Seen::Look(Box::new((look, top)))
            }
            Err(error) => Seen::Away(error.to_string()),
        };
        // If the last look was not taken yet, this one is dropped.
        let _ = seen.try_send(found);
        tokio::time::sleep(every).await;
    }
}

/// Draws each look, and reacts to keys.
fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    mut screen: Screen,
    seen: &Receiver<Seen>,
    chosen: &Mutex<Option<String>>,
) -> std::io::Result<()> {
    loop {
        while let Ok(seen) = seen.try_recv() {
            screen.take(seen);
        }
        terminal.draw(|frame| screen.draw(frame, CLOCK.now()))?;
        if !event::poll(KEYS_EVERY)? {
            continue;
        }
        if let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            match screen.press(key) {
                Next::Go => {}
                Next::Look(name) => *chosen.lock_anyway() = name,
                Next::Quit => return Ok(()),
            }
        }
    }
}
