//! Variables of the environment, as service managers and containers set them.

use super::*;

/// The bug: `check` accepted what `serve` refused, because it did not look at the address.
#[test]
fn a_check_goes_by_the_address_that_serve_is_told() {
    let (_folder, file) = folder(CONFIG);
    let check = |address: Option<&str>, args: &[&str]| {
        let mut command = Command::new(lessor());
        command.arg("check").arg(&file).args(args).env_remove("LESSOR_LISTEN");
        let output = command.envs(address.map(|address| ("LESSOR_LISTEN", address))).output();
        let output = output.expect("the command runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(check(None, &[]).0, Some(0));
    assert_eq!(check(Some("127.0.0.1:7401"), &[]).0, Some(0));
    for (code, said) in [check(Some("0.0.0.0:7400"), &[]), check(None, &["--listen", "0.0.0.0:7400"])] {
        assert!(code == Some(2) && said.contains("0.0.0.0:7400"), "{code:?}: {said}");
    }
}
