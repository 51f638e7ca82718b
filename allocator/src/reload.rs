//! Applies a configuration file that changed while the server runs. Only limits whose entry changed are touched, so
//! that decisions made over the API since then stay. Where allocators share a store, the version of the file decides
//! which of both holds. A limit is removed only if an operator asked for the reload: a file that is cut off in the
//! middle is a valid one with fewer limits.

use crate::config::{Config, LimitConfig, ServerConfig, StoreConfig};
use crate::shared::Shared;
use lessor_ledger::overrides::Changes;
use lessor_ledger::registry::Unfit;
use lessor_protocol::lock_anyway::LockAnyway;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Longest problem with a file that health checks show, in characters.
const PROBLEM_MAX: usize = 500;

/// Most limits that a line names, so that it stays short if a file changed or lost thousands.
const NAMED_MAX: usize = 10;

/// The handle of a running server for the watcher of its file.
#[derive(Clone, Debug)]
pub struct Reloads {
    shared: Arc<Shared>,
    /// The last good content of the file.
    last: Arc<Mutex<Config>>,
}

/// How limits that the file no longer has are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removals {
    /// They are removed: an operator asked for the file to be read.
    Apply,
    /// They stay as they are, with a warning: the file was seen to have changed.
    Keep,
}

/// Result of reading a file again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Limits that were put, new ones among them.
    pub put: Vec<String>,
    /// Limits that were removed.
    pub removed: Vec<String>,
    /// Limits that stay though the file no longer has them, see [`Removals::Keep`].
    pub kept: Vec<String>,
    /// Other changes, which need a restart: sections of the file, and keys outside of sections.
    pub needs_restart: Vec<&'static str>,
}

impl Reloaded {
    /// Returns a warning about [`Reloaded::kept`], with advice; `None` if there are none.
    pub fn warning(&self) -> Option<String> {
        kept_warning(&self.kept)
    }
}

/// Why a file is refused as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{unfit}{}", kept_advice(.kept))]
pub struct Refused {
    pub(crate) unfit: Unfit,
    /// Limits that the file no longer has, and with which it has to fit, see [`Removals::Keep`].
    kept: Vec<String>,
}

/// Returns the advice that goes with a refusal while the limits `kept` stay that the file no longer has.
fn kept_advice(kept: &[String]) -> String {
    match kept {
        [] => String::new(),
        kept => format!(
            "; limits that are no longer in the file stay until SIGHUP: {}. Send SIGHUP to apply both",
            first_names(kept)
        ),
    }
}

/// Returns the number of `names` and lists them, in a short line.
pub fn counted(names: &[String]) -> String {
    match names {
        [] => "0".to_owned(),
        names => format!("{}: {}", names.len(), first_names(names)),
    }
}

/// Lists `names` in a short line, even if they are thousands.
fn first_names(names: &[String]) -> String {
    let first: Vec<String> = names.iter().take(NAMED_MAX).map(|name| format!("{name:?}")).collect();
    let more = match names.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", first.join(", "))
}

/// Returns a warning about the limits `kept` that the file no longer has; `None` if there are none.
pub(crate) fn kept_warning(kept: &[String]) -> Option<String> {
    let names = first_names(kept);
    (!kept.is_empty()).then(|| {
        format!(
            "the configuration file lacks {names}: the allocator goes on with {} limits that are not in it. To remove \
             them, send SIGHUP or use `lessor limits rm`. To keep them, put them back into the file",
            kept.len()
        )
    })
}

/// Returns a warning about `settings` that need a restart; `None` if there are none.
pub(crate) fn restart_warning(settings: &[&str]) -> Option<String> {
    let settings = settings.join(", ");
    (!settings.is_empty()).then(|| {
        format!("the configuration file has changed settings that need a restart: {settings}. Until then the old ones hold")
    })
}

