//! The orders of the demo to this node, line by line on stdin. When stdin closes the demo is gone, and so is the node:
//! at once, whatever else it is doing, so that no run leaves a process behind.

use crate::demo::line::Order;
use std::io::BufRead as _;
use tokio::sync::mpsc;

/// Most orders that wait. A node gets three in its life.
const ORDERS_MAX: usize = 4;

/// Exit code of a node whose demo is gone. No process is left to read it.
const ORPHANED: i32 = 1;

/// Orders in the order in which they were given.
#[derive(Debug)]
pub(crate) struct Orders(mpsc::Receiver<Order>);

impl Orders {
    /// Starts to listen, on its own thread: it must notice the end of the demo even if the node is stuck.
    pub(crate) fn listen() -> Self {
        let (sender, orders) = mpsc::channel(ORDERS_MAX);
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                let order = line.ok().and_then(|line| serde_json::from_str(&line).ok());
                // The line is not an order: let the node end on its own, with a message.
                let Some(order) = order else { return };
                if sender.blocking_send(order).is_err() {
                    return;
                }
            }
            std::process::exit(ORPHANED);
        });
        Orders(orders)
    }

    /// Returns the next order; `None` after a line that is not one. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Order> {
        self.0.recv().await
    }
}
