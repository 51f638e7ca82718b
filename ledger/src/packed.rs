//! Values in as few bytes as they take, for what is kept long and rarely looked at. One list of its parts serves a value both ways:
//! a [`Carrier`] writes each part as it is, or puts there what was written. What it wrote stays in its process: a store has
//! [`crate::rule::Saved`].
//!
//! A number is written in sevens of bits, the lowest first, and a moment as how far it is from the one before. Of eight bytes only
//! those are kept that are not zero, and a byte that says which: most parts of most values are zero.

use lessor_protocol::Moment;
use lessor_protocol::rare::{Rare, Usual};
use std::collections::VecDeque;
use std::slice::Iter;
use std::time::Duration;

/// The bits of a byte that belong to a number. The highest says that there are more.
const DIGIT: u32 = 7;
const MORE: u8 = 1 << DIGIT;

/// Nanoseconds in a millisecond. Most spans are whole ones.
const MILLI: u128 = 1_000_000;

/// Nanoseconds in a second.
const NANOS: u128 = 1_000_000_000;

/// How a moment is written that is none of the usual ones: its distance from the one before, and this.
const DISTANT: u128 = 2;

/// Carries values to bytes, or back.
#[derive(Debug)]
pub(crate) struct Carrier<'a> {
    way: Way<'a>,
    /// Of the eight bytes that come: which are there, and how many of them have been.
    present: u8,
    passed: u32,
    /// The last moment that was carried, but for the first and the last that there are.
    last: Moment,
}

#[derive(Debug)]
enum Way<'a> {
    /// What was written, and where the byte is that says which of eight are there.
    Write {
        bytes: Vec<u8>,
        presence: usize,
    },
    Read(Iter<'a, u8>),
}

impl<'a> Carrier<'a> {
    /// One that writes what it carries.
    pub(crate) fn to_bytes() -> Self {
        Carrier::new(Way::Write { bytes: vec![], presence: 0 })
    }

    /// One that reads it from `bytes`, which another has written.
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Carrier::new(Way::Read(bytes.iter()))
    }

    fn new(way: Way<'a>) -> Self {
        Carrier { way, present: 0, passed: u8::BITS, last: Moment::ORIGIN }
    }

    /// What was written.
    pub(crate) fn into_bytes(self) -> Box<[u8]> {
        match self.way {
            Way::Write { bytes, .. } => bytes.into_boxed_slice(),
            Way::Read(_) => Box::default(),
        }
    }

    /// Whether it puts values where they were.
    pub(crate) fn reads(&self) -> bool {
        matches!(self.way, Way::Read(_))
    }

    /// Any number.
    pub(crate) fn wide(&mut self, value: &mut u128) {
        if self.reads() {
            let (mut read, mut shift) = (0, 0);
            loop {
                let byte = self.next();
                read |= u128::from(byte & !MORE).checked_shl(shift).unwrap_or(0);
                shift += DIGIT;
                if byte & MORE == 0 {
                    break;
                }
            }
            *value = read;
            return;
        }
        let mut rest = *value;
        loop {
            let digit = (rest & u128::from(!MORE)) as u8;
            rest >>= DIGIT;
            self.push(if rest > 0 { digit | MORE } else { digit });
            if rest == 0 {
                break;
            }
        }
    }

    /// A number.
    pub(crate) fn number(&mut self, value: &mut u64) {
        let mut wide = u128::from(*value);
        self.wide(&mut wide);
        *value = u64::try_from(wide).unwrap_or(u64::MAX);
    }

    /// A number that may be below zero.
    pub(crate) fn signed(&mut self, value: &mut i64) {
        let mut folded = folded(*value);
        self.number(&mut folded);
        *value = unfolded(folded);
    }

    /// Whether something is so.
    pub(crate) fn flag(&mut self, value: &mut bool) {
        let mut number = u64::from(*value);
        self.number(&mut number);
        *value = number > 0;
    }

    /// A span.
    pub(crate) fn span(&mut self, value: &mut Duration) {
        let nanos = value.as_nanos();
        let mut written = match nanos % MILLI {
            0 => nanos / MILLI * 2,
            _ => nanos * 2 + 1,
        };
        self.wide(&mut written);
        let nanos = if written % 2 == 0 { written / 2 * MILLI } else { written / 2 };
        let secs = u64::try_from(nanos / NANOS).unwrap_or(u64::MAX);
        *value = Duration::new(secs, (nanos % NANOS) as u32);
    }

    /// A moment.
    pub(crate) fn moment(&mut self, value: &mut Moment) {
        let far = value.as_nanos().wrapping_sub(self.last.as_nanos()).cast_signed();
        let mut written = match *value {
            at if at == self.last => 0,
            Moment::ORIGIN => 1,
            Moment::NEVER => DISTANT,
            _ => u128::from(folded(far)) + DISTANT,
        };
        self.wide(&mut written);
        *value = match written {
            0 => self.last,
            1 => Moment::ORIGIN,
            DISTANT => Moment::NEVER,
            _ => {
                let far = unfolded(u64::try_from(written - DISTANT).unwrap_or(0));
                Moment::from_nanos(self.last.as_nanos().wrapping_add(far.cast_unsigned()))
            }
        };
        if *value != Moment::ORIGIN && *value != Moment::NEVER {
            self.last = *value;
        }
    }

    /// What is not the usual value, as `carry` does it.
    pub(crate) fn rare<T: Usual>(&mut self, rare: &mut Rare<T>, carry: fn(&mut T, &mut Carrier<'_>)) {
        let blank = || Box::new(T::USUAL.clone());
        self.option(rare.room(), blank, |carrier, value| carry(value, carrier));
    }

    /// What is there or not. Where it comes back, `carry` is called with a `blank` one.
    pub(crate) fn option<T>(
        &mut self,
        value: &mut Option<T>,
        blank: impl FnOnce() -> T,
        carry: impl FnOnce(&mut Self, &mut T),
    ) {
        let mut is_there = value.is_some();
        self.flag(&mut is_there);
        match is_there {
            true => carry(self, value.get_or_insert_with(blank)),
            false => *value = None,
        }
    }

    /// What is mostly `usual`.
    pub(crate) fn unless<T: PartialEq>(
        &mut self,
        usual: T,
        value: &mut T,
        carry: impl FnOnce(&mut Self, &mut T),
    ) {
        let mut is_other = *value != usual;
        self.flag(&mut is_other);
        match is_other {
            true => carry(self, value),
            false => *value = usual,
        }
    }

    /// A list. Where it comes back, `carry` is called with as many `blank` ones.
    pub(crate) fn list<T>(
        &mut self,
        values: &mut VecDeque<T>,
        blank: impl Fn() -> T,
        mut carry: impl FnMut(&mut Self, &mut T),
    ) {
        let mut count = values.len() as u64;
        self.number(&mut count);
        if self.reads() {
            *values = (0..count).map(|_| blank()).collect();
        }
        values.iter_mut().for_each(|value| carry(self, value));
    }

    fn push(&mut self, byte: u8) {
        let Way::Write { bytes, presence } = &mut self.way else { return };
        if self.passed == u8::BITS {
            (*presence, self.passed) = (bytes.len(), 0);
            bytes.push(0);
        }
        if byte > 0 {
            bytes[*presence] |= 1 << self.passed;
            bytes.push(byte);
        }
        self.passed += 1;
    }

    /// Beyond the end there is nothing but zeros.
    fn next(&mut self) -> u8 {
        let Way::Read(bytes) = &mut self.way else { return 0 };
        if self.passed == u8::BITS {
            (self.present, self.passed) = (bytes.next().copied().unwrap_or(0), 0);
        }
        let is_there = self.present & (1 << self.passed) > 0;
        self.passed += 1;
        if is_there { bytes.next().copied().unwrap_or(0) } else { 0 }
    }
}

