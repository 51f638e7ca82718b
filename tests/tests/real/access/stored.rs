//! Tokens in the store that allocators share: one command makes a token that all know, or revokes one for all. The
//! store is stopped, emptied and spoiled meanwhile.

use super::desk::{PATIENCE, ask};
use lessor_allocator::cells::{Cell, Cells, StoreKind, Swap, Swapped};
use lessor_protocol::CLOCK;
use lessor_tls::{HttpClient, Token};
use scenarios::fleet::eventually;
use scenarios::process::{Allocator, lessor};
use scenarios::servers::Server;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// By then each allocator refuses a token that was revoked.
const REVOKED_BY: Duration = Duration::from_secs(1);

/// Time in which an allocator reads the tokens several times.
const SEVERAL_READS: Duration = Duration::from_millis(1_200);

/// The log's words while the tokens cannot be read.
const TROUBLE: &str = "the tokens in the store cannot be read";

/// A store with tokens, and the configuration of its allocators.
struct Desk {
    server: Arc<Server>,
    prefix: String,
    folder: TempDir,
}

impl Desk {
    async fn new(server: Arc<Server>, prefix: &str) -> Self {
        let mut cells = Cells::new(&server.config(prefix)).expect("a good configuration");
        cells.migrate().await.expect("the store can be migrated");
        let desk = Desk { server, prefix: prefix.to_owned(), folder: tempfile::tempdir().expect("a folder") };
        std::fs::write(desk.file(), desk.config()).expect("a writable file");
        desk
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("lessor.toml")
    }

    fn config(&self) -> String {
        let (url, prefix) = (self.server.url(), &self.prefix);
        let kind = url.split_once(':').expect("a URL").0;
        format!(
            "[store]\nkind = {kind:?}\nurl = {url:?}\nprefix = {prefix:?}\ntimeout = \"2s\"\n\
             [auth]\ntokens = \"store\"\n\
             [[role]]\nname = \"nodes\"\nidentities = [\"token:*\"]\nread = [\"vendor\"]\n\
             [[limit]]\nname = \"vendor\"\n\
             rules = [{{ kind = \"sliding_window\", limit = 600, per = \"60s\", margin = \"0s\" }}]\n"
        )
    }

    fn allocator(&self) -> Allocator {
        tokio::task::block_in_place(|| Allocator::start_with_log(&self.config()))
    }

    /// Runs `lessor token …` with the configuration file.
    fn command(&self, args: &[&str]) -> Output {
        let mut command = Command::new(lessor());
        command.arg("token").args(args).arg("--config").arg(self.file());
        tokio::task::block_in_place(|| command.output()).expect("the command runs")
    }

    /// Runs `lessor token …` with the URL of the store.
    fn command_at(&self, args: &[&str]) -> Output {
        let mut command = Command::new(lessor());
        command.arg("token").args(args).args([
            "--store-url",
            &self.server.url(),
            "--store-prefix",
            &self.prefix,
        ]);
        tokio::task::block_in_place(|| command.output()).expect("the command runs")
    }

    fn token(&self, name: &str) -> String {
        text(self.command(&["new", name]))
    }

    /// Replaces the list of tokens by `value`, or removes it.
    async fn spoil(&self, value: Option<&[u8]>) {
        let mut cells = Cells::new(&self.server.config(&self.prefix)).expect("a good configuration");
        let (timeline, found) = cells.load(&["tokens".to_owned()]).await.expect("the store is there");
        let before = found[0].as_ref().expect("the store has a list of tokens").version;
        let next = value.map(|value| Cell { version: before + 1, value: value.to_vec() });
        let swap = Swap { name: "tokens".to_owned(), expected: Some(before), next };
        assert_eq!(cells.swap(&timeline, &[swap]).await, Ok(vec![Swapped::Done]));
    }
}

fn text(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

/// Whether the allocator accepts a token. One that it cannot check yet is not accepted.
async fn is_known(allocator: &Allocator, token: &str) -> bool {
    let http = HttpClient::try_new(PATIENCE, None).expect("no files");
    let http = http.with_token(Some(Token::new(token))).expect("a token");
    match ask(&http, "GET", &format!("{}/v1/whoami", allocator.url), "").await.status {
        200 => true,
        401 | 503 => false,
        other => panic!("{other}"),
    }
}

async fn until(allocator: &Allocator, token: &str, known: bool) {
    eventually("the token", async || (is_known(allocator, token).await == known).then_some(())).await;
}

/// One command makes a token for all allocators, several tokens of a name are good at once, and one command revokes a
/// token for all within a second.
async fn tokens_are_those_of_all_allocators(kind: StoreKind) {
    let server = tokio::task::block_in_place(|| Server::shared(kind));
    let desk = Desk::new(server, "tokens.all").await;
    let (east, west) = (desk.allocator(), desk.allocator());
    let first = desk.token("a");
    let second = text(desk.command_at(&["new", "a", "--valid", "1h"]));
    for allocator in [&east, &west] {
        until(allocator, &first, true).await;
        until(allocator, &second, true).await;
        assert!(!is_known(allocator, &format!("{first}0")).await);
    }
    let secret = first.rsplit('_').next().expect("a secret");
    let list = text(desk.command_at(&["list"]));
    assert!(list.lines().count() == 3 && !list.contains(secret), "{list}");
    let id = first.split('_').nth(1).expect("an id");
    assert_eq!(text(desk.command(&["revoke", id])), format!("revoked {id}"));
    let revoked = CLOCK.now();
    tokio::join!(until(&east, &first, false), until(&west, &first, false));
    let took = CLOCK.now().since(revoked);
    println!("{}: refused by both after {took:?}", kind.name());
    assert!(took <= REVOKED_BY, "{took:?}");
    assert!(is_known(&east, &second).await && is_known(&west, &second).await);
    assert_eq!(desk.command(&["revoke", id]).status.code(), Some(2), "the token was revoked before");

    // Tokens made at the same time are all kept.
    let made: Vec<String> = tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            let one = |index| {
                let mut command = Command::new(lessor());
                command.args(["token", "new", &format!("n{index}"), "--config"]).arg(desk.file());
                scope.spawn(move || text(command.output().expect("the command runs")))
            };
            let all: Vec<_> = (0..6).map(one).collect();
            all.into_iter().map(|one| one.join().expect("no panic")).collect()
        })
    });
    for token in &made {
        until(&east, token, true).await;
        until(&west, token, true).await;
    }
}

