//! The audit log: each decision of an operator, and each request that was refused because of its sender. Entries are
//! JSON objects, one a line, in an append-only file and in the log with the target `audit`. No entry has a token, a key
//! file or the body of a request.

use crate::addresses::Address;
use crate::config::AuditConfig;
use lessor_protocol::clock::wall;
use lessor_protocol::lock_anyway::LockAnyway;
use rustix::fs::{Access, access};
use serde_json::{Map, Value, json};
use std::fs::{File, OpenOptions, rename};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Refuses a link in place of the file, and does not block on a pipe.
const FLAGS: rustix::fs::OFlags = rustix::fs::OFlags::NOFOLLOW.union(rustix::fs::OFlags::NONBLOCK);

/// Refused requests that are logged per second: this many with a proven identity, and as many without. The others are
/// counted, so that a peer that is refused all the time cannot fill the disk.
const REFUSALS_MAX: u64 = 20;

/// The part of the bytes of all files that each kind of refusal may take per day. So refusals push no decision out for
/// months.
const REFUSALS_PART: u64 = 256;

/// Bytes per day that each kind of refusal may take in any case.
const REFUSALS_BYTES: u64 = 64 << 10;

/// Refusals of each kind that may be on their way to the disk at a time. Each holds a thread for blocking work, which
/// others need: a disk that hangs must not take all of them.
const UNWRITTEN_MAX: u64 = 8;

/// The action of an entry about a refused request.
pub(crate) const REFUSED: &str = "refused";

/// The identity of an entry where none was proven.
pub(crate) const NO_IDENTITY: &str = "none";

/// Where a request came from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin {
    /// Address of the peer.
    pub(crate) address: Option<Address>,
    /// Name of the request, which its answer repeats.
    pub(crate) request: String,
}

/// One line of the log.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The identity; `any` where none is required, and `none` where none was proven.
    pub(crate) who: String,
    pub(crate) origin: Origin,
    /// The action: `put`, `remove`, `top_up`, `pause`, `resume`, `block`, `unblock`, `refused`.
    pub(crate) action: &'static str,
    pub(crate) limit: Option<String>,
    /// The state before and after, and other details of the action.
    pub(crate) more: Map<String, Value>,
    /// The reason, in the operator's words.
    pub(crate) reason: Option<String>,
}

/// The audit log.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    place: Option<AuditConfig>,
    open: Mutex<Option<File>>,
    /// Locked apart from the file: a flood of refusals must not wait for a disk.
    refusals: Mutex<Refusals>,
}

#[derive(Debug, Default)]
struct Refusals {
    /// Refusals of proven identities.
    known: Flood,
    /// Refusals without an identity, counted apart so that they displace no others.
    unknown: Flood,
    /// Refusals that were not logged.
    omitted: u64,
}

impl Refusals {
    fn of(&mut self, who: &str) -> &mut Flood {
        if who == NO_IDENTITY { &mut self.unknown } else { &mut self.known }
    }
}

/// The recent rate of refusals of one kind.
#[derive(Debug, Default)]
struct Flood {
    /// The second of the last refusal, and the number of refusals in it.
    second: u64,
    count: u64,
    /// Bytes logged on the day of that second.
    bytes: u64,
    /// Refusals that are to be logged, and are not yet.
    unwritten: u64,
}

impl Flood {
    /// Counts a refusal in `second`. Returns whether to log it, within `bytes_max` per day.
    fn admits(&mut self, second: u64, bytes_max: u64) -> bool {
        const DAY: u64 = 86_400;
        if self.second / DAY != second / DAY {
            self.bytes = 0;
        }
        if self.second != second {
            (self.second, self.count) = (second, 0);
        }
        self.count += 1;
        self.count <= REFUSALS_MAX && self.bytes < bytes_max
    }
}

impl Audit {
    /// Makes a log that is written to `place`, or only to the log of the process.
    pub(crate) fn new(place: Option<AuditConfig>) -> Self {
        Audit { place, ..Audit::default() }
    }

