//! Puts and removes limits: in this allocator or, where allocators share a store, for all of them. A client may change
//! a limit only if it has seen its current form. Called by [`super::admin`] and [`super::show`].

use super::admin::{Parameters, Rest, carry_over, durable, flag, name, parameters};
use super::audited::audited;
use super::decider::{Decider, Kept, PARAMETERS, kept, whole};
use super::object::object;
use super::problem::Problem;
use super::show::{self, Looked, Page};
use super::{body, confirm, json};
use crate::config::{Keyed, LimitConfig, limit_from_json};
use crate::shared::{Reader, Shared};
use crate::uplink::change;
use axum::extract::{Request, State};
use axum::http::header::{ETAG, IF_MATCH};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use lessor_ledger::CarryOver;
use lessor_ledger::registry::limit::{Limit, Preview};
use lessor_ledger::registry::{Registry, Unfit};
use lessor_ledger::rejection::quoted;
use lessor_protocol::Moment;
use lessor_protocol::lease::millis_up;
use lessor_protocol::push::{Became, Event, Kind};
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// `PUT /v1/limits/{name}`: makes the limit, or changes it. `?carry=` says what becomes of its balances.
/// `?dry_run=true` only says what would happen. `?fresh=true` states that no earlier life of this allocator can have
/// lent from it, and has an effect only if there is no such limit.
pub(super) async fn put(
    State(shared): State<Arc<Shared>>,
    decider: Decider,
    path: Rest,
    query: Parameters,
    request: Request,
) -> Result<Response, Problem> {
    let name = name(path)?;
    decider.visitor.needs_of(&shared, "admin", &name, |rights| rights.may_administer(&name))?;
    let known = ["carry", "dry_run", "fresh", "after", "after_limit", "count"];
    let query = parameters(query, &[&known[..], &PARAMETERS].concat())?;
    let (carry_over, dry_run, fresh) =
        (carry_over(&query)?, flag(&query, "dry_run")?, flag(&query, "fresh")?);
    let condition = condition(request.headers())?;
    // A body that trickles takes no place of a decision, and neither does a look.
    let config = config(&shared, &name, &body::of(&shared, request).await?)?;
    check_shared(&shared, carry_over, fresh)?;
    if dry_run {
        let of_page = |name: &str| ["after", "after_limit", "count"].contains(&name);
        let page = Page::of(&query.into_iter().filter(|(name, _)| of_page(name)).collect())?;
        // Nothing changes, so the exchanges between two such looks go first.
        let _turn = shared.turn_to_show(decider.reader()).await?;
        let seen = Seen::of(&shared, &name, Some(&config));
        let preview = shared.with(|registry, now| {
            check_fresh(registry, now, &name, fresh)?;
            check_keys(&shared, registry, &config)?;
            check(&shared, &decider, registry, &config, condition.as_deref(), &seen)?;
            let asked = larger(&decider, registry, &config, &seen);
            let quarantine = registry.quarantine_if_new(now, &config, fresh);
            let preview =
                |limit: &mut Limit| limit.preview(&config, carry_over, now, page.from(), page.count());
            let body = match registry.limit(&name).map(preview) {
                Some(preview) => shown_preview(&config, preview),
                // A removed limit that still counts goes on as it would have.
                None => {
                    let removed = registry.limit_or_retired(&name).map(preview);
                    shown_new(&config, quarantine.max(removed.map(|preview| preview.lends_nothing())))
                }
            };
            Ok::<_, Problem>((body, asked))
        })?;
        let (mut body, asked) = preview;
        // The reason why the change needs confirmation, if it does.
        body["confirm"] = json!(asked);
        return Ok(json(body.to_string()));
    }
    whole(&shared.clone(), decider.reader(), async move {
        let (before, kept) = match shared.is_sharing() {
            true => put_for_all(&shared, &decider, &config, condition.as_deref()).await?,
            false => put_here(&shared, &decider, &config, condition.as_deref(), carry_over, fresh).await?,
        };
        let is_new = before.is_none();
        let (before, after) = audited(before.map(|before| raw(&before)).into(), raw(&config));
        let more = [("before", before), ("after", after), ("carry", carry_over.name().into())];
        decider.has_done(&shared, "put", &name, more, kept).await?;
        tracing::info!(limit = %name, is_new, carry = carry_over.name(), "a limit was put");
        let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
        let _turn = shared.turn_after_change().await;
        // Another change may have removed the limit meanwhile.
        let shown = Looked::at(&shared, &name).ok();
        let write = move || {
            let body = shown.map_or_else(|| b"null".to_vec(), |shown| shown.body());
            (status, tagged(&config), json(body)).into_response()
        };
        show::written(write).await
    })
    .await
}

