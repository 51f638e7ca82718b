//! `GET /v1/limits/{name}/top`: the nodes that hold and want most of a limit, and its most wanted keys. The answer
//! stays small for any limit, where a series for each node or key would not.

use super::json;
use super::problem::Problem;
use super::show::{self, not_this_name};
use super::walk::{Page, Walk};
use crate::config::{Keyed, Names};
use crate::shared::{Reader, Shared};
use axum::response::Response;
use lessor_ledger::pool::{Holding, PoolView, SessionId};
use lessor_ledger::registry::limit::PoolId;
use lessor_ledger::rejection::quoted;
use lessor_protocol::NodeName;
use lessor_protocol::lease::millis_up;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Nodes and keys in an answer, by default.
const TOP: usize = 20;

/// Most nodes and keys in an answer.
const TOP_MAX: usize = 100;

/// Pools that are looked at for one answer. Only a pattern with keys can have more; the answer says how many were
/// looked at.
const LOOKED_MAX: usize = 100_000;

/// Names of blocked nodes in an answer.
const BLOCKED_SHOWN: usize = 100;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    count: usize,
    /// Whether the largest spender is first. A node that used up a limit and went away wants and holds nothing of it.
    by_spent: bool,
}

/// A session, summed over all pools of the limit.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    lease: u64,
    lasts_ms: u64,
    demand_milli: u64,
    waiting: u64,
    spent: u64,
    weight: u64,
    priority: u64,
    rtt_ms: u64,
    pools: u64,
}

/// A pool, with the demand of its sessions.
#[derive(Debug)]
struct Wanted {
    id: PoolId,
    view: PoolView,
    demand_milli: u64,
    waiting: u64,
}

/// What a walk over the pools has found so far.
#[derive(Debug, Default)]
struct Found {
    nodes: HashMap<SessionId, Node>,
    keys: Vec<Wanted>,
    looked_at: usize,
    lease: u64,
    demand_milli: u64,
}

pub(super) async fn of_limit(
    shared: &Shared,
    reader: Option<Reader>,
    name: &str,
    query: &BTreeMap<String, String>,
) -> Result<Response, Problem> {
    let asked = Asked::of(query)?;
    let _turn = shared.turn_to_show(reader).await?;
    let (pools, has_keys, blocked) = shared.with(|registry, now| {
        let Some(limit) = registry.limit(name) else { return Err(not_this_name(registry, name)) };
        let config = limit.config();
        let has_keys = config.keyed != Keyed::No || config.name.names() != Names::One;
        let blocked: Vec<String> =
            limit.suspension().blocked().iter().take(BLOCKED_SHOWN).map(NodeName::to_string).collect();
        Ok::<_, Problem>((limit.figures(now).pools, has_keys, blocked))
    })?;
    let (mut found, mut walk) = (Found::default(), Walk::new(shared, name));
    while found.looked_at < LOOKED_MAX {
        let Some(page) = walk.next().await else { break };
        found = found.with(page, asked);
    }
    let nodes = found.top_nodes(asked);
    let ids: BTreeSet<SessionId> = nodes.iter().map(|(id, _)| *id).collect();
    let names = shared.beside(|registry, _| registry.nodes_of(&ids));
    let nodes: Vec<Value> = nodes.iter().map(|(id, node)| node.shown(*id, names.get(id))).collect();
    let mut body = json!({
        "limit": name,
        "pools": pools,
        "looked_at": found.looked_at,
        "lease": found.lease,
        "demand": per_second(found.demand_milli),
        "sessions": found.nodes.len(),
        "nodes": nodes,
        "blocked_nodes": blocked,
    });
    if has_keys {
        body["keys"] = found.keys.iter().map(Wanted::shown).collect();
    }
    Ok(json(body.to_string()))
}

