//! Events that an allocator sends to nodes as server-sent events: a limit has changed, so a node should ask again. They
//! only make nodes faster: nothing depends on their arrival, and no node spends because of one.

use serde::{Deserialize, Serialize};

/// Path at which nodes listen.
pub const EVENTS_PATH: &str = "/v1/events";

/// Header that a node sends when it listens. A script in a browser cannot send it: names that begin with `sec-` are
/// reserved for the browser. So an allocator can tell a node from a page of a site whose name resolves to the
/// allocator.
pub const LISTENER_MARK: (&str, &str) = ("sec-lessor-listener", "node");

/// An event that concerns a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The kind of event.
    pub kind: Kind,
    /// The limit, or a pattern; absent if the event may concern any limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The key, if the event concerns one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The node, if the event concerns one. A node that is resumed was blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What a limit that changed became, unless only its rules changed. For people: a node does the same in each case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub became: Option<Became>,
}

/// What became of a limit that was added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Became {
    /// The limit is new.
    New,
    /// The limit is gone.
    Gone,
    /// A word that this version does not know.
    #[serde(other)]
    Other,
}

/// A kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The limit has other rules, is new, or is gone.
    Changed,
    /// An operator has topped up the limit.
    ToppedUp,
    /// No node may spend from the limit any more.
    Paused,
    /// The limit or node may lend and spend again.
    Resumed,
    /// A node may not spend any more.
    Blocked,
    /// The listener missed some events: anything may have happened.
    Lagged,
    /// A word that this version does not know: something happened.
    #[serde(other)]
    Other,
}

impl Event {
    /// Creates an event of `kind` about `limit`.
    pub fn of(kind: Kind, limit: &str) -> Self {
        Event { kind, limit: Some(limit.to_owned()), key: None, node: None, became: None }
    }

    /// Creates an event of `kind` that may concern any limit.
    pub fn of_all(kind: Kind) -> Self {
        Event { kind, limit: None, key: None, node: None, became: None }
    }

    /// Whether the event concerns the pool of `limit` and `key`. The name must be equal or fit the pattern. The key
    /// must be equal unless the event concerns all keys.
    pub fn is_about(&self, limit: &str, key: Option<&str>) -> bool {
        let is_of_key = self.key.is_none() || self.key.as_deref() == key;
        is_of_key
            && self.limit.as_deref().is_none_or(|name| match name.strip_suffix('*') {
                Some(stem) => limit.starts_with(stem),
                None => limit == name,
            })
    }

    /// Whether `node` must stop spending leased permits.
    pub fn stops(&self, node: &str) -> bool {
        match self.kind {
            Kind::Paused => true,
            Kind::Blocked => self.node.as_deref() == Some(node),
            Kind::Changed | Kind::ToppedUp | Kind::Resumed | Kind::Lagged | Kind::Other => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_about_a_name_a_key_a_pattern_or_all() {
        assert!(Event::of(Kind::Changed, "a/b").is_about("a/b", None));
        assert!(!Event::of(Kind::Changed, "a/b").is_about("a/bc", None));
        assert!(Event::of(Kind::Changed, "a/*").is_about("a/b", Some("k")));
        assert!(Event::of_all(Kind::Lagged).is_about("any", Some("k")));
        let of_key = Event { key: Some("k".to_owned()), ..Event::of(Kind::Paused, "a") };
        assert!(of_key.is_about("a", Some("k")));
        assert!(!of_key.is_about("a", Some("l")) && !of_key.is_about("a", None));
        let blocked = Event { node: Some("n".to_owned()), ..Event::of(Kind::Blocked, "a") };
        assert!(blocked.stops("n") && !blocked.stops("m"));
    }

    #[test]
    fn what_a_limit_became_is_said_where_it_is_known() {
        let event = Event { became: Some(Became::Gone), ..Event::of(Kind::Changed, "a") };
        let text = serde_json::to_string(&event).expect("plain data");
        assert_eq!(text, r#"{"kind":"changed","limit":"a","became":"gone"}"#);
        let later = text.replace("gone", "renamed");
        let read: Event = serde_json::from_str(&later).expect("an event");
        assert_eq!(read.became, Some(Became::Other));
    }

    #[test]
    fn a_word_of_a_later_version_is_something_that_happened() {
        let event: Event =
            serde_json::from_str(r#"{"kind":"painted","limit":"a","colour":1}"#).expect("an event");
        assert_eq!(event, Event::of(Kind::Other, "a"));
    }
}
