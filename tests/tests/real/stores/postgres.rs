//! Behaviours of PostgreSQL only: servers that crash, take over, or are not fit, and transactions that meet.

use super::trouble::{settle, wait_for};
use super::{Store, cell, swap};
use lessor_allocator::cells::{Cells, CellsConfig, CellsError, StoreKind, Swapped};
use scenarios::servers::Server;
use std::sync::Arc;
use std::time::Duration;

const POSTGRES: StoreKind = StoreKind::Postgres;

pub(super) async fn own() -> Store {
    Store::on(Arc::new(Server::start(POSTGRES, &[]))).await
}

fn table(store: &Store) -> String {
    format!("\"{}_cells\"", store.config.as_ref().expect("a configuration").prefix)
}

/// After a crash, all that was committed is there, on the same timeline.
#[tokio::test]
async fn killed_and_started_again_it_is_the_one_it_was() {
    super::trouble::killed_and_started_again_it_is_the_one_it_was(own().await, 50).await;
}

/// A connection that was closed while it was idle is made again without an error.
#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_is_made_again() {
    let mut store = own().await;
    let timeline = store.timeline().await;
    let close = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE application_name = 'lessor'";
    for version in 0..5_u64 {
        // There is another one for a moment, if an attempt on a busy machine took too long and was given up.
        assert_ne!(store.server().tell(close), "0");
        settle().await;
        let next = [swap("a", version.checked_sub(1), Some(cell(version, "one")))];
        assert_eq!(store.cells.swap(&timeline, &next).await, Ok(vec![Swapped::Done]));
    }
}

/// No commit waits for a standby, so it may lack what was committed. When it takes over, it begins another timeline.
#[tokio::test]
async fn a_standby_that_takes_over_is_on_another_timeline() {
    let mut store = own().await;
    let timeline = store.timeline().await;
    store.swap(swap("a", None, Some(cell(1, "one")))).await;
    let standby = store.server().replica();
    let mut cells =
        Cells::new(&standby.config(&store.config.clone().expect("a configuration").prefix)).expect("good");
    let refused = cells.timeline().await;
    assert!(matches!(&refused, Err(CellsError::Unfit(text)) if text.contains("in recovery")), "{refused:?}");
    // The bug: its time was taken for the time of the store.
    let refused = cells.time().await;
    assert!(matches!(&refused, Err(CellsError::Unfit(text)) if text.contains("in recovery")), "{refused:?}");
    let next = [swap("a", Some(1), Some(cell(2, "two")))];
    let refused = cells.swap(&timeline, &next).await;
    assert!(matches!(&refused, Err(CellsError::Unfit(_))), "{refused:?}");
    store.server().kill();
    standby.promote();
    let moved = cells.swap(&timeline, &next).await;
    let Err(CellsError::Moved { found }) = moved else { panic!("{moved:?}") };
    assert_eq!(found.as_str().replace("/00000002", "/00000001"), timeline.as_str());
    assert_eq!(cells.swap(&found, &next).await, Ok(vec![Swapped::Done]));
}

/// A server that may lose commits is refused, whatever the connection asks for.
#[tokio::test]
async fn a_server_that_does_not_keep_what_it_commits_is_refused() {
    let mut store = own().await;
    let timeline = store.timeline().await;
    let server = store.server();
    for setting in ["fsync", "full_page_writes"] {
        server.tell(&format!("ALTER SYSTEM SET {setting} = off"));
        server.tell("SELECT pg_reload_conf()");
        let look = async || store.cells.another().timeline().await.err();
        let is_refused = |error: &CellsError| *error == CellsError::Unfit(format!("{setting} is off"));
        wait_for(look, is_refused).await;
        // A batch on a connection that was open before is refused, too.
        let refused = store.cells.swap(&timeline, &[swap("a", None, Some(cell(1, "one")))]).await;
        assert_eq!(refused, Err(CellsError::Unfit(format!("{setting} is off"))));
        server.tell(&format!("ALTER SYSTEM RESET {setting}"));
        server.tell("SELECT pg_reload_conf()");
        wait_for(async || store.cells.another().timeline().await.ok(), |_| true).await;
        assert_eq!(store.load("a").await, None);
    }
}

