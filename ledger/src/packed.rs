//! Packs values into few bytes, for state that is kept long and rarely looked at. One list of its parts serves a value
//! both ways: a [`Carrier`] either writes each part, or sets it to what was written. The bytes stay in their process;
//! stores use [`crate::rule::Saved`].
//!
//! A number is written in groups of seven bits, the lowest first, and a moment as its distance from the one before. Of
//! each eight bytes only those that are not zero are kept, after a byte that says which: most parts of most values are
//! zero.

use lessor_protocol::Moment;
use lessor_protocol::rare::{Rare, Usual};
use std::collections::VecDeque;
use std::slice::Iter;
use std::time::Duration;

/// Bits of a byte that belong to the number. The highest bit says that more bytes follow.
const DIGIT: u32 = 7;
const MORE: u8 = 1 << DIGIT;

/// Nanoseconds in a millisecond. Most spans are whole milliseconds.
const MILLI: u128 = 1_000_000;

/// Nanoseconds in a second.
const NANOS: u128 = 1_000_000_000;

/// Code of [`Moment::NEVER`]. An unusual moment is written as its distance from the one before, plus this.
const DISTANT: u128 = 2;

/// Carries values to bytes, or back.
#[derive(Debug)]
pub(crate) struct Carrier<'a> {
    way: Way<'a>,
    /// Which of the present eight bytes are kept, and how many of the eight have passed.
    present: u8,
    passed: u32,
    /// The last moment that was carried, except for [`Moment::ORIGIN`] and [`Moment::NEVER`].
    last: Moment,
}

#[derive(Debug)]
enum Way<'a> {
    /// The bytes written so far, and the index of the byte that says which of the present eight are kept.
    Write {
        bytes: Vec<u8>,
        presence: usize,
    },
    Read(Iter<'a, u8>),
}

impl<'a> Carrier<'a> {
    /// Makes a carrier that writes.
    pub(crate) fn to_bytes() -> Self {
        Carrier::new(Way::Write { bytes: vec![], presence: 0 })
    }

    /// Makes a carrier that reads `bytes`, which another carrier has written.
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Carrier::new(Way::Read(bytes.iter()))
    }

    fn new(way: Way<'a>) -> Self {
        Carrier { way, present: 0, passed: u8::BITS, last: Moment::ORIGIN }
    }

    /// Returns the bytes written.
    pub(crate) fn into_bytes(self) -> Box<[u8]> {
        match self.way {
            Way::Write { bytes, .. } => bytes.into_boxed_slice(),
            Way::Read(_) => Box::default(),
        }
    }

    /// Whether the carrier reads.
    pub(crate) fn reads(&self) -> bool {
        matches!(self.way, Way::Read(_))
    }

    /// Carries a number of up to 128 bits.
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

    /// Carries a number.
    pub(crate) fn number(&mut self, value: &mut u64) {
        let mut wide = u128::from(*value);
        self.wide(&mut wide);
        *value = u64::try_from(wide).unwrap_or(u64::MAX);
    }

    /// Carries a number that may be negative.
    pub(crate) fn signed(&mut self, value: &mut i64) {
        let mut folded = folded(*value);
        self.number(&mut folded);
        *value = unfolded(folded);
    }

    /// Carries a flag.
    pub(crate) fn flag(&mut self, value: &mut bool) {
        let mut number = u64::from(*value);
        self.number(&mut number);
        *value = number > 0;
    }

    /// Carries a span.
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

    /// Carries a moment.
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

    /// Carries a value that is mostly the usual one. `carry` carries any other.
    pub(crate) fn rare<T: Usual>(&mut self, rare: &mut Rare<T>, carry: fn(&mut T, &mut Carrier<'_>)) {
        let blank = || Box::new(T::USUAL.clone());
        self.option(rare.room(), blank, |carrier, value| carry(value, carrier));
    }

    /// Carries an optional value. On reading, `carry` gets a `blank` value if there was none.
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

    /// Carries a value that is mostly `usual`. `carry` carries any other.
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

    /// Carries a list. On reading, `carry` is called with as many `blank` values.
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

    /// Returns the next byte; zero beyond the end.
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

/// Maps `value` to a number that is small if `value` is close to zero.
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
