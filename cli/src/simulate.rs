//! `lessor simulate`: one workload and limit, with figures for Lessor and its rivals; one drawn seed; or a soak. This
//! file has its arguments and turns them into runs; it runs nothing before all arguments are checked.

mod chosen;
mod json;
mod numbers;
mod plot;
mod runs;
mod soaked;
mod table;

use crate::failure::Failure;
use crate::print::print;
use chosen::Chosen;
use clap::Args;
use lessor_ledger::Rule;
use lessor_protocol::moment::nanos;
use lessor_sim::network::Latency;
use lessor_sim::policy::Policy;
use lessor_sim::setup::Setup;
use lessor_sim::text::{self, bare};
use lessor_sim::traffic::Workload;
use lessor_sim::{SECOND, generator, replay, soak};
use numbers::within;
use runs::{Job, Run};
use std::path::{Path, PathBuf};
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  lessor simulate --config lessor.toml --name vendor/rest --demand 500 --compare
  lessor simulate --limit 'fixed_window 9000/30s' --nodes 20 --workload bursts --plot drain.svg
  lessor simulate --soak 10m";

const EXIT_CODES: &str = "\
Exit codes: 0 every invariant held, 1 an invariant failed or stdout cannot be written, 2 bad command line or configuration.";

/// Arguments about one limit and its load. A setup that is drawn, or given as a line, has both.
const OF_ONE_LIMIT: [&str; 13] = [
    "nodes", "limits", "seconds", "workload", "demand", "rtt_ms", "patience", "limit", "config", "name",
    "ease_off", "seeds", "compare",
];

/// `lessor simulate`.
#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// Number of nodes.
    #[arg(long, default_value_t = 50, value_parser = within(numbers::NODES), allow_negative_numbers = true, help_heading = "Fleet and load")]
    nodes: usize,
    /// Number of identical limits. Each node asks for all of them in one exchange.
    #[arg(
        long,
        default_value_t = 1,
        value_parser = within(numbers::LIMITS),
        allow_negative_numbers = true,
        conflicts_with = "compare",
        help_heading = "Fleet and load"
    )]
    limits: usize,
    /// Length of a run, in simulated seconds.
    #[arg(long, default_value_t = 120, value_parser = within(numbers::SECONDS), allow_negative_numbers = true, help_heading = "Fleet and load")]
    seconds: u64,
    /// Shape of the load: steady, zipf, zipf-jumps, bursts, hot-spot, herd, single, idle, trace or modest.
    #[arg(
        long,
        default_value = "zipf-jumps",
        value_parser = parse_workload,
        hide_possible_values = true,
        help_heading = "Fleet and load"
    )]
    workload: Workload,
    /// Calls per second of all nodes on all limits together.
    #[arg(long, default_value_t = 20_000.0, value_parser = within(numbers::DEMAND), allow_negative_numbers = true, help_heading = "Fleet and load")]
    demand: f64,
    /// Round trip between a node and the allocator, in milliseconds. Of several, joined by commas, nodes have one each
    /// in turn.
    #[arg(
        long,
        default_value = "20",
        value_delimiter = ',',
        value_parser = within(numbers::RTT_MS),
        allow_negative_numbers = true,
        help_heading = "Fleet and load"
    )]
    rtt_ms: Vec<f64>,
    /// How long a caller waits for permits. With 0ms a caller does not wait.
    #[arg(
        long,
        default_value = "0ms",
        value_parser = numbers::patience,
        help_heading = "Fleet and load"
    )]
    patience: Duration,
    /// The rules of the limit: `sliding_window 9000/30s margin 250ms`, `token_bucket 1000/1s capacity 1000`,
    /// `fixed_window 1000000/1h`. Several rules are joined by ` + `. The default margin is 0.
    #[arg(
        long,
        default_value = "fixed_window 1000000/1h",
        conflicts_with = "config",
        help_heading = "Limit"
    )]
    limit: String,
    /// Take the limit from this configuration of an allocator, in place of `--limit`.
    #[arg(long, value_name = "FILE", help_heading = "Limit")]
    config: Option<PathBuf>,
    /// The name of a limit in the configuration. Required if the configuration has several.
    #[arg(long, help_heading = "Limit")]
    name: Option<String>,
    /// Whether windows lend more slowly below their low-water mark. Default: as the configuration says, or else true.
    #[arg(long, action = clap::ArgAction::Set, value_name = "BOOL", help_heading = "Limit")]
    ease_off: Option<bool>,
    /// Seed of the first run.
    #[arg(long, default_value_t = 1, value_parser = within(numbers::SEED), allow_negative_numbers = true, help_heading = "Runs")]
    seed: u64,
    /// Number of seeds.
    #[arg(long, default_value_t = 1, value_parser = within(numbers::SEEDS), allow_negative_numbers = true, help_heading = "Runs")]
    seeds: u64,
    /// Also run the other policies, on the same seeds.
    #[arg(long, help_heading = "Runs")]
    compare: bool,
    /// Number of runs at the same time, or of threads of a soak.
    #[arg(long, default_value_t = 2, value_parser = within(numbers::THREADS), allow_negative_numbers = true, help_heading = "Runs")]
    threads: usize,
    /// Print JSON: one object for each seed and policy. Shares are from 0 to 1.
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Draw the pool, the outstanding permits and the grants of the first seed over time, as SVG.
    #[arg(long, value_name = "FILE.svg", conflicts_with_all = ["soak", "swarm", "replay"], help_heading = "Output")]
    plot: Option<PathBuf>,
    /// Run setups with faults, drawn from seeds, for this time.
    #[arg(
        long,
        value_name = "TIME",
        value_parser = humantime::parse_duration,
        conflicts_with_all = OF_ONE_LIMIT,
        help_heading = "Faults"
    )]
    soak: Option<Duration>,
    /// Run the one setup with faults that is drawn from this seed.
    #[arg(
        long,
        value_name = "SEED",
        conflicts_with_all = OF_ONE_LIMIT,
        conflicts_with_all = ["soak", "seed", "threads", "json"],
        help_heading = "Faults"
    )]
    swarm: Option<u64>,
    /// Run one setup in the format that a failure prints: `seed=1 rules=…`.
    #[arg(
        long,
        value_name = "SETUP",
        conflicts_with_all = OF_ONE_LIMIT,
        conflicts_with_all = ["soak", "swarm", "seed", "threads", "json"],
        help_heading = "Faults"
    )]
    replay: Option<String>,
}

