//! Permits held by the nodes that hold most of each limit, for `/metrics`: does one node hold it all? By rank and not
//! by name, so that a thousand nodes make no more series than one.

use super::walk::Walk;
use crate::metrics::{PLACES, Ranks, Scraped};
use crate::shared::Shared;
use lessor_ledger::pool::SessionId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use tokio::task::yield_now;

/// Pools of one limit, plus their sessions, that a scrape looks at: about a millisecond of work. A limit with more has
/// no ranks.
const LIMIT_MAX: u64 = 10_000;

/// Pools and sessions of all limits together that a scrape looks at. Smaller limits come first, so that as many limits
/// as possible have ranks.
const SCRAPE_MAX: u64 = 50_000;

/// Sessions whose nodes are looked up under the lock in one go.
const STEP: usize = 1_000;

/// Permits of a limit that each session holds.
type Held = HashMap<SessionId, u64>;

/// Returns the ranks of each limit that was `chosen`, by its name.
pub(super) async fn of_limits(shared: &Shared, chosen: Vec<(String, u64)>) -> BTreeMap<String, Ranks> {
    let mut held: BTreeMap<String, Held> = BTreeMap::new();
    for (name, cost) in chosen {
        let found = if cost > 0 { held_of(shared, &name).await } else { Held::default() };
        held.insert(name, found);
    }
    let is_held = held.values().any(|held| !held.is_empty());
    let nodes = if is_held { nodes(shared).await } else { HashMap::new() };
    held.into_iter().map(|(name, held)| (name, ranks(&held, &nodes))).collect()
}

/// Chooses the limits to look at, each with its cost. The cost is zero if no node holds permits of the limit.
pub(super) fn chosen(scraped: &Scraped) -> Vec<(String, u64)> {
    let limits = scraped.limits().iter().map(|(config, figures)| {
        let cost = figures.pools.saturating_add(figures.sums.sessions);
        (if figures.sums.outstanding == 0 { 0 } else { cost }, config.name.as_str())
    });
    let mut limits: Vec<(u64, &str)> = limits.collect();
    limits.sort_unstable();
    let (mut chosen, mut left) = (vec![], SCRAPE_MAX);
    for (cost, name) in limits {
        if cost > left.min(LIMIT_MAX) {
            break;
        }
        left -= cost;
        chosen.push((name.to_owned(), cost));
    }
    chosen
}

async fn held_of(shared: &Shared, name: &str) -> Held {
    let (mut walk, mut held) = (Walk::new(shared, name), Held::new());
    while let Some(page) = walk.next().await {
        for holding in page.into_iter().flat_map(|(.., holdings)| holdings) {
            if holding.outstanding > 0 {
                *held.entry(holding.session).or_default() += holding.outstanding;
            }
        }
    }
    held
}

/// Returns a number of the node of each known session.
async fn nodes(shared: &Shared) -> HashMap<SessionId, u64> {
    let (mut nodes, mut last, mut number) = (HashMap::new(), None, 0);
    loop {
        let page = shared.beside(|registry, _| registry.sessions_after(last.as_ref(), STEP));
        if page.is_empty() {
            return nodes;
        }
        for (who, id) in page {
            // Sessions of one node come one after the other.
            if last.as_ref().is_some_and(|(node, _)| *node != who.0) {
                number += 1;
            }
            nodes.insert(id, number);
            last = Some(who);
        }
        yield_now().await;
    }
}

/// Ranks the nodes of the sessions in `held`. A session that was forgotten meanwhile counts as a node of its own.
fn ranks(held: &Held, nodes: &HashMap<SessionId, u64>) -> Ranks {
    let (mut by_node, mut others): (HashMap<u64, u64>, Vec<u64>) = (HashMap::new(), vec![]);
    for (session, permits) in held {
        match nodes.get(session) {
            Some(node) => *by_node.entry(*node).or_default() += permits,
            None => others.push(*permits),
        }
    }
    others.extend(by_node.into_values());
    others.sort_unstable_by_key(|permits| Reverse(*permits));
    let mut ranks = Ranks::default();
    for (place, permits) in others.into_iter().enumerate() {
        ranks[place.min(PLACES)] += permits;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_a_node_are_one_and_who_comes_after_the_fifth_is_counted_together() {
        let held =
            |all: &[(u64, u64)]| all.iter().map(|(id, permits)| (SessionId(*id), *permits)).collect::<Held>();
        let nodes: HashMap<SessionId, u64> =
            [(1, 0), (2, 0), (3, 1)].map(|(id, node)| (SessionId(id), node)).into();
        assert_eq!(ranks(&held(&[]), &nodes), [0; 6]);
        assert_eq!(ranks(&held(&[(1, 4), (3, 5), (2, 3)]), &nodes), [7, 5, 0, 0, 0, 0]);
        let many = [(1, 1), (2, 1), (3, 9), (4, 8), (5, 7), (6, 6), (7, 5), (8, 4)];
        assert_eq!(ranks(&held(&many), &nodes), [9, 8, 7, 6, 5, 6], "who is not known is a node of its own");
    }
}
