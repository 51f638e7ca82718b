//! A time zone by its IANA name, from the database that is compiled in: a name means the same on every machine that
//! runs this build. Calendar windows ask it for offsets; it knows nothing of limits.

use super::RuleError;
use jiff::tz::TimeZone;
use lessor_protocol::lock_anyway::LockAnyway;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{LazyLock, Mutex};

/// A time zone. Zones of the same name are equal.
#[derive(Clone, Copy)]
pub struct Zone(&'static Known);

struct Known {
    name: String,
    zone: TimeZone,
}

/// Zones that were asked for. They stay for the life of the process, so that a rule can be copied like a number. The
/// database bounds them: it has some 600 names.
static KNOWN: LazyLock<Mutex<BTreeMap<String, &'static Known>>> = LazyLock::new(Mutex::default);

impl Zone {
    /// Returns the zone called `name`, in upper or lower case.
    ///
    /// # Errors
    /// If the database does not know it.
    pub fn try_new(name: &str) -> Result<Self, RuleError> {
        let unknown = || {
            let problem = format!("is {name:?}, which is no IANA time zone: use one like \"Europe/Berlin\"");
            RuleError { field: "zone", problem }
        };
        let zone = TimeZone::get(name).ok().filter(|zone| !zone.is_unknown()).ok_or_else(unknown)?;
        let name = zone.iana_name().ok_or_else(unknown)?.to_owned();
        let mut known = KNOWN.lock_anyway();
        let entry = known.entry(name.clone());
        Ok(Zone(entry.or_insert_with(|| Box::leak(Box::new(Known { name, zone })))))
    }

    /// Coordinated Universal Time.
    pub fn utc() -> Self {
        Zone::try_new("UTC").expect("every database has it")
    }

    /// Returns the zone's name.
    pub fn name(self) -> &'static str {
        &self.0.name
    }

    /// Returns the zone's entry in the database.
    pub(super) fn rules(self) -> &'static TimeZone {
        &self.0.zone
    }
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Zone {}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Zone({})", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_known_by_its_name_in_any_case_and_by_no_other() {
        let berlin = Zone::try_new("europe/berlin").expect("a zone");
        assert_eq!(
            (berlin.name(), berlin),
            ("Europe/Berlin", Zone::try_new("Europe/Berlin").expect("a zone"))
        );
        assert_ne!(berlin, Zone::try_new("Europe/Paris").expect("a zone"));
        assert_eq!(Zone::utc().name(), "UTC");
        for none in ["", "Berlin", "Europe/Atlantis", "Etc/Unknown", "+02:00", "Europe/Berlin "] {
            let error = Zone::try_new(none).expect_err(none).to_string();
            assert_eq!(
                error,
                format!("zone is {none:?}, which is no IANA time zone: use one like \"Europe/Berlin\"")
            );
        }
    }
}