/// The configuration that was replaced, if there was one.
type Before = Option<Arc<LimitConfig>>;

fn before(registry: &mut Registry, name: &str) -> Before {
    registry.limit(name).map(|limit| limit.shared_config())
}

/// Returns the configuration that holds for `name`: its own or, without one, the configuration of a pattern that fits it.
fn in_force(registry: &mut Registry, name: &str) -> Before {
    before(registry, name).or_else(|| {
        let pattern = registry.pattern_for(name)?;
        before(registry, &pattern)
    })
}

/// A limit as it was before the registry was locked for a change, and what takes long to find out about it: exchanges wait
/// while the registry is locked.
struct Seen {
    /// The configuration that held for the name of the limit.
    config: Before,
    etag: Option<String>,
    larger: Option<String>,
    /// The factor by which a limit may change without a confirmation.
    factor: u64,
}

impl Seen {
    /// Looks at the limit called `name`, which is to change to `after`, if it is not to go.
    fn of(shared: &Shared, name: &str, after: Option<&LimitConfig>) -> Seen {
        let config = shared.with(|registry, _| in_force(registry, name));
        let etag = config.as_ref().map(|config| etag(config));
        let factor = shared.config().server.change_factor_max;
        let larger =
            config.as_ref().zip(after).and_then(|(config, after)| confirm::reason(config, after, factor));
        Seen { config, etag, larger, factor }
    }

    /// Whether `config` is the configuration that was seen: nearly always no other change came between.
    fn is(&self, config: &Arc<LimitConfig>) -> bool {
        self.config.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, config))
    }
}

async fn put_here(
    shared: &Arc<Shared>,
    decider: &Decider,
    config: &LimitConfig,
    condition: Option<&str>,
    carry_over: CarryOver,
    fresh: bool,
) -> Result<(Before, Kept), Problem> {
    let seen = Seen::of(shared, config.name.as_str(), Some(config));
    let before = shared.with(|registry, now| {
        check_fresh(registry, now, config.name.as_str(), fresh)?;
        check(shared, decider, registry, config, condition, &seen)?;
        larger(decider, registry, config, &seen).map_or(Ok(()), |larger| decider.confirms(&larger))?;
        let before = before(registry, config.name.as_str());
        registry.put(now, config, carry_over, fresh).map_err(|full| Problem::from(Unfit::from(full)))?;
        // Under the same lock: a new life starts with the configuration that is in force last.
        shared.limit_was_put(config);
        Ok::<_, Problem>(before)
    })?;
    let became = before.is_none().then_some(Became::New);
    shared.tell(&Event { became, ..Event::of(Kind::Changed, config.name.as_str()) });
    Ok((before, durable(shared).await))
}

async fn put_for_all(
    shared: &Arc<Shared>,
    decider: &Decider,
    config: &LimitConfig,
    condition: Option<&str>,
) -> Result<(Before, Kept), Problem> {
    let name = config.name.as_str();
    let seen = Seen::of(shared, name, Some(config));
    let mut was = None;
    let written = raw(config);
    let check = || {
        shared.with(|registry, _| {
            was = before(registry, name);
            check_keys(shared, registry, config)?;
            check(shared, decider, registry, config, condition, &seen)?;
            larger(decider, registry, config, &seen).map_or(Ok(()), |larger| decider.confirms(&larger))
        })
    };
    let kept = kept(change(shared, decider.reader(), name, Some(written), check).await)?;
    Ok((was, kept))
}

