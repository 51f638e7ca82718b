//! `cargo run -p gate --bin plant`: writes copies of the sources with all mistakes of `tests/mutants` to
//! `target/planted`.

use gate::{mutant, plant};
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = mutant::root();
    let planted = mutant::all().and_then(|mutants| {
        let files = plant::planted(&root, &mutants)?;
        plant::write(&root.join("target/planted"), &files)?;
        Ok(mutants.len())
    });
    match planted {
        Ok(mutants) => println!("{mutants} mistakes are planted in target/planted"),
        Err(wrong) => {
            eprintln!("{wrong}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
