//! The node processes of a demo, started from this same program. They get orders over stdin and report over stdout.
//! Their stdin closes when this process ends, however it ends, and a node whose stdin closes exits at once.

use super::line::{DealtCall, Found, Job, News, Order, Tally};
use crate::failure::Failure;
use lessor_protocol::Moment;
use serde::Serialize;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Longest time until all nodes are connected. They need milliseconds; on a machine under load, seconds.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// Longest time that nodes may take to leave: calls in flight, then one exchange. After that they are killed.
const LEAVE_WITHIN: Duration = Duration::from_secs(8);

/// Most messages that wait to be read. Nodes send five a second; a full queue slows only its readers.
const NEWS_MAX: usize = 256;

/// All nodes of a demo.
#[derive(Debug)]
pub(crate) struct Fleet {
    nodes: Vec<Node>,
    messages: mpsc::Receiver<(usize, Message)>,
}

/// The result of one node.
#[derive(Debug)]
pub(crate) struct Done {
    /// Its totals; the last that it reported, if it died.
    pub(crate) tally: Tally,
    /// Its findings; none if it died.
    pub(crate) found: Option<Found>,
}

/// Returns the client and the instant of each admission on any node. `hands` are the calls of each node.
pub(crate) fn admissions<'a>(
    hands: &'a [Vec<DealtCall>],
    done: &'a [Done],
) -> impl Iterator<Item = (&'a str, Moment)> {
    hands.iter().zip(done).flat_map(|(calls, node)| {
        let instants = if let Some(Found::Replay(instants)) = &node.found { &instants[..] } else { &[] };
        let client = |call: u32| calls[call as usize].client.as_str();
        instants.iter().map(move |&(call, at_ns)| (client(call), Moment::from_nanos(at_ns)))
    })
}

#[cfg(test)]
pub(crate) fn replayed(admitted: &[(u32, u64)]) -> Done {
    let tally = Tally { counts: vec![super::line::Count::default()], ..Tally::default() };
    Done { tally, found: Some(Found::Replay(admitted.to_vec())) }
}

#[derive(Debug)]
struct Node {
    name: String,
    child: Child,
    stdin: ChildStdin,
    state: State,
    /// Address of its metrics.
    metrics: Option<SocketAddr>,
    tally: Tally,
    found: Option<Found>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Starting,
    Ready,
    Left,
}

#[derive(Debug)]
enum Message {
    News(News),
    Left,
}

impl Fleet {
    /// Starts one node for each job and waits until all are connected. The nodes log from `level` on, unless an
    /// operator asked for more.
    pub(crate) async fn launch(jobs: Vec<Job>, level: &str) -> Result<Self, Failure> {
        let (said, messages) = mpsc::channel(NEWS_MAX);
        let mut fleet = Fleet { nodes: Vec::new(), messages };
        for (index, job) in jobs.into_iter().enumerate() {
            let (mut node, stdout) = Node::spawn(&job.name, level)?;
            tokio::spawn(listen(index, stdout, said.clone()));
            node.tell(&Order::Job(job)).await?;
            fleet.nodes.push(node);
        }
        drop(said);
        let ready = timeout(READY_WITHIN, fleet.all_are(State::Ready)).await;
        ready.map_err(|_| Failure::Run(format!("not all nodes connected within {READY_WITHIN:?}")))?;
        match fleet.nodes.iter().find(|node| node.state == State::Left) {
            Some(node) => Err(Failure::Run(format!("{} ended before it was connected", node.name))),
            None => Ok(fleet),
        }
    }

    /// Returns the addresses of the nodes' metrics.
    pub(crate) fn metrics(&self) -> impl Iterator<Item = SocketAddr> {
        self.nodes.iter().filter_map(|node| node.metrics)
    }

    /// Tells all nodes to begin, counting from `at`.
    pub(crate) async fn go(&mut self, at: Moment) -> Result<(), Failure> {
        let at_ns = at.as_nanos();
        for node in &mut self.nodes {
            node.tell(&Order::Go { at_ns }).await?;
        }
        Ok(())
    }

    /// Waits for the next message and takes it in. Returns false once all nodes have left. Cancel-safe.
    pub(crate) async fn hear(&mut self) -> bool {
        let Some((index, message)) = self.messages.recv().await else {
            return false;
        };
        self.nodes[index].take_in(message);
        true
    }

    /// Returns the last totals of each node.
    pub(crate) fn tallies(&self) -> impl Iterator<Item = &Tally> {
        self.nodes.iter().map(|node| &node.tally)
    }

    /// Tells all nodes to stop, waits until they have left, and returns their results.
    pub(crate) async fn stop(mut self) -> Vec<Done> {
        for node in &mut self.nodes {
            // A node that cannot be told has left already.
            let _ = node.tell(&Order::Stop).await;
        }
        let left = timeout(LEAVE_WITHIN, self.all_are(State::Left)).await;
        if left.is_err() {
            tracing::warn!(within = ?LEAVE_WITHIN, "nodes have not left in time and are killed");
        }
        let mut done = Vec::new();
        for mut node in self.nodes {
            // Has no effect on a node that has left; reaps it either way.
            let _ = node.child.kill().await;
            if node.found.is_none() {
                tracing::warn!(
                    node = node.name,
                    "node died: its calls since its last report are not counted"
                );
            }
            done.push(Done { tally: node.tally, found: node.found });
        }
        done
    }

    async fn all_are(&mut self, state: State) {
        let behind = |node: &Node| node.state != state && node.state != State::Left;
        while self.nodes.iter().any(behind) && self.hear().await {}
    }
}

impl Node {
    fn spawn(name: &str, level: &str) -> Result<(Self, ChildStdout), Failure> {
        let cannot = |error| Failure::Run(format!("cannot start {name}: {error}"));
        let mut child = Command::new(std::env::current_exe().map_err(cannot)?)
            .arg(super::NODE_COMMAND)
            .env(super::LOG, super::log_or(level))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C in a terminal goes to a whole group: this process gets it, and tells the nodes.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(cannot)?;
        let stdin = child.stdin.take().expect("it was asked to be piped");
        let stdout = child.stdout.take().expect("it was asked to be piped");
        let node = Node {
            name: name.to_owned(),
            child,
            stdin,
            state: State::Starting,
            metrics: None,
            tally: Tally::default(),
            found: None,
        };
        Ok((node, stdout))
    }

    async fn tell(&mut self, order: &Order) -> Result<(), Failure> {
        let written = self.stdin.write_all(&to_line(order)).await;
        written.map_err(|error| Failure::Run(format!("{} does not take orders: {error}", self.name)))
    }

    fn take_in(&mut self, message: Message) {
        match message {
            Message::News(News::Ready { metrics }) => (self.state, self.metrics) = (State::Ready, metrics),
            Message::News(News::Progress(tally)) => self.tally = tally,
            Message::News(News::Done(report)) => {
                self.tally = report.tally;
                self.found = Some(report.found);
            }
            Message::Left => self.state = State::Left,
        }
    }
}

/// Formats `message` as one line.
pub(crate) fn to_line(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("plain data is always JSON");
    line.push(b'\n');
    line
}

/// Passes on the messages of one node until its stdout closes.
async fn listen(index: usize, stdout: ChildStdout, said: mpsc::Sender<(usize, Message)>) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match serde_json::from_str(&line) {
            Ok(news) => {
                let _ = said.send((index, Message::News(news))).await;
            }
            Err(error) => tracing::warn!(node = index, %error, line, "cannot parse a message of a node"),
        }
    }
    let _ = said.send((index, Message::Left)).await;
}
