//! The allocator as an operator's service: many connections at once, files that are not what they should be, and an end
//! in time whatever hangs.

mod descriptors;
mod ends;
mod secrets;
mod unit;
mod variables;

use lessor_protocol::CLOCK;
use rustix::process::Signal;
use scenarios::process::{Allocator, Running, folder_with, lessor};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const CONFIG: &str = r#"
[[limit]]
name = "vendor"
rules = [{ kind = "sliding_window", limit = 100, per = "1s" }]
"#;

/// Makes a folder with a configuration in it.
fn folder(config: &str) -> (TempDir, PathBuf) {
    let folder = folder_with(config);
    let file = folder.path().join("lessor.toml");
    (folder, file)
}

fn serve(file: &Path, level: &str) -> Command {
    let mut command = Command::new(lessor());
    command.args(["serve", "--listen", "127.0.0.1:0", "--log-level", level, "--config"]).arg(file);
    command
}

/// Starts an allocator that logs into a file, and returns it with its URL once it listens.
fn started(file: &Path, level: &str) -> (Running, String) {
    let log = std::fs::File::create(file.with_extension("log")).expect("a writable file");
    let mut running = Running::start(serve(file, level).stderr(log));
    let url = running.listens();
    (running, url)
}

fn log(file: &Path) -> String {
    std::fs::read_to_string(file.with_extension("log")).expect("a readable file")
}

fn pause(millis: u64) {
    std::thread::park_timeout(Duration::from_millis(millis));
}

/// Waits up to ten seconds until `found`.
fn until(what: &str, mut found: impl FnMut() -> bool) {
    let began = CLOCK.now();
    while !found() {
        assert!(CLOCK.now().since(began) < Duration::from_secs(10), "{what}");
        pause(20);
    }
}

/// How long an allocator takes to end at most. One that hangs ends itself before, with code 1.
const IN_TIME: Duration = Duration::from_secs(5);

/// Sends SIGTERM and returns the exit code, which comes in time.
fn ended(running: Running) -> Option<i32> {
    let asked = CLOCK.now();
    running.signal(Signal::TERM);
    let killer = running.id();
    // A process that hangs for ever must not hang the test.
    let guard = std::thread::spawn(move || {
        pause(20_000);
        let pid = rustix::process::Pid::from_raw(i32::try_from(killer).expect("a process id"));
        let _ = rustix::process::kill_process(pid.expect("not zero"), Signal::KILL);
    });
    let status = running.wait();
    drop(guard);
    let (code, took) = (status.code(), CLOCK.now().since(asked));
    println!("it ended with {code:?} after {took:?}");
    assert!(took < IN_TIME, "{code:?} after {took:?}");
    code
}

/// The bug: at most 128 connections could wait to be accepted, and the others tried again after a second. The process
/// is stopped here, so the system alone lets them in.
#[test]
fn a_thousand_connections_at_once_are_let_in_at_once() {
    let allocator = Allocator::start(CONFIG, "127.0.0.1:0", true);
    let address: SocketAddr = allocator.address().parse().expect("an address");
    allocator.running.signal(Signal::STOP);
    let began = CLOCK.now();
    let connect = move || TcpStream::connect_timeout(&address, Duration::from_millis(900));
    let threads: Vec<_> = (0..8)
        .map(|_| std::thread::spawn(move || (0..125).map(|_| connect().ok()).collect::<Vec<_>>()))
        .collect();
    let all = threads.into_iter().flat_map(|thread| thread.join().expect("no panic"));
    let let_in: Vec<TcpStream> = all.flatten().collect();
    println!("{} of 1,000 let in within {:?}", let_in.len(), CLOCK.now().since(began));
    allocator.running.signal(Signal::CONT);
    assert_eq!(let_in.len(), 1_000);
}

/// The bug: opening the file waited until another process wrote to the pipe, and the end of the allocator waited for
/// that.
#[test]
fn a_pipe_in_place_of_the_configuration_is_refused_and_holds_up_nothing() {
    let (_folder, file) = folder(CONFIG);
    let (running, url) = started(&file, "error");
    std::fs::remove_file(&file).expect("the file can be removed");
    assert!(Command::new("mkfifo").arg(&file).status().expect("the command runs").success());
    until("the log says what is wrong", || log(&file).contains("no regular file"));
    let address = url.trim_start_matches("http://");
    assert!(TcpStream::connect(address).is_ok(), "the allocator goes on");
    assert_eq!(ended(running), Some(0));
}

