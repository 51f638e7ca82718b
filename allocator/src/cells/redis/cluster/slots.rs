//! Slots of a cluster: the slot of a key, and the master of a slot as a server tells it.

use crate::cells::CellsError;
use crate::cells::redis::answer::Answer;
use crate::cells::url::Address;
use lessor_protocol::foreign::excerpt;
use std::collections::BTreeMap;

/// Slots of every cluster.
const SLOTS: usize = 16_384;

/// Most masters of a cluster, which is the bound of Redis itself.
const MASTERS_MAX: usize = 1_000;

/// The masters of all slots, as one server tells them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slots {
    /// Masters with slots, each once and in order.
    masters: Vec<Address>,
    /// The index of each slot's master.
    owners: Vec<Option<u16>>,
}

impl Slots {
    /// Parses the answer of `asked` to `CLUSTER SLOTS`.
    ///
    /// # Errors
    /// If it is no such answer.
    pub(super) fn read(answer: Answer, asked: &Address) -> Result<Self, CellsError> {
        let Answer::List(ranges) = answer else { return Err(answer.failed()) };
        let ranges = ranges.into_iter().map(|range| Range::read(range, asked));
        let ranges = ranges.collect::<Option<Vec<_>>>().ok_or_else(|| Answer::Strange.failed())?;
        let mut masters: BTreeMap<Address, u16> =
            ranges.iter().map(|range| (range.master.clone(), 0)).collect();
        if masters.len() > MASTERS_MAX {
            let count = masters.len();
            return Err(CellsError::Unfit(format!(
                "the cluster has {count} masters: at most {MASTERS_MAX} can be used"
            )));
        }
        for (at, place) in (0..).zip(masters.values_mut()) {
            *place = at;
        }
        let mut owners = vec![None; SLOTS];
        for Range { from, to, master } in &ranges {
            owners[*from..=*to].fill(masters.get(master).copied());
        }
        Ok(Slots { masters: masters.into_keys().collect(), owners })
    }

    /// The masters that have slots, each once.
    pub(super) fn masters(&self) -> &[Address] {
        &self.masters
    }

    /// Returns the master of the slot of `key`.
    ///
    /// # Errors
    /// If no server has the slot.
    pub(super) fn owner(&self, key: &str) -> Result<&Address, CellsError> {
        let slot = slot_of(key.as_bytes());
        let owner = self.owners.get(usize::from(slot)).copied().flatten();
        owner
            .and_then(|owner| self.masters.get(usize::from(owner)))
            .ok_or_else(|| CellsError::Unreachable(format!("no server of the cluster has slot {slot}")))
    }
}

/// Consecutive slots of one master.
struct Range {
    from: usize,
    to: usize,
    master: Address,
}

impl Range {
    fn read(answer: Answer, asked: &Address) -> Option<Self> {
        let Answer::List(parts) = answer else { return None };
        let mut parts = parts.into_iter();
        let (from, to) = (slot(parts.next()?)?, slot(parts.next()?)?);
        let Answer::List(master) = parts.next()? else { return None };
        let mut master = master.into_iter();
        let host = match master.next()? {
            Answer::Bytes(host) => String::from_utf8(host).ok()?,
            // The server does not know its own name.
            Answer::Number(_) | Answer::List(_) | Answer::Error(_) | Answer::Strange => String::new(),
        };
        let Answer::Number(port) = master.next()? else { return None };
        let master = place(&host, port.try_into().ok()?, asked);
        (from <= to).then_some(Range { from, to, master })
    }
}

fn slot(answer: Answer) -> Option<usize> {
    let Answer::Number(slot) = answer else { return None };
    usize::try_from(slot).ok().filter(|slot| *slot < SLOTS)
}

/// Returns another server's address as `asked` tells it: without a host it is on the same host.
fn place(host: &str, port: u16, asked: &Address) -> Address {
    let host = if host.is_empty() { &asked.host } else { host };
    Address { host: host.to_owned(), port }
}

