//! Roles and rights. A role gives rights to the identities that it names. An identity has the rights of all its roles,
//! and none without a role.

use crate::identity::{Identity, IdentityPattern};
use crate::pattern::Patterns;
use std::sync::Arc;

/// Rights, and the identities that have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Role {
    /// The name, for people.
    pub name: String,
    /// The identities that have the role.
    pub identities: Vec<IdentityPattern>,
    /// Limits that they may lease from.
    pub lease: Patterns,
    /// Nodes as which they may lease.
    pub nodes: Patterns,
    /// Whether vendor counts that those nodes report for these limits are believed.
    pub observe: bool,
    /// Limits that they may read.
    pub read: Patterns,
    /// Limits that they may read, pause, resume, and block nodes from.
    pub operate: Patterns,
    /// Most permits that they may add to a pool of those limits at a time; 0 for none.
    pub top_up_max: u64,
    /// Limits that they may read, operate, make, change and remove, without bounds.
    pub admin: Patterns,
    /// Whether they may read all metrics.
    pub metrics: bool,
}

/// The rights of one identity.
#[derive(Clone, Debug, Default)]
pub struct Rights(Vec<Arc<Role>>);

impl Rights {
    /// Returns the rights of `identity` by `roles`.
    pub fn of(identity: &Identity, roles: &[Arc<Role>]) -> Self {
        let has = |role: &&Arc<Role>| role.identities.iter().any(|pattern| pattern.fits(identity));
        Rights(roles.iter().filter(has).cloned().collect())
    }

    /// The roles of the identity.
    pub fn roles(&self) -> &[Arc<Role>] {
        &self.0
    }

    /// Whether it may speak for `node`.
    pub fn may_speak_for(&self, node: &str) -> bool {
        self.0.iter().any(|role| role.nodes.fit(node))
    }

    /// Whether it may lease from `limit` as `node`. One role must allow both.
    pub fn may_lease(&self, node: &str, limit: &str) -> bool {
        self.0.iter().any(|role| role.nodes.fit(node) && role.lease.fit(limit))
    }

    /// Whether vendor counts that `node` reports for `limit` are believed. The role must also allow that lease.
    pub fn may_observe(&self, node: &str, limit: &str) -> bool {
        self.0.iter().any(|role| role.observe && role.nodes.fit(node) && role.lease.fit(limit))
    }

    /// Whether it may listen to events of `limit`: it may lease from it as any node, or read it.
    pub fn may_hear_of(&self, limit: &str) -> bool {
        self.0.iter().any(|role| role.lease.fit(limit)) || self.may_read(limit)
    }

    /// Whether it may listen to events at all: it may lease from or read some limit.
    pub fn may_hear(&self) -> bool {
        self.0.iter().any(|role| !role.lease.is_empty()) || self.may_look()
    }

    /// Whether it may read `limit`.
    pub fn may_read(&self, limit: &str) -> bool {
        self.0.iter().any(|role| role.read.fit(limit)) || self.may_operate(limit)
    }

    /// Whether it may read every limit.
    pub fn may_read_all(&self) -> bool {
        self.0
            .iter()
            .any(|role| [&role.read, &role.operate, &role.admin].iter().any(|limits| limits.fit_all()))
    }

    /// Whether it may read some limit, and so the state of the allocator.
    pub fn may_look(&self) -> bool {
        self.0.iter().any(|role| !(role.read.is_empty() && role.operate.is_empty() && role.admin.is_empty()))
    }

    /// Whether it may pause and resume `limit`, and block nodes from it.
    pub fn may_operate(&self, limit: &str) -> bool {
        self.0.iter().any(|role| role.operate.fit(limit)) || self.may_administer(limit)
    }

    /// Returns the most permits that it may add to a pool of `limit` at a time; `None` for no bound.
    pub fn top_up_max(&self, limit: &str) -> Option<u64> {
        if self.may_administer(limit) {
            return None;
        }
        let operates = self.0.iter().filter(|role| role.operate.fit(limit));
        Some(operates.map(|role| role.top_up_max).max().unwrap_or(0))
    }

