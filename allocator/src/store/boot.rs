//! Identifies the boot of this machine: moments on its clock keep their meaning within one boot.

/// Returns the id of the boot; `None` if the system does not tell.
#[cfg(target_os = "linux")]
pub(super) fn id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Returns the id of the boot; `None` if the system does not tell.
#[cfg(not(target_os = "linux"))]
pub(super) fn id() -> Option<String> {
    None
}
