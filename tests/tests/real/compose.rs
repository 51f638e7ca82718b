//! docker-compose.yml and its image, as far as they can be tried without a container. Compose understands the file, no
//! container can do more than it needs, and mounted files are valid. The command of each of this project's services,
//! run as a plain process, does its job.

mod file;
mod image;
mod stack;

use file::{PROFILES, Service, project, read, services, yaml};
use scenarios::fleet::eventually;
use serde_json::Value;
use stack::{Stack, is_of_project, listens};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

fn names(options: &[&str]) -> BTreeSet<String> {
    services(options).into_keys().collect()
}

/// Returns every service of every profile.
fn all() -> BTreeMap<String, Service> {
    PROFILES.iter().flat_map(|profile| services(&["--profile", profile])).collect()
}

#[test]
fn each_profile_starts_its_allocators_and_what_everybody_needs() {
    let always = ["grafana", "node-1", "node-2", "prometheus", "vendor"];
    let check = |options: &[&str], more: &[&str]| {
        let expected = always.iter().chain(more).map(|name| (*name).to_owned()).collect();
        assert_eq!(names(options), expected, "{options:?}");
    };
    check(&["--profile", "embedded"], &["allocator"]);
    check(&["--profile", "redis"], &["allocator-redis-1", "allocator-redis-2", "redis"]);
    let with_postgres = ["allocator-postgres-1", "allocator-postgres-2", "migrate", "postgres"];
    check(&["--profile", "postgres"], &with_postgres);
    // Without a profile on the command line, compose takes it from `.env`.
    assert_eq!(names(&[]), names(&["--profile", PROFILES[0]]));
    assert!(read(".env").lines().any(|line| line == format!("COMPOSE_PROFILES={}", PROFILES[0])));
}

#[test]
fn no_container_can_do_more_than_it_needs() {
    for (name, service) in all() {
        assert_eq!(service.value("read_only"), true, "{name}");
        assert_eq!(service.list("cap_drop"), ["ALL"], "{name}");
        assert!(service.value("cap_add").is_null() && service.value("privileged").is_null(), "{name}");
        assert_eq!(service.list("security_opt"), ["no-new-privileges:true"], "{name}");
        let user = service.text("user").split(':').next().and_then(|user| user.parse::<u32>().ok());
        assert!(user.is_some_and(|user| user > 0), "{name} is {user:?}");
        assert!(service.health().is_some() || service.is_one_shot(), "{name} has no health check");
        for address in service.published() {
            assert!(address.starts_with("127.0.0.1:"), "{name} is open to everybody at {address}");
        }
        for mount in service.mounts() {
            let is_volume = !mount.source.contains('/');
            assert!(is_volume || (!mount.is_writable && is_of_project(&mount.source)), "{name}: {mount:?}");
        }
    }
}

#[test]
fn images_of_others_are_pinned() {
    for (name, service) in all() {
        let image = service.text("image");
        match service.is_ours() {
            true => assert_eq!(image, format!("lessor:{}", env!("CARGO_PKG_VERSION")), "{name}"),
            false => image::assert_pinned(image),
        }
    }
}

/// Debian's promtool reads copies of the mounted files, laid out as they are mounted.
#[test]
fn prometheus_understands_what_is_mounted_and_looks_at_all_that_can_be_there() {
    let prometheus = &all()["prometheus"];
    let folder = tempfile::tempdir().expect("a folder");
    for mount in prometheus.mounts() {
        if let Some(path) = mount.target.strip_prefix("/etc/prometheus/") {
            std::fs::copy(&mount.source, folder.path().join(path)).expect("a file");
        }
    }
    let file = prometheus.list("command").into_iter().find_map(|word| {
        let path = word.strip_prefix("--config.file=/etc/prometheus/")?;
        Some(folder.path().join(path))
    });
    let file = file.expect("the command names a configuration file");
    let output = Command::new("promtool").args(["check", "config"]).arg(&file).output();
    let output = output.unwrap_or_else(|error| panic!("promtool, of Debian's prometheus: {error}"));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 rule files found"), "{said}");

    let config = yaml(&std::fs::read_to_string(&file).expect("a file"));
    let jobs = config["scrape_configs"].as_array().expect("a list");
    let job = |name: &str| jobs.iter().find(|job| job["job_name"] == name).expect("a job of that name");
    let found = &job("lessor")["dns_sd_configs"][0];
    assert_eq!(found["port"], 7400);
    let found = texts(&found["names"]);
    let targets = texts(&job("nodes")["static_configs"][0]["targets"]);
    let mut known = BTreeSet::new();
    for profile in PROFILES {
        for service in services(&["--profile", profile]).into_values().filter(Service::is_ours) {
            let (names, port) = (service.names(), listens(&service));
            if service.list("command")[0] == "serve" {
                assert!(names.iter().any(|name| found.contains(name)), "no job looks at {names:?}");
                assert_eq!(port.as_deref(), Some("7400"));
                known.extend(names);
            } else if service.list("command")[1..].starts_with(&["node".to_owned()]) {
                let target = format!("{}:{}", service.name, port.expect("the service has a metrics port"));
                assert!(targets.contains(&target), "no job looks at {target}");
            }
        }
    }
    assert!(found.is_subset(&known), "not all of {found:?} are in {known:?}");
}

