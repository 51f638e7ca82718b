//! A real cluster of Redis servers, a test's own: its slots are moved, and its masters killed and replaced, over the heads of
//! those who use it.

use crate::servers::Server;
use lessor_allocator::cells::private::{HeldPort, Setting};
use lessor_allocator::cells::{CellsConfig, StoreKind};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Slots of any cluster.
const SLOTS: usize = 16_384;

/// Three masters, each with a third of the slots, and what joined them.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Node>,
    gone_after: Duration,
}

/// A server of a cluster.
#[derive(Debug)]
pub struct Node {
    /// It.
    pub server: Arc<Server>,
    /// Where servers of a cluster talk to each other.
    bus: HeldPort,
    /// What it is called there.
    id: String,
}

impl Cluster {
    /// Three masters that no other test uses. They take a master for gone after so long.
    pub async fn start(gone_after: Duration) -> Self {
        let first = Node::start(None, gone_after);
        let others = [(), ()].map(|()| Node::start(Some(&first), gone_after));
        let cluster = Cluster { nodes: [first].into_iter().chain(others).collect(), gone_after };
        for (place, node) in cluster.nodes.iter().enumerate() {
            let (from, to) = (place * SLOTS / 3, (place + 1) * SLOTS / 3 - 1);
            assert_eq!(node.server.tell(&format!("CLUSTER ADDSLOTSRANGE {from} {to}")), "+OK");
            // Two that begin with the same epoch would change their minds once more later.
            assert_eq!(node.server.tell(&format!("CLUSTER SET-CONFIG-EPOCH {}", place + 1)), "+OK");
        }
        // Each the others: they would hear of each other by and by.
        cluster.nodes[1].meet(&cluster.nodes[0]);
        cluster.nodes[2].meet(&cluster.nodes[0]);
        cluster.nodes[2].meet(&cluster.nodes[1]);
        cluster.is_whole().await;
        cluster
    }

    /// One that other tests use, too, each with a prefix of its own.
    pub async fn shared() -> Arc<Self> {
        static SHARED: tokio::sync::Mutex<Weak<Cluster>> = tokio::sync::Mutex::const_new(Weak::new());
        let mut shared = SHARED.lock().await;
        if let Some(cluster) = shared.upgrade() {
            return cluster;
        }
        let cluster = Arc::new(Cluster::start(Duration::from_secs(60)).await);
        *shared = Arc::downgrade(&cluster);
        cluster
    }

    /// Its servers: the three masters first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Adds a server without slots: a master, or a replica of the one at this place.
    pub async fn join(&mut self, master: Option<usize>) -> Arc<Server> {
        let node = Node::start(Some(&self.nodes[0]), self.gone_after);
        self.nodes.iter().for_each(|other| node.meet(other));
        self.nodes.push(node);
        self.is_whole().await;
        let node = self.nodes.last().expect("it was pushed");
        if let Some(master) = master {
            let id = &self.nodes[master].id;
            assert_eq!(node.server.tell(&format!("CLUSTER REPLICATE {id}")), "+OK");
            until("it follows", || node.server.tell("INFO replication").contains("master_link_status:up"))
                .await;
        }
        Arc::clone(&node.server)
    }

    /// Waits until all know all, and say that the cluster is whole.
    pub async fn is_whole(&self) {
        let known = format!("cluster_known_nodes:{}\r\n", self.nodes.len());
        until("it is whole", || {
            self.nodes.iter().all(|node| {
                let info = node.server.tell("CLUSTER INFO");
                let is_told = ["cluster_state:ok", "cluster_slots_ok:16384", &known];
                is_told.iter().all(|told| info.contains(told))
            })
        })
        .await;
    }

    /// The URL of the store, with the password in it, and all three masters as hosts.
    pub fn url(&self) -> String {
        let hosts: Vec<String> =
            self.nodes[..3].iter().map(|node| node.server.address().to_string()).collect();
        self.url_by(&hosts.join(","))
    }

    /// The same with other hosts.
    pub fn url_by(&self, hosts: &str) -> String {
        format!("redis://:{}@{hosts}/?cluster=true", self.nodes[0].server.password())
    }

