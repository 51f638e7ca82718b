//! Raw → checked. Every error names the limit, the key and the value, and says what would be right.

use super::auth;
use super::place;
use super::raw::{RawAdmin, RawConfig, RawServer, RawStore};
use super::store;
use super::tls;
use super::{
    AdminConfig, CHANGE_FACTOR_MAX, CONNECTIONS_MAX, Config, ConfigError, LISTEN, LimitConfig, Listen,
    ServerConfig, per_address, upstream,
};
use lessor_ledger::limit_text::{self, RawLimit, at_least_one};
use lessor_ledger::named::LIMITS_MAX;
use lessor_ledger::registry::check_parents;
use lessor_ledger::rule_text::Count;
use lessor_protocol::{ClockBounds, NodeName, PERMITS_MAX};
use std::collections::BTreeSet;
use std::time::Duration;

/// Checks a limit, see [`limit_text::limit`].
pub(super) type CheckLimit = fn(&RawLimit, Duration, limit_text::Address) -> Result<LimitConfig, String>;

pub(super) fn config(
    text: &str,
    raw: &RawConfig,
    margin: Duration,
    check_limit: CheckLimit,
) -> Result<Config, ConfigError> {
    if raw.limit.len() > LIMITS_MAX {
        let beyond = format!("limit[{LIMITS_MAX}]");
        let problem =
            format!("{beyond} is one too many: use at most {LIMITS_MAX}, there are {}", raw.limit.len());
        return Err(ConfigError::at(text, place::offset(text, &beyond), problem));
    }
    let mut names = BTreeSet::new();
    let mut limits = vec![];
    let check = |index: usize| Check { text, limit: &raw.limit[index], index, margin, check_limit };
    for (index, limit) in raw.limit.iter().enumerate() {
        if !names.insert(&limit.name) {
            let name = &limit.name;
            return Err(check(index)
                .wrong(format!("name is {name:?}, which is there twice: every limit needs its own name")));
        }
        limits.push(check(index).limit()?);
    }
    let wrong = |problem: String| ConfigError::at(text, place::offset(text, &problem), problem);
    let server = server(&raw.server, &raw.store).map_err(wrong)?;
    for (index, limit) in limits.iter_mut().enumerate() {
        server.store.lends(limit).map_err(|problem| check(index).wrong(problem))?;
    }
    check_parents(&limits).map_err(|(index, problem)| check(index).wrong(problem))?;
    if limits.is_empty() {
        return Err(ConfigError::at(text, 0, "there is no [[limit]]: add at least one"));
    }
    let admin = raw.admin.as_ref().map(|raw| admin(raw, &server)).transpose().map_err(wrong)?;
    let upstream_tls = raw.upstream_tls.as_ref().map(tls::upstream).transpose().map_err(wrong)?;
    let upstream_token = raw.upstream_auth.as_ref().map(auth::upstream_token).transpose().map_err(wrong)?;
    let files = [server.tls.as_ref(), admin.as_ref().and_then(|admin| admin.tls.as_ref())];
    let by_certificates = files.into_iter().flatten().any(|files| files.client_ca.is_some());
    let auth = auth::auth(raw.auth.as_ref(), &raw.role, by_certificates, &server.store).map_err(wrong)?;
    let audit = raw.audit.as_ref().map(auth::audit).transpose().map_err(wrong)?;
    let clocks = clocks(raw.clock_drift_ppm).map_err(wrong)?;
    Ok(Config { clocks, server, admin, upstream_tls, upstream_token, audit, auth, limits })
}

/// Least bound of memory, in bytes.
const MEMORY_LEAST: u64 = 64 << 20;

fn clocks(raw: Option<Count>) -> Result<ClockBounds, String> {
    let Some(Count(ppm)) = raw else {
        return Ok(ClockBounds::default());
    };
    let clocks = u32::try_from(ppm).ok().and_then(ClockBounds::try_new);
    clocks.ok_or_else(|| {
        format!(
            "clock_drift_ppm is {ppm}: a clock that is off by more than a tenth is broken, use at most {}",
            ClockBounds::DRIFT_PPM_MAX
        )
    })
}

