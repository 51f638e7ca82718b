//! A library that is loaded before libc and applies the faults that are set: a bad disk, a wrong wall clock, death at a
//! certain call. Its source, `shim/faults.c`, lists the settings.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/shim/faults.c");

/// The library, and the file with its settings.
#[derive(Debug)]
pub struct Shim {
    folder: TempDir,
}

impl Shim {
    /// Compiles a library without faults.
    ///
    /// # Panics
    /// If there is no C compiler.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // Servers run as other users.
        let all_may_read = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), all_may_read).expect("the permissions can be set");
        let shim = Shim { folder };
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
        let compiled = compile.arg(shim.file("faults.so")).args([SOURCE, "-ldl"]).status();
        assert!(compiled.expect("the C compiler cc runs").success());
        shim.set("");
        shim
    }

    /// Sets the faults from now on, one setting a line. Settings that are not named are without fault.
    pub fn set(&self, settings: &str) {
        // In one step: the library may be reading the file.
        std::fs::write(self.file("faults.new"), settings).expect("a writable file");
        std::fs::rename(self.file("faults.new"), self.file("faults")).expect("the file can be renamed");
    }

    /// Returns the environment of a process that loads the library.
    pub fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", self.file("faults.so")), ("LESSOR_FAULTS", self.file("faults"))]
    }

    /// The file in which the library writes how it made the process die.
    pub fn died(&self) -> PathBuf {
        self.file("faults.died")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Default for Shim {
    fn default() -> Self {
        Shim::new()
    }
}
