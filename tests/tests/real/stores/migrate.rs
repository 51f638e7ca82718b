//! `lessor store migrate`, as an operator runs it.

use lessor_allocator::cells::{Cells, StoreKind};
use scenarios::process::lessor;
use scenarios::servers::Server;
use std::process::Command;

/// Runs the command and returns its exit code and all that it prints.
fn migrate(url: &str, password: &str) -> (Option<i32>, String) {
    let mut command = Command::new(lessor());
    command.args(["store", "migrate", "--store-prefix", "by.hand", "--store-url", url]);
    let output = command.env("LESSOR_STORE_PASSWORD", password).output().expect("the command runs");
    let told = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&told).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_makes_the_tables_once_and_says_so() {
    let server = tokio::task::block_in_place(|| Server::shared(StoreKind::Postgres));
    let (address, password) = (server.address(), server.password());
    let shown = format!("postgres://{address}/lessor");
    let url = format!("postgres://lessor@{address}/lessor");
    assert_eq!(migrate(&url, &password), (Some(0), format!("{shown}: made 1 cells\n")));
    assert_eq!(migrate(&url, &password), (Some(0), format!("{shown}: made nothing, all is there\n")));
    let config = server.config("by.hand");
    Cells::connect(&config).await.expect("the tables are there");

    let (code, told) = migrate(&url, "s3cret");
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains(&shown) && told.contains("password") && !told.contains("s3cret"), "{told}");
    for wrong in ["http://u:s3cret@h", "postgres://u:s3cret@h/d?sslmode=maybe", "s3cret"] {
        let (code, told) = migrate(wrong, "");
        assert_eq!(code, Some(2), "{told}");
        assert!(told.starts_with("lessor: --store-url: ") && !told.contains("s3cret"), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_needs_nothing_made() {
    let server = tokio::task::block_in_place(|| Server::shared(StoreKind::Etcd));
    let (address, password) = (server.address(), server.password());
    let url = format!("etcd://root@{address}");
    let told = format!("etcd://{address}: made nothing, all is there\n");
    assert_eq!(migrate(&url, &password), (Some(0), told));
    let (code, told) = migrate(&url, "s3cret");
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("password") && !told.contains("s3cret"), "{told}");
}