impl Reloads {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let last = Arc::new(Mutex::new(shared.config().clone()));
        Reloads { shared, last }
    }

    /// Applies the new content of the file. Limits whose entry changed go on as they are, see
    /// [`CarryOver::AsIs`](lessor_ledger::CarryOver::AsIs). `removals` decides about limits without an entry. If the
    /// store begins or ceases to be shared, all limits wait for a restart.
    ///
    /// # Errors
    /// If the file does not fit what was put over the API since, or limits that stay. Then nothing changes.
    pub fn reload(&self, config: &Config, removals: Removals) -> Result<Reloaded, Refused> {
        let mut last = self.last.lock_anyway();
        let is_sharing = matches!(config.server.store, StoreConfig::Shared(_));
        // The shared store takes effect only after a restart, and limits must not be lent twice.
        let waits = is_sharing != self.shared.is_sharing();
        let kept = match removals {
            Removals::Keep if !waits => self.shared.missing_in(config, &last.limits),
            Removals::Keep | Removals::Apply => vec![],
        };
        let names: Vec<String> = kept.iter().map(|limit| limit.name.to_string()).collect();
        let in_file = config;
        let mut config = config.clone();
        config.limits.extend(kept.iter().cloned());
        let changes = match (waits, is_sharing) {
            (true, _) => Ok(Changes::default()),
            (false, true) => self.shared.file_is(in_file, &kept),
            (false, false) => self.changes(&last, &config),
        };
        let changes = changes.map_err(|unfit| Refused { unfit, kept: names.clone() })?;
        let done = Reloaded {
            needs_restart: needs_restart(self.shared.config(), &config),
            put: changes.put.iter().map(|limit| limit.name.to_string()).collect(),
            removed: changes.gone,
            kept: names,
        };
        if let (Some(access), Some(auth)) = (self.shared.access(), &config.auth) {
            access.reload(auth);
        }
        if waits {
            config.limits.clone_from(&last.limits);
        }
        *last = config;
        self.shared.metrics().reloaded(true);
        self.shared.file_was_read(done.kept.clone(), done.needs_restart.clone());
        Ok(done)
    }

    /// Applies the difference between `last` and `config`.
    fn changes(&self, last: &Config, config: &Config) -> Result<Changes, Unfit> {
        let by_name = |config: &Config| -> BTreeMap<String, LimitConfig> {
            config.limits.iter().map(|limit| (limit.name.to_string(), limit.clone())).collect()
        };
        let (before, now) = (by_name(last), by_name(config));
        let gone = self.shared.missing_in(config, &last.limits);
        let gone = gone.iter().map(|limit| limit.name.to_string()).collect();
        let is_other = |limit: &&LimitConfig| before.get(limit.name.as_str()) != Some(*limit);
        let put = now.values().filter(is_other).cloned().collect();
        let changes = Changes { gone, put };
        let new = self.shared.apply(&changes)?;
        self.shared.with(|registry, _| registry.file_says(&config.limits));
        self.shared.tell_of(&changes, &new);
        Ok(changes)
    }

    /// Records that the file cannot be read or is wrong: everything stays as it is.
    pub fn refused(&self, problem: &str) {
        self.shared.metrics().reloaded(false);
        let shown: String = problem.chars().take(PROBLEM_MAX).collect();
        self.shared.file_was_refused(shown);
    }
}

/// Returns the differences of `config` from the configuration that is `in_force`, besides limits, roles and paces. They
/// need a restart.
fn needs_restart(in_force: &Config, config: &Config) -> Vec<&'static str> {
    let ServerConfig {
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
    } = &config.server;
    let was = &in_force.server;
    let changed = [
        ("clock_drift_ppm", in_force.clocks != config.clocks),
        ("server.listen", was.listen != *listen),
        ("server.connections_max", was.connections_max != *connections_max),
        (
            "server.connections_per_address_max",
            was.connections_per_address_max != *connections_per_address_max,
        ),
        ("server.memory_max", was.memory_max != *memory_max),
        ("server.node", was.node != *node),
        ("server.hosts", was.hosts != *hosts),
        ("server.upstreams", was.upstreams != *upstreams),
        ("server.tls", was.tls != *tls),
        ("server.change_factor_max", was.change_factor_max != *change_factor_max),
        ("server.insecure", was.insecure != *insecure),
        ("[store]", was.store.as_of(store) != *store),
        ("[admin]", in_force.admin != config.admin),
        ("[upstream_tls]", in_force.upstream_tls != config.upstream_tls),
        ("[upstream_auth]", in_force.upstream_token != config.upstream_token),
        ("[audit]", in_force.audit != config.audit),
        ("[auth]", proves_otherwise(in_force, config)),
    ];
    changed.into_iter().filter_map(|(name, is_other)| is_other.then_some(name)).collect()
}

