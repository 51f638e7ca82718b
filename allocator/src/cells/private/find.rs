//! Finds the programs of servers: on the path, and in the private folders of distributions.

use std::path::PathBuf;
use std::process::Command;

/// Returns `redis-server`, or else `valkey-server`.
pub(super) fn redis() -> Option<PathBuf> {
    on_path("redis-server").or_else(|| on_path("valkey-server"))
}

/// Returns a program of PostgreSQL, of the newest installed version.
pub(super) fn postgres(name: &str) -> Option<PathBuf> {
    let by_config = || {
        let output = Command::new("pg_config").arg("--bindir").output().ok()?;
        let folder = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
        Some(folder.join(name))
    };
    // Debian's programs on the path are wrappers for the clusters of the machine, so its folders come first.
    newest(name).or_else(|| by_config().filter(|path| path.is_file())).or_else(|| on_path(name))
}

fn newest(name: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let version = |path: PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let mut found: Vec<u32> = versions.filter_map(|entry| version(entry.ok()?.path())).collect();
    found.sort_unstable();
    let path = |version: u32| PathBuf::from(format!("/usr/lib/postgresql/{version}/bin/{name}"));
    found.into_iter().rev().map(path).find(|path| path.is_file())
}

/// Returns a program on the path.
pub(super) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file())
}
