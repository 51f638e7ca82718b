//! Prints the table of how soon each mistake is noticed, or what the oracle says of mistakes in one fleet.
//! `tests/mutants/run` builds and runs it, because it needs planted sources.

use std::process::ExitCode;

#[cfg(planted)]
fn main() -> ExitCode {
    match run() {
        Ok(text) => print!("{text}"),
        Err(wrong) => {
            eprintln!("{wrong}\nusage: tests/mutants/run [--seeds N | --seed N] [NAME ...]");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

#[cfg(not(planted))]
fn main() -> ExitCode {
    eprintln!("this build has no mistakes planted: use tests/mutants/run");
    ExitCode::from(2)
}

#[cfg(planted)]
fn run() -> Result<String, String> {
    use gate::{hunt, mutant};

    let (mut seeds, mut seed, mut names) = (hunt::BUDGET, None, vec![]);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let text = arguments.next().unwrap_or_default();
            text.parse().map_err(|_| format!("{argument}: {text:?} is no number"))
        };
        match argument.as_str() {
            "--seeds" => seeds = number()?,
            "--seed" => seed = Some(number()?),
            _ => names.push(argument),
        }
    }
    let mut mutants = mutant::all()?;
    if let Some(unknown) = names.iter().find(|name| mutants.iter().all(|mutant| mutant.name != **name)) {
        return Err(format!("there is no mistake {unknown:?} in tests/mutants"));
    }
    mutants.retain(|mutant| names.is_empty() || names.contains(&mutant.name));
    match seed {
        None => Ok(hunt::table(&mutants, 1..seeds + 1)),
        Some(seed) => {
            let say = |mutant: &mutant::Mutant| {
                let said = hunt::noticed(mutant, seed).unwrap_or_else(|| "nothing".to_owned());
                format!("{}: {said}\n", mutant.name)
            };
            Ok(mutants.iter().map(say).collect())
        }
    }
}
