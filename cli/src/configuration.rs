//! Reads the configuration of an allocator from a file. Whatever is wrong with it is one line and exit code 2.

use crate::failure::Failure;
use lessor_allocator::Config;
use std::path::Path;

/// The configuration in `file`.
///
/// # Errors
/// If the file cannot be read, or does not hold a configuration: names file, key and value.
pub(crate) fn read(file: &Path) -> Result<Config, Failure> {
    let name = file.display();
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::Input(format!("cannot read configuration {name}: {error}")))?;
    Config::parse(&text).map_err(|error| Failure::Input(format!("{name}: {error}")))
}
