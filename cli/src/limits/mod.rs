//! `lessor limits`: changes and shows the limits of a running allocator, for people and for scripts. It decides
//! nothing; it asks the admin API and shows the answer.

mod address;
mod args;
mod server;
pub(crate) mod standing;
pub(crate) mod table;

pub(crate) use address::{AddressArgs, TlsArgs, TokenArgs};
pub(crate) use args::LimitsArgs;
pub(crate) use server::Server;

use crate::configuration::FILE_MAX;
use crate::failure::Failure;
use crate::print::print;
use crate::runtime;
use args::{LimitsCommand, SetArgs};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::io::Read as _;

/// Runs the command, and prints the answer.
pub(crate) fn run(args: &LimitsArgs) -> Result<(), Failure> {
    let runtime = runtime::on_this_thread()?;
    let server = Server::try_new(&args.server)?.deciding(args.yes, args.reason.as_deref());
    let json = args.json;
    let (body, shown) = runtime.block_on(answer(&server, &args.command))?;
    let text = if json { body.to_string() + "\n" } else { shown };
    print(text)
}

/// Returns the allocator's answer, as JSON and as text for people.
async fn answer(server: &Server, command: &LimitsCommand) -> Result<(Value, String), Failure> {
    let post = async |steps: &[&str], body: Value| {
        server.ask(Method::POST, steps, &[], None, Some(&body)).await?.good()
    };
    match command {
        LimitsCommand::List => {
            let body = server.ask(Method::GET, &[], &[], None, None).await?.good()?;
            let shown = table::limits(&body);
            Ok((body, shown))
        }
        LimitsCommand::Get { name } => {
            let body = server.ask(Method::GET, &[name], &[], None, None).await?.good()?;
            let shown = table::limit(&body);
            Ok((body, shown))
        }
        LimitsCommand::Set(set) => put(server, set).await,
        LimitsCommand::Rm { name } => {
            let etag = server.ask(Method::GET, &[name], &[], None, None).await?.etag;
            server.ask(Method::DELETE, &[name], &[], etag.as_deref(), None).await?.good()?;
            Ok((
                json!({ "removed": name }),
                format!("removed {name}; its leases stay valid until they end\n"),
            ))
        }
        LimitsCommand::TopUp { name, permits, pool_key, id } => {
            let mut body = json!({ "permits": permits });
            for (field, value) in [("key", pool_key), ("id", id)] {
                if let Some(value) = value {
                    body[field] = json!(value);
                }
            }
            let reply = server.ask(Method::POST, &[name, "top-up"], &[], None, Some(&body)).await?;
            let lacks_key = pool_key.is_none() && reply.body["field"] == json!("key");
            let body = reply.good().map_err(|failure| match failure {
                Failure::Input(said) if lacks_key => {
                    Failure::Input(format!("{said}: name it with --pool-key"))
                }
                failure @ (Failure::Input(_) | Failure::Run(_)) => failure,
            })?;
            let (added, available) = (&body["topped_up"], &body["available"]);
            let shown = match id {
                Some(id) if *added == json!(0) => {
                    format!(
                        "a top-up of {name} was already applied under the id {id:?}: {available} are available\n"
                    )
                }
                Some(_) | None => format!("added {added} to {name}: {available} are available\n"),
            };
            Ok((body, shown))
        }
        LimitsCommand::Pause { name, span } => {
            let body = span.as_ref().map_or(json!({}), |span| json!({ "for": span }));
            let shown = match span {
                Some(span) => format!("{name} is paused for {span}\n"),
                None => format!("{name} is paused until it is resumed\n"),
            };
            Ok((post(&[name, "pause"], body).await?, shown))
        }
        LimitsCommand::Resume { name } => {
            let body = post(&[name, "resume"], json!({})).await?;
            let limit = server.ask(Method::GET, &[name], &[], None, None).await.map(|reply| reply.body);
            let by_vendor = limit.is_ok_and(|limit| standing::count(&limit, "vendor_paused_pools") > 0);
            let shown = match (body["was_paused"] == json!(true), by_vendor) {
                (true, false) => "lends again",
                (true, true) => "is resumed; the vendor paused it, too, and that ends by itself",
                (false, false) => "was not paused",
                (false, true) => {
                    "was not paused by an operator; the vendor paused it, and that ends by itself"
                }
            };
            Ok((body, format!("{name} {shown}\n")))
        }
        LimitsCommand::Block { name, node } => {
            let body = post(&[name, "nodes", node, "block"], json!({})).await?;
            let hint = match body["is_known"] == json!(false) {
                true => "; no such node is known now; it is blocked when it joins",
                false => "",
            };
            Ok((body, format!("{name} lends nothing to {node}{hint}\n")))
        }
        LimitsCommand::Unblock { name, node } => {
            let steps = [name.as_str(), "nodes", node, "block"];
            let body = server.ask(Method::DELETE, &steps, &[], None, None).await?.good()?;
            let shown = match body["was_blocked"] == json!(false) {
                true => format!("{node} was not blocked: nothing has changed for {name}\n"),
                false => format!("{name} lends to {node} again\n"),
            };
            Ok((body, shown))
        }
    }
}