fn server(raw: &RawServer, raw_store: &RawStore) -> Result<ServerConfig, String> {
    let address = raw.listen.as_deref().unwrap_or(LISTEN);
    let listen = listen("server.listen", address)?;
    let connections_max = at_least_one("server.connections_max", raw.connections_max, CONNECTIONS_MAX)?;
    let connections_per_address_max = connections_per_address(raw, connections_max)?;
    let memory_max = memory_max(raw)?;
    let node = raw.node.as_deref().map(NodeName::try_new).transpose();
    let node = node.map_err(|error| format!("server.node {error}"))?;
    let hosts = raw.hosts.iter().map(|host| host_name(host)).collect::<Result<_, _>>()?;
    let upstreams = raw.upstreams.iter().map(|address| upstream::address(address));
    let upstreams =
        upstreams.collect::<Result<_, _>>().map_err(|problem| format!("server.upstreams: {problem}"))?;
    let tls = raw.tls.as_ref().map(|raw| tls::server("server", raw)).transpose()?;
    listen.check_tls("server", tls.is_some())?;
    let (insecure, store) = (raw.insecure, store::store(raw_store)?);
    let change_factor_max = raw.change_factor_max.map_or(CHANGE_FACTOR_MAX, |factor| factor.0);
    if !(1..=PERMITS_MAX).contains(&change_factor_max) {
        return Err(format!(
            "server.change_factor_max is {change_factor_max}: use a number from 1, with which every change needs confirmation, to {PERMITS_MAX}"
        ));
    }
    Ok(ServerConfig {
        listen,
        connections_max,
        connections_per_address_max,
        memory_max,
        node,
        hosts,
        upstreams,
        tls,
        change_factor_max,
        insecure,
        store,
    })
}

fn connections_per_address(raw: &RawServer, connections_max: usize) -> Result<usize, String> {
    let key = "server.connections_per_address_max";
    let said = at_least_one(key, raw.connections_per_address_max, per_address(connections_max))?;
    if said > connections_max {
        return Err(format!(
            "{key} is {said}: use at most {connections_max}, as many as may be open at once (connections_max)"
        ));
    }
    Ok(said)
}

fn memory_max(raw: &RawServer) -> Result<Option<u64>, String> {
    match raw.memory_max {
        Some(Count(max)) if max < MEMORY_LEAST => Err(format!(
            "server.memory_max is {max}: use at least {MEMORY_LEAST} bytes (64 MiB), about what an allocator without keys takes"
        )),
        Some(Count(max)) if max > PERMITS_MAX => {
            Err(format!("server.memory_max is {max}: use at most {PERMITS_MAX} bytes"))
        }
        max => Ok(max.map(|max| max.0)),
    }
}

/// Checks the service for operators, which has an address of its own.
fn admin(raw: &RawAdmin, server: &ServerConfig) -> Result<AdminConfig, String> {
    let listen = listen("admin.listen", &raw.listen)?;
    if listen.is_taken_by(&server.listen) {
        return Err(format!("admin.listen is {listen}, as server.listen is: use another address"));
    }
    let tls = raw.tls.as_ref().map(|raw| tls::server("admin", raw)).transpose()?;
    listen.check_tls("admin", tls.is_some())?;
    Ok(AdminConfig { listen, tls, insecure: raw.insecure, metrics: raw.metrics })
}

fn listen(key: &str, said: &str) -> Result<Listen, String> {
    said.parse().map_err(|problem: String| format!("{key} is {said:?}: {problem}"))
}

/// Checks a name as the `Host` of a request has it, without a port.
fn host_name(name: &str) -> Result<String, String> {
    let is_name =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    let wrong =
        || format!("server.hosts has {name:?}: use names without a port, for example \"lessor.example.com\"");
    is_name.then(|| name.to_ascii_lowercase()).ok_or_else(wrong)
}

/// A limit to check, and the text that it is in.
struct Check<'a> {
    text: &'a str,
    limit: &'a RawLimit,
    /// Its index among the limits of the text.
    index: usize,
    /// The margin of sliding windows that name none.
    margin: Duration,
    check_limit: CheckLimit,
}

impl Check<'_> {
    /// Makes an error of `problem`, which begins with the key that is wrong.
    fn wrong(&self, problem: String) -> ConfigError {
        let offset = place::offset(self.text, &format!("limit[{}].{problem}", self.index));
        ConfigError::at(self.text, offset, format!("limit {:?}: {problem}", self.limit.name))
    }

    fn limit(&self) -> Result<LimitConfig, ConfigError> {
        let checked = (self.check_limit)(self.limit, self.margin, upstream::address);
        checked.map_err(|problem| self.wrong(problem))
    }
}