    /// Whether it may make, change and remove `limit`.
    pub fn may_administer(&self, limit: &str) -> bool {
        self.0.iter().any(|role| role.admin.fit(limit))
    }

    /// Whether it may read metrics.
    pub fn may_read_metrics(&self) -> bool {
        self.0.iter().any(|role| role.metrics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Kind;

    fn patterns(text: &str) -> Patterns {
        Patterns::try_new(text.split_whitespace()).expect("good")
    }

    fn role(identities: &str) -> Role {
        let identities = identities.split_whitespace();
        let identities = identities.map(|text| IdentityPattern::try_new(text).expect("good")).collect();
        Role { identities, ..Role::default() }
    }

    fn rights(name: &str, roles: &[Role]) -> Rights {
        let roles: Vec<_> = roles.iter().cloned().map(Arc::new).collect();
        Rights::of(&Identity::new(Kind::Token, name), &roles)
    }

    #[test]
    fn all_is_read_by_a_star_alone() {
        let reads = |read: &str, operate: &str| {
            let role = Role { read: patterns(read), operate: patterns(operate), ..role("token:ops") };
            rights("ops", &[role]).may_read_all()
        };
        assert!(reads("a *", "") && reads("", "*"));
        assert!(!reads("a* b", "c*") && !reads("", ""));
    }

    #[test]
    fn an_identity_without_a_role_may_do_nothing() {
        let all = || patterns("*");
        let role = Role {
            lease: all(),
            nodes: all(),
            observe: true,
            read: all(),
            operate: all(),
            top_up_max: 7,
            admin: all(),
            metrics: true,
            ..role("token:ops")
        };
        let none = rights("other", std::slice::from_ref(&role));
        assert!(
            !none.may_speak_for("a")
                && !none.may_lease("a", "b")
                && !none.may_observe("a", "b")
                && !none.may_hear()
                && !none.may_look()
        );
        assert!(!none.may_read("b") && !none.may_operate("b") && !none.may_administer("b"));
        assert!(!none.may_read_metrics() && !none.may_hear_of("b") && !none.may_read_all());
        assert_eq!(none.top_up_max("b"), Some(0));
        let some = rights("ops", &[role]);
        assert!(
            some.may_lease("a", "b")
                && some.may_observe("a", "b")
                && some.may_administer("b")
                && some.may_read_metrics()
        );
        assert_eq!(some.top_up_max("b"), None);
    }

    #[test]
    fn nodes_of_one_role_lease_no_limit_of_another() {
        let first = Role { lease: patterns("vendor/*"), nodes: patterns("a-*"), ..role("token:n") };
        let users = Role { lease: patterns("users/*"), nodes: patterns("b-*"), ..role("token:n") };
        let second = Role { observe: true, ..users };
        let rights = rights("n", &[first, second]);
        assert!(rights.may_lease("a-1", "vendor/rest") && rights.may_lease("b-1", "users/7"));
        assert!(!rights.may_lease("a-1", "users/7") && !rights.may_lease("b-1", "vendor/rest"));
        assert!(rights.may_observe("b-1", "users/7") && !rights.may_observe("a-1", "vendor/rest"));
        assert!(rights.may_speak_for("a-1") && rights.may_speak_for("b-1") && !rights.may_speak_for("c-1"));
        assert!(rights.may_hear_of("users/7") && !rights.may_read("users/7") && !rights.may_look());
    }

    #[test]
    fn an_operator_may_look_and_top_up_within_its_bound_alone() {
        let operates = Role { operate: patterns("vendor/*"), top_up_max: 100, ..role("token:o") };
        let reads = Role { read: patterns("*"), ..role("token:o") };
        let rights = rights("o", &[operates, reads]);
        assert!(rights.may_read("users/7") && !rights.may_operate("users/7"));
        assert!(rights.may_operate("vendor/rest") && !rights.may_administer("vendor/rest"));
        assert_eq!((rights.top_up_max("vendor/rest"), rights.top_up_max("users/7")), (Some(100), Some(0)));
    }
}