/// Parses the server in a `MOVED` or `ASK`.
///
/// # Errors
/// If it is no address.
pub(super) fn named(text: &str, asked: &Address) -> Result<Address, CellsError> {
    let read = || {
        let (host, port) = text.rsplit_once(':')?;
        Some(place(host.trim_start_matches('[').trim_end_matches(']'), port.parse().ok()?, asked))
    };
    read().ok_or_else(|| {
        CellsError::Unreachable(format!("it redirects a key to {:?}, which is no address", excerpt(text)))
    })
}

/// Returns the slot of a key: of the text in its first braces if that is not empty, or else of the whole key.
fn slot_of(key: &[u8]) -> u16 {
    let open = key.iter().position(|byte| *byte == b'{').map(|at| at + 1);
    let tag = open.and_then(|open| {
        let length = key[open..].iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &key[open..open + length])
    });
    crc16(tag.unwrap_or(key)) % SLOTS as u16
}

/// The checksum of clusters: CRC-16 CCITT, starting from zero, as in XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ (u16::from(*byte) << 8), |sum: u16, _| {
            if sum & 0x8000 == 0 { sum << 1 } else { (sum << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Address {
        Address { host: "asked".to_owned(), port: 1 }
    }

    fn text(text: &str) -> Answer {
        Answer::Bytes(text.into())
    }

    fn range(from: i64, to: i64, host: Answer, port: i64) -> Answer {
        let master = Answer::List(vec![host, Answer::Number(port), text("id")]);
        let replica = Answer::List(vec![text("replica"), Answer::Number(9), text("id")]);
        Answer::List(vec![Answer::Number(from), Answer::Number(to), master, replica])
    }

    /// The numbers are those of `CLUSTER KEYSLOT`.
    #[test]
    fn a_key_is_in_the_slot_of_what_its_first_braces_hold() {
        for (key, slot) in [
            ("123456789", 12_739),
            ("foo", 12_182),
            ("lessor:{foo}", 12_182),
            ("lessor:{foo}{bar}", 12_182),
            ("{foo", 13_308),
            ("", 0),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
        assert_eq!(slot_of(b"a:{}{foo}"), crc16(b"a:{}{foo}") % 16_384, "nothing is between the first ones");
    }

    #[test]
    fn each_slot_has_the_master_that_was_named_last() {
        let ranges = vec![range(0, 12_181, text("a"), 7), range(12_182, 12_182, Answer::Strange, 8)];
        let slots = Slots::read(Answer::List(ranges), &asked()).expect("good");
        assert_eq!(slots.masters().iter().map(Address::to_string).collect::<Vec<_>>(), ["a:7", "asked:8"]);
        assert_eq!(slots.owner("foo").expect("it has one").to_string(), "asked:8");
        assert_eq!(slots.owner("").expect("it has one").to_string(), "a:7");
        let none = slots.owner("123456789").expect_err("it has none").to_string();
        assert!(none.contains("slot 12739"), "{none}");
    }

    #[test]
    fn what_no_server_says_is_refused() {
        for ranges in [
            range(0, 16_384, text("a"), 7),
            range(-1, 5, text("a"), 7),
            range(6, 5, text("a"), 7),
            range(0, 5, text("a"), 70_000),
            Answer::List(vec![Answer::Number(0), Answer::Number(5)]),
            Answer::Number(0),
        ] {
            assert!(Slots::read(Answer::List(vec![ranges]), &asked()).is_err());
        }
        let many = (0..1_001).map(|port| range(port, port, text("a"), port)).collect();
        let many = Slots::read(Answer::List(many), &asked()).expect_err("too many").to_string();
        assert!(many.contains("1001"), "{many}");
        for wrong in ["", "a", "a:", "a:x", "a:70000"] {
            assert!(named(wrong, &asked()).is_err(), "{wrong}");
        }
        for (said, at) in [("::1:7", "[::1]:7"), (":7", "asked:7"), ("a:7", "a:7")] {
            assert_eq!(named(said, &asked()).expect("good").to_string(), at);
        }
    }
}
