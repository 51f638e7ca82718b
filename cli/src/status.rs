//! `lessor status`: one look at an allocator over HTTP, for people and for scripts. It requests what the page requests,
//! and decides nothing.

use crate::failure::Failure;
use crate::limits::{AddressArgs, Server, table};
use crate::print::print;
use crate::runtime;
use crate::span::span;
use clap::Args;
use serde_json::{Value, json};
use std::time::Duration;

/// Text below the help of `lessor status`.
pub(crate) const STATUS_EXAMPLE: &str = "\
Examples:
  lessor status
  lessor status --server http://centre:7400 --json | jq .status.reasons
  lessor status --ready                                    whether to send nodes to it
  lessor status --live                                     the health check of a container
  lessor status --server https://centre:7400 --ca ca.crt --cert client.crt --key client.key

Exit codes: 0 the allocator is ready (with --live: answers), 1 it is not ready or cannot be asked, 2 bad command line, or the
allocator refuses.";

/// `lessor status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) server: AddressArgs,
    /// Print one JSON object: `status` and `limits`, as the allocator answers.
    #[arg(long)]
    pub(crate) json: bool,
    /// Ask only whether the allocator is ready. The vendor and the nodes of a demo answer this too.
    #[arg(long, conflicts_with = "json")]
    pub(crate) ready: bool,
    /// Ask only whether the process answers. An allocator in quarantine does, and needs no restart.
    #[arg(long, conflicts_with_all = ["json", "ready"])]
    pub(crate) live: bool,
}

/// Prints the state of the allocator. Fails if it is not ready, after printing why.
pub(crate) fn run(args: &StatusArgs) -> Result<(), Failure> {
    let runtime = runtime::on_this_thread()?;
    let server = Server::try_new(&args.server)?;
    if args.ready {
        runtime.block_on(async { server.look(&["readyz"]).await?.good() })?;
        return print("ready\n");
    }
    if args.live {
        runtime.block_on(async { server.look(&["livez"]).await?.good() })?;
        return print("alive\n");
    }
    let (status, limits) = runtime.block_on(async {
        let status = server.look(&["v1", "status"]).await?.good()?;
        Ok::<_, Failure>((status, server.look(&["v1", "limits"]).await?.good()?))
    })?;
    let text = match args.json {
        true => format!("{}\n", json!({ "status": status, "limits": limits["limits"] })),
        false => format!("{}\n{}", head(server.address(), &status), table::limits(&limits)),
    };
    print(&text)?;
    match reasons(&status) {
        reasons if reasons.is_empty() => Ok(()),
        reasons => Err(Failure::Run(format!("not ready: {}", reasons.join(", ")))),
    }
}

/// Formats a line for the allocator, and one for each allocator that it leases from.
fn head(address: &str, status: &Value) -> String {
    let reasons = reasons(status);
    let ready = if reasons.is_empty() { "ready".to_owned() } else { reasons.join(", ") };
    let up = Duration::from_secs(status["up_ms"].as_u64().unwrap_or_default() / 1_000);
    let facts = format!(
        "version {}, up {}, {} sessions, store {}",
        table::text(&status["version"]),
        span(up),
        status["sessions"],
        table::text(&status["store"]),
    );
    let name = status["node"].as_str().unwrap_or(address).to_owned();
    let mut rows = vec![[name, ready, facts]];
    let here: Vec<String> = status["sharing"].as_array().into_iter().flatten().map(table::text).collect();
    if !here.is_empty() {
        let store = format!("store {}", table::text(&status["store"]));
        rows.push([store, "shared".to_owned(), format!("{} allocators: {}", here.len(), here.join(", "))]);
    }
    for warning in status["warnings"].as_array().into_iter().flatten() {
        rows.push(["warning".to_owned(), String::new(), table::text(warning)]);
    }
    for (check, what) in [("store", "store"), ("upstreams", "upstreams"), ("config", "configuration")] {
        if let Some(reason) = status["checks"][check]["reason"].as_str() {
            rows.push([what.to_owned(), "failing".to_owned(), reason.to_owned()]);
        }
    }
    for upstream in status["upstreams"].as_array().into_iter().flatten() {
        let stands = match upstream["is"].as_str() {
            Some("up") => "answers",
            Some("down") => "does not answer",
            _ => "not asked yet",
        };
        rows.push([table::text(&upstream["url"]), stands.to_owned(), "limits are leased from it".to_owned()]);
    }
    table::aligned(&rows)
}

/// Returns the reasons why the allocator is not ready, in words.
fn reasons(status: &Value) -> Vec<String> {
    let waits = &status["quarantine"];
    let word = |reason: &Value| match reason.as_str() {
        Some("quarantine") => {
            let longest = Duration::from_millis(waits["longest_ms"].as_u64().unwrap_or_default());
            format!("{} limits in quarantine for up to {}", waits["limits"], span(longest))
        }
        Some("store_failing") => "the store cannot be used".to_owned(),
        Some("upstream_failing") => "no upstream answers".to_owned(),
        _ => table::text(reason),
    };
    status["reasons"].as_array().into_iter().flatten().map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_in_words() {
        let status = json!({
            "version": "1.0.0", "up_ms": 61_500, "sessions": 3, "store": "embedded", "node": null,
            "reasons": ["store_failing", "quarantine"],
            "quarantine": { "limits": 2, "longest_ms": 519_596_457_u64 },
            "upstreams": [{ "url": "http://centre:7400", "is": "down" }],
            "warnings": ["any is let in"],
            "checks": { "store": { "ok": false, "reason": "cannot write: no space" }, "config": { "ok": true } },
        });
        let shown = head("http://here:7400", &status);
        let lines: Vec<&str> = shown.lines().collect();
        let reasons = "the store cannot be used, 2 limits in quarantine for up to 6d 0h";
        assert_eq!(
            lines[0],
            format!("http://here:7400    {reasons}  version 1.0.0, up 1m 1s, 3 sessions, store embedded")
        );
        assert!(lines[1].starts_with("warning ") && lines[1].ends_with("any is let in"), "{shown}");
        assert!(lines[2].contains("failing") && lines[2].ends_with("cannot write: no space"), "{shown}");
        assert!(lines[3].starts_with("http://centre:7400  does not answer "), "{shown}");
        assert_eq!(lines.len(), 4);
    }

    /// The bug: the reason was in `--json` alone.
    #[test]
    fn why_nothing_can_be_leased_is_said() {
        let why = "every limit is leased from an allocator that does not answer: http://centre:7400";
        let status = json!({
            "version": "1.0.0", "up_ms": 1_000, "sessions": 0, "store": "memory", "node": null,
            "reasons": ["upstream_failing"], "quarantine": {}, "upstreams": [],
            "checks": { "store": { "ok": true }, "upstreams": { "ok": false, "reason": why } },
        });
        let shown = head("http://here:7400", &status);
        let line = shown.lines().nth(1).expect("a line for the upstreams");
        assert!(line.starts_with("upstreams ") && line.contains(" failing "), "{shown}");
        assert!(line.ends_with(why), "{shown}");
    }

    #[test]
    fn who_shares_the_store_is_named() {
        let status = json!({
            "version": "1.0.0", "up_ms": 1_000, "sessions": 3, "store": "redis", "node": "east", "reasons": [],
            "quarantine": {}, "upstreams": [], "sharing": ["east", "west"],
        });
        let shown = head("http://here:7400", &status);
        let line = shown.lines().nth(1).expect("a line for the store");
        assert_eq!(line.trim_end(), "store redis  shared  2 allocators: east, west");
    }
}
