//! The services of a profile that run this project's binary, as plain processes: exactly their commands, with addresses
//! and paths of this machine in place of those inside containers.

use super::file::{Service, project, services};
use lessor_allocator::cells::StoreKind;
use lessor_allocator::cells::private::HeldPort;
use rustix::process::Signal;
use scenarios::process::{Running, lessor};
use scenarios::servers::Server;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// How long it may take until all services are healthy: an allocator without books waits for a term and a window of 30
/// s.
const WELL_WITHIN: Duration = Duration::from_secs(120);

/// An address where no process listens.
const UNUSED: &str = "127.0.0.1:9";

/// The processes that [`Stack::start`] started, and what they need.
pub(crate) struct Stack {
    parts: Vec<Part>,
    _store: Option<Server>,
    _folder: TempDir,
}

struct Part {
    service: Service,
    running: Running,
    address: String,
    health: Command,
}

/// Replacements for words of the compose file.
struct Meanings {
    /// The address of each service that listens, by each of its names and its port.
    addresses: Vec<(String, String)>,
    store: Option<(String, String)>,
    password: String,
    /// Ports are held until all processes listen.
    _ports: Vec<HeldPort>,
}

impl Stack {
    pub(crate) fn start(profile: &str) -> Stack {
        let kind = match profile {
            "redis" => Some(StoreKind::Redis),
            "postgres" => Some(StoreKind::Postgres),
            _ => None,
        };
        let (store, folder) =
            (kind.map(|kind| Server::start(kind, &[])), tempfile::tempdir().expect("a folder"));
        let services = services(&["--profile", profile]).into_values().filter(Service::is_ours);
        let services: Vec<Service> = services.collect();
        let meanings = Meanings::of(&services, store.as_ref());
        let (first, lasting): (Vec<Service>, Vec<Service>) =
            services.into_iter().partition(Service::is_one_shot);
        for service in first {
            let done = meanings.command(&service, folder.path()).output().expect("the command runs");
            assert!(done.status.success(), "{}: {done:?}", service.name);
        }
        let parts = lasting.into_iter().map(|service| meanings.start(service, folder.path())).collect();
        Stack { parts, _store: store, _folder: folder }
    }