impl Asked {
    fn of(query: &BTreeMap<String, String>) -> Result<Self, Problem> {
        if let Some(stray) = query.keys().find(|name| !["count", "order"].contains(&name.as_str())) {
            let detail = format!("there is no parameter {}: use count or order", quoted(stray));
            return Err(Problem::invalid("query", detail));
        }
        let count = query.get("count").map_or(Some(TOP), |count| count.parse().ok());
        let count = count.filter(|count| (1..=TOP_MAX).contains(count)).ok_or_else(|| {
            let detail = format!("count is {}: use a number from 1 to {TOP_MAX}", quoted(&query["count"]));
            Problem::invalid("count", detail)
        })?;
        match query.get("order").map(String::as_str) {
            None | Some("wanted") => Ok(Asked { count, by_spent: false }),
            Some("spent") => Ok(Asked { count, by_spent: true }),
            Some(order) => {
                let detail = format!("order is {}: use wanted or spent", quoted(order));
                Err(Problem::invalid("order", detail))
            }
        }
    }

    /// Returns what comes before the demand when sessions and keys are sorted.
    fn first(self, spent: u64) -> u64 {
        if self.by_spent { spent } else { 0 }
    }
}

impl Found {
    /// Adds a page of pools. Of all pools, the first ones in the order that was asked for are kept.
    fn with(mut self, page: Page, asked: Asked) -> Self {
        for (id, view, holdings) in page {
            self.looked_at += 1;
            let mut wanted = Wanted { id, view, demand_milli: 0, waiting: 0 };
            for holding in holdings {
                wanted.demand_milli = wanted.demand_milli.saturating_add(holding.demand_milli);
                wanted.waiting = wanted.waiting.saturating_add(holding.waiting);
                self.nodes.entry(holding.session).or_default().add(&holding);
            }
            self.lease = self.lease.saturating_add(view.books.outstanding);
            self.demand_milli = self.demand_milli.saturating_add(wanted.demand_milli);
            self.keys.push(wanted);
        }
        // Ties go to the pool with the fewest permits left: an empty idle key tells more than a full one.
        self.keys.sort_by_cached_key(|wanted| {
            let books = &wanted.view.books;
            let first = asked.first(books.spent);
            let waits = Reverse((first, wanted.demand_milli, wanted.waiting, books.outstanding));
            (waits, wanted.view.available, wanted.id.clone())
        });
        self.keys.truncate(asked.count);
        self
    }

    fn top_nodes(&self, asked: Asked) -> Vec<(SessionId, Node)> {
        let mut nodes: Vec<(SessionId, Node)> = self.nodes.iter().map(|(id, node)| (*id, *node)).collect();
        nodes.sort_by_key(|(id, node)| {
            (Reverse((asked.first(node.spent), node.demand_milli, node.lease, node.waiting)), *id)
        });
        nodes.truncate(asked.count);
        nodes
    }
}

impl Node {
    fn add(&mut self, holding: &Holding) {
        self.lease = self.lease.saturating_add(holding.outstanding);
        self.lasts_ms = self.lasts_ms.max(millis_up(holding.lasts));
        self.demand_milli = self.demand_milli.saturating_add(holding.demand_milli);
        self.waiting = self.waiting.saturating_add(holding.waiting);
        self.spent = self.spent.saturating_add(holding.spent);
        self.weight = self.weight.max(holding.weight);
        self.priority = self.priority.max(holding.priority);
        self.rtt_ms = self.rtt_ms.max(millis_up(holding.rtt));
        self.pools += 1;
    }

    /// Shows a session. The allocator's own number tells two sessions of one node apart; the session's number is its
    /// secret. A session that was forgotten meanwhile has no name.
    fn shown(&self, id: SessionId, node: Option<&NodeName>) -> Value {
        json!({
            "node": node.map(NodeName::as_str),
            "lessee": id.0,
            "lease": self.lease,
            "lease_ms": self.lasts_ms,
            "demand": per_second(self.demand_milli),
            "waiting": self.waiting,
            "spent": self.spent,
            "weight": self.weight,
            "priority": self.priority,
            "rtt_ms": self.rtt_ms,
            "pools": self.pools,
        })
    }
}

impl Wanted {
    fn shown(&self) -> Value {
        let mut body = show::pool(&self.id, &self.view);
        body["demand"] = json!(per_second(self.demand_milli));
        body["waiting"] = json!(self.waiting);
        body
    }
}

/// For display: no decision depends on it.
fn per_second(milli: u64) -> f64 {
    milli as f64 / 1_000.0
}
