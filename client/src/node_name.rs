//! The name of a node that its caller gave none: the host and the process, as operators know them.

use lessor_protocol::NodeName;
use lessor_protocol::entropy;

/// File in which Linux gives the name of the host, or of the container.
const HOST_FILE: &str = "/proc/sys/kernel/hostname";

/// Most bytes of the host's name. With the process id the name of the node is shorter than a name may be.
const HOST_MAX: usize = 100;

/// Returns the name of this process: the name of its host, and the process id. In containers the process id alone is
/// often 1.
pub(crate) fn default_name() -> String {
    let host = std::fs::read_to_string(HOST_FILE).ok();
    named(host.as_deref(), std::process::id(), entropy::number)
}

/// Names the process `id` of `host`. A host without a name of its own is replaced by a number that `draw` draws.
fn named(host: Option<&str>, id: u32, draw: impl FnOnce() -> u64) -> String {
    // The name of a Linux host that was given none is "(none)".
    let host = host.map(str::trim).filter(|host| !["", "(none)", "localhost"].contains(host));
    let host = host.map(|host| {
        let allowed = |c: char| if NodeName::try_new(c.encode_utf8(&mut [0; 4])).is_ok() { c } else { '-' };
        host.chars().take(HOST_MAX).map(allowed).collect::<String>()
    });
    host.map_or_else(|| format!("node-{:08x}-{id}", draw() >> 32), |host| format!("{host}-{id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_named_after_its_host() {
        let draw = || 0x0123_4567_89ab_cdef;
        for (host, name) in [
            (Some("web-3.example.com\n"), "web-3.example.com-1"),
            (Some("9f86d081884c"), "9f86d081884c-1"),
            (Some("bücher 1\n"), "b-cher-1-1"),
            (Some("(none)\n"), "node-01234567-1"),
            (Some("localhost\n"), "node-01234567-1"),
            (Some("\n"), "node-01234567-1"),
            (None, "node-01234567-1"),
        ] {
            assert_eq!(named(host, 1, draw), name, "{host:?}");
        }
        let longest = named(Some(&"ä".repeat(300)), u32::MAX, draw);
        assert_eq!(NodeName::try_new(&longest).map(|name| name.as_str().len()), Ok(HOST_MAX + 11));
        println!("{}", default_name());
        assert!(NodeName::try_new(&default_name()).is_ok());
    }
}
