//! The address of an allocator on the same machine: `unix:` and the path of its socket. Servers listen at it, and
//! clients and commands connect to it.

use std::path::PathBuf;

/// Prefix of such an address.
pub const SCHEME: &str = "unix:";

/// Longest path, in bytes: the room that Linux has in the address of a socket, without the zero at its end.
pub const PATH_MAX: usize = 107;

/// Returns the path that `address` names, as `unix:/run/a.sock` or `unix:///run/a.sock`; `None` if it has another
/// scheme.
///
/// # Errors
/// What is wrong with the path.
pub fn socket(address: &str) -> Option<Result<PathBuf, &'static str>> {
    let said = address.strip_prefix(SCHEME)?;
    let path = said.strip_prefix("//").unwrap_or(said);
    Some(if !path.starts_with('/') {
        Err("the path of a Unix socket begins with /, for example unix:/run/lessor/lessor.sock")
    } else if path.len() > PATH_MAX {
        Err("the path of a Unix socket has at most 107 bytes")
    } else if path.chars().any(char::is_control) || path.ends_with('/') {
        Err("the path of a Unix socket must name a file and have no control characters")
    } else {
        Ok(PathBuf::from(path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_named_by_an_absolute_path_that_fits() {
        for (address, path) in [
            ("unix:/run/a.sock", "/run/a.sock"),
            ("unix:///run/a.sock", "/run/a.sock"),
            ("unix:/a b", "/a b"),
        ] {
            assert_eq!(socket(address), Some(Ok(PathBuf::from(path))), "{address}");
        }
        let long = |bytes: usize| format!("unix:/{}", "x".repeat(bytes - 1));
        assert!(socket(&long(PATH_MAX)).is_some_and(|path| path.is_ok()));
        for address in
            ["unix:", "unix:a", "unix://host/a", "unix:/", "unix:/a/", "unix:/a\n", &long(PATH_MAX + 1)]
        {
            assert!(socket(address).is_some_and(|path| path.is_err()), "{address:?}");
        }
        for address in ["", "http://127.0.0.1:7400", "/run/a.sock", "unix"] {
            assert_eq!(socket(address), None, "{address}");
        }
    }
}