/// A number that is small where `value` is close to zero.
fn folded(value: i64) -> u64 {
    (value.cast_unsigned() << 1) ^ (value >> (i64::BITS - 1)).cast_unsigned()
}

fn unfolded(folded: u64) -> i64 {
    (folded >> 1).cast_signed() ^ -(folded & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One value of each kind.
    #[derive(Clone, Debug, Default, PartialEq)]
    struct Values {
        wide: u128,
        number: u64,
        signed: i64,
        flag: bool,
        span: Duration,
        moments: VecDeque<Moment>,
        option: Option<u64>,
    }

    impl Values {
        fn carry(&mut self, carrier: &mut Carrier<'_>) {
            carrier.wide(&mut self.wide);
            carrier.number(&mut self.number);
            carrier.list(&mut self.moments, Moment::default, Carrier::moment);
            carrier.signed(&mut self.signed);
            carrier.option(&mut self.option, || 0, Carrier::number);
            carrier.unless(7, &mut self.number, Carrier::number);
            carrier.flag(&mut self.flag);
            carrier.span(&mut self.span);
        }
    }

    fn any_number() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0), Just(7), Just(u64::MAX), 0..1_000_u64, any::<u64>()]
    }

    fn any_values() -> impl Strategy<Value = Values> {
        let moments = prop::collection::vec_deque(any_number().prop_map(Moment::from_nanos), 0..20);
        let spans = (any_number(), 0..1_000_000_000_u32).prop_map(|(secs, nanos)| Duration::new(secs, nanos));
        let spans = prop_oneof![Just(Duration::ZERO), any_number().prop_map(Duration::from_millis), spans];
        let numbers = (any::<u128>(), any_number(), any::<i64>(), any::<bool>());
        (numbers, spans, moments, prop::option::of(any_number())).prop_map(
            |((wide, number, signed, flag), span, moments, option)| Values {
                wide,
                number,
                signed,
                flag,
                span,
                moments,
                option,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_was_written(mut values in prop::collection::vec(any_values(), 0..4)) {
            let (before, mut writer) = (values.clone(), Carrier::to_bytes());
            values.iter_mut().for_each(|values| values.carry(&mut writer));
            prop_assert_eq!(&values, &before, "writing changes nothing");
            let bytes = writer.into_bytes();
            let mut reader = Carrier::of(&bytes);
            for written in &before {
                let mut read = Values { number: 99, option: Some(1), ..Values::default() };
                read.carry(&mut reader);
                prop_assert_eq!(&read, written);
            }
        }
    }

    #[test]
    fn zeros_take_an_eighth_of_a_byte() {
        let mut writer = Carrier::to_bytes();
        (0..80).for_each(|_| writer.number(&mut 0));
        assert_eq!(writer.into_bytes().len(), 10);
    }
}