    /// Opens the file, to check that it can be opened.
    ///
    /// # Errors
    /// If it cannot.
    pub(crate) fn check(&self) -> io::Result<()> {
        self.place.as_ref().map_or(Ok(()), |place| open(&place.path).map(|_| ()))
    }

    /// Whether to log a refusal of `who` at `second`. If not, it is counted.
    fn admits_refusal_at(&self, who: &str, second: u64) -> bool {
        let bytes = self.place.as_ref().map(|place| place.bytes_max.saturating_mul(place.files_max));
        let bytes = bytes.map_or(u64::MAX, |bytes| (bytes / REFUSALS_PART).max(REFUSALS_BYTES));
        let mut refusals = self.refusals.lock_anyway();
        let is_written = refusals.of(who).admits(second, bytes);
        refusals.omitted += u64::from(!is_written);
        is_written
    }

    /// Whether to log a refusal of `who` now. If not, it is counted. If so, its entry is to be written.
    pub(crate) fn admits_refusal(&self, who: &str) -> bool {
        if self.refusals.lock_anyway().of(who).unwritten >= UNWRITTEN_MAX {
            self.refusals.lock_anyway().omitted += 1;
            return false;
        }
        let is_written = self.admits_refusal_at(who, wall().as_nanos() / 1_000_000_000);
        self.refusals.lock_anyway().of(who).unwritten += u64::from(is_written);
        is_written
    }

    /// Writes `entry`. Blocks on the disk: not for a thread that others wait for.
    pub(crate) fn write(&self, entry: &Entry) {
        self.append(entry);
        if entry.action == REFUSED {
            let mut refusals = self.refusals.lock_anyway();
            let unwritten = &mut refusals.of(&entry.who).unwritten;
            *unwritten = unwritten.saturating_sub(1);
        }
    }

    /// Holds up all writes, as a disk that hangs does, until the guard is dropped.
    #[cfg(test)]
    pub(crate) fn hang(&self) -> std::sync::MutexGuard<'_, Option<File>> {
        self.open.lock_anyway()
    }

    fn append(&self, entry: &Entry) {
        let omitted = std::mem::take(&mut self.refusals.lock_anyway().omitted);
        let line = entry.line(wall().as_nanos() / 1_000_000, omitted).to_string();
        if entry.action == REFUSED {
            let mut refusals = self.refusals.lock_anyway();
            let flood = refusals.of(&entry.who);
            flood.bytes = flood.bytes.saturating_add(line.len() as u64);
        }
        tracing::info!(target: "audit", "{line}");
        let Some(place) = &self.place else { return };
        let mut open = self.open.lock_anyway();
        if let Err(error) = append(&mut open, place, &format!("{line}\n")) {
            // The decision holds all the same: a full disk must not keep an operator from pausing a limit.
            tracing::error!(file = %place.path.display(), %error, "the audit log cannot be written");
            *open = None;
        }
    }
}

/// Appends `line` to the open file, or to the one that has taken its place.
fn append(kept: &mut Option<File>, place: &AuditConfig, line: &str) -> io::Result<()> {
    // Another program may have moved the file away to begin a new one.
    let is_there = |file: &File| -> io::Result<bool> {
        let (open, path) = (file.metadata()?, std::fs::symlink_metadata(&place.path));
        Ok(path.is_ok_and(|path| (path.dev(), path.ino()) == (open.dev(), open.ino())))
    };
    if let Some(file) = &*kept
        && !is_there(file)?
    {
        *kept = None;
    }
    let file = match kept.take() {
        Some(file) => file,
        None => open(&place.path)?,
    };
    let length = file.metadata()?.len();
    let is_full = length > 0 && length + line.len() as u64 > place.bytes_max;
    let mut file = if is_full { rotate(place)? } else { file };
    whole(&mut file, |file| file.write_all(line.as_bytes()))?;
    *kept = Some(file);
    Ok(())
}

/// Calls `write`, and takes back what it wrote if it fails: the next entry would be part of the same line, and no
/// reader would know either.
fn whole(file: &mut File, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let length = file.metadata()?.len();
    write(file).inspect_err(|_| {
        if let Err(error) = file.set_len(length) {
            tracing::error!(%error, "a part of an entry stays in the audit log");
        }
    })
}

