//! The `simulate` tool: one workload and limit, with figures; one drawn seed; or a soak. It parses, runs and prints.

use crate::sim::faults::Faults;
use crate::sim::network::Latency;
use crate::sim::setup::{Sabotage, Setup, parse_rules, plan};
use crate::sim::soak::{self, Soaked};
use crate::sim::traffic::{WORKLOADS, Workload};
use crate::sim::world::{Failure, Report};
use crate::sim::{SECOND, replay, swarm, text};
use clap::Parser;
use lessor_protocol::Rule;
use lessor_protocol::moment::nanos;
use serde_json::{Value, json};
use std::time::Duration;

/// Simulates a fleet that shares one limit, in virtual time, from one seed.
#[derive(Debug, Parser)]
#[command(name = "simulate")]
pub struct Args {
    /// How many nodes.
    #[arg(long, default_value_t = 50)]
    nodes: usize,
    /// How long, in simulated seconds.
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// steady, zipf, zipf-jumps, bursts, hot-spot, herd, single, idle, trace or modest.
    #[arg(long, default_value = "zipf-jumps", value_parser = parse_workload)]
    workload: Workload,
    /// Calls a second of all nodes together.
    #[arg(long, default_value_t = 20_000.0)]
    demand: f64,
    /// Round trip between node and allocator.
    #[arg(long, default_value_t = 20.0)]
    rtt_ms: f64,
    /// The rules: `sliding_window 9000/30s margin 250ms`, `token_bucket 1000/1s capacity 1000`,
    /// `fixed_window 1000000/1h`; several joined by ` + `. The margin is 0 unless it is given.
    #[arg(long, default_value = "fixed_window 1000000/1h")]
    limit: String,
    /// Whether windows ease off below low water.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    ease_off: bool,
    /// How long a caller waits in line; 0ms tries only.
    #[arg(long, default_value = "0ms", value_parser = humantime::parse_duration)]
    patience: Duration,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
    /// Draws setups with faults from seeds, and runs them until this time is up.
    #[arg(long, value_parser = humantime::parse_duration)]
    soak: Option<Duration>,
    /// Threads of a soak.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Runs the one setup that this seed draws.
    #[arg(long)]
    swarm: Option<u64>,
    /// Draws a table of how many of `--seeds` it takes to notice each known mistake, or each of those called NAMES;
    /// with `--swarm`, runs that seed with one of them.
    #[arg(long, value_name = "NAMES", num_args = 0..=1, default_missing_value = "")]
    mutants: Option<String>,
    /// Runs one setup, as a failure prints it: `seed=1 rules=…`.
    #[arg(long)]
    replay: Option<String>,
}

fn parse_workload(text: &str) -> Result<Workload, String> {
    let known = WORKLOADS.iter().find(|(name, _)| *name == text).map(|&(_, workload)| workload);
    known.ok_or_else(|| format!("use one of {}", WORKLOADS.map(|(name, _)| name).join(", ")))
}

impl Args {
    /// Does it all; false if anything was wrong.
    ///
    /// # Errors
    /// In words, what is wrong with the arguments.
    pub fn run(&self) -> Result<bool, String> {
        if let Some(wall) = self.soak {
            return Ok(self.show_soak(&soak::soak(self.seed, self.threads, wall)));
        }
        if let Some(names) = &self.mutants {
            return self.show_mutants(names);
        }
        if let Some(seed) = self.swarm {
            return Ok(replay::show(&swarm::draw(seed)));
        }
        if let Some(line) = &self.replay {
            return Ok(replay::show(&text::read(line)?));
        }
        let rules = parse_rules(&self.limit)?;
        if self.nodes == 0 || !(self.demand.is_finite() && self.demand > 0.0) {
            return Err("use at least one node and some demand".to_owned());
        }
        let seeds = self.seed..self.seed + self.seeds;
        let runs: Vec<_> = seeds.map(|seed| (seed, soak::run(self.setup(&rules, seed)))).collect();
        if self.json {
            println!("{}", runs.iter().map(|(seed, run)| as_json(*seed, run)).collect::<Value>());
        } else {
            runs.iter().for_each(|(seed, run)| self.show(*seed, run));
        }
        Ok(runs.iter().all(|(_, run)| run.is_ok()))
    }

    fn setup(&self, rules: &[Rule], seed: u64) -> Setup {
        // Windows begin with the run, or what is measured would be two of them.
        let fixed = rules.iter().find_map(|rule| match rule {
            Rule::FixedWindow(rule) => Some(nanos(rule.per())),
            Rule::SlidingWindow(_) | Rule::TokenBucket(_) => None,
        });
        let one_way = (self.rtt_ms * 1e6 / 2.0) as u64;
        Setup {
            seed,
            plan: plan(rules.to_vec(), self.ease_off),
            nodes: self.nodes,
            foes: vec![],
            workload: self.workload,
            demand: self.demand,
            cost_max: 1,
            patience: nanos(self.patience),
            latency: Latency { one_way, jitter: one_way / 10 },
            faults: Faults::default(),
            drifting: false,
            start: fixed.map_or(SECOND, |per| 100 * per),
            lasts: self.seconds * SECOND,
            then_calm: false,
            sabotage: Sabotage::None,
            replay: std::env::args().collect::<Vec<_>>().join(" "),
        }
    }

