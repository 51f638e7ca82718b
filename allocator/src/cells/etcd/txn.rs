//! The transactions that load and swap cells, and their answers. A cell is a key. Its value is the version, a marker
//! byte, and the bytes of the cell.

use super::gateway::{Bytes, Compare, KeyValue, NestedAnswer, Op, OpAnswer, Relation, Target, Txn};
use crate::cells::{Cell, CellsError, Swap, Swapped, check};

/// Bytes of a version, and the marker byte after them. The marker is the middle of three values, so that all values of
/// one version lie between two that no cell has: etcd compares whole values.
const VERSION: usize = 8;
const MARK: u8 = 1;

/// Most operations on one level of a transaction. etcd allows `max-txn-ops`, 128 by default, on all levels together.
/// With this many on each of two levels, and the two of a swap, there is room left.
const LEVEL_MAX: usize = 32;

/// Most names in one transaction that loads. Levels would not help: etcd treats a transaction with levels as a change.
pub(super) const LOAD_MAX: usize = 127;

/// Most bytes of one transaction. etcd allows `max-request-bytes`, 1.5 MiB by default, in the encoding of its members.
const TXN_BYTES_MAX: usize = 1_500_000;

/// Bytes of a swap in that encoding, besides its value and its key, which occurs four times.
const SWAP_BYTES: usize = 160;

/// Names of the keys.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    /// The prefix and a slash. No cell has an empty name, so this is also the key of the mark of the timeline.
    pub(super) prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Keys { prefix: format!("{prefix}/") }
    }

    fn mark(&self) -> Bytes {
        Bytes(self.prefix.clone().into_bytes())
    }

    fn cell(&self, name: &str) -> Bytes {
        Bytes(format!("{}{name}", self.prefix).into_bytes())
    }

    /// Reads the mark of the timeline, then these cells.
    pub(super) fn load(&self, names: &[String]) -> Txn {
        let keys = [self.mark()].into_iter().chain(names.iter().map(|name| self.cell(name)));
        Txn { success: keys.map(|key| Op::Range { key }).collect(), ..Txn::default() }
    }

    /// Makes the mark of the timeline, if there is none.
    pub(super) fn make_mark(&self, mark: &str) -> Txn {
        Txn { compare: vec![absent(self.mark())], success: vec![self.put_mark(mark)], failure: vec![] }
    }

    /// Replaces the mark `old`.
    pub(super) fn renew_mark(&self, old: &str, mark: &str) -> Txn {
        Txn { compare: vec![self.is_marked(old)], success: vec![self.put_mark(mark)], failure: vec![] }
    }

    /// Does these swaps if the mark is `mark`, and otherwise reads the mark.
    pub(super) fn swap(&self, mark: &str, swaps: &[Swap]) -> Txn {
        let each = swaps.iter().map(|swap| Op::Txn(self.swap_one(swap))).collect();
        Txn {
            compare: vec![self.is_marked(mark)],
            success: in_levels(each),
            failure: vec![Op::Range { key: self.mark() }, self.put_refuse()],
        }
    }

    /// Puts an empty value at a key that no cell has, because no name has a NUL. Against its quota etcd counts what the
    /// first level puts, in either branch. Without this operation all swaps would pass a full quota.
    fn put_refuse(&self) -> Op {
        Op::Put { key: self.cell("\0"), value: Bytes::default() }
    }

    fn swap_one(&self, swap: &Swap) -> Txn {
        let key = || self.cell(&swap.name);
        let compare = match swap.expected {
            None => vec![absent(key())],
            Some(version) => {
                let bound = |mark| Target::Value { value: marked(version, mark, &[]) };
                vec![
                    Compare { key: key(), result: Relation::Greater, target: bound(MARK - 1) },
                    Compare { key: key(), result: Relation::Less, target: bound(MARK + 1) },
                ]
            }
        };
        let success = match &swap.next {
            Some(next) => {
                vec![Op::Put { key: key(), value: marked(next.version, MARK, &next.value) }]
            }
            None if swap.expected.is_some() => vec![Op::DeleteRange { key: key() }],
            None => vec![],
        };
        Txn { compare, success, failure: vec![Op::Range { key: key() }] }
    }

    fn is_marked(&self, mark: &str) -> Compare {
        let value = Bytes(mark.as_bytes().to_vec());
        Compare { key: self.mark(), result: Relation::Equal, target: Target::Value { value } }
    }

    fn put_mark(&self, mark: &str) -> Op {
        Op::Put { key: self.mark(), value: Bytes(mark.as_bytes().to_vec()) }
    }

    /// Splits `swaps` into parts of one transaction each.
    pub(super) fn parts<'a>(&self, swaps: &'a [Swap]) -> Vec<&'a [Swap]> {
        let (mut parts, mut from, mut bytes) = (vec![], 0, 0);
        for (at, swap) in swaps.iter().enumerate() {
            let more = swap.bytes() + 4 * (self.prefix.len() + swap.name.len()) + SWAP_BYTES;
            if at > from && bytes + more > TXN_BYTES_MAX {
                parts.push(&swaps[from..at]);
                (from, bytes) = (at, 0);
            }
            bytes += more;
        }
        if from < swaps.len() {
            parts.push(&swaps[from..]);
        }
        parts
    }
}

