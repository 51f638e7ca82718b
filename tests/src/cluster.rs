//! A real cluster of Redis servers for one test: slots are moved, and masters killed and replaced, while clients use
//! them.

use crate::servers::Server;
use lessor_allocator::cells::private::{HeldPort, Setting};
use lessor_allocator::cells::{CellsConfig, StoreKind};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Slots in any Redis cluster.
const SLOTS: usize = 16_384;

/// Three masters, each with a third of the slots, and the servers that joined them.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Node>,
    gone_after: Duration,
}

/// One server of a cluster.
#[derive(Debug)]
pub struct Node {
    /// The server itself.
    pub server: Arc<Server>,
    /// The port on which the servers of a cluster talk to each other.
    bus: HeldPort,
    /// The id of this server in the cluster.
    id: String,
}

impl Cluster {
    /// Starts three masters that no other test uses. They take a master for gone after a silence of `gone_after`.
    pub async fn start(gone_after: Duration) -> Self {
        let first = Node::start(None, gone_after);
        let others = [(), ()].map(|()| Node::start(Some(&first), gone_after));
        let cluster = Cluster { nodes: [first].into_iter().chain(others).collect(), gone_after };
        for (place, node) in cluster.nodes.iter().enumerate() {
            let (from, to) = (place * SLOTS / 3, (place + 1) * SLOTS / 3 - 1);
            assert_eq!(node.server.tell(&format!("CLUSTER ADDSLOTSRANGE {from} {to}")), "+OK");
            // Servers with equal epochs would resolve the conflict later, and the slots' owners would change once more.
            assert_eq!(node.server.tell(&format!("CLUSTER SET-CONFIG-EPOCH {}", place + 1)), "+OK");
        }
        // Each master meets all others at once: by gossip alone that would take longer.
        cluster.nodes[1].meet(&cluster.nodes[0]);
        cluster.nodes[2].meet(&cluster.nodes[0]);
        cluster.nodes[2].meet(&cluster.nodes[1]);
        cluster.wait_until_whole().await;
        cluster
    }

    /// Returns a cluster that other tests use, too. Each test has a prefix of its own.
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

    /// The servers of the cluster, the three masters first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Adds a server without slots: a master, or a replica of the master at the place `master`.
    pub async fn join(&mut self, master: Option<usize>) -> Arc<Server> {
        let node = Node::start(Some(&self.nodes[0]), self.gone_after);
        self.nodes.iter().for_each(|other| node.meet(other));
        self.nodes.push(node);
        self.wait_until_whole().await;
        let node = self.nodes.last().expect("a node was just pushed");
        if let Some(master) = master {
            let id = &self.nodes[master].id;
            assert_eq!(node.server.tell(&format!("CLUSTER REPLICATE {id}")), "+OK");
            until("the replica follows its master", || {
                node.server.tell("INFO replication").contains("master_link_status:up")
            })
            .await;
        }
        Arc::clone(&node.server)
    }

    /// Waits until all servers know each other and say that the cluster is whole.
    pub async fn wait_until_whole(&self) {
        let known = format!("cluster_known_nodes:{}\r\n", self.nodes.len());
        until("the cluster is whole", || {
            self.nodes.iter().all(|node| {
                let info = node.server.tell("CLUSTER INFO");
                let is_told = ["cluster_state:ok", "cluster_slots_ok:16384", &known];
                is_told.iter().all(|told| info.contains(told))
            })
        })
        .await;
    }

    /// Returns the URL of the store, with its password, and all three masters as hosts.
    pub fn url(&self) -> String {
        let hosts: Vec<String> =
            self.nodes[..3].iter().map(|node| node.server.address().to_string()).collect();
        self.url_by(&hosts.join(","))
    }

    /// Returns the URL of the store with other hosts.
    pub fn url_by(&self, hosts: &str) -> String {
        format!("redis://:{}@{hosts}/?cluster=true", self.nodes[0].server.password())
    }

    /// Returns the configuration of a handle on the cluster's cells, with this prefix.
    pub fn config(&self, prefix: &str) -> CellsConfig {
        let url = self.url().parse().expect("a URL of ours");
        // On a machine that is busy with a build, servers answer late.
        CellsConfig { prefix: prefix.to_owned(), timeout: Duration::from_secs(5), ..CellsConfig::new(url) }
    }

    /// Returns the slot of a key.
    pub fn slot(&self, key: &str) -> usize {
        let slot = self.nodes[0].server.tell(&format!("CLUSTER KEYSLOT \"{key}\""));
        slot.trim_start_matches(':').parse().expect("a number")
    }

    /// Returns the place of the master that had the slot of this key at the start.
    pub fn place(&self, key: &str) -> usize {
        let slot = self.slot(key);
        (0..3).find(|place| slot < (place + 1) * SLOTS / 3).expect("each slot has a master")
    }

    /// Returns a name whose cell was at first with the master at this place.
    pub fn name_at(&self, place: usize, prefix: &str) -> String {
        let name = (0..).map(|n| format!("cell {n}"));
        let is_there = |name: &String| self.place(&format!("{prefix}:{{{name}}}")) == place;
        name.into_iter().find(is_there).expect("some name is at each master")
    }

    /// Begins to move a slot: clients look at `to` for keys that `from` does not have.
    pub fn begin_to_move(&self, slot: usize, from: usize, to: usize) {
        let (one, other) = (&self.nodes[from], &self.nodes[to]);
        assert_eq!(other.server.tell(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", one.id)), "+OK");
        assert_eq!(one.server.tell(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", other.id)), "+OK");
    }

    /// Moves a key of the slot to `to`, if `from` has it.
    pub fn move_key(&self, key: &str, from: usize, to: usize) {
        let other = &self.nodes[to].server;
        let (port, password) = (other.address().port(), other.password());
        let moved = self.nodes[from]
            .server
            .tell(&format!("MIGRATE 127.0.0.1 {port} \"{key}\" 0 5000 AUTH {password}"));
        assert!(["+OK", "+NOKEY"].contains(&moved.as_str()), "{moved}");
    }

    /// Ends the move of a slot, once all its keys are at `to`.
    pub fn finish_move(&self, slot: usize, from: usize, to: usize) {
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

    /// Starts the server again on its port. It still knows the cluster, and has lost everything else.
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
        // When one master is lost, the slots of the others go on.
        ("cluster-require-full-coverage", "no"),
        ("cluster-allow-replica-migration", "no"),
        ("repl-diskless-sync-delay", "0"),
    ]
}

/// Polls until `is_so` holds, since servers tell each other without being asked.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let looking = timeout(Duration::from_secs(60), async {
        while !is_so() {
            sleep(Duration::from_millis(20)).await;
        }
    });
    looking.await.unwrap_or_else(|_| panic!("{what}: not in time"));
}
