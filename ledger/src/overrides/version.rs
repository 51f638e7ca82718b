//! The version of a limit. Operators count the versions of files (`store.version`). The store counts decisions over the API. A
//! newer file wins over earlier decisions, and a decision that is made after it wins over the file.

use crate::cells::check_count;
use serde::{Deserialize, Serialize};

/// The version of a limit. Of two versions, the higher one holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Version {
    /// The version of the newest file that was known at the decision.
    pub file: u64,
    /// Number of the decision over the API in this store; 0 stands for the file itself.
    pub serial: u64,
}

/// The written form. The version of a file is a plain number, as it was before there were decisions over the API.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    File(u64),
    Decided(u64, u64),
}

impl Version {
    /// Returns the version of what a file says.
    pub const fn of_file(file: u64) -> Self {
        Version { file, serial: 0 }
    }

    /// Whether this is the version of what a file says.
    pub fn is_of_file(self) -> bool {
        self.serial == 0
    }

    /// Combines the newer file and the newer decision of both.
    pub fn or_newer(self, other: Version) -> Version {
        Version { file: self.file.max(other.file), serial: self.serial.max(other.serial) }
    }
}

impl TryFrom<Written> for Version {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::File(file) => Ok(Version::of_file(file)),
            Written::Decided(file, serial) => {
                check_count("serial", serial)?;
                Ok(Version { file, serial })
            }
        }
    }
}

impl From<Version> for Written {
    fn from(version: Version) -> Self {
        match version.is_of_file() {
            true => Written::File(version.file),
            false => Written::Decided(version.file, version.serial),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_file_wins_and_what_is_put_after_it_wins_over_that() {
        let decided = |file, serial| Version { file, serial };
        let order = [Version::of_file(1), decided(1, 1), decided(1, 7), Version::of_file(2), decided(2, 8)];
        assert!(order.is_sorted() && order.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(decided(1, 7).or_newer(decided(2, 3)), decided(2, 7));
    }

    #[test]
    fn that_of_a_file_is_written_as_it_always_was() {
        let written = |version: Version| serde_json::to_string(&version).expect("plain data");
        let read = |text: &str| serde_json::from_str::<Version>(text).ok();
        assert_eq!(written(Version::of_file(3)), "3");
        for version in [Version::of_file(0), Version::of_file(3), Version { file: 3, serial: 4 }] {
            assert_eq!(read(&written(version)), Some(version));
        }
        assert_eq!((read("-1"), read("[1]"), read("\"1\"")), (None, None, None));
    }
}
