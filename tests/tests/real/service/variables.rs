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

/// The bug: such a variable hid the lines of the log, or was an error that did not name it. Compose files write
/// `${X:-}`.
#[test]
fn an_empty_variable_is_not_set() {
    let (_folder, file) = folder(CONFIG);
    let log_file = std::fs::File::create(file.with_extension("log")).expect("a writable file");
    let mut serve = Command::new(lessor());
    serve.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&file);
    for name in ["LESSOR_LOG", "LESSOR_LOG_FORMAT", "LESSOR_LISTEN", "LESSOR_OTLP"] {
        serve.env(name, "");
    }
    let mut running = Running::start(serve.stderr(log_file));
    let url = running.listens();
    for name in
        ["LESSOR_CA", "LESSOR_CERT", "LESSOR_KEY", "LESSOR_TOKEN", "LESSOR_TOKEN_FILE", "LESSOR_SERVER"]
    {
        let mut pause = Command::new(lessor());
        let paused = pause.args(["limits", "pause", "vendor", "--server", &url]).env(name, "").output();
        let paused = paused.expect("the command runs");
        assert_eq!(paused.status.code(), Some(0), "{name}: {}", String::from_utf8_lossy(&paused.stderr));
    }
    let check = |name: &str| Command::new(lessor()).arg("check").arg(&file).env(name, "").output();
    assert_eq!(check("LESSOR_LISTEN").expect("the command runs").status.code(), Some(0));
    let said = |line: &str, name: Option<&str>| {
        let mut command = Command::new(lessor());
        let said = command.args(line.split(' ')).envs(name.map(|name| (name, ""))).output();
        String::from_utf8_lossy(&said.expect("the command runs").stderr).into_owned()
    };
    for (line, name) in [
        ("limits list", "LESSOR_SERVER"),
        ("store migrate", "LESSOR_STORE_URL"),
        ("token list", "LESSOR_TOKENS"),
        ("serve", "LESSOR_CONFIG"),
    ] {
        assert_eq!(said(line, Some(name)), said(line, None), "{name}");
    }
    until("the decisions are in the log", || log(&file).contains(" INFO "));
    assert_eq!(ended(running), Some(0));
}