    /// What a handle on its cells needs, with this prefix.
    pub fn config(&self, prefix: &str) -> CellsConfig {
        let url = self.url().parse().expect("a URL of ours");
        // A machine that builds something else meanwhile answers late.
        CellsConfig { prefix: prefix.to_owned(), timeout: Duration::from_secs(5), ..CellsConfig::new(url) }
    }

    /// The slot of a key.
    pub fn slot(&self, key: &str) -> usize {
        let slot = self.nodes[0].server.tell(&format!("CLUSTER KEYSLOT \"{key}\""));
        slot.trim_start_matches(':').parse().expect("a number")
    }

    /// The place of the master that had the slot of this key at first.
    pub fn place(&self, key: &str) -> usize {
        let slot = self.slot(key);
        (0..3).find(|place| slot < (place + 1) * SLOTS / 3).expect("each slot has one")
    }

    /// A name whose cell was with the master at this place at first.
    pub fn name_at(&self, place: usize, prefix: &str) -> String {
        let name = (0..).map(|n| format!("cell {n}"));
        let is_there = |name: &String| self.place(&format!("{prefix}:{{{name}}}")) == place;
        name.into_iter().find(is_there).expect("there are many")
    }

    /// From here on a slot is on its way: keys that the one has not are looked for at the other.
    pub fn begin_to_move(&self, slot: usize, from: usize, to: usize) {
        let (one, other) = (&self.nodes[from], &self.nodes[to]);
        assert_eq!(other.server.tell(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", one.id)), "+OK");
        assert_eq!(one.server.tell(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", other.id)), "+OK");
    }

    /// Brings a key of it there, if the one has it.
    pub fn move_key(&self, key: &str, from: usize, to: usize) {
        let other = &self.nodes[to].server;
        let (port, password) = (other.address().port(), other.password());
        let moved = self.nodes[from]
            .server
            .tell(&format!("MIGRATE 127.0.0.1 {port} \"{key}\" 0 5000 AUTH {password}"));
        assert!(["+OK", "+NOKEY"].contains(&moved.as_str()), "{moved}");
    }

    /// All its keys are there: the slot is, too.
    pub fn has_moved(&self, slot: usize, from: usize, to: usize) {
        let id = &self.nodes[to].id;
        for place in [to, from] {
            let set = self.nodes[place].server.tell(&format!("CLUSTER SETSLOT {slot} NODE {id}"));
            assert_eq!(set, "+OK", "{slot} from {from} to {to}");
        }
    }
}

impl Node {
    fn start(first: Option<&Node>, gone_after: Duration) -> Self {
        let bus = HeldPort::any().expect("a free port");
        let (port, gone_after) = (bus.address().port().to_string(), gone_after.as_millis().to_string());
        let settings = settings(&port, &gone_after);
        let server = tokio::task::block_in_place(|| match first {
            None => Server::start(StoreKind::Redis, &settings),
            Some(first) => first.server.beside(&settings),
        });
        let id = server.tell("CLUSTER MYID");
        Node { server: Arc::new(server), bus, id }
    }

    /// Starts it again on its port, with what it knows of the cluster and nothing else.
    pub fn start_again(&self) {
        let port = self.bus.address().port().to_string();
        self.server.start_again(&settings(&port, "60000"));
    }

    fn meet(&self, other: &Node) {
        let (port, bus) = (other.server.address().port(), other.bus.address().port());
        assert_eq!(self.server.tell(&format!("CLUSTER MEET 127.0.0.1 {port} {bus}")), "+OK");
    }
}

fn settings<'a>(bus: &'a str, gone_after: &'a str) -> [Setting<'a>; 6] {
    [
        ("cluster-enabled", "yes"),
        ("cluster-port", bus),
        ("cluster-node-timeout", gone_after),
        // What is lost with one of them is a loss of its own.
        ("cluster-require-full-coverage", "no"),
        ("cluster-allow-replica-migration", "no"),
        ("repl-diskless-sync-delay", "0"),
    ]
}

/// Looks until it is so: the servers tell each other by themselves.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let looking = timeout(Duration::from_secs(60), async {
        while !is_so() {
            sleep(Duration::from_millis(20)).await;
        }
    });
    looking.await.unwrap_or_else(|_| panic!("{what}: it never is"));
}