impl Entry {
    fn line(&self, millis: u64, omitted: u64) -> Value {
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(millis);
        let mut line = json!({
            "at": humantime::format_rfc3339_millis(at).to_string(),
            "who": self.who,
            "from": self.origin.address.map(|address| address.to_string()),
            "request": self.origin.request,
            "action": self.action,
        });
        if let Some(limit) = &self.limit {
            line["limit"] = json!(limit);
        }
        for (name, value) in &self.more {
            line[name] = value.clone();
        }
        if let Some(reason) = &self.reason {
            line["reason"] = json!(reason);
        }
        if omitted > 0 {
            line["refusals_omitted"] = json!(omitted);
        }
        line
    }
}

/// Checks that the file can be opened, or made where it is not there. It makes none.
///
/// # Errors
/// If it cannot.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    match open_or(path, false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            Ok(access(folder.unwrap_or(Path::new(".")), Access::WRITE_OK | Access::EXEC_OK)?)
        }
        opened => opened.map(drop),
    }
}

/// Opens the file, for its owner alone. A link in its place is refused.
fn open(path: &Path) -> io::Result<File> {
    open_or(path, true)
}

/// As [`open`]; `make` says whether to make the file if it is not there.
fn open_or(path: &Path, make: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(make).mode(0o600).custom_flags(FLAGS.bits().cast_signed());
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    Ok(file)
}

/// Returns the path of a file: the current one has no number, the oldest the highest.
fn numbered(path: &Path, number: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    if number > 0 {
        name.push(format!(".{number}"));
    }
    PathBuf::from(name)
}

