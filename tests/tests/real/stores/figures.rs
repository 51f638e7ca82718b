//! Prints how long swaps take: `SWAP_ROUNDS=200 cargo test --release -p scenarios --test real stores::figures --
//! --nocapture`.

use super::{Store, cell, swap};
use lessor_allocator::cells::{StoreKind, Swapped};
use lessor_protocol::Clock;
use std::time::Duration;

/// Swaps in one batch.
const BATCH: usize = 64;

/// Round trips that are timed unless `SWAP_ROUNDS` says otherwise: enough to see that it works.
const ROUNDS: usize = 20;

fn rounds() -> usize {
    let rounds = std::env::var("SWAP_ROUNDS").ok();
    rounds.map_or(ROUNDS, |rounds| rounds.parse().expect("a number of round trips"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swap_is_done_in_one_round_trip() {
    let rounds = rounds();
    println!(
        "| store | bytes | swaps in a batch | swaps/s | median | 99th |\n|---|---:|---:|---:|---:|---:|"
    );
    for kind in [StoreKind::Memory, StoreKind::Redis, StoreKind::Postgres, StoreKind::Etcd] {
        // Its server goes on to the end.
        let _first = store(kind).await;
        for bytes in [100, 10_000] {
            for batch in [1, BATCH] {
                let (took, mut each) = timed(kind, bytes, batch, rounds).await;
                each.sort_unstable();
                let rate = (rounds * batch) as f64 / took.as_secs_f64();
                let (median, late) = (each[rounds / 2], each[rounds * 99 / 100]);
                println!("| {kind:?} | {bytes} | {batch} | {rate:.0} | {median:.1?} | {late:.1?} |");
            }
        }
    }
}

async fn store(kind: StoreKind) -> Store {
    match kind {
        StoreKind::Etcd => Store::of_an_etcd().await,
        StoreKind::Memory | StoreKind::Redis | StoreKind::Postgres => Store::of(kind).await,
    }
}

/// Swaps each cell of a batch again and again. Returns how long that took, and the length of each round trip.
async fn timed(kind: StoreKind, bytes: usize, batch: usize, rounds: usize) -> (Duration, Vec<Duration>) {
    let mut store = store(kind).await;
    let timeline = store.timeline().await;
    let mut dice = fastrand::Rng::with_seed(7);
    let value: Vec<u8> = (0..bytes).map(|_| dice.u8(..)).collect();
    let name = |n: usize| format!("vendor/rest\u{1f}user {n}");
    let make: Vec<_> = (0..batch).map(|n| swap(&name(n), None, Some(cell(0, &value)))).collect();
    assert_eq!(store.try_swap(&make).await, Ok(vec![Swapped::Done; batch]));
    let clock = Clock::since_boot();
    let (begun, mut each) = (clock.now(), Vec::with_capacity(rounds));
    for version in 0..rounds as u64 {
        let next: Vec<_> =
            (0..batch).map(|n| swap(&name(n), Some(version), Some(cell(version + 1, &value)))).collect();
        let sent = clock.now();
        assert_eq!(store.cells.swap(&timeline, &next).await, Ok(vec![Swapped::Done; batch]));
        each.push(clock.now().since(sent));
    }
    (clock.now().since(begun), each)
}