/// A connection does not go by the settings of its role.
#[tokio::test]
async fn a_role_whose_commits_are_not_waited_for_is_waited_for() {
    let mut store = own().await;
    let server = store.server();
    server.tell("ALTER ROLE lessor SET synchronous_commit = off");
    server.tell("ALTER ROLE lessor SET default_transaction_isolation = 'serializable'");
    server.tell("ALTER ROLE lessor SET default_transaction_read_only = on");
    store.cells = store.cells.another();
    assert_eq!(store.swap(swap("a", None, Some(cell(1, "one")))).await, Swapped::Done);
}

#[tokio::test]
async fn replicas_that_no_commit_waits_for_are_refused() {
    let store = own().await;
    let server = store.server();
    let mut config = store.config.clone().expect("a configuration");
    for (standbys, replicas, is_fit) in [
        ("", 1, false),
        ("a", 1, true),
        ("a, b, c", 2, false),
        ("ANY 2 (a, b, c)", 2, true),
        ("FIRST 1 (a, b)", 2, false),
        (" 3 (a, b, \"c(4)\")", 3, true),
        ("*", 1, true),
    ] {
        server.tell(&format!("ALTER SYSTEM SET synchronous_standby_names = '{standbys}'"));
        server.tell("SELECT pg_reload_conf()");
        config.replicas = replicas;
        let look = async || Some(Cells::connect(&config).await.err().map(|error| error.to_string()));
        wait_for(look, |error| match error {
            None => is_fit,
            Some(text) => !is_fit && text.contains("synchronous_standby_names") && text.contains(standbys),
        })
        .await;
    }
}

