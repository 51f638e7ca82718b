//! A library that is loaded before libc and does to a process what is set: a bad disk, a wrong wall clock, death at a certain call.
//! Its source, `shim/faults.c`, says what can be set.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/shim/faults.c");

/// The library, and the file that says what it does.
#[derive(Debug)]
pub struct Shim {
    folder: TempDir,
}

impl Shim {
    /// One that does nothing yet.
    ///
    /// # Panics
    /// If there is no C compiler.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // Other users run servers.
        let all_may_read = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), all_may_read).expect("it is ours");
        let shim = Shim { folder };
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
        let compiled = compile.arg(shim.file("faults.so")).args([SOURCE, "-ldl"]).status();
        assert!(compiled.expect("there is a C compiler").success());
        shim.set("");
        shim
    }

    /// From now on this is what happens: a setting a line, all others as they are without a fault.
    pub fn set(&self, settings: &str) {
        // In one step: it may be reading.
        std::fs::write(self.file("faults.new"), settings).expect("its folder is there");
        std::fs::rename(self.file("faults.new"), self.file("faults")).expect("both are in one folder");
    }

    /// What a process that has it needs in its environment.
    pub fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", self.file("faults.so")), ("LESSOR_FAULTS", self.file("faults"))]
    }

    /// Where the process says how it died, if it died of this.
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