fn texts(list: &Value) -> BTreeSet<String> {
    let list = list.as_array().into_iter().flatten();
    list.map(|text| text.as_str().expect("a text").to_owned()).collect()
}

#[test]
fn grafana_finds_its_data_and_every_dashboard() {
    let grafana = &all()["grafana"];
    let provisioned = |path: &str| {
        let file =
            grafana.outside(&format!("/etc/grafana/provisioning/{path}")).expect("the path is mounted");
        yaml(&std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())))
    };
    let source = &provisioned("datasources/prometheus.yaml")["datasources"][0];
    assert_eq!((&source["type"], &source["isDefault"]), (&"prometheus".into(), &true.into()));
    let url = source["url"].as_str().and_then(|url| url.strip_prefix("http://")).expect("a URL");
    let (host, port) = url.split_once(':').expect("a port");
    let published = all()[host].published();
    assert_eq!(published, [format!("127.0.0.1:{port}")]);

    let folder = provisioned("dashboards/lessor.yaml")["providers"][0]["options"]["path"].clone();
    let folder = folder.as_str().expect("a path");
    let there = grafana.outside(folder).expect("the path is mounted");
    let boards = std::fs::read_dir(project().join("dashboards/grafana")).expect("the folder can be read");
    let boards = boards.map(|entry| entry.expect("a name").path());
    let boards: Vec<_> =
        boards.filter(|path| path.extension().is_some_and(|ending| ending == "json")).collect();
    assert!(boards.len() >= 3);
    for board in boards {
        let path = there.join(board.file_name().expect("a name"));
        let board: Value = serde_json::from_str(&read(&path)).expect("JSON");
        assert!(board["uid"].is_string(), "{}", path.display());
    }
    let home = grafana.environment().into_iter();
    let (_, home) =
        home.into_iter().find(|(name, _)| name.ends_with("_HOME_DASHBOARD_PATH")).expect("a home");
    assert!(home.starts_with(folder) && grafana.outside(&home).is_some_and(|path| path.exists()), "{home}");
}

/// Allocators lend by the contract that the vendor enforces, whichever store they have.
#[test]
fn all_configurations_have_the_contract_of_the_vendor() {
    let limits = |path: &Path| -> toml::Value {
        let config: toml::Table = read(path).parse().expect("TOML");
        config["limit"].clone()
    };
    let contract = limits(Path::new("cli/src/demo/contract/lessor.toml"));
    for profile in PROFILES {
        let file = project().join(format!("packaging/compose/{profile}.toml"));
        assert_eq!(limits(&file), contract, "{profile}");
        let output = Command::new(scenarios::process::lessor())
            .arg("check")
            .arg(&file)
            .output()
            .expect("the command runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Runs the services of `profile` as plain processes. Calls arrive, and the vendor refuses none.
async fn calls_arrive_and_none_is_refused(profile: &'static str) {
    let mut stack = tokio::task::spawn_blocking(move || Stack::start(profile)).await.expect("no panic");
    let seen = stack.calls().await;
    let allocators = stack.names().into_iter().filter(|name| name.starts_with("allocator"));
    let mut granted = 0;
    for name in allocators {
        // On a busy machine its store answers too slowly now and then.
        let is_ready = async || stack.get(&name, "/readyz").await.status().is_success().then_some(());
        eventually(&name, is_ready).await;
        let limits: Value = stack.get(&name, "/v1/limits").await.json().await.expect("JSON");
        let limits = limits["limits"].as_array().expect("a list");
        granted += limits.iter().map(|limit| limit["granted"].as_u64().expect("a number")).sum::<u64>();
    }
    let admitted =
        |seen: &Value| ["calls", "messages"].map(|kind| seen[kind]["admitted"].as_u64().expect("one"));
    assert!(granted >= admitted(&seen).iter().sum(), "{granted} were lent for {seen}");
    let said = tokio::task::spawn_blocking(|| stack.end()).await.expect("no panic");
    let said: BTreeMap<String, String> = said.into_iter().collect();
    let json = |name: &str| -> Value { serde_json::from_str(&said[name]).expect("JSON") };
    let seen = json("vendor");
    assert_eq!([&seen["calls"]["too_many"], &seen["messages"]["too_many"]], [0, 0], "{seen}");
    for node in ["node-1", "node-2"].map(json) {
        assert!(node["vendor/rest"]["admitted"].as_u64() > Some(0), "{node}");
        assert_eq!(node["vendor_refused"], 0, "{node}");
    }
}

/// The profiles run at the same time: their allocators mostly wait until the leases of a possible earlier life are
/// over.
#[tokio::test(flavor = "multi_thread")]
async fn in_every_profile_nodes_call_and_the_vendor_refuses_none() {
    let [embedded, redis, postgres] = PROFILES.map(calls_arrive_and_none_is_refused);
    tokio::join!(embedded, redis, postgres);
}