    /// Waits until all health checks pass and the vendor has seen both kinds of calls. Returns what the vendor has
    /// seen.
    pub(crate) async fn calls(&mut self) -> Value {
        let mut seen = Value::Null;
        let well = async {
            loop {
                seen = self.get("vendor", "/seen").await.json().await.expect("JSON");
                let called =
                    ["calls", "messages"].iter().all(|kind| seen[kind]["admitted"].as_u64() > Some(50));
                if called && self.parts.iter_mut().all(Part::is_well) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let is_well = tokio::time::timeout(WELL_WITHIN, well).await.is_ok();
        let ill =
            self.parts.iter_mut().filter_map(|part| (!part.is_well()).then(|| part.service.name.clone()));
        assert!(is_well, "not well: {:?}; the vendor has seen {seen}", ill.collect::<Vec<String>>());
        seen
    }

    pub(crate) async fn get(&self, name: &str, path: &str) -> reqwest::Response {
        let part = self.parts.iter().find(|part| part.service.name == name);
        let url = format!("http://{}{path}", part.unwrap_or_else(|| panic!("no {name}")).address);
        reqwest::get(&url).await.unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    /// The names of all services that run.
    pub(crate) fn names(&self) -> Vec<String> {
        self.parts.iter().map(|part| part.service.name.clone()).collect()
    }

    /// Ends all services in good order, the callers first. Returns the last line of each.
    pub(crate) fn end(mut self) -> Vec<(String, String)> {
        self.parts.sort_by_key(|part| !part.service.name.starts_with("node"));
        let end = |part: Part| {
            let Part { service, mut running, .. } = part;
            running.signal(Signal::TERM);
            let line = running.line();
            assert_eq!(running.wait().code(), Some(0), "{}: {line}", service.name);
            (service.name, line)
        };
        self.parts.into_iter().map(end).collect()
    }
}

impl Part {
    /// Whether the health check of this service passes.
    fn is_well(&mut self) -> bool {
        self.health.output().expect("the command runs").status.success()
    }
}

impl Meanings {
    fn of(services: &[Service], store: Option<&Server>) -> Meanings {
        let (mut addresses, mut ports) = (vec![], vec![]);
        for service in services {
            let Some(port) = listens(service) else { continue };
            let held = HeldPort::any().expect("a free port");
            let names = service.names();
            addresses.extend(names.iter().map(|name| (format!("{name}:{port}"), held.address().to_string())));
            ports.push(held);
        }
        let password = store.map(Server::password).unwrap_or_default();
        let store =
            store.map(|store| (store.url().split_once("://").expect("a URL").0.to_owned(), store.url()));
        Meanings { addresses, _ports: ports, store, password }
    }

    fn start(&self, service: Service, folder: &Path) -> Part {
        let mut running = Running::start(&mut self.command(&service, folder));
        let line = running.line();
        assert!(line.starts_with("listening on http://127.0.0.1:"), "{} said {line:?}", service.name);
        let address = self.address(&service).expect("the service listens");
        let words = service.health().unwrap_or_else(|| panic!("{} has no health check", service.name));
        assert_eq!(words[0], "/usr/local/bin/lessor");
        let mut health = Command::new(lessor());
        health.args(words[1..].iter().map(|word| self.here(word, &service, folder)));
        Part { service, running, address, health }
    }

    /// Returns the command of the service, with only the environment of its container.
    fn command(&self, service: &Service, folder: &Path) -> Command {
        let state = folder.join(&service.name);
        std::fs::create_dir_all(&state).expect("a folder");
        let mut command = Command::new(lessor());
        command.args(service.list("command").iter().map(|word| self.here(word, service, folder)));
        command.env_clear().env("STATE_DIRECTORY", state);
        // `STATE_DIRECTORY` was set above in place of the image's.
        let environment = service.environment().into_iter();
        command.envs(environment.map(|(name, value)| match name.as_str() {
            "LESSOR_STORE_PASSWORD" => (name, self.password.clone()),
            _ => (name, value),
        }));
        command
    }

    /// Returns what `word` of a command is for this process instead of its container.
    fn here(&self, word: &str, service: &Service, folder: &Path) -> String {
        if word.starts_with("/etc/lessor/") {
            let file = service.outside(word).unwrap_or_else(|| panic!("{word} is not mounted"));
            let text =
                std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            let lines = text.lines().map(|line| match line.strip_prefix("url = \"") {
                Some(url) => format!("url = {:?}", self.store_at(url.trim_end_matches('"'))),
                None => line.to_owned(),
            });
            let copy = folder.join(&service.name).with_extension("toml");
            std::fs::write(&copy, lines.collect::<Vec<String>>().join("\n")).expect("a writable file");
            return copy.display().to_string();
        }
        if word.starts_with("postgres://") || word.starts_with("redis://") {
            return self.store_at(word);
        }
        if let Some(port) = word.strip_prefix("0.0.0.0:") {
            return self.named(&format!("{}:{port}", service.name));
        }
        match word.strip_prefix("http://127.0.0.1:") {
            Some(port) => format!("http://{}", self.named(&format!("{}:{port}", service.name))),
            None => match word.strip_prefix("http://") {
                Some(name) => format!("http://{}", self.named(name)),
                None => word.to_owned(),
            },
        }
    }

    fn named(&self, name: &str) -> String {
        let known = self.addresses.iter().find(|(known, _)| known == name);
        known.map_or(UNUSED, |(_, address)| address).to_owned()
    }

    fn address(&self, service: &Service) -> Option<String> {
        Some(self.named(&format!("{}:{}", service.name, listens(service)?)))
    }

    /// Returns the URL of the test's own server in place of the store's. For PostgreSQL it has no password, which comes
    /// from the environment.
    fn store_at(&self, url: &str) -> String {
        let (scheme, here) =
            self.store.as_ref().unwrap_or_else(|| panic!("{url}: this profile has no store"));
        assert!(url.starts_with(&format!("{scheme}://")), "{url} is no {scheme}");
        match scheme.as_str() {
            "postgres" => here.replace(&format!(":{}@", self.password), "@"),
            _ => here.clone(),
        }
    }
}

/// Returns the port on which the service listens in its container.
pub(crate) fn listens(service: &Service) -> Option<String> {
    let words = service.list("command");
    let at = words.iter().position(|word| word == "--listen")?;
    let port = words[at + 1].strip_prefix("0.0.0.0:");
    Some(port.unwrap_or_else(|| panic!("{} cannot be reached at {}", service.name, words[at + 1])).to_owned())
}

/// Whether `path` exists and is in this project.
pub(crate) fn is_of_project(path: &str) -> bool {
    Path::new(path).starts_with(project()) && Path::new(path).exists()
}