/// Renames each file to the next number, and begins a new one. The oldest is dropped.
fn rotate(place: &AuditConfig) -> io::Result<File> {
    for number in (0..place.files_max.saturating_sub(1)).rev() {
        match rename(numbered(&place.path, number), numbered(&place.path, number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    if place.files_max <= 1 {
        std::fs::remove_file(&place.path)?;
    }
    open(&place.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(action: &'static str) -> Entry {
        let more = Map::from_iter([("before".to_owned(), json!(1)), ("after".to_owned(), json!(2))]);
        let (limit, reason) = (Some("a\n\"b".to_owned()), Some("why\nnot".to_owned()));
        Entry { who: "token:ops".to_owned(), origin: Origin::default(), action, limit, more, reason }
    }

    fn lines(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
    }

    fn audit(folder: &Path, bytes_max: u64, files_max: u64) -> Audit {
        Audit::new(Some(AuditConfig { path: folder.join("audit.jsonl"), bytes_max, files_max }))
    }

    #[test]
    fn an_entry_is_one_line_for_the_owner_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let audit = audit(folder.path(), 1 << 20, 8);
        audit.write(&entry("pause"));
        audit.write(&entry("resume"));
        let path = folder.path().join("audit.jsonl");
        let written = lines(&path);
        assert_eq!(written.len(), 2);
        assert_eq!((&written[0]["action"], &written[0]["limit"]), (&json!("pause"), &json!("a\n\"b")));
        assert_eq!(std::fs::metadata(&path).expect("it is there").mode() & 0o777, 0o600);
        // A file that another program moved away is begun anew.
        rename(&path, folder.path().join("old")).expect("it is ours");
        audit.write(&entry("block"));
        assert_eq!((lines(&path).len(), lines(&folder.path().join("old")).len()), (1, 2));
    }

    /// The bug: of a file that cannot be opened, `lessor check` looked only whether its folder is there.
    #[test]
    fn a_check_finds_what_opening_would_and_makes_no_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let [path, link] = ["audit.jsonl", "link"].map(|name| folder.path().join(name));
        check(&path).expect("it could be made");
        assert!(!path.exists());
        open(&path).expect("it can be made");
        check(&path).expect("it can be opened");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        for wrong in [folder.path(), &link, &folder.path().join("missing/audit.jsonl")] {
            assert!(check(wrong).is_err() && open(wrong).is_err(), "{}", wrong.display());
        }
    }

    /// The bug: the next entry was appended to the part of an entry that a full disk still took, and no reader knew
    /// either.
    #[test]
    fn of_an_entry_that_a_full_disk_cut_off_nothing_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let audit = audit(folder.path(), 1 << 20, 8);
        audit.write(&entry("pause"));
        let path = folder.path().join("audit.jsonl");
        let mut file = open(&path).expect("it is there");
        let cut = |file: &mut File| {
            file.write_all(b"{\"action\":\"re")?;
            Err(io::ErrorKind::StorageFull.into())
        };
        assert_eq!(whole(&mut file, cut).expect_err("it is full").kind(), io::ErrorKind::StorageFull);
        audit.write(&entry("block"));
        let actions: Vec<_> = lines(&path).iter().map(|line| line["action"].clone()).collect();
        assert_eq!(actions, ["pause", "block"]);
    }

    #[test]
    fn files_are_bounded_and_the_oldest_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        let audit = audit(folder.path(), 1_000, 3);
        (0..60).for_each(|_| audit.write(&entry("put")));
        let mut names: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").flatten().collect();
        names.sort_by_key(std::fs::DirEntry::file_name);
        assert_eq!(names.len(), 3, "{names:?}");
        for file in names {
            let length = file.metadata().expect("it is there").len();
            assert!(length <= 1_000, "{length}");
            assert!(!lines(&file.path()).is_empty());
        }
    }

    #[test]
    fn a_flood_of_refusals_is_counted_and_not_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let audit = audit(folder.path(), 1 << 20, 8);
        for _ in 0..10_000 {
            if audit.admits_refusal("token:a") {
                audit.write(&entry("refused"));
            }
        }
        audit.write(&entry("pause"));
        let written = lines(&folder.path().join("audit.jsonl"));
        // The flood may extend over a few seconds.
        assert!((20..=200).contains(&written.len()), "{}", written.len());
        let omitted: u64 = written.iter().filter_map(|line| line["refusals_omitted"].as_u64()).sum();
        assert_eq!(omitted + written.len() as u64, 10_001);
    }

    /// The bug: a peer that was refused for hours pushed out the oldest decisions, and a peer without an identity kept
    /// the refusals of proven identities out.
    #[test]
    fn a_flood_of_refusals_that_lasts_pushes_no_decision_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let audit = audit(folder.path(), 1 << 20, 2);
        audit.write(&entry("pause"));
        let mut flood = entry(REFUSED);
        (flood.who, flood.reason) = (NO_IDENTITY.to_owned(), Some("x".repeat(900)));
        let mut written = 0;
        for second in 0..3_600 {
            for _ in 0..30 {
                if audit.admits_refusal_at(NO_IDENTITY, second) {
                    audit.write(&flood);
                    written += 1;
                }
            }
        }
        assert!((60..70).contains(&written), "{written}: 64 KiB of them");
        assert!(audit.admits_refusal_at("token:a", 3_600), "that is another one's");
        assert!(audit.admits_refusal_at(NO_IDENTITY, 90_000), "another day");
        let path = folder.path().join("audit.jsonl");
        let kept = lines(&path);
        assert_eq!((kept.len(), kept[0]["action"].as_str()), (written + 1, Some("pause")));
        assert!(!numbered(&path, 1).exists());
        audit.write(&entry("resume"));
        let omitted = lines(&path).iter().filter_map(|line| line["refusals_omitted"].as_u64()).sum::<u64>();
        assert_eq!(omitted + written as u64, 3_600 * 30);
    }

    #[test]
    fn a_link_in_its_place_is_refused_and_its_target_is_as_it_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("target");
        std::fs::write(&target, "mine").expect("written");
        std::os::unix::fs::symlink(&target, folder.path().join("audit.jsonl")).expect("a link");
        let audit = audit(folder.path(), 1 << 20, 8);
        assert!(audit.check().is_err());
        audit.write(&entry("pause"));
        assert_eq!(std::fs::read_to_string(&target).expect("it is there"), "mine");
    }
}