/// Whether identities are proven in another way. Changed roles take effect at once; other files of tokens or
/// keys do not.
fn proves_otherwise(in_force: &Config, config: &Config) -> bool {
    match (&in_force.auth, &config.auth) {
        (None, None) => false,
        (Some(was), Some(auth)) => (&was.tokens, &was.jwt) != (&auth.tokens, &auth.jwt),
        (Some(_), None) | (None, Some(_)) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AuditConfig;
    use crate::samples::{self, STORE, limits};
    use lessor_ledger::CarryOver;

    fn config(limits: &[(&str, u64)]) -> Config {
        samples::config(&samples::limits(limits))
    }

    #[test]
    fn only_limits_whose_entry_changed_are_touched() {
        let shared = Arc::new(Shared::new(config(&[("a", 1), ("b", 2), ("c", 3)]), true));
        let reloads = Reloads::new(shared.clone());
        let other = config(&[("a", 100), ("new", 7)]);
        // Over the API `a` is changed, and a limit is put that the file never had.
        for limit in &other.limits {
            shared.with(|registry, now| registry.put(now, limit, CarryOver::AsIs, false)).expect("room");
        }
        let done = reloads.reload(&config(&[("a", 1), ("b", 20)]), Removals::Apply).expect("room");
        assert_eq!(
            (done.put, done.removed, done.needs_restart),
            (vec!["b".to_owned()], vec!["c".to_owned()], vec![])
        );
        let ceilings = shared.with(|registry, now| {
            let limits = registry.limits(now).into_iter();
            limits.map(|(config, figures)| (config.name.to_string(), figures.ceiling)).collect::<Vec<_>>()
        });
        let expected = [("a", 100), ("b", 20), ("new", 7)].map(|(name, ceiling)| (name.to_owned(), ceiling));
        assert_eq!(ceilings, expected);
    }

    /// The bug: a file that was cut off in the middle removed the limits after the cut.
    #[test]
    fn a_limit_that_the_file_no_longer_has_stays_until_an_operator_asks() {
        let shared = Arc::new(Shared::new(config(&[("a", 1), ("b", 2), ("c", 3)]), true));
        let reloads = Reloads::new(shared.clone());
        let ceilings = || {
            shared.with(|registry, now| {
                let limits = registry.limits(now).into_iter();
                limits.map(|(config, figures)| (config.name.to_string(), figures.ceiling)).collect::<Vec<_>>()
            })
        };
        let of = |limits: &[(&str, u64)]| {
            limits.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect::<Vec<_>>()
        };
        let (less, names) = (config(&[("a", 7)]), vec!["b".to_owned(), "c".to_owned()]);
        // Looks twice: the second look still knows of limits that stay.
        for put in [vec!["a".to_owned()], vec![]] {
            let done = reloads.reload(&less, Removals::Keep).expect("room");
            assert_eq!((done.put, done.removed, done.kept), (put, vec![], names.clone()));
            assert_eq!(ceilings(), of(&[("a", 7), ("b", 2), ("c", 3)]));
            let warning = kept_warning(&shared.kept_limits()).expect("there is one");
            assert!(warning.contains("lacks \"b\", \"c\":"), "{warning}");
        }
        // One of them is removed over the API.
        assert!(shared.with(|registry, _| registry.remove("c")));
        shared.limit_was_removed("c");
        assert_eq!(shared.kept_limits(), ["b"]);
        // The file has it again: nothing changes.
        let done = reloads.reload(&config(&[("a", 7), ("b", 2)]), Removals::Keep).expect("room");
        assert_eq!(done, Reloaded::default());
        assert_eq!((shared.kept_limits(), ceilings()), (vec![], of(&[("a", 7), ("b", 2)])));
        reloads.reload(&less, Removals::Keep).expect("room");
        let done = reloads.reload(&less, Removals::Apply).expect("room");
        assert_eq!((done.removed, done.kept), (vec!["b".to_owned()], vec![]));
        assert_eq!((shared.kept_limits(), ceilings()), (vec![], of(&[("a", 7)])));
    }

    #[test]
    fn a_line_about_thousands_of_limits_is_short() {
        let names: Vec<String> = (0..10_000).map(|limit| format!("vendor/{limit}")).collect();
        let warning = kept_warning(&names).expect("there is one");
        assert!(warning.len() < 500 && warning.contains("\"vendor/9\" and 9990 more"), "{warning}");
        let line = counted(&names);
        assert!(line.len() < 500 && line.starts_with("10000: \"vendor/0\", "), "{line}");
        assert_eq!(counted(&[]), "0");
    }

    /// The bug: only the refusal was counted, so the alert on it ended while the file was still wrong.
    #[test]
    fn a_wrong_file_is_in_the_metrics_until_it_is_right() {
        let shared = Arc::new(Shared::new(config(&[("a", 1)]), true));
        let reloads = Reloads::new(shared.clone());
        let fails = |value| shared.metrics().render().contains(&format!("\nlessor_config_failing {value}\n"));
        assert!(fails(0));
        reloads.refused("limit[0]: the name is missing");
        assert!(fails(1));
        reloads.reload(&config(&[("a", 2)]), Removals::Keep).expect("it fits");
        assert!(fails(0));
    }

    /// The bug: after a file named another kind of store for a while, its limits were taken for those in force.
    #[test]
    fn a_file_that_named_a_shared_store_for_a_while_changes_limits_afterwards() {
        let shared = Arc::new(Shared::new(config(&[("a", 1)]), true));
        let reloads = Reloads::new(shared.clone());
        let other = samples::config(&[STORE, &limits(&[("a", 9)])].concat());
        let done = reloads.reload(&other, Removals::Apply).expect("it fits");
        assert_eq!((done.needs_restart, done.put), (vec!["[store]"], vec![]));
        let done = reloads.reload(&config(&[("a", 9)]), Removals::Apply).expect("it fits");
        assert_eq!(done.put, ["a"]);
    }

    /// The bug: a file was checked by itself, and not with the limits put over the API. A limit above another one could
    /// be removed, or two limits put above each other, and the next ask for one of them never ended.
    #[test]
    fn a_file_that_does_not_fit_what_came_over_the_api_is_refused_whole() {
        let below = |name: &str, parent: &str| {
            samples::config(&format!("{}parent = {parent:?}\n", limits(&[(parent, 1), (name, 1)])))
        };
        let shared = Arc::new(Shared::new(config(&[("a", 1), ("b", 2)]), true));
        let reloads = Reloads::new(shared.clone());
        let a_below_b = below("a", "b").limits.remove(1);
        shared.with(|registry, now| registry.put(now, &a_below_b, CarryOver::AsIs, false)).expect("room");
        for (text, named) in [(config(&[("a", 1), ("c", 3)]), "\"b\""), (below("b", "a"), "above itself")] {
            let error = reloads.reload(&text, Removals::Apply).expect_err("it does not fit").to_string();
            assert!(error.contains(named), "{error}");
            let names = shared.with(|registry, now| {
                let limits = registry.limits(now).into_iter();
                limits.map(|(config, _)| (config.name.to_string(), config.parent.clone())).collect::<Vec<_>>()
            });
            assert_eq!(
                names,
                [("a".to_owned(), Some("b".to_owned())), ("b".to_owned(), None)],
                "nothing changed"
            );
        }
    }

    /// The bug: a file that is right by itself was refused because of a limit that is not in it, and no line said how to
    /// apply the file.
    #[test]
    fn a_file_that_does_not_fit_a_limit_that_stays_is_refused_with_advice() {
        let before = samples::config(&(limits(&[("p", 1), ("c", 1)]) + "parent = \"p\"\n"));
        let after = samples::config(&(limits(&[("new", 1), ("p", 1)]) + "shadow = true\n"));
        let reloads = Reloads::new(Arc::new(Shared::new(before, true)));
        let refused =
            reloads.reload(&after, Removals::Keep).expect_err("c has a parent in shadow").to_string();
        println!("{refused}");
        assert!(refused.contains("limit \"c\": parent is \"p\", which is in shadow mode"), "{refused}");
        assert!(refused.ends_with("stay until SIGHUP: \"c\". Send SIGHUP to apply both"), "{refused}");
        let done = reloads.reload(&after, Removals::Apply).expect("c goes");
        assert_eq!((done.put, done.removed), (vec!["new".to_owned(), "p".to_owned()], vec!["c".to_owned()]));
        let alone = Refused { unfit: Unfit::Parent("no".to_owned()), kept: vec![] };
        assert_eq!(alone.to_string(), "no");
    }

    #[test]
    fn what_only_a_restart_brings_into_force_is_said() {
        let shared = Arc::new(Shared::new(config(&[("a", 1)]), true));
        let mut other = config(&[("a", 1)]);
        other.server.connections_max += 1;
        other.audit = Some(AuditConfig { path: "audit.jsonl".into(), bytes_max: 1, files_max: 1 });
        let done = Reloads::new(shared).reload(&other, Removals::Keep).expect("room");
        let needs_restart = vec!["server.connections_max", "[audit]"];
        assert_eq!(done, Reloaded { needs_restart, ..Reloaded::default() });
    }

    /// The bug: a file was compared with the file before it. The warning was gone with the next change of a limit, and
    /// came again once the change was taken back.
    #[test]
    fn what_needs_a_restart_is_said_for_as_long_as_it_differs() {
        let shared = Arc::new(Shared::new(config(&[("a", 1)]), true));
        let reloads = Reloads::new(shared.clone());
        let (mut larger, mut other) = (config(&[("a", 1)]), config(&[("a", 2)]));
        larger.server.connections_max += 1;
        other.server.connections_max += 1;
        let needed = |file: &Config| reloads.reload(file, Removals::Keep).expect("room").needs_restart;
        assert_eq!(needed(&larger), ["server.connections_max"]);
        assert_eq!(needed(&other), ["server.connections_max"], "it still differs");
        reloads.refused("a file that is wrong for a while");
        let warning =
            restart_warning(&shared.needs_restart()).expect("the allocator still waits for the restart");
        assert!(warning.contains("need a restart: server.connections_max."), "{warning}");
        assert!(needed(&config(&[("a", 2)])).is_empty(), "it is taken back");
        assert_eq!(restart_warning(&shared.needs_restart()), None);
    }
}
