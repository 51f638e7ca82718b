//! Formats a duration for people: two units at most, as `6d 0h` or `9m 58s`.

use std::time::Duration;

/// Formats `lasts` in its largest unit and the next one. Smaller units are left out.
pub(crate) fn span(lasts: Duration) -> String {
    const UNITS: [(u128, &str); 5] =
        [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    let millis = lasts.as_millis();
    let Some(at) = UNITS.iter().position(|(size, _)| millis >= *size) else { return "0s".to_owned() };
    let (size, unit) = UNITS[at];
    let first = format!("{}{unit}", millis / size);
    match UNITS.get(at + 1) {
        // Days are so long that hours are shown even if there are none.
        Some((next, unit)) if millis % size >= *next || at == 0 => {
            format!("{first} {}{unit}", millis % size / next)
        }
        Some(_) | None => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_its_two_largest_units() {
        let said = |millis| span(Duration::from_millis(millis));
        assert_eq!([0, 7, 1_000, 1_500].map(said), ["0s", "7ms", "1s", "1s 500ms"]);
        assert_eq!([60_000, 598_999, 3_600_000].map(said), ["1m", "9m 58s", "1h"]);
        assert_eq!([86_400_000, 519_596_457].map(said), ["1d 0h", "6d 0h"]);
    }
}