    fn show(&self, seed: u64, run: &Result<Report, Box<Failure>>) {
        let report = match run {
            Ok(report) => report,
            Err(failure) => return println!("{failure}"),
        };
        let figures = &report.figures;
        let percent = |share: f64| format!("{:.3} %", share * 100.0);
        println!("lessor, seed {seed}: {} for {} s", self.limit, self.seconds);
        let line = |name: &str, value: String| println!("  {name:<46} {value}");
        line("permits admitted", figures.admitted.to_string());
        line("used", percent(figures.used_share));
        line("spent at the first refusal for emptiness", percent(figures.first_empty_refusal_at_share));
        line("stranded at that moment", percent(figures.stranded_share));
        line("refused while permits existed, before it", percent(figures.refused_while_available_share));
        line("exchanges a second", format!("{:.1}", figures.exchanges_per_second));
        line("  per node", format!("{:.2}", figures.exchanges_per_second / self.nodes as f64));
        line("Jain index of max-min shares", format!("{:.4}", figures.jain));
        line("refused of what wants less than its share", percent(figures.modest_refused_share));
        line("worst wait of a node that tries", format!("{:.3} s", figures.worst_wait));
        if let Some((median, worst)) = figures.catch_up_terms {
            line("hot spot at 90 % of its share after", format!("{median:.2} terms, worst {worst:.2}"));
        }
        line("over-admissions", "0".to_owned());
        line("hash of all events", format!("{:016x}", report.hash));
    }

    #[cfg(lessor_mutants)]
    fn show_mutants(&self, names: &str) -> Result<bool, String> {
        use crate::sim::mutants;
        let chosen = mutants::named(names)?;
        match (self.swarm, chosen.as_slice()) {
            (None, _) => {
                print!("{}", mutants::table(&chosen, self.seed..self.seed + self.seeds, self.threads))
            }
            (Some(seed), &[mutant]) => match mutants::noticed(mutant, seed) {
                Some(failure) => println!("{failure}"),
                None => println!("nobody noticed"),
            },
            (Some(_), _) => return Err("say which one mistake: --mutants NAME --swarm SEED".to_owned()),
        }
        Ok(true)
    }

    #[cfg(not(lessor_mutants))]
    fn show_mutants(&self, _names: &str) -> Result<bool, String> {
        let flags = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
        let command = "cargo run --release -p scenarios --bin simulate";
        Err(format!("no mistake is built in; run: RUSTFLAGS=\"--cfg lessor_mutants\" {command} -- {flags}"))
    }

    fn show_soak(&self, soaked: &Soaked) -> bool {
        let faults: serde_json::Map<String, Value> =
            soaked.struck.iter().map(|(fault, times)| (fault.name().to_owned(), json!(times))).collect();
        let broken = soaked.failures.len() - soaked.over_admissions();
        if self.json {
            let hours = soaked.hours();
            println!(
                "{}",
                json!({
                    "seeds": soaked.seeds, "simulated_hours": hours, "admissions": soaked.admissions,
                    "faults": faults, "over_admissions": soaked.over_admissions(), "invariant_failures": broken,
                })
            );
        } else {
            println!("{} seeds, {:.1} simulated hours", soaked.seeds, soaked.hours());
            println!(
                "{} admissions checked, {} over-admissions",
                soaked.admissions,
                soaked.over_admissions()
            );
            println!("{broken} other invariants failed");
            for (fault, times) in faults {
                println!("  {fault:<26} {times}");
            }
            for failure in &soaked.failures {
                println!("failed: {}: {}", failure.replay, failure.what);
            }
        }
        soaked.failures.is_empty()
    }
}

fn as_json(seed: u64, run: &Result<Report, Box<Failure>>) -> Value {
    match run {
        Ok(Report { figures, .. }) => json!({
            "policy": "lessor",
            "seed": seed,
            "admitted": figures.admitted,
            "used_share": figures.used_share,
            "first_empty_refusal_at_share": figures.first_empty_refusal_at_share,
            "stranded_share": figures.stranded_share,
            "refused_while_available_share": figures.refused_while_available_share,
            "exchanges_per_second": figures.exchanges_per_second,
            "jain": figures.jain,
            "worst_wait_s": figures.worst_wait,
            "modest_refused_share": figures.modest_refused_share,
            "over_admissions": 0,
        }),
        Err(failure) => json!({
            "policy": "lessor", "seed": seed, "over_admissions": u64::from(failure.is_over), "failure": failure.what,
        }),
    }
}