fn absent(key: Bytes) -> Compare {
    Compare { key, result: Relation::Equal, target: Target::Create { create_revision: "0" } }
}

fn marked(version: u64, mark: u8, value: &[u8]) -> Bytes {
    let mut bytes = Vec::with_capacity(VERSION + 1 + value.len());
    bytes.extend_from_slice(&version.to_be_bytes());
    bytes.push(mark);
    bytes.extend_from_slice(value);
    Bytes(bytes)
}

/// Groups operations into nested transactions without comparisons, if they are too many for one level.
fn in_levels(mut ops: Vec<Op>) -> Vec<Op> {
    if ops.len() <= LEVEL_MAX {
        return ops;
    }
    let mut groups = Vec::with_capacity(ops.len().div_ceil(LEVEL_MAX));
    while !ops.is_empty() {
        let rest = ops.split_off(ops.len().min(LEVEL_MAX));
        groups.push(Op::Txn(Txn { success: ops, ..Txn::default() }));
        ops = rest;
    }
    groups
}

/// Returns the answers to `count` swaps, taken out of their level.
pub(super) fn of_swaps(answers: Vec<OpAnswer>, count: usize) -> Result<Vec<NestedAnswer>, CellsError> {
    let nested = |answer| match answer {
        OpAnswer::Txn(nested) => Ok(nested),
        OpAnswer::Range(_) | OpAnswer::Put {} | OpAnswer::DeleteRange {} => Err(strange()),
    };
    let mut each = answers.into_iter().map(nested).collect::<Result<Vec<_>, _>>()?;
    if count > LEVEL_MAX {
        let groups = each.into_iter().flat_map(|group| group.responses);
        each = groups.map(nested).collect::<Result<_, _>>()?;
    }
    match each.len() == count {
        true => Ok(each),
        false => Err(strange()),
    }
}

/// Returns the outcome of the swap of the cell `name`.
pub(super) fn swapped(name: &str, answer: NestedAnswer) -> Result<Swapped, CellsError> {
    if answer.succeeded {
        return Ok(Swapped::Done);
    }
    let mut found = answer.responses.into_iter();
    Ok(Swapped::Other(cell(name, range(found.next())?)?))
}

/// Returns the value that an operation read; `None` if there is none.
pub(super) fn range(answer: Option<OpAnswer>) -> Result<Option<KeyValue>, CellsError> {
    match answer {
        Some(OpAnswer::Range(range)) => Ok(range.kvs.into_iter().next()),
        Some(OpAnswer::Put {} | OpAnswer::DeleteRange {} | OpAnswer::Txn(_)) | None => Err(strange()),
    }
}

/// Decodes the cell `name`.
pub(super) fn cell(name: &str, found: Option<KeyValue>) -> Result<Option<Cell>, CellsError> {
    let Some(KeyValue { value: Bytes(mut bytes) }) = found else { return Ok(None) };
    let version = bytes.first_chunk::<VERSION>().copied().map(u64::from_be_bytes);
    let (Some(version), Some(&MARK)) = (version, bytes.get(VERSION)) else {
        return Err(CellsError::Invalid(format!("the value at {name:?} is no cell")));
    };
    bytes.drain(..=VERSION);
    check::value(name, bytes.len())?;
    Ok(Some(Cell { version, value: bytes }))
}

/// An answer that does not fit its question.
pub(super) fn strange() -> CellsError {
    CellsError::Unreachable("an unexpected answer".to_owned())
}