/// A bad file in place of the configuration is refused at the start and while the allocator serves. The earlier
/// configuration then stays in force, and the next good one is taken over.
#[test]
fn what_is_no_configuration_is_refused_and_the_next_one_is_taken_over() {
    let large = format!("{CONFIG}#{}", "x".repeat(4 << 20));
    let device = std::path::PathBuf::from("/dev/zero");
    type Place<'a> = &'a (dyn Fn(&Path) + Sync);
    let places: [(&str, Place<'_>); 4] = [
        ("it is no regular file", &|file| {
            assert!(Command::new("mkfifo").arg(file).status().expect("the command runs").success());
        }),
        ("it is no regular file", &|file| std::fs::create_dir(file).expect("a folder")),
        ("it is no regular file", &|file| symlink(&device, file).expect("a link")),
        ("it is larger than 4 MiB", &|file| std::fs::write(file, &large).expect("a writable file")),
    ];
    let refuses = |said: &str, place: Place<'_>| {
        let (folder, file) = folder(CONFIG);
        let (running, _url) = started(&file, "info");
        // The log is beside the configuration, so the folder is kept.
        let (good, aside) = (folder.path().join("good"), folder.path().join("bad"));
        place(&aside);
        std::fs::rename(&file, &good).expect("the file can be renamed");
        std::fs::rename(&aside, &file).expect("the file can be renamed");
        until("the configuration is refused", || log(&file).contains("the configuration is refused"));
        assert!(log(&file).lines().last().is_some_and(|line| line.contains(said)), "{}", log(&file));
        let at_start = serve(&file, "error").output().expect("the command runs");
        let words = String::from_utf8_lossy(&at_start.stderr).into_owned();
        assert!(at_start.status.code() == Some(2) && words.contains(said), "{:?}: {words}", at_start.status);
        std::fs::rename(&file, &aside).expect("the file can be renamed");
        std::fs::write(&good, CONFIG.replace("limit = 100", "limit = 200")).expect("a writable file");
        std::fs::rename(&good, &file).expect("the file can be renamed");
        until("the configuration is taken over", || log(&file).contains("the configuration was read again"));
        assert_eq!(ended(running), Some(0));
    };
    std::thread::scope(|scope| {
        for (said, place) in places {
            scope.spawn(move || refuses(said, place));
        }
    });
}

/// The bug: a log whose reader had stopped blocked all threads that wrote to it, and the end of the process with them.
#[test]
fn a_log_that_is_not_read_does_not_hold_up_the_end() {
    let (_folder, file) = folder(&format!("[store]\nkind = \"memory\"\n{CONFIG}"));
    let mut running = Running::start(serve(&file, "info").stderr(Stdio::piped()));
    let address = running.line().trim_start_matches("listening on http://").to_owned();
    // Each pause logs a line, until the pipe is full.
    let answers = || {
        let mut peer = TcpStream::connect(&address)?;
        peer.set_read_timeout(Some(Duration::from_secs(1)))?;
        peer.write_all(
            b"POST /v1/limits/vendor/pause HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
            content-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
        )?;
        let mut answer = String::new();
        peer.read_to_string(&mut answer)
    };
    let mut answered = 0;
    while answered < 20_000 && answers().is_ok() {
        answered += 1;
    }
    println!("it stands still after {answered} answers");
    assert!(answered < 20_000, "the allocator was never held up: the test proves nothing");
    // It may have to end itself.
    let code = ended(running);
    assert!(matches!(code, Some(0 | 1)), "{code:?}");
}

/// The bug: `check` accepted such a configuration, and `serve` ended with code 2.
#[test]
fn a_configuration_whose_files_cannot_be_read_is_refused_by_check_and_serve() {
    let (folder, file) = folder("");
    let missing = folder.path().join("missing");
    for (section, says) in [
        (format!("[server]\ntls = {{ certificate = {missing:?}, key = {missing:?} }}\n"), "server.tls: "),
        (
            format!(
                "[auth]\ntokens = {missing:?}\n[[role]]\nname = \"all\"\nidentities = [\"token:a\"]\nadmin = [\"*\"]\n"
            ),
            "auth: ",
        ),
        (format!("[upstream_auth]\ntoken_file = {missing:?}\n"), "upstream_auth.token_file: "),
        (format!("[audit]\npath = {:?}\n", missing.join("audit.jsonl")), "audit.path: "),
        (format!("[audit]\npath = {:?}\n", folder.path()), "audit.path: "),
        (format!("[store]\npath = {file:?}\n"), "store.path: "),
    ] {
        std::fs::write(&file, format!("{section}{CONFIG}")).expect("a writable file");
        let mut check = Command::new(lessor());
        check.arg("check").arg(&file);
        // A configuration that is not refused would be served without end.
        for mut command in [check, serve(&file, "error")] {
            let said = command.output().expect("the command runs");
            let words = String::from_utf8_lossy(&said.stderr).into_owned();
            assert_eq!(said.status.code(), Some(2), "{section}: {words}");
            assert!(words.contains(says), "{words}");
        }
    }
    let names = std::fs::read_dir(folder.path())
        .expect("the folder can be read")
        .map(|entry| entry.expect("one").file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["lessor.toml"], "nothing was made");
}

