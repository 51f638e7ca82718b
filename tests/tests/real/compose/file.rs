//! docker-compose.yml as compose itself understands it, including what its versions write differently.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The profiles that can be started.
pub(crate) const PROFILES: [&str; 3] = ["embedded", "redis", "postgres"];

pub(crate) fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the project is there")
}

pub(crate) fn read(path: impl AsRef<Path>) -> String {
    let path = project().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// One service of compose: a container as it would be started.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) name: String,
    said: Value,
}

/// A file, a folder or a volume that a container sees at `target`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// A path of this machine, or the name of a volume.
    pub(crate) source: String,
    pub(crate) target: String,
    pub(crate) is_writable: bool,
}

/// Returns all services that `docker compose` starts with these options, in an environment that sets no profile.
pub(crate) fn services(options: &[&str]) -> BTreeMap<String, Service> {
    let mut command = Command::new("docker-compose");
    command.args(options).arg("config").current_dir(project()).env_remove("COMPOSE_PROFILES");
    let output = command.output().unwrap_or_else(|error| panic!("docker-compose, of Debian: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{options:?}: {errors}");
    let config = yaml(&String::from_utf8_lossy(&output.stdout));
    let services = config["services"].as_object().expect("the file names services").iter();
    let services =
        services.map(|(name, said)| (name.clone(), Service { name: name.clone(), said: said.clone() }));
    // Version 1 of compose lists services of other profiles, too.
    let profile = options.last().copied().unwrap_or(PROFILES[0]);
    services.filter(|(_, service)| service.is_of(profile)).collect()
}

impl Service {
    fn is_of(&self, profile: &str) -> bool {
        let profiles = self.list("profiles");
        profiles.is_empty() || profiles.iter().any(|one| one == profile)
    }

    pub(crate) fn value(&self, key: &str) -> &Value {
        &self.said[key]
    }

    pub(crate) fn text(&self, key: &str) -> &str {
        self.said[key].as_str().unwrap_or_else(|| panic!("{} has no {key}", self.name))
    }

    pub(crate) fn list(&self, key: &str) -> Vec<String> {
        let items = self.said[key].as_array().into_iter().flatten();
        items.map(|item| item.as_str().unwrap_or_else(|| panic!("{item} of {key}")).to_owned()).collect()
    }

    /// Whether the service runs this project's binary.
    pub(crate) fn is_ours(&self) -> bool {
        !self.said["build"].is_null()
    }

    /// Whether the service is meant to end by itself.
    pub(crate) fn is_one_shot(&self) -> bool {
        self.text("restart") == "no"
    }

    /// The environment of the service, without that of its image.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let pairs = self.said["environment"].as_object().into_iter().flatten();
        pairs.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
    }

    /// All names by which other containers know the service.
    pub(crate) fn names(&self) -> Vec<String> {
        let networks = self.said["networks"].as_object().into_iter().flatten();
        let aliases = networks.filter_map(|(_, network)| network["aliases"].as_array()).flatten();
        let aliases = aliases.filter_map(|alias| alias.as_str().map(str::to_owned));
        [self.name.clone()].into_iter().chain(aliases).collect()
    }

    /// The command of the health check.
    pub(crate) fn health(&self) -> Option<Vec<String>> {
        let words = self.said["healthcheck"]["test"].as_array()?.iter();
        let words: Vec<String> = words.map(|word| word.as_str().expect("a word").to_owned()).collect();
        let (first, rest) = words.split_first()?;
        (first == "CMD").then(|| rest.to_vec())
    }

    pub(crate) fn mounts(&self) -> Vec<Mount> {
        let mount = |said: &Value| match said.as_str() {
            Some(text) => {
                let parts: Vec<&str> = text.split(':').collect();
                let [source, target, how] = parts[..] else { panic!("{text} is no mount") };
                Mount { source: source.to_owned(), target: target.to_owned(), is_writable: how != "ro" }
            }
            None => Mount {
                source: said["source"].as_str().expect("a source").to_owned(),
                target: said["target"].as_str().expect("a target").to_owned(),
                is_writable: said["read_only"] != true,
            },
        };
        self.said["volumes"].as_array().into_iter().flatten().map(mount).collect()
    }

    /// The addresses of this machine at which the service can be reached.
    pub(crate) fn published(&self) -> Vec<String> {
        let address = |said: &Value| match said.as_str() {
            Some(text) => text.rsplit_once(':').expect("host and container").0.to_owned(),
            None => format!(
                "{}:{}",
                said["host_ip"].as_str().unwrap_or_default(),
                said["published"].as_str().unwrap_or_default()
            ),
        };
        self.said["ports"].as_array().into_iter().flatten().map(address).collect()
    }

    /// Returns the path on this machine of what the service sees at `path`.
    pub(crate) fn outside(&self, path: &str) -> Option<PathBuf> {
        let mounts = self.mounts().into_iter();
        let under = mounts.filter_map(|mount| {
            let rest = path.strip_prefix(&mount.target)?;
            (rest.is_empty() || rest.starts_with('/')).then(|| (mount.target.len(), mount.source + rest))
        });
        under.max().map(|(_, path)| PathBuf::from(path))
    }
}