/// A commit that was cancelled while it waited for its standby is on no standby.
#[tokio::test]
async fn a_commit_that_stops_waiting_for_its_standby_is_not_durable() {
    let store = own().await;
    let server = store.server();
    server.tell("ALTER SYSTEM SET synchronous_standby_names = 'absent'");
    server.tell("SELECT pg_reload_conf()");
    let mut config = store.config.clone().expect("a configuration");
    config.timeout = Duration::from_secs(20);
    config.replicas = 1;
    let look = async || Cells::connect(&config).await.ok();
    wait_for(look, |_| true).await;
    let mut cells = Cells::connect(&config).await.expect("the store is fit");
    let timeline = cells.timeline().await.expect("the store is fit");
    let waiting =
        tokio::spawn(async move { cells.swap(&timeline, &[swap("a", None, Some(cell(1, "one")))]).await });
    let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    wait_for(async || Some(server.tell(cancel)), |done| done == "t").await;
    let outcome = waiting.await.expect("no panic");
    assert!(matches!(&outcome, Err(CellsError::NotDurable(text)) if text.contains("cancel")), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_tables_it_says_what_makes_them() {
    let server = tokio::task::block_in_place(|| Server::shared(POSTGRES));
    let config = server.config("not.there");
    let refused = Cells::connect(&config).await.expect_err("the store has no tables");
    assert!(
        matches!(&refused, CellsError::Unfit(text) if text.contains("lessor store migrate")),
        "{refused:?}"
    );
    // The first client makes the tables, and no client makes them twice.
    let migrating = (0..6).map(|_| {
        let mut cells = Cells::new(&config).expect("a good configuration");
        tokio::spawn(async move { cells.migrate().await })
    });
    let mut made = vec![];
    for migrating in migrating.collect::<Vec<_>>() {
        made.push(migrating.await.expect("no panic").expect("the user has the rights"));
    }
    made.sort();
    assert_eq!(made.concat(), ["1 cells"]);
    let mut cells = Cells::connect(&config).await.expect("the store is there");
    assert_eq!(cells.migrate().await, Ok(vec![]));
    server.tell("ALTER TABLE \"not.there_cells\" SET UNLOGGED");
    let refused = Cells::connect(&config).await.expect_err("a crash would empty it");
    assert!(matches!(&refused, CellsError::Unfit(text) if text.contains("unlogged")), "{refused:?}");
    server.tell("INSERT INTO \"not.there_migrations\" VALUES (99, 'of the future')");
    let refused = Cells::connect(&config).await.expect_err("what that did is unknown");
    assert!(matches!(&refused, CellsError::Unfit(text) if text.contains("step 99")), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_not_is_told_what() {
    let mut store = Store::of(POSTGRES).await;
    store.server().tell(&format!("ALTER TABLE {} OWNER TO postgres", table(&store)));
    let refused = store.cells.load(&["a".to_owned()]).await;
    assert!(
        matches!(&refused, Err(CellsError::Unfit(text)) if text.contains("permission denied")),
        "{refused:?}"
    );
}

/// The rights that docs/stores.md names are enough for a user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_do_what_is_needed_can_do_all() {
    let mut store = Store::of(POSTGRES).await;
    let (server, table) = (store.server(), table(&store));
    let migrations = table.replace("cells", "migrations");
    server.tell("CREATE ROLE narrow LOGIN PASSWORD 'narrow'");
    server.tell(&format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO narrow"));
    server.tell(&format!("GRANT SELECT ON {migrations} TO narrow"));
    let mut config = store.config.clone().expect("a configuration");
    config.url = format!("postgres://narrow:narrow@{}/lessor", server.address()).parse().expect("a URL");
    store.cells = Cells::connect(&config).await.expect("the user has the rights");
    assert_eq!(store.swap(swap("a", None, Some(cell(1, "one")))).await, Swapped::Done);
    assert_eq!(store.swap(swap("a", Some(1), Some(cell(2, "two")))).await, Swapped::Done);
    assert_eq!(store.swap(swap("a", Some(2), None)).await, Swapped::Done);
    let refused = store.cells.migrate().await;
    assert_eq!(refused, Ok(vec![]), "there is nothing to migrate");
}

/// A value that another program wrote is not read if it is longer than a cell may be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_long_for_a_cell_is_not_taken_for_one() {
    let mut store = Store::of(POSTGRES).await;
    let long =
        format!("INSERT INTO {} VALUES ('long', 1, decode(repeat('ff', 30000000), 'hex'))", table(&store));
    store.server().tell(&long);
    let loaded = store.cells.load(&["long".to_owned()]).await;
    assert!(matches!(&loaded, Err(CellsError::Invalid(text)) if text.contains("30000000")), "{loaded:?}");
    let swapped = store.try_swap(&[swap("long", None, None)]).await;
    assert!(matches!(&swapped, Err(CellsError::Invalid(_))), "{swapped:?}");
    // Where a part of the batch was done, the error does not say that nothing was.
    let partly = store.try_swap(&[swap("a", None, Some(cell(1, "one"))), swap("long", None, None)]).await;
    assert!(matches!(&partly, Err(CellsError::Unreachable(text)) if text.contains("long")), "{partly:?}");
    assert_eq!(store.load("a").await, Some(cell(1, "one")));
}

/// A batch reads only its own cells, however many there are, and whether or not the server has statistics of them.
#[tokio::test]
async fn a_batch_looks_at_no_other_cells() {
    let mut store = own().await;
    let (server, table) = (store.server(), table(&store));
    for counted in [false, true] {
        let more =
            format!("INSERT INTO {table} SELECT gen_random_uuid(), 1, '' FROM generate_series(1, 50000)");
        server.tell(&more);
        if counted {
            server.tell(&format!("ANALYZE {table}"));
        }
        // More rounds than PostgreSQL plans for the actual values.
        for round in 0..7_u64 {
            let name = |n| format!("{counted} {n}");
            let expected = round.checked_sub(1);
            let batch: Vec<_> =
                (0..500).map(|n| swap(&name(n), expected, Some(cell(round, "one")))).collect();
            assert_eq!(store.try_swap(&batch).await, Ok(vec![Swapped::Done; 500]));
            let names: Vec<String> = (0..500).map(name).collect();
            let found = store.cells.load(&names).await.expect("the store is there").1;
            assert_eq!(found, vec![Some(cell(round, "one")); 500]);
        }
    }
    // A connection reports what it read when it ends. Each cell is looked up three times in a round, and the 50,000
    // others are never read.
    drop(store.cells);
    let read = format!(
        "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables
         WHERE quote_ident(relname) = '{table}' AND idx_scan > 0"
    );
    let read = async || server.tell(&read).parse::<u64>().ok();
    wait_for(read, |&read| read > 0).await;
    assert!((1..40_000).contains(&read().await.expect("the count can be read")), "{:?}", read().await);
}

/// A batch waits for a transaction that has locked one of its cells, and then goes by the result.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_goes_by_what_another_transaction_made_meanwhile() {
    let mut store = own().await;
    let table = table(&store);
    for (what, there) in [
        (format!("UPDATE {table} SET version = 7, value = 'seven' WHERE name = 'a'"), Some(cell(7, "seven"))),
        (format!("DELETE FROM {table} WHERE name = 'a'"), None),
        (format!("INSERT INTO {table} VALUES ('a', 9, 'nine')"), Some(cell(9, "nine"))),
    ] {
        let expected = store
            .load("a")
            .await
            .map(|cell| cell.version)
            .or_else(|| what.starts_with("UPDATE").then_some(1));
        if what.starts_with("UPDATE") {
            store.swap(swap("a", None, Some(cell(1, "one")))).await;
        }
        let server = store.server();
        let holder = std::thread::spawn(move || {
            // Waits until another transaction waits for this one.
            let wait =
                "DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock')
                        LOOP PERFORM pg_sleep(0.01); PERFORM pg_stat_clear_snapshot(); END LOOP; END $$";
            server.tell(&format!("BEGIN; {what}; {wait}; COMMIT"))
        });
        let begun = "SELECT count(*) FROM pg_stat_activity WHERE backend_xid IS NOT NULL";
        let watcher = store.server();
        wait_for(async || Some(watcher.tell(begun)), |count| count == "1").await;
        let swapped = store.swap(swap("a", expected, Some(cell(2, "two")))).await;
        assert_eq!(swapped, Swapped::Other(there));
        holder.join().expect("no panic");
    }
}

/// The bug: a silent host took the whole time-out, at each connection anew, and no later one was asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_is_silent_is_passed_over() {
    let store = Store::of(POSTGRES).await;
    let server = store.server();
    // It accepts connections and answers none.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    silent.set_nonblocking(true).expect("a listener");
    let (good, address) = (server.address().to_string(), silent.local_addr().expect("it is bound"));
    let with_silent = |count: usize| {
        let hosts = format!("{}{good}", format!("{address},").repeat(count));
        let url = server.url().replace(&good, &hosts).parse().expect("a URL");
        CellsConfig { url, ..store.config.clone().expect("a configuration") }
    };
    let asked = || std::iter::from_fn(|| silent.accept().ok()).count();
    let mut cells = Cells::connect(&with_silent(1)).await.expect("the last one is there");
    assert_eq!(asked(), 1);
    cells.another().timeline().await.expect("the store is there");
    assert_eq!(asked(), 0, "the one that answered is asked first");
    // Of many silent ones, the next call goes on after those that this one tried.
    cells = Cells::new(&with_silent(5)).expect("a good configuration");
    cells.timeline().await.expect_err("there is time for four");
    cells.timeline().await.expect("the store is there");
    assert!(asked() <= 6);
}