#[test]
fn a_configuration_that_is_no_regular_file_or_too_large_is_refused() {
    let (folder, file) = folder(CONFIG);
    let check = |file: &Path| {
        let said = Command::new(lessor()).arg("check").arg(file).output().expect("the command runs");
        (said.status.code(), String::from_utf8_lossy(&said.stderr).into_owned())
    };
    assert_eq!(check(&file).0, Some(0));
    let mut printed = Command::new(lessor());
    let printed =
        printed.arg("check").arg(&file).env_remove("STATE_DIRECTORY").output().expect("the command runs");
    let path = format!("path = {:?}", folder.path().join("lessor.redb"));
    assert!(String::from_utf8_lossy(&printed.stdout).contains(&path), "{printed:?}");
    let link = folder.path().join("link.toml");
    symlink(&file, &link).expect("a link");
    assert_eq!(check(&link).0, Some(0), "as a mounted configuration is");
    let pipe = folder.path().join("pipe.toml");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("the command runs").success());
    for (file, words) in [(pipe.as_path(), "no regular file"), (Path::new("/dev/zero"), "no regular file")] {
        let (code, said) = check(file);
        assert!(code == Some(2) && said.contains(words), "{code:?}: {said}");
    }
    let padded = |size: usize| format!("{CONFIG}#{}\n", "x".repeat(size - CONFIG.len() - 2));
    for (size, code) in [(4 << 20, Some(0)), ((4 << 20) + 1, Some(2))] {
        std::fs::write(&file, padded(size)).expect("a writable file");
        let (ended, said) = check(&file);
        assert!(
            ended == code && (code == Some(0) || said.contains("larger than 4 MiB")),
            "{size}: {ended:?}: {said}"
        );
    }
}

/// The bug: a file that was read while half of it was written was taken over as it was, here without its second limit.
#[test]
fn a_file_that_is_being_written_is_not_taken_over() {
    let more = CONFIG.replace("\"vendor\"", "\"other\"");
    let (_folder, file) = folder(&format!("{CONFIG}{more}"));
    let (running, _url) = started(&file, "info");
    // The allocator looks once a second. The file is written in two parts, again and again, with a pause in between that is too
    // short for two looks. A round takes two thirds of a second more than a look, so some of the pauses have a look in them. No
    // two of them look the same.
    for round in 0..4 {
        std::fs::write(&file, format!("{CONFIG}# {round}\n")).expect("a writable file");
        pause(600);
        std::fs::write(&file, format!("{CONFIG}{more}")).expect("a writable file");
        pause(1_050);
    }
    let removed = log(&file).matches("the configuration was read again").count();
    println!("taken over {removed} times");
    assert_eq!(removed, 0, "{}", log(&file));
    std::fs::write(&file, CONFIG).expect("a writable file");
    running.signal(Signal::HUP);
    until("the configuration is taken over", || log(&file).contains("removed=1: \"other\""));
    assert_eq!(ended(running), Some(0));
}