/// Returns the end of `--help`: examples, and an explanation of each policy.
pub(crate) fn after_help() -> String {
    let lines = Policy::ALL.map(|policy| format!("  {}: {}", policy.heading(), policy.explained()));
    let policies = lines.join("\n");
    format!(
        "{EXAMPLES}\n\nPolicies, all in the same simulated fleet and without faults:\n{policies}\n\n{EXIT_CODES}"
    )
}

/// Runs the command. An over-admission, or another invariant that failed, is an exit code of 1.
pub(crate) fn run(args: &SimulateArgs) -> Result<(), Failure> {
    match args.run()? {
        true => Ok(()),
        false => Err(Failure::Run("an invariant did not hold: see above".to_owned())),
    }
}

fn parse_workload(text: &str) -> Result<Workload, String> {
    Workload::named(text)
        .ok_or_else(|| format!("use one of {}", Workload::ALL.map(Workload::name).join(", ")))
}

/// Runs the one `setup`, and prints it and the result; returns false if an invariant failed.
fn one(setup: &Setup) -> Result<bool, Failure> {
    print(format!("{}\n", text::write(setup)))?;
    let (told, held) = replay::told(setup);
    print(told)?;
    Ok(held)
}

impl SimulateArgs {
    /// Runs everything; returns false if an invariant failed.
    fn run(&self) -> Result<bool, Failure> {
        if let Some(wall) = self.soak {
            let soaked = soak::soak(self.seed, self.threads, wall);
            print(soaked::told(&soaked, self.json))?;
            return Ok(soaked.failures.is_empty());
        }
        if let Some(seed) = self.swarm {
            return one(&generator::draw(seed));
        }
        if let Some(line) = &self.replay {
            return one(&text::read(line).map_err(Failure::Input)?);
        }
        let chosen = self.chosen().map_err(Failure::Input)?;
        self.check_compare(&chosen).map_err(Failure::Input)?;
        let not_drawn = |path: &Path, error: String| Failure::Input(format!("--plot {path:?}: {error}"));
        if let Some(path) = &self.plot {
            plot::try_file(path).map_err(|error| not_drawn(path, error.to_string()))?;
        }
        let runs = runs::run_all(self.jobs(&chosen), self.threads);
        let text = match self.json {
            true => format!("{}\n", json::json(&runs)),
            false => table::table(&self.title(&chosen), self.nodes, &runs),
        };
        print(text)?;
        if let Some(path) = &self.plot {
            self.draw(&chosen, &runs).map_err(|error| not_drawn(path, error))?;
        }
        Ok(runs.iter().all(|run| run.result.is_ok()))
    }

