//! Prints on stdout. A reader may close the pipe early, as `head` does: that is no failure.

use crate::failure::Failure;
use std::io::{self, ErrorKind, Write as _};

/// Prints all of `text`.
///
/// # Errors
/// If it cannot be written for another reason than a closed pipe.
pub(crate) fn print(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    done(stdout.write_all(text.as_ref()).and_then(|()| stdout.flush()))
}

/// Returns the result of a command whose output was `written` to stdout.
///
/// # Errors
/// As [`print`].
pub(crate) fn done(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Run(format!("cannot write to stdout: {error}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}
