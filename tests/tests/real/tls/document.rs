//! The commands of docs/security.md are run as they are written there.

use lessor_allocator::cells::private::HeldPort;
use scenarios::process::{Running, lessor};
use std::path::Path;
use std::process::{Command, Stdio};

const DOCUMENT: &str = include_str!("../../../../docs/security.md");

/// Returns the document's blocks of commands, with `port` in place of 7400.
fn blocks(port: u16) -> Vec<String> {
    let parts = DOCUMENT.split("```sh\n").skip(1);
    let blocks = parts.map(|part| part.split("```").next().unwrap_or_default());
    blocks.map(|block| block.replace("7400", &port.to_string())).collect()
}

/// Returns a shell in `folder` that finds the `lessor` of this build.
fn shell(folder: &Path, script: &str) -> Command {
    let binary = lessor();
    let programs = binary.parent().expect("a folder").display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(folder).env("PATH", format!("{programs}:{path}"));
    command
}

#[test]
fn the_commands_of_the_document_lead_to_certificates_on_both_sides_and_two_roles() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let port = HeldPort::any().expect("a free port");
    let [make, serve, ask, renew] = &blocks(port.address().port())[..] else { panic!("other blocks") };
    let run = |script: &str| {
        let output = shell(folder.path(), script).output().expect("a shell");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{script}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    run(make);
    // `exec` makes this one process, which ends with the test.
    let mut allocator = Running::start(shell(folder.path(), &format!("exec {serve}")).stderr(Stdio::null()));
    assert!(allocator.line().starts_with("listening on https://"));
    assert!(run(ask).contains("ready"));
    for (lacks, code) in [("LESSOR_CERT LESSOR_KEY", 1), ("LESSOR_TOKEN_FILE", 2)] {
        let refused = shell(folder.path(), &format!("{ask}\nunset {lacks}\nlessor status")).output();
        assert_eq!(
            refused.expect("a shell").status.code(),
            Some(code),
            "a command without {lacks} is refused"
        );
    }
    let command = format!("{ask}\nLESSOR_TOKEN_FILE=on-call.token lessor limits pause vendor/rest");
    assert!(run(&command).contains("is paused"));
    run(renew);
    assert!(run(ask).contains("ready"));
}