    fn chosen(&self) -> Result<Chosen, String> {
        match (&self.config, &self.name) {
            (Some(path), name) => chosen::from_file(path, name.as_deref(), self.ease_off),
            (None, None) => chosen::from_text(&self.limit, self.ease_off),
            (None, Some(name)) => Err(format!("--name {name:?} names a limit of --config, which is missing")),
        }
    }

    /// Refuses to compare limits that the other policies cannot keep: they lend permits of windows and buckets.
    fn check_compare(&self, chosen: &Chosen) -> Result<(), String> {
        let unfit = |rule: &&Rule| matches!(rule, Rule::LeakyBucket(_) | Rule::Concurrency(_));
        match chosen.plan.rules.iter().find(unfit).filter(|_| self.compare) {
            Some(rule) => Err(format!(
                "--compare: the other policies have no form of {}, and would keep no limit: leave --compare out",
                rule.kind()
            )),
            None => Ok(()),
        }
    }

    /// Returns a run of each policy for each seed.
    fn jobs(&self, chosen: &Chosen) -> Vec<Job> {
        let policies = if self.compare { &Policy::ALL[..] } else { &[Policy::Lessor] };
        let seeds = self.seed..self.seed + self.seeds;
        let job = |seed, policy| {
            let draws = self.plot.is_some() && seed == self.seed;
            Job { policy, setup: self.setup(chosen, seed), draws }
        };
        seeds.flat_map(|seed| policies.iter().map(move |&policy| job(seed, policy))).collect()
    }

    fn setup(&self, chosen: &Chosen, seed: u64) -> Setup {
        // Windows begin with the run, otherwise the run would measure two of them.
        let fixed = chosen.plan.rules.iter().filter_map(Rule::fixed).map(|rule| nanos(rule.per()));
        let ways: Vec<u64> = self.rtt_ms.iter().map(|rtt_ms| (rtt_ms * 1e6 / 2.0) as u64).collect();
        let one_way = ways.iter().copied().min().unwrap_or(0);
        Setup {
            seed,
            plan: chosen.plan.clone(),
            siblings: self.limits - 1,
            nodes: self.nodes,
            pools: self.limits,
            workload: self.workload,
            demand: self.demand,
            patience: nanos(self.patience),
            latency: Latency { one_way, jitter: one_way / 10 },
            distances: if ways.len() > 1 { ways.iter().map(|way| way - one_way).collect() } else { vec![] },
            start: fixed.max().map_or(SECOND, |per| 100 * per),
            lasts: self.seconds * SECOND,
            replay: std::env::args().collect::<Vec<_>>().join(" "),
            ..bare()
        }
    }

    /// Describes the simulation in one line.
    fn title(&self, chosen: &Chosen) -> String {
        let ease_off = if chosen.plan.ease_off { ", easing off" } else { "" };
        let workload = self.workload.name();
        let limits = if self.limits > 1 { format!("{} limits, ", self.limits) } else { String::new() };
        let rtt_ms = self.rtt_ms.iter().map(f64::to_string).collect::<Vec<_>>().join(", ");
        format!(
            "{}{ease_off}: {limits}{} nodes, {workload} {} calls/s, round trip {rtt_ms} ms, {} s",
            chosen.words, self.nodes, self.demand, self.seconds
        )
    }

    fn draw<'a>(&self, chosen: &Chosen, runs: &'a [Run]) -> Result<(), String> {
        let path = self.plot.as_deref().expect("asked for");
        let curve = |run: &'a Run| Some((run.policy, run.result.as_ref().ok()?.curve.as_ref()?));
        plot::draw(path, &self.title(chosen), self.seed, &runs.iter().filter_map(curve).collect::<Vec<_>>())
    }
}
