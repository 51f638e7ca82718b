//! What a server says of itself and of its errors, and what follows from it.

use crate::cells::{CellsConfig, CellsError, Timeline, error::excerpt};
use redis::{RedisError, ServerError, ServerErrorKind, Value};
use std::collections::HashMap;

/// The oldest version that is known to do all that is asked of it, and the first with `WAITAOF`.
const OLDEST: (u32, u32) = (7, 0);
const OLDEST_SYNCED: (u32, u32) = (7, 2);

/// What `INFO` said.
pub(super) struct State(HashMap<String, String>);

impl State {
    pub(super) fn of(answer: &Value) -> Result<Self, CellsError> {
        let text = match answer {
            Value::BulkString(bytes) => String::from_utf8_lossy(bytes),
            Value::VerbatimString { text, .. } => text.into(),
            Value::ServerError(error) => return Err(Fault::of(error).into()),
            other => return Err(strange(other)),
        };
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        Ok(State(lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
    }

    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// The timeline of a master.
    pub(super) fn master(&self) -> Result<Timeline, CellsError> {
        match (self.get("role"), self.get("master_replid")) {
            ("master", id) if !id.is_empty() => Ok(Timeline::new(id)),
            ("master", _) => Err(self.unfit("master_replid", "it is not told")),
            _ => Err(self.unfit("role", "only a master can be written to")),
        }
    }

    /// Whether it keeps what it is given, as far as it says.
    pub(super) fn check(&self, config: &CellsConfig) -> Result<(), CellsError> {
        self.master()?;
        let mut version = self.get("redis_version").split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        let version = (version.next().unwrap_or(0), version.next().unwrap_or(0));
        if version < OLDEST {
            return Err(self.unfit("redis_version", "it must be 7.0 or later"));
        }
        if self.get("maxmemory_policy").starts_with("allkeys") {
            return Err(self.unfit("maxmemory_policy", "it throws keys away that are in use: set noeviction"));
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

/// An error that a server answered with.
pub(super) struct Fault {
    code: String,
    text: String,
    kind: Option<ServerErrorKind>,
}

impl Fault {
    pub(super) fn of(error: &ServerError) -> Self {
        let text = excerpt(error.details().unwrap_or_default());
        Fault { code: excerpt(error.code()), text, kind: error.kind() }
    }
}

impl From<Fault> for CellsError {
    fn from(Fault { code, text, kind }: Fault) -> Self {
        use ServerErrorKind as Kind;
        match kind {
            Some(Kind::ReadOnly) => CellsError::Unfit(format!("role is not master: {text}")),
            Some(Kind::NoPerm) => CellsError::Unfit(format!("the user may not do what is needed: {text}")),
            Some(Kind::Moved | Kind::Ask | Kind::CrossSlot) => CellsError::Unfit(format!(
                "cluster_enabled is 1, and the keys are on several servers: {text}"
            )),
            _ => CellsError::Unreachable(format!("{code} {text}")),
        }
    }
}

/// Whether it is an error that says that the server does not know the script, and that nothing else was done.
pub(super) fn is_forgotten(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
}

/// An answer that no such question has.
pub(super) fn strange(answer: &Value) -> CellsError {
    let kind = match answer {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::BulkString(_) | Value::SimpleString(_) | Value::Okay => "a string",
        _ => "something else",
    };
    CellsError::Unreachable(format!("an answer that cannot be: {kind}"))
}

pub(super) fn unreachable(error: &RedisError) -> CellsError {
    CellsError::Unreachable(excerpt(&error.to_string()))
}
