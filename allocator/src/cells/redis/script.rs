//! The script that swaps one cell, its arguments, and its answers. A single server and a cluster use it alike.

use super::Shared;
use super::answer::{Answer, State};
use crate::cells::{Cell, CellsError, Swap, Swapped, VALUE_MAX, check};
use redis::{Arg, Cmd, Pipeline};

/// Does one swap. It touches one key, so that a cell may be on any server of a cluster.
///
/// A server draws a new replication id when it starts or becomes a master, and also when it has its first replica,
/// which costs a wait and no promise. A replica shows the id of its master. So "a master with this id" holds for one
/// process and one span of time, whatever is between it and the client.
pub(super) const SCRIPT: &str = "\
local here = redis.call('INFO', 'replication')
if not string.find(here, 'role:master\\r\\n', 1, true)
    or not string.find(here, 'master_replid:' .. ARGV[1] .. '\\r\\n', 1, true) then
  return {here}
end
if redis.call('GETRANGE', KEYS[1], 0, 7) ~= ARGV[2] then
  return redis.call('GETRANGE', KEYS[1], 0, ARGV[4])
end
if ARGV[3] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[3]) end
return 1
";

/// Bytes of a version before the value.
pub(super) const VERSION: usize = 8;

/// The arguments of one swap.
pub(super) struct SwapArgs {
    args: Cmd,
    /// Whether the key migrates to this server from the one that has its slot.
    is_asking: bool,
}

impl SwapArgs {
    /// Makes the arguments of `swap`, on the master with this replication id.
    pub(super) fn new(shared: &Shared, id: &str, swap: &Swap, is_asking: bool) -> Self {
        let expected = swap.expected.map(u64::to_be_bytes);
        let next = swap.next.as_ref().map_or_else(Vec::new, |next| {
            let mut bytes = Vec::with_capacity(VERSION + next.value.len());
            bytes.extend_from_slice(&next.version.to_be_bytes());
            bytes.extend_from_slice(&next.value);
            bytes
        });
        let mut args = Cmd::new();
        args.arg(shared.key(&swap.name)).arg(id);
        args.arg(expected.as_ref().map_or(&[][..], |version| &version[..]));
        args.arg(next).arg(VALUE_MAX + VERSION);
        SwapArgs { args, is_asking }
    }

    /// Adds a call of the script with the hash `sha`. Returns how many answers come before its own.
    pub(super) fn add_to(&self, pipeline: &mut Pipeline, sha: &str) -> usize {
        if self.is_asking {
            pipeline.cmd("ASKING");
        }
        pipeline.cmd("EVALSHA").arg(sha).arg(1);
        for arg in self.args.args_iter() {
            if let Arg::Simple(arg) = arg {
                pipeline.arg(arg);
            }
        }
        usize::from(self.is_asking)
    }
}

/// Adds a read of the cell at `key`, of at most the bytes that a cell may have.
pub(super) fn read(pipeline: &mut Pipeline, key: &str) {
    pipeline.cmd("GETRANGE").arg(key).arg(0).arg(VALUE_MAX + VERSION);
}

/// Returns the outcome of the swap of the cell `name`.
pub(super) fn swapped(name: &str, answer: Answer) -> Result<Swapped, CellsError> {
    match answer {
        Answer::Number(1) => Ok(Swapped::Done),
        Answer::List(mut here) => {
            let found = State::of(here.pop().unwrap_or(Answer::Strange))?.master()?;
            Err(CellsError::Moved { found })
        }
        Answer::Number(_) | Answer::Bytes(_) | Answer::Error(_) | Answer::Strange => {
            Ok(Swapped::Other(cell(name, answer)?))
        }
    }
}

/// Decodes a cell. The server answers with an empty string for an absent key.
pub(super) fn cell(name: &str, answer: Answer) -> Result<Option<Cell>, CellsError> {
    let mut bytes = answer.bytes()?;
    let Some(version) = bytes.first_chunk::<VERSION>() else {
        let foreign = || CellsError::Invalid(format!("the value at {name:?} is no cell"));
        return if bytes.is_empty() { Ok(None) } else { Err(foreign()) };
    };
    let version = u64::from_be_bytes(*version);
    check::value(name, bytes.len() - VERSION)?;
    bytes.drain(..VERSION);
    Ok(Some(Cell { version, value: bytes }))
}