/// The new state of a limit, as given on the command line.
enum Given {
    /// New rules. All other options stay.
    Rules(Value),
    /// All options.
    Limit(Value),
}

/// Parses the value of --rules.
///
/// # Errors
/// If it is not a TOML array.
fn rules_of(text: &str) -> Result<Value, Failure> {
    const EXPECTED: &str = "expected an array of rules as in the configuration, for example \
                            '[{ kind = \"sliding_window\", limit = 50, per = \"1s\" }]'";
    let wrong = |why: &str| Failure::Input(format!("--rules is {text:?}: {EXPECTED}{why}"));
    if !text.trim_start().starts_with('[') {
        return Err(wrong(""));
    }
    let read = toml::from_str::<toml::Table>(&format!("rules = {text}"));
    let mut table = read.map_err(|error| wrong(&format!(" ({})", error.message())))?;
    serde_json::to_value(table.remove("rules")).map_err(|error| wrong(&format!(" ({error})")))
}

/// Adds or changes a limit, based on its state just before. A change that another operator makes meanwhile is not
/// overwritten.
async fn put(server: &Server, set: &SetArgs) -> Result<(Value, String), Failure> {
    let given = match (&set.rules, &set.file) {
        (Some(rules), _) => Given::Rules(rules_of(rules)?),
        (None, Some(file)) => Given::Limit(read(&text_of(file)?, &file.display().to_string())?),
        (None, None) => return Err(Failure::Input("say --rules or --file".to_owned())),
    };
    let seen = server.ask(Method::GET, &[&set.name], &[], None, None).await?;
    let is_there = seen.status != StatusCode::NOT_FOUND;
    let (etag, pattern) = (seen.etag.clone(), seen.body["pattern"].as_str().map(str::to_owned));
    let seen = if is_there { seen.good()? } else { json!({}) };
    let body = match given {
        Given::Rules(rules) => {
            let mut body = match pattern.filter(|_| !is_there) {
                Some(pattern) => of_pattern(server, &set.name, &pattern).await?,
                None => configured(&seen),
            };
            body["rules"] = rules;
            body
        }
        Given::Limit(body) => body,
    };
    let mut query = vec![("carry", set.carry.name())];
    query.extend(set.dry_run.then_some(("dry_run", "true")));
    query.extend(set.fresh.then_some(("fresh", "true")));
    let reply = server.ask(Method::PUT, &[&set.name], &query, etag.as_deref(), Some(&body)).await?.good()?;
    let shown = match set.dry_run {
        true => table::preview(&reply),
        false => table::limit(&reply),
    };
    Ok((reply, shown))
}

/// Returns the options of `pattern` for a limit called `name`, which has none of its own.
async fn of_pattern(server: &Server, name: &str, pattern: &str) -> Result<Value, Failure> {
    let seen = server.ask(Method::GET, &[pattern], &[], None, None).await?;
    let seen = seen.good().map_err(|failure| match failure {
        Failure::Input(said) => Failure::Input(format!(
            "{said}: {name} has the options of the pattern {pattern}, which cannot be read. Name all options with --file"
        )),
        failure @ Failure::Run(_) => failure,
    })?;
    let mut options = configured(&seen);
    if let Some(upstream) = options["upstream"].as_str() {
        return Err(Failure::Input(format!(
            "{name} has the options of the pattern {pattern}, which is leased from {upstream}, and that allocator has the \
             rules. Name all options with --file"
        )));
    }
    options["name"] = json!(name);
    if let Some(options) = options.as_object_mut().filter(|_| !name.ends_with('*')) {
        options.remove("names_max");
    }
    Ok(options)
}

