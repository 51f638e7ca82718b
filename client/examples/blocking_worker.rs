//! Workers without async: each waits its turn by parking its thread, and gives back the permit of a cancelled call.
//!
//! `lessor serve --config lessor.toml`, with a limit "vendor/rest", and then
//! `cargo run -p lessor --example blocking_worker -- http://127.0.0.1:7400`

use lessor::blocking::Client;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or("http://127.0.0.1:7400".to_owned());
    println!("{} calls were made", run(&url)?);
    Ok(())
}

/// Lets a few workers make their calls, and returns the number of calls.
pub(crate) fn run(url: &str) -> Result<usize, Box<dyn std::error::Error>> {
    let lessor = Client::connect(url)?;
    let rest = lessor.limit("vendor/rest");
    let made = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (rest, made) = (&rest, &made);
            scope.spawn(move || {
                for job in 0..10 {
                    match rest.reserve_within(1, Duration::from_secs(10)) {
                        Ok(mut permit) if is_cancelled(worker, job) => {
                            permit.refund(1);
                        }
                        // Dropping the reservation settles it: the call is made.
                        Ok(_permit) => {
                            made.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(refusal) => println!("worker {worker}: {refusal}"),
                    }
                }
            });
        }
    });
    lessor.shutdown();
    Ok(made.into_inner())
}

/// Stands for a user who cancels a job.
fn is_cancelled(worker: u32, job: u32) -> bool {
    (worker + job).is_multiple_of(5)
}