/// While the store is away, tokens that were read before stay good. An allocator that starts then accepts none.
async fn tokens_stay_good_while_the_store_is_away(kind: StoreKind) {
    let server = Arc::new(tokio::task::block_in_place(|| Server::start(kind, &[])));
    let desk = Desk::new(server, "lessor").await;
    let token = desk.token("a");
    let east = desk.allocator();
    assert!(is_known(&east, &token).await, "the list was read before the first request");
    tokio::task::block_in_place(|| desk.server.kill());
    eventually("the log", async || east.log().contains(TROUBLE).then_some(())).await;
    let west = desk.allocator();
    assert!(!is_known(&west, &token).await, "the allocator has read no list of tokens");
    let ready = reqwest::get(format!("{}/readyz", west.url)).await.expect("the server answers");
    assert_eq!(ready.status(), 503);
    let failed = desk.command(&["new", "b"]);
    let said = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(failed.status.code() == Some(1) && said.contains("cannot be reached"), "{said}");
    assert!(failed.stdout.is_empty() && !said.contains(&desk.server.password()), "{said}");
    let until_then = CLOCK.now() + SEVERAL_READS;
    while CLOCK.now() < until_then {
        assert!(is_known(&east, &token).await && !is_known(&west, &token).await);
    }
    tokio::task::block_in_place(|| desk.server.start_again(&[]));
    until(&west, &token, true).await;
    assert!(text(desk.command(&["revoke", "a"])).starts_with("revoked "));
    until(&east, &token, false).await;
    until(&west, &token, false).await;
    for allocator in [&east, &west] {
        let log = allocator.log();
        assert_eq!(log.matches(TROUBLE).count(), 1, "once, not per look: {log}");
        assert!(!log.contains(&token) && !log.contains(&desk.server.password()));
    }
}

/// If the list is spoilt or gone, the one before stays in force.
async fn a_list_that_is_spoilt_leaves_the_one_before_in_force(kind: StoreKind) {
    let server = tokio::task::block_in_place(|| Server::shared(kind));
    let desk = Desk::new(server, "tokens.spoilt").await;
    let token = desk.token("a");
    let allocator = desk.allocator();
    assert!(is_known(&allocator, &token).await);
    desk.spoil(Some(b"[[token]]\nid = 7\n")).await;
    eventually("the log", async || allocator.log().contains(TROUBLE).then_some(())).await;
    assert!(is_known(&allocator, &token).await);
    let refused = desk.command(&["new", "b"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && said.contains("no list of tokens: line 2"), "{said}");
    desk.spoil(None).await;
    let other = desk.token("b");
    until(&allocator, &other, true).await;
    assert!(!is_known(&allocator, &token).await, "a token that left the list is not known");
    assert_eq!(allocator.log().matches(TROUBLE).count(), 1, "{}", allocator.log());
}

macro_rules! on {
    ($($store:ident $kind:ident),+) => {
        $(mod $store {
            use lessor_allocator::cells::StoreKind::$kind;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn tokens_are_those_of_all_allocators() {
                super::tokens_are_those_of_all_allocators($kind).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_list_that_is_spoilt_leaves_the_one_before_in_force() {
                super::a_list_that_is_spoilt_leaves_the_one_before_in_force($kind).await;
            }
        })+
    };
}

on!(redis Redis, postgres Postgres, etcd Etcd);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_in_postgres_stay_good_while_it_is_away() {
    tokens_stay_good_while_the_store_is_away(StoreKind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_in_etcd_stay_good_while_it_is_away() {
    tokens_stay_good_while_the_store_is_away(StoreKind::Etcd).await;
}

/// A Redis without a disk has lost the tokens after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_that_redis_has_lost_stay_good_where_they_were_read() {
    let server = Arc::new(tokio::task::block_in_place(|| Server::start(StoreKind::Redis, &[])));
    let desk = Desk::new(server, "lessor").await;
    let token = desk.token("a");
    let east = desk.allocator();
    assert!(is_known(&east, &token).await);
    tokio::task::block_in_place(|| desk.server.start_again(&[]));
    eventually("the log", async || east.log().contains("is gone, or older").then_some(())).await;
    let west = desk.allocator();
    assert!(is_known(&east, &token).await && !is_known(&west, &token).await);
    let other = desk.token("a");
    for allocator in [&east, &west] {
        until(allocator, &other, true).await;
        assert!(!is_known(allocator, &token).await);
    }
}