/// The bug: a file that was cut off, and looked the same twice, took seven limits of nine away. Now no limit goes
/// unless an operator asks. The log and the status name the limits that the file lacks.
#[test]
fn a_file_that_lost_limits_takes_none_away_until_sighup() {
    let limit = |name: u64| CONFIG.replace("\"vendor\"", &format!("\"vendor-{name}\""));
    let nine: String = (1..=9).map(limit).collect();
    let (_folder, file) = folder(&nine);
    let (running, url) = started(&file, "info");
    let status = |args: &[&str]| {
        let said = Command::new(lessor())
            .args(["status", "--server", &url])
            .args(args)
            .output()
            .expect("the command runs");
        String::from_utf8_lossy(&said.stdout).into_owned()
    };
    let names = || {
        let status: serde_json::Value = serde_json::from_str(&status(&["--json"])).expect("JSON");
        (status["limits"].as_array().expect("a list").len(), status["status"]["warnings"].clone())
    };
    assert_eq!(names(), (9, serde_json::json!([])));
    // The file is cut off between two limits, as a copy onto a full disk leaves it.
    let cut = limit(1) + &limit(2);
    assert!(nine.starts_with(&cut));
    std::fs::write(&file, &cut).expect("a writable file");
    until("the configuration is taken over", || log(&file).contains("the configuration was read again"));
    let lacks = "the configuration file lacks \"vendor-3\", \"vendor-4\",";
    until("the log says so", || log(&file).contains(lacks));
    let (limits, warnings) = names();
    let warning = warnings[0].as_str().expect("a warning");
    println!("{limits} limits, {warning}");
    assert!(limits == 9 && warning.contains(lacks) && warning.contains("SIGHUP"), "{limits}: {warnings}");
    assert!(status(&[]).contains(lacks), "{}", status(&[]));
    // Limits still in the file follow it, and one of the others is removed by the API.
    std::fs::write(&file, cut.replacen("limit = 100", "limit = 7", 1)).expect("a writable file");
    until("the configuration is taken over", || status(&["--json"]).contains("\"limit\":7"));
    let removed =
        Command::new(lessor()).args(["limits", "rm", "vendor-3", "--yes", "--server", &url]).output();
    assert!(removed.expect("the command runs").status.success());
    let (limits, warnings) = names();
    assert_eq!(limits, 8);
    assert!(warnings[0].as_str().is_some_and(|said| said.contains("lacks \"vendor-4\"")), "{warnings}");
    running.signal(Signal::HUP);
    until("an operator asked", || names() == (2, serde_json::json!([])));
    assert_eq!(ended(running), Some(0));
}

/// The bug: the default place of the store was filled in only at the start, so the first reload always reported a
/// change.
#[test]
fn a_reload_does_not_say_that_the_server_has_changed_where_it_has_not() {
    let (_folder, file) = folder(CONFIG);
    let (running, _url) = started(&file, "info");
    std::fs::write(&file, CONFIG.replace("limit = 100", "limit = 200")).expect("a writable file");
    until("the configuration is read again", || log(&file).contains("the configuration was read again"));
    pause(100);
    assert!(!log(&file).contains("need a restart"), "{}", log(&file));
    std::fs::write(&file, format!("[server]\nconnections_max = 7\n{CONFIG}")).expect("a writable file");
    until("the log asks for a restart", || log(&file).contains("need a restart"));
    assert_eq!(ended(running), Some(0));
}

/// The bug: other users could read the books, and a link in place of a file led a process with more rights to any other
/// file.
#[test]
fn the_files_of_the_store_are_for_its_user_alone_and_no_links() {
    let (folder, file) = folder(CONFIG);
    let (store, seal) = (folder.path().join("lessor.redb"), folder.path().join("lessor.redb.seal"));
    let modes = || {
        [&store, &seal]
            .map(|path| std::fs::metadata(path).expect("the file is there").permissions().mode() & 0o777)
    };
    assert_eq!(ended(started(&file, "error").0), Some(0));
    println!("{}", modes().map(|mode| format!("{mode:o}")).join(" "));
    assert_eq!(modes(), [0o600; 2]);
    // The permissions that an earlier version left.
    for path in [&store, &seal] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644))
            .expect("the permissions can be set");
    }
    assert_eq!(ended(started(&file, "error").0), Some(0));
    assert_eq!(modes(), [0o600; 2]);
    for path in [&store, &seal] {
        let elsewhere = path.with_extension("elsewhere");
        std::fs::rename(path, &elsewhere).expect("the file can be renamed");
        symlink(&elsewhere, path).expect("a link");
        let before = std::fs::read(&elsewhere).expect("a readable file");
        let said = serve(&file, "error").output().expect("the command runs");
        let words = String::from_utf8_lossy(&said.stderr).into_owned();
        println!("{:?}: {words}", said.status.code());
        assert!(said.status.code() == Some(2) && words.contains("symbolic link"), "{words}");
        assert_eq!(std::fs::read(&elsewhere).expect("a readable file"), before);
        std::fs::rename(&elsewhere, path).expect("the file can be renamed");
    }
}

/// The bug: these commands waited for a writer for ever.
#[test]
fn a_pipe_in_place_of_a_file_is_refused_at_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("the command runs").success());
    let (pipe, store) = (pipe.to_str().expect("UTF-8"), folder.path().join("new.redb"));
    let store = store.to_str().expect("UTF-8");
    for arguments in [
        &["simulate", "--config", pipe][..],
        &["audit", pipe],
        &["limits", "set", "a", "--file", pipe],
        &["store", "import", pipe, store, "--nothing-was-lent-since"],
        &["demo", "--trace", pipe],
    ] {
        let output = Command::new("timeout").arg("10").arg(lessor()).args(arguments).output();
        let output = output.expect("the command runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("it is no regular file"), "{arguments:?}: {said}");
    }
}
