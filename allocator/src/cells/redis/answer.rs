//! Answers and errors of a server, its own description, and their meaning.

use super::Shared;
use crate::cells::{CellsError, Timeline};
use lessor_protocol::foreign::excerpt;
use redis::{RedisError, ServerError, ServerErrorKind, Value};
use std::collections::HashMap;

/// The oldest supported version, and the oldest with `WAITAOF`.
const OLDEST: (u32, u32) = (7, 0);
const OLDEST_SYNCED: (u32, u32) = (7, 2);

/// An answer of one of the kinds that our commands have.
pub(super) enum Answer {
    Number(i64),
    Bytes(Vec<u8>),
    List(Vec<Answer>),
    Error(ServerError),
    Strange,
}

impl From<Value> for Answer {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "whatever else there is or will be, none of ours has it"
    )]
    fn from(value: Value) -> Self {
        match value {
            Value::Int(number) => Answer::Number(number),
            Value::BulkString(bytes) => Answer::Bytes(bytes),
            Value::Array(values) => Answer::List(values.into_iter().map(Answer::from).collect()),
            Value::ServerError(error) => Answer::Error(error),
            _ => Answer::Strange,
        }
    }
}

impl Answer {
    /// Whether the server does not know the script. Then nothing else was done.
    pub(super) fn is_forgotten(&self) -> bool {
        matches!(self, Answer::Error(error) if error.kind() == Some(ServerErrorKind::NoScript))
    }

    /// Returns the server that has the key, and whether that is for one request (`ASK`) or for good (`MOVED`).
    pub(super) fn elsewhere(&self) -> Option<(bool, &str)> {
        let Answer::Error(error) = self else { return None };
        let is_asking = error.kind() == Some(ServerErrorKind::Ask);
        if !is_asking && error.kind() != Some(ServerErrorKind::Moved) {
            return None;
        }
        // The slot comes first.
        Some((is_asking, error.details()?.split(' ').nth(1)?))
    }

    /// Returns the error of the server, or the error that the answer does not fit its question.
    pub(super) fn failed(self) -> CellsError {
        match self {
            Answer::Error(error) => failed(&error),
            Answer::Number(_) | Answer::Bytes(_) | Answer::List(_) | Answer::Strange => {
                CellsError::Unreachable("an unexpected answer".to_owned())
            }
        }
    }

    /// Parses the time of a clock, in microseconds since the epoch.
    pub(super) fn micros(self) -> Result<u64, CellsError> {
        let parts = match self {
            Answer::List(parts) => parts.into_iter().map(Answer::bytes).collect::<Result<Vec<_>, _>>()?,
            Answer::Number(_) | Answer::Bytes(_) | Answer::Error(_) | Answer::Strange => {
                return Err(self.failed());
            }
        };
        let number = |part: &Vec<u8>| std::str::from_utf8(part).ok()?.parse::<u64>().ok();
        match parts.iter().map(number).collect::<Option<Vec<u64>>>().as_deref() {
            Some(&[seconds, micros]) => Ok(seconds.saturating_mul(1_000_000).saturating_add(micros)),
            Some(_) | None => Err(Answer::Strange.failed()),
        }
    }

    pub(super) fn bytes(self) -> Result<Vec<u8>, CellsError> {
        match self {
            Answer::Bytes(bytes) => Ok(bytes),
            Answer::Number(_) | Answer::List(_) | Answer::Error(_) | Answer::Strange => Err(self.failed()),
        }
    }
}

/// The answer to `INFO`.
pub(super) struct State(HashMap<String, String>);

impl State {
    pub(super) fn of(answer: Answer) -> Result<Self, CellsError> {
        let bytes = answer.bytes()?;
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        Ok(State(lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
    }

    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Returns the timeline, if this is a master.
    pub(super) fn master(&self) -> Result<Timeline, CellsError> {
        match (self.get("role"), self.get("master_replid")) {
            ("master", id) if !id.is_empty() => Ok(Timeline::new(id)),
            ("master", _) => Err(self.unfit("master_replid", "the server does not show it")),
            _ => Err(self.unfit("role", "only a master can be written to")),
        }
    }

    /// Checks that the server keeps its data, as far as it says.
    pub(super) fn check(&self, shared: &Shared) -> Result<(), CellsError> {
        match (shared.place.is_cluster, self.get("cluster_enabled")) {
            (true, "1") => {}
            (false, "1") => return Err(self.unfit("cluster_enabled", "add cluster=true to the URL")),
            (true, _) => {
                let why = "it is not in a cluster: take cluster=true out of the URL";
                return Err(self.unfit("cluster_enabled", why));
            }
            (false, _) => drop(self.master()?),
        }
        let config = &shared.config;
        let mut version = self.get("redis_version").split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        let version = (version.next().unwrap_or(0), version.next().unwrap_or(0));
        if version < OLDEST {
            return Err(self.unfit("redis_version", "it must be 7.0 or later"));
        }
        if self.get("maxmemory_policy").starts_with("allkeys") {
            return Err(self.unfit("maxmemory_policy", "it evicts keys that are in use, set noeviction"));
        }
        if config.synced && version < OLDEST_SYNCED {
            return Err(self.unfit("redis_version", "only 7.2 and later can say what is synced (WAITAOF)"));
        }
        if config.synced && self.get("aof_enabled") != "1" {
            return Err(self.unfit("aof_enabled", "nothing is synced without appendonly yes"));
        }
        Ok(())
    }

    fn unfit(&self, setting: &str, why: &str) -> CellsError {
        CellsError::Unfit(format!("{setting} is {:?}: {why}", excerpt(self.get(setting))))
    }
}

/// Returns what an error of a server means.
pub(super) fn failed(error: &ServerError) -> CellsError {
    let text = excerpt(error.details().unwrap_or_default());
    match error.kind() {
        Some(ServerErrorKind::ReadOnly) => CellsError::Unfit(format!("role is not master: {text}")),
        Some(ServerErrorKind::NoPerm) => CellsError::Unfit(format!("the user lacks a permission: {text}")),
        _ => CellsError::Unreachable(format!("{} {text}", excerpt(error.code()))),
    }
}

pub(super) fn unreachable(error: &RedisError) -> CellsError {
    CellsError::Unreachable(excerpt(&error.to_string()))
}
