//! Our own calls on a real lease: the shipped client, lent to by the shipped server over loopback. A lease is made to
//! outlast a sample, and calls that it did not cover are counted.

use crate::sample::Case;
use lessor::{Client, HotClock, Limit, try_all};
use lessor_allocator::{Config, Server};
use std::error::Error;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// The limits of the server.
const CONFIG: &str = r#"
[[limit]]
name = "hit"
rules = [{ kind = "token_bucket", capacity = 1_000_000_000_000, refill = 1_000_000_000_000, per = "1h" }]

[[limit]]
name = "shared"
rules = [{ kind = "token_bucket", capacity = 1_000_000_000_000, refill = 1_000_000_000_000, per = "1h" }]

[[limit]]
name = "first"
rules = [{ kind = "token_bucket", capacity = 1_000_000_000_000, refill = 1_000_000_000_000, per = "1h" }]

[[limit]]
name = "second"
rules = [{ kind = "token_bucket", capacity = 1_000_000_000_000, refill = 1_000_000_000_000, per = "1h" }]

[[limit]]
name = "ticking"
rules = [{ kind = "token_bucket", capacity = 1_000_000_000_000, refill = 1_000_000_000_000, per = "1h" }]

[[limit]]
name = "other"
rules = [{ kind = "token_bucket", capacity = 1_000_000_000_000, refill = 1_000_000_000_000, per = "1h" }]

[[limit]]
name = "keyed"
keyed = true
rules = [{ kind = "token_bucket", capacity = 1_000_000_000_000, refill = 1_000_000_000_000, per = "1h" }]

[[limit]]
name = "empty"
rules = [{ kind = "token_bucket", capacity = 5, refill = 0, per = "1s", initial = 0 }]
"#;

/// Free permits at the start of a sample: 8 ms of two threads at 1 ns a call take 16 million. It is also far above the
/// low water of the demand that [`BULK`] makes, so that no call of a sample wakes the background task.
const AMPLE: u64 = 1 << 26;

/// Permits of the call that makes demand. A lease is sized by attempted spends, refused ones included: one call of this
/// size, refused or not, brings a lease of some hundred million permits.
const BULK: u64 = 1 << 28;

/// Time for a lease to arrive, some exchanges long, and how often to ask for it before giving up.
const LEASE_WITHIN: Duration = Duration::from_millis(20);
const TRIES: u32 = 100;

/// A server and two clients, which end when this is dropped.
pub(crate) struct Fleet {
    runtime: Runtime,
    client: Client,
    /// Uses a thread of its own as the hot clock, rather than the system's coarse clock.
    ticking: Client,
}

impl Fleet {
    /// Starts the server and the clients on one thread, beside the measuring thread.
    pub(crate) fn start() -> Result<Self, Box<dyn Error>> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (client, ticking) = runtime.block_on(async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            let url = format!("http://{}", listener.local_addr()?);
            tokio::spawn(Server::new(Config::parse(CONFIG)?, true).run(listener, std::future::pending()));
            let ticking = Client::builder(&url).node("ticking").clock(HotClock::Tick).connect().await?;
            Ok::<_, Box<dyn Error>>((Client::connect(&url).await?, ticking))
        })?;
        Ok(Fleet { runtime, client, ticking })
    }

    pub(super) fn cases(&self) -> Vec<Case> {
        let [hit, other, empty] = ["hit", "other", "empty"].map(|name| self.client.limit(name));
        let both = [hit.clone(), other.clone()];
        let all = move || {
            let [hit, other] = black_box(&both);
            try_all([(hit, 1), (other, 1)]).is_ok()
        };
        vec![
            self.hit("lessor/hit", &hit),
            Case::new("lessor/refusal", move || {
                // Used by reference: moving the answer would wait for the write that has just made it.
                let answer = black_box(&empty).try_acquire(1);
                black_box(&answer).is_err()
            }),
            self.hit("lessor/hit-2-threads", &self.client.limit("shared")).on_two_threads(),
            self.hit_two(
                "lessor/hit-2-threads-2-limits",
                ["first", "second"].map(|name| self.client.limit(name)),
            ),
            self.hit("lessor/hit-tick", &self.ticking.limit("ticking")),
            Case::new("lessor/try-all-2", all).prepared_by(self.ample(vec![hit, other])),
            self.hit("lessor/handle-keyed", &self.client.limit("keyed").key("user-42")),
        ]
    }

    fn hit(&self, name: &'static str, limit: &Limit) -> Case {
        let called = limit.clone();
        let call = move || black_box(&called).try_acquire(1).is_ok();
        Case::new(name, call).prepared_by(self.ample(vec![limit.clone()]))
    }

    /// Makes a row of two threads, each on a limit of its own.
    fn hit_two(&self, name: &'static str, limits: [Limit; 2]) -> Case {
        let [first, second] = limits.clone();
        let case = Case::new(name, move || black_box(&first).try_acquire(1).is_ok());
        case.beside(move || black_box(&second).try_acquire(1).is_ok())
            .prepared_by(self.ample(limits.to_vec()))
    }

    /// Makes sure that each limit has a lease that outlasts a sample.
    fn ample(&self, limits: Vec<Limit>) -> impl FnMut() -> Result<(), Box<dyn Error>> + 'static {
        let runtime = self.runtime.handle().clone();
        move || {
            for limit in &limits {
                if !runtime.block_on(is_ample(limit)) {
                    return Err(format!("no ample lease of {}", limit.name()).into());
                }
            }
            Ok(())
        }
    }
}

async fn is_ample(limit: &Limit) -> bool {
    for _ in 0..TRIES {
        if limit.available() >= AMPLE {
            return true;
        }
        // Refused or admitted, the call counts as demand.
        let _ = limit.try_acquire(BULK);
        tokio::time::sleep(LEASE_WITHIN).await;
    }
    false
}
