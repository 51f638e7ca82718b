//! A batch job beside interactive callers: it takes what is left over, in parts, and waits behind all other callers.
//!
//! `lessor serve --config lessor.toml`, with a limit "vendor/rest", and then
//! `cargo run -p lessor --example batch -- http://127.0.0.1:7400`

use lessor::{Client, Priority, Refusal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or("http://127.0.0.1:7400".to_owned());
    println!("{} rows were sent", run(&url).await?);
    Ok(())
}

/// Sends all rows, and returns their number.
pub(crate) async fn run(url: &str) -> Result<usize, Box<dyn std::error::Error>> {
    let lessor = Client::connect(url).await?;
    let rest = lessor.limit("vendor/rest").with_priority(Priority::Low);
    let rows: Vec<u32> = (0..100).collect();
    let mut sent = 0;
    while sent < rows.len() {
        let left = (rows.len() - sent) as u64;
        let now = match rest.try_acquire_up_to(left) {
            Ok(now) => now,
            // Waits its turn for one permit, and then looks for more.
            Err(Refusal::Empty { .. }) => rest.acquire(1).await.map(|()| 1)?,
            Err(refusal) => return Err(refusal.into()),
        };
        let part = &rows[sent..sent + usize::try_from(now)?];
        send(part);
        sent += part.len();
    }
    lessor.shutdown().await;
    Ok(sent)
}

/// Stands for the vendor.
fn send(rows: &[u32]) {
    println!("{} rows in one part", rows.len());
}
