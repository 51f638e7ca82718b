//! What an allocator tells nodes by itself, as server-sent events: that something happened to a limit, so that it is
//! worth asking again. It makes things sooner; nothing depends on its being heard, and no node spends by it.

use serde::{Deserialize, Serialize};

/// Where nodes listen.
pub const EVENTS_PATH: &str = "/v1/events";

/// What a node says where it listens. A script in a browser cannot: names that begin with `sec-` are the browser's own. So an allocator
/// that a node finds by any name tells a node from a site that has its name lead there.
pub const LISTENER_MARK: (&str, &str) = ("sec-lessor-listener", "node");

/// Something that happened to a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// What.
    pub kind: Kind,
    /// The limit, or the pattern; none if it may be any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The key, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The node that it is about, if it is about one. A node that is resumed was blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What a limit that changed became, where it is more than other rules. For people: what a node does is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub became: Option<Became>,
}

/// What a limit can become besides another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Became {
    /// It is new.
    New,
    /// It is gone.
    Gone,
    /// A word that is not known here.
    #[serde(other)]
    Other,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It goes on by other rules, is new, or is gone.
    Changed,
    /// It was topped up.
    ToppedUp,
    /// No node may spend any more.
    Paused,
    /// It lends again.
    Resumed,
    /// A node may not spend any more.
    Blocked,
    /// Some were not told: anything may have happened.
    Lagged,
    /// A word that is not known here: something happened.
    #[serde(other)]
    Other,
}

impl Event {
    /// `kind` happened to `limit`.
    pub fn of(kind: Kind, limit: &str) -> Self {
        Event { kind, limit: Some(limit.to_owned()), key: None, node: None, became: None }
    }

    /// `kind` happened, to any limit perhaps.
    pub fn of_all(kind: Kind) -> Self {
        Event { kind, limit: None, key: None, node: None, became: None }
    }

    /// Whether it is about the pool of `limit` and `key`: the same name, or one that fits the pattern, and the same key
    /// unless it is about all.
    pub fn is_about(&self, limit: &str, key: Option<&str>) -> bool {
        let is_of_key = self.key.is_none() || self.key.as_deref() == key;
        is_of_key
            && self.limit.as_deref().is_none_or(|name| match name.strip_suffix('*') {
                Some(stem) => limit.starts_with(stem),
                None => limit == name,
            })
    }

    /// Whether what is leased is not to be spent, by `node`.
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