/// `DELETE /v1/limits/{name}`
pub(super) async fn remove(
    shared: &Arc<Shared>,
    decider: Decider,
    name: &str,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    decider.visitor.needs_of(shared, "admin", name, |rights| rights.may_administer(name))?;
    let condition = condition(headers)?;
    let seen = Seen::of(shared, name, None);
    let mut was = None;
    let mut check = |registry: &mut Registry| {
        was = before(registry, name);
        if was.is_none() {
            return Err(show::not_this_name(registry, name));
        }
        check_condition(registry, name, condition.as_deref(), &seen)?;
        if let Some(below) = registry.below(name) {
            let detail =
                format!("{} is below this limit: remove it first, or give it another parent", quoted(below));
            return Err(Problem::new(StatusCode::CONFLICT, "has_children", detail));
        }
        decider.confirms("a limit that is removed lends nothing any more")
    };
    let kept = if shared.is_sharing() {
        kept(
            change(shared, decider.reader(), name, None, || shared.with(|registry, _| check(registry))).await,
        )?
    } else {
        shared.with(|registry, _| {
            check(registry)?;
            registry.remove(name);
            shared.limit_was_removed(name);
            Ok::<_, Problem>(())
        })?;
        shared.tell(&Event { became: Some(Became::Gone), ..Event::of(Kind::Changed, name) });
        durable(shared).await
    };
    let (before, _) = audited(was.map(|was| raw(&was)).into(), Value::Null);
    decider.has_done(shared, "remove", name, [("before", before)], kept).await?;
    tracing::info!(limit = %name, "a limit was removed; its leases end by themselves");
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `GET /v1/limits/{name}`, with its etag.
pub(super) async fn one(shared: &Shared, reader: Option<Reader>, name: &str) -> Result<Response, Problem> {
    let _turn = shared.turn_to_show(reader).await?;
    let shown = Looked::at(shared, name)?;
    let write = move || (tagged(&shown.config), json(shown.body())).into_response();
    show::written(write).await
}

fn config(shared: &Shared, name: &str, body: &[u8]) -> Result<LimitConfig, Problem> {
    let body = object(body)?;
    let mut limit = limit_from_json(name, &body).map_err(|error| {
        let key = error.key().unwrap_or("body").to_owned();
        Problem::invalid(&key, error.problem())
    })?;
    check_upstream(shared, &limit)?;
    // Where allocators share a store, the limit is leased from the store, like the limits of the file.
    let leased = shared.config().server.store.lends(&mut limit);
    leased.map_err(|problem| {
        let key = problem.split([' ', ':']).next().unwrap_or("body").to_owned();
        Problem::invalid(&key, problem)
    })?;
    Ok(limit)
}

/// Refuses upstream addresses that the file does not name. Otherwise a stranger who reaches the API could choose what
/// this allocator calls.
fn check_upstream(shared: &Shared, config: &LimitConfig) -> Result<(), Problem> {
    match &config.upstream {
        Some(upstream) if !shared.allows(upstream) => {
            let detail = format!(
                "upstream is {}, which the configuration file does not name: add it to upstreams in [server] there",
                quoted(upstream.as_str())
            );
            Err(Problem::invalid("upstream", detail))
        }
        Some(_) | None => Ok(()),
    }
}

/// Refuses options that only a single allocator could honour, for limits that several share.
fn check_shared(shared: &Shared, carry_over: CarryOver, fresh: bool) -> Result<(), Problem> {
    if !shared.is_sharing() {
        return Ok(());
    }
    if carry_over != CarryOver::AsIs {
        let detail = format!(
            "carry is {:?}: limits in a store that several allocators share always use as_is, leave it out",
            carry_over.name()
        );
        return Err(Problem::invalid("carry", detail));
    }
    if fresh {
        let detail = "fresh is true: a store that several allocators share knows what was lent, leave it out";
        return Err(Problem::invalid("fresh", detail));
    }
    Ok(())
}

/// Refuses `fresh` for a limit that is in quarantine: it has an effect only when a limit is made, and the caller expects
/// one here.
fn check_fresh(registry: &mut Registry, now: Moment, name: &str, fresh: bool) -> Result<(), Problem> {
    let waits = |limit: &mut Limit| !limit.quarantine(now).is_zero();
    if fresh && registry.limit_or_retired(name).is_some_and(waits) {
        let detail = "fresh is true: the allocator has this limit, or has it still after its removal, and it is in \
                      quarantine. fresh has an effect only on a name that the allocator does not have, leave it out";
        return Err(Problem::invalid("fresh", detail));
    }
    Ok(())
}

/// Refuses to change whether a limit in a shared store is keyed. This includes a limit that was removed and whose grants
/// still count, because earlier grants are not known by key, and allocators that share a store do not wait together until
/// those grants have ended.
fn check_keys(shared: &Shared, registry: &mut Registry, config: &LimitConfig) -> Result<(), Problem> {
    let is_keyed = |config: &LimitConfig| config.keyed != Keyed::No;
    match registry.limit_or_retired(config.name.as_str()) {
        Some(limit) if shared.is_sharing() && is_keyed(limit.config()) != is_keyed(config) => {
            let detail = format!(
                "keyed is {}, which a limit in a store that several allocators share cannot become: put it under \
                 another name",
                is_keyed(config)
            );
            Err(Problem::invalid("keyed", detail))
        }
        Some(_) | None => Ok(()),
    }
}

/// Checks that the client may put `config`, given its `condition`.
fn check(
    shared: &Arc<Shared>,
    decider: &Decider,
    registry: &mut Registry,
    config: &LimitConfig,
    condition: Option<&str>,
    seen: &Seen,
) -> Result<(), Problem> {
    let name = config.name.as_str();
    check_condition(registry, name, condition, seen)?;
    // Grants are charged to the limit above, too: a new parent needs the right to administer that limit as well.
    if let Some(parent) = &config.parent
        && in_force(registry, name).is_none_or(|before| before.parent.as_ref() != Some(parent))
    {
        let right = format!("put a limit below {}", quoted(parent));
        decider.visitor.needs_of(shared, &right, name, |rights| rights.may_administer(parent))?;
    }
    Ok(registry.check(&[], &[config])?)
}

/// Returns why the change to `config` needs confirmation, if it does. The figures of a pattern are only for a client that
/// may read it.
fn larger(decider: &Decider, registry: &mut Registry, config: &LimitConfig, seen: &Seen) -> Option<String> {
    let before = in_force(registry, config.name.as_str())?;
    let larger = match seen.is(&before) {
        true => seen.larger.clone()?,
        false => confirm::reason(&before, config, seen.factor)?,
    };
    let name = before.name.as_str();
    let is_shown = name == config.name.as_str() || decider.visitor.may(|rights| rights.may_read(name));
    let hidden = "a pattern holds for this name now, and its cap differs much";
    Some(if is_shown { larger } else { hidden.to_owned() })
}

fn raw(config: &LimitConfig) -> Value {
    serde_json::to_value(config.raw()).expect("a configuration is plain data")
}

/// Returns the header `if-match`, if it is there.
fn condition(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get(IF_MATCH) else { return Ok(None) };
    let text =
        value.to_str().map_err(|_| Problem::malformed("if-match is not ASCII: send the etag, or *"))?;
    Ok(Some(text.trim().to_owned()))
}

/// Checks that the client has seen the limit in its current form: `if-match` has its etag, or is `*`.
fn check_condition(
    registry: &mut Registry,
    name: &str,
    condition: Option<&str>,
    seen: &Seen,
) -> Result<(), Problem> {
    match (before(registry, name), condition) {
        (None, None) => Ok(()),
        (None, Some(_)) => {
            let detail = format!("there is no limit {}, so if-match cannot hold", quoted(name));
            Err(Problem::new(StatusCode::PRECONDITION_FAILED, "changed_meanwhile", detail))
        }
        (Some(_), None) => {
            let detail =
                "the limit exists: send if-match with the etag that you saw, or with * to change it anyway";
            Err(Problem::new(StatusCode::PRECONDITION_REQUIRED, "if_match_missing", detail))
        }
        (Some(config), Some(condition)) => {
            let etag = seen.etag.clone().filter(|_| seen.is(&config)).unwrap_or_else(|| etag(&config));
            if condition == "*" || condition == etag {
                return Ok(());
            }
            let detail = format!("the limit has changed since you saw it: its etag is {etag}");
            Err(Problem::new(StatusCode::PRECONDITION_FAILED, "changed_meanwhile", detail))
        }
    }
}

/// Returns the etag of a configuration. It is the same before and after a restart, and when a client puts back an
/// earlier configuration.
fn etag(config: &LimitConfig) -> String {
    let mut hasher = DefaultHasher::new();
    serde_json::to_string(&config.raw()).expect("a configuration is plain data").hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

fn tagged(config: &LimitConfig) -> [(HeaderName, HeaderValue); 1] {
    [(ETAG, HeaderValue::from_str(&etag(config)).expect("hexadecimal digits"))]
}

/// Shows the effect of a limit of a name that there is not. It lends nothing for that long.
fn shown_new(config: &LimitConfig, quarantine: Option<Duration>) -> Value {
    let waits = quarantine.filter(|wait| !wait.is_zero());
    json!({
        "limit": config.name.as_str(),
        "is_new": true,
        "keyed": config.keyed != Keyed::No,
        "begins_anew_ms": waits.map(millis_up),
    })
}

fn shown_preview(config: &LimitConfig, preview: Preview) -> Value {
    let pools = preview.effects.iter().map(|effect| {
        let mut body = json!({
            "available_before": effect.before.available,
            "available_after": effect.after.available,
            "over": effect.after.over,
            "quarantine_ms": millis_up(effect.after.lends_nothing()),
            "outstanding": effect.before.books.outstanding,
            "lessees": effect.before.sessions,
        });
        if let Some(key) = &effect.pool.key {
            body["key"] = json!(key.as_str());
        }
        if let Some(name) = &effect.pool.name {
            body["limit"] = json!(name.as_str());
        }
        body
    });
    json!({
        "limit": config.name.as_str(),
        "is_new": false,
        "begins_anew_ms": preview.reset_quarantine.map(millis_up),
        "pools": pools.collect::<Vec<Value>>(),
    })
}
