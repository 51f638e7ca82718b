//! The systemd unit takes away all rights that an allocator does not need, and starts it again for as long as it fails.

use std::path::Path;
use std::process::Command;

/// Highest exposure level of the unit, in tenths of a point: 1.5 of 10.
const EXPOSURE_MAX: &str = "15";

fn unit() -> String {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/lessor.service");
    std::fs::read_to_string(&unit).expect("a readable file")
}

/// The bug: after five failed starts within a second systemd gave the allocator up for good.
#[test]
fn the_unit_of_systemd_never_gives_up() {
    let text = unit();
    let (about, service) = text.split_once("[Service]").expect("two sections");
    assert!(about.lines().any(|line| line == "StartLimitIntervalSec=0"), "{about}");
    assert!(service.lines().any(|line| line == "Restart=on-failure"), "{service}");
}

#[test]
fn the_unit_of_systemd_exposes_little() {
    let text = unit();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let security = |text: &str| {
        let file = folder.path().join("lessor.service");
        std::fs::write(&file, text).expect("a writable file");
        let mut command = Command::new("systemd-analyze");
        command.args(["security", "--offline=true", "--no-pager", "--threshold", EXPOSURE_MAX]).arg(&file);
        let said = command.output().expect("the command runs");
        (said.status.success(), String::from_utf8_lossy(&said.stdout).into_owned())
    };
    let (is_good, said) = security(&text);
    let level = said.lines().find(|line| line.contains("Overall exposure level")).unwrap_or(&said);
    println!("{level}");
    assert!(is_good, "{said}");
    // Without two of its restrictions the unit must fail the check.
    let (is_good, _) =
        security(&text.replace("ProtectSystem=strict\n", "").replace("PrivateDevices=yes\n", ""));
    assert!(!is_good, "the bound would notice nothing");
}