/// Returns the configuration in an answer of the API, without the figures.
fn configured(seen: &Value) -> Value {
    const FIGURES: [&str; 26] = [
        "ceiling",
        "pools",
        "names",
        "quarantine_ms",
        "paused",
        "leased",
        "paused_ms",
        "upstream_silent",
        "blocked_nodes",
        "topped_up",
        "available",
        "outstanding",
        "lessees",
        "asks",
        "granted",
        "spent",
        "returned",
        "burned",
        "shadow_refused",
        "in_flight",
        "vendor_withheld",
        "vendor_paused_pools",
        "vendor_paused_ms",
        "vendor_disagreed",
        "states",
        "time_to_empty_ms",
    ];
    let mut limit = seen.as_object().cloned().unwrap_or_default();
    limit.retain(|key, value| !FIGURES.contains(&key.as_str()) && !value.is_null());
    Value::Object(limit)
}

fn read(text: &str, place: &str) -> Result<Value, Failure> {
    let table: toml::Table =
        toml::from_str(text).map_err(|error| Failure::Input(format!("{place}: {}", error.message())))?;
    serde_json::to_value(table).map_err(|error| Failure::Input(format!("{place}: {error}")))
}

fn text_of(file: &std::path::Path) -> Result<String, Failure> {
    if file.as_os_str() != "-" {
        return lessor_files::text(file, FILE_MAX).map_err(|error| Failure::Input(error.to_string()));
    }
    let mut text = String::new();
    let read = std::io::stdin().take(FILE_MAX + 1).read_to_string(&mut text);
    match read {
        Ok(bytes) if bytes as u64 <= FILE_MAX => Ok(text),
        Ok(_) => Err(Failure::Input(format!("stdin has more than {FILE_MAX} bytes"))),
        Err(error) => Err(Failure::Input(format!("cannot read stdin: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser as _;
    use lessor_allocator::Config;
    use std::future::pending;
    use tokio::net::TcpListener;

    const CONFIG: &str = r#"
        [store]
        kind = "memory"
        [[limit]]
        name = "routes"
        rules = [{ kind = "sliding_window", limit = 100, per = "1s" }]
        [[limit]]
        name = "api/*"
        parent = "routes"
        names_max = 50
        reserve = 2
        rules = [{ kind = "sliding_window", limit = 10, per = "1s" }]
        [[limit]]
        name = "far/*"
        upstream = "http://127.0.0.1:1"
    "#;

    /// Starts an allocator, and returns its URL.
    async fn serving() -> String {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let config = Config::parse(CONFIG).expect("a good configuration");
        tokio::spawn(lessor_allocator::Server::new(config, true).run(listener, pending()));
        url
    }

    /// Parses `lessor limits` with the arguments `more`, for the allocator at `url`.
    fn parsed(url: &str, more: &[&str]) -> (Server, LimitsCommand) {
        let line = [&["lessor", "limits", "--server", url], more].concat();
        let Command::Limits(args) = Cli::try_parse_from(line).expect("a good line").command else {
            panic!("it is another command")
        };
        (Server::try_new(&args.server).expect("a good address"), args.command)
    }

    /// The bug: such a name counted as new, so its limit had the rules alone, and was no longer below the parent of the
    /// pattern.
    #[tokio::test]
    async fn new_rules_for_a_name_of_a_pattern_leave_the_other_options_of_the_pattern() {
        let url = serving().await;
        let set = async |name: &str| {
            let rules = "[{ kind = \"sliding_window\", limit = 20, per = \"1s\" }]";
            let (server, command) = parsed(&url, &["set", name, "--rules", rules]);
            answer(&server, &command).await.map(|(body, _)| body).map_err(|failure| failure.to_string())
        };
        for (name, names_max) in [("api/x", Value::Null), ("api/v1/*", json!(50))] {
            let made = set(name).await.expect("no confirmation is needed");
            assert_eq!((&made["name"], &made["parent"]), (&json!(name), &json!("routes")), "{made}");
            assert_eq!((&made["reserve"], &made["names_max"]), (&json!(2), &names_max), "{made}");
            assert_eq!(made["rules"][0]["limit"], 20, "{made}");
        }
        assert_eq!(set("api/x").await.expect("it is there now")["parent"], "routes");
        assert_eq!(set("other").await.expect("it is new")["parent"], Value::Null);
    }

    /// A pattern may be gone by the time it is read. A leased one has no rules that could be changed.
    #[tokio::test]
    async fn a_pattern_whose_options_do_not_serve_is_named_with_what_to_do() {
        let (server, _) = parsed(&serving().await, &["list"]);
        for (name, pattern) in [("web/x", "web/*"), ("far/x", "far/*")] {
            let refused = of_pattern(&server, name, pattern).await.expect_err("its options do not serve");
            let Failure::Input(said) = refused else { panic!("{name}: {refused}") };
            assert!(said.contains(pattern) && said.ends_with("Name all options with --file"), "{said}");
        }
    }
}
