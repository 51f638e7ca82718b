//! A model that is paid by the token: a call reserves the most that it can cost, and settles what it did cost.
//!
//! `lessor serve --config lessor.toml`, with a limit "model/requests" and a limit "model/tokens", and then
//! `cargo run -p lessor --example llm_tokens -- http://127.0.0.1:7400`

use lessor::Client;
use std::time::Duration;

/// Most tokens that the model is asked to write.
const ANSWER_MAX: u64 = 400;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or("http://127.0.0.1:7400".to_owned());
    println!("{} tokens were used", run(&url).await?);
    Ok(())
}

/// Asks a few questions, and returns the number of tokens used.
pub(crate) async fn run(url: &str) -> Result<u64, Box<dyn std::error::Error>> {
    let lessor = Client::connect(url).await?;
    let (requests, tokens) = (lessor.limit("model/requests"), lessor.limit("model/tokens"));
    let mut total = 0;
    for prompt in ["why is the sky blue?", "and the sea?", "who says so?"] {
        let most = prompt.len() as u64 + ANSWER_MAX;
        // Both or neither: no request is spent on a call for which there are no tokens.
        let [_request, cost] = lessor::all([(&requests, 1), (&tokens, most)]).reserve().await?;
        match tokio::time::timeout(Duration::from_secs(60), ask(prompt)).await {
            // Unused tokens serve the next call.
            Ok(used) => {
                cost.settle(used);
                total += used;
            }
            // The cost is unknown: dropping the reservation settles it in full.
            Err(_) => drop(cost),
        }
    }
    lessor.shutdown().await;
    Ok(total)
}

/// Stands for the model.
async fn ask(prompt: &str) -> u64 {
    prompt.len() as u64 + 30
}
