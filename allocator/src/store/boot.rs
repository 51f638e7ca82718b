//! Which boot of which machine this is: moments on its clock mean something for as long as that is the same.

/// The boot; `None` where it cannot be told.
#[cfg(target_os = "linux")]
pub(super) fn id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// The boot; `None` where it cannot be told.
#[cfg(not(target_os = "linux"))]
pub(super) fn id() -> Option<String> {
    None
}
