//! Tokens in a shared store: one cell, in the format of a file of tokens. Commands change it by compare-and-swap. Each
//! allocator rereads it periodically, apart from requests.

use crate::cells::{Cell, Cells, CellsConfig, CellsError, Swap, Swapped, VALUE_MAX};
use arc_swap::ArcSwapOption;
use lessor_access::{Tokens, calendar};
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tokio::sync::Mutex;
use tokio::time::sleep;

/// The cell of the tokens.
const TOKENS: &str = "tokens";

/// Interval of reads: a revoked token is refused within a second, even if a read is slow.
const READ_EVERY: Duration = Duration::from_millis(250);

/// Attempts at a change that another command preempts. Each time the other command has made progress.
const CHANGES_MAX: usize = 100;

/// Why tokens in a store could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum StoredTokensError<E> {
    /// The store failed. Nothing was changed.
    #[error(transparent)]
    Store(#[from] CellsError),
    /// The store failed, and the change may have been made or not, or may not last.
    #[error("{0}; the change may have been made: list the tokens")]
    Unknown(CellsError),
    /// The cell holds no list of tokens.
    #[error("the cell \"tokens\" of the store is no list of tokens: {0}")]
    Broken(String),
    /// The list would not fit into a cell.
    #[error("the list of tokens would have {0} bytes, of at most {max}: revoke some", max = VALUE_MAX)]
    TooLarge(usize),
    /// Other commands were faster each time.
    #[error("other commands changed the tokens each time: try again")]
    Contested,
    /// The change objects to the present tokens.
    #[error("{0}")]
    Refused(E),
}

/// Reads the tokens in the store of `cells`; there are none if no command has made any.
///
/// # Errors
/// If they cannot be read.
pub async fn read(cells: &mut Cells) -> Result<Tokens, StoredTokensError<Infallible>> {
    let (_, mut found) = cells.load(&[TOKENS.to_owned()]).await?;
    parse(found.pop().flatten().as_ref()).map_err(StoredTokensError::Broken)
}

/// Makes `change` in the tokens of the store of `cells`, and returns its result. `change` is called again whenever
/// another command was faster, so no change is lost.
///
/// # Errors
/// If `change` objects, the list would be too large, or the store fails. After [`StoredTokensError::Unknown`] the
/// change may have been made.
///
/// # Cancel safety
/// If the future is dropped, the change may have been made.
pub async fn change<T, E>(
    cells: &mut Cells,
    mut change: impl FnMut(&mut Tokens) -> Result<T, E>,
) -> Result<T, StoredTokensError<E>> {
    for _ in 0..CHANGES_MAX {
        let (timeline, mut found) = cells.load(&[TOKENS.to_owned()]).await?;
        let found = found.pop().flatten();
        let mut tokens = parse(found.as_ref()).map_err(StoredTokensError::Broken)?;
        let done = change(&mut tokens).map_err(StoredTokensError::Refused)?;
        let value = tokens.to_string().into_bytes();
        if value.len() > VALUE_MAX {
            return Err(StoredTokensError::TooLarge(value.len()));
        }
        let expected = found.map(|cell| cell.version);
        let next = Some(Cell { version: version_after(expected), value });
        let swap = Swap { name: TOKENS.to_owned(), expected, next };
        match cells.swap(&timeline, &[swap]).await {
            Ok(swapped) if swapped == [Swapped::Done] => return Ok(done),
            Ok(_) | Err(CellsError::Moved { .. }) => {}
            Err(error @ (CellsError::Unfit(_) | CellsError::Invalid(_))) => return Err(error.into()),
            Err(error @ (CellsError::Unreachable(_) | CellsError::NotDurable(_))) => {
                return Err(StoredTokensError::Unknown(error));
            }
        }
    }
    Err(StoredTokensError::Contested)
}

/// Returns a version after `before`. It follows the calendar, so that a list made after a store lost some is newer than
/// those.
fn version_after(before: Option<u64>) -> u64 {
    let now = calendar().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    let now = u64::try_from(now).unwrap_or(0);
    before.map_or(now, |before| now.max(before.saturating_add(1)))
}

fn parse(cell: Option<&Cell>) -> Result<Tokens, String> {
    let Some(cell) = cell else { return Ok(Tokens::default()) };
    let text = std::str::from_utf8(&cell.value).map_err(|_| "it is not UTF-8".to_owned())?;
    Tokens::parse(text).map_err(|error| error.to_string())
}

/// The tokens of a store, as one allocator knows them.
pub(crate) struct StoredTokens {
    /// The tokens in force; `None` until they were read.
    current: ArcSwapOption<Tokens>,
    /// Locked for one look at a time.
    looks: Mutex<Looks>,
}

struct Looks {
    cells: Cells,
    /// Version of the tokens in force; `None` if there was no list yet.
    version: Option<u64>,
    trouble: Trouble,
}

/// Why the newest tokens are not in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    None,
    /// The store does not answer, or not well.
    Away,
    /// Its answer is no list, or no newer one than the list in force.
    Broken,
}

impl StoredTokens {
    /// Makes a reader of the tokens in the store of `config`, which is not asked yet.
    ///
    /// # Errors
    /// If `config` cannot be used.
    pub(crate) fn new(config: &CellsConfig) -> Result<Self, CellsError> {
        let looks = Looks { cells: Cells::new(config)?, version: None, trouble: Trouble::None };
        Ok(StoredTokens { current: ArcSwapOption::empty(), looks: Mutex::new(looks) })
    }

    /// Returns the tokens in force; `None` if they were never read.
    pub(crate) fn current(&self) -> Option<Arc<Tokens>> {
        self.current.load_full()
    }

    /// Reads the tokens, and puts a newer list in force. After an older list, a broken one or a silent store the
    /// present list stays in force. The log says so once.
    pub(crate) async fn look(&self) {
        let mut looks = self.looks.lock().await;
        let (trouble, problem) = match looks.cells.load(&[TOKENS.to_owned()]).await {
            Err(error) => (Trouble::Away, error.to_string()),
            Ok((_, mut found)) => match self.take(&mut looks.version, found.pop().flatten()) {
                Err(problem) => (Trouble::Broken, problem),
                Ok(()) => (Trouble::None, String::new()),
            },
        };
        if trouble == looks.trouble {
            return;
        }
        looks.trouble = trouble;
        match trouble {
            Trouble::None => tracing::info!("the tokens in the store are read again"),
            Trouble::Away | Trouble::Broken if self.current.load().is_none() => {
                tracing::error!(%problem, "the tokens in the store cannot be read: no token is accepted yet");
            }
            Trouble::Away | Trouble::Broken => {
                tracing::error!(
                    %problem,
                    "the tokens in the store cannot be read: the tokens read last stay in force"
                );
            }
        }
    }

    fn take(&self, version: &mut Option<u64>, found: Option<Cell>) -> Result<(), String> {
        let newest = found.as_ref().map(|cell| cell.version);
        if self.current.load().is_some() {
            if newest == *version {
                return Ok(());
            }
            if newest < *version {
                let lost =
                    "the list of tokens is gone, or older than the one in force: make or revoke a token";
                return Err(lost.to_owned());
            }
        }
        let tokens = parse(found.as_ref())?;
        tracing::info!(tokens = tokens.len(), "tokens of the store are in force");
        self.current.store(Some(Arc::new(tokens)));
        *version = newest;
        Ok(())
    }

    /// Looks periodically, until it is dropped.
    pub(crate) async fn watch(self: Arc<Self>) {
        loop {
            sleep(READ_EVERY).await;
            self.look().await;
        }
    }
}

impl fmt::Debug for StoredTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredTokens").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::{Fault, Memory};
    use lessor_access::SECRET_BYTES;

    /// Adds a token made of `byte`.
    fn add(tokens: &mut Tokens, name: &str, byte: u8) -> Result<String, String> {
        let made = tokens.add(name, None, calendar(), &[byte; SECRET_BYTES]);
        made.map(|made| made.id).map_err(|error| error.to_string())
    }

    fn names(tokens: &Tokens) -> Vec<String> {
        tokens.iter().map(|(_, token)| token.name.clone()).collect()
    }

    fn known(memory: &Memory) -> StoredTokens {
        let looks = Looks { cells: Cells::Memory(memory.clone()), version: None, trouble: Trouble::None };
        StoredTokens { current: ArcSwapOption::empty(), looks: Mutex::new(looks) }
    }

    async fn put(memory: &Memory, version: u64, value: &[u8]) {
        let mut cells = Cells::Memory(memory.clone());
        let (timeline, found) = cells.load(&[TOKENS.to_owned()]).await.expect("it is there");
        let expected = found[0].as_ref().map(|cell| cell.version);
        let next = (!value.is_empty()).then(|| Cell { version, value: value.to_vec() });
        let swap = Swap { name: TOKENS.to_owned(), expected, next };
        assert_eq!(cells.swap(&timeline, &[swap]).await, Ok(vec![Swapped::Done]));
    }

    #[tokio::test]
    async fn of_two_changes_at_once_neither_is_lost() {
        let memory = Memory::new();
        let mut cells = Cells::Memory(memory.clone());
        let mut asked = 0_u8;
        let made = change(&mut cells, |tokens| {
            asked += 1;
            if asked == 1 {
                // Another command is faster.
                let mut others = Tokens::default();
                add(&mut others, "faster", 1)?;
                memory.with(|table| {
                    let next = Some(Cell { version: 7, value: others.to_string().into_bytes() });
                    let swap = Swap { name: TOKENS.to_owned(), expected: None, next };
                    let timeline = table.timeline().clone();
                    assert_eq!(table.swap(&timeline, &[swap]), Ok(vec![Swapped::Done]));
                });
            }
            add(tokens, "slower", 2)
        });
        assert!(made.await.is_ok() && asked == 2, "{asked}");
        assert_eq!(names(&read(&mut cells).await.expect("a list")), ["faster", "slower"]);
    }

    #[tokio::test]
    async fn a_list_that_does_not_fit_is_refused_and_changes_nothing() {
        let mut cells = Cells::Memory(Memory::new());
        let full = |tokens: &mut Tokens| {
            for index in 0..4_000_u32 {
                let mut random = [0; SECRET_BYTES];
                random[..4].copy_from_slice(&index.to_be_bytes());
                tokens.add(&"n".repeat(128), None, calendar(), &random).map_err(|error| error.to_string())?;
            }
            Ok::<_, String>(())
        };
        let refused = change(&mut cells, full).await.expect_err("it is more than a cell has").to_string();
        assert!(refused.contains("bytes, of at most 1048576: revoke some"), "{refused}");
        assert!(read(&mut cells).await.expect("a list").is_empty());
        let objected = change(&mut cells, |_| Err::<(), _>("no")).await;
        assert!(matches!(objected, Err(StoredTokensError::Refused("no"))));
    }

    #[tokio::test]
    async fn what_is_no_newer_list_leaves_the_one_before_in_force() {
        let memory = Memory::new();
        let tokens = known(&memory);
        assert!(tokens.current().is_none(), "none is believed before it is read");
        put(&memory, 5, b"no list").await;
        tokens.look().await;
        assert!(tokens.current().is_none(), "nor what is no list");
        put(&memory, 6, b"").await;
        tokens.look().await;
        assert_eq!(names(&tokens.current().expect("it was read")), [""; 0], "no command has made any");
        let mut cells = Cells::Memory(memory.clone());
        change(&mut cells, |tokens| add(tokens, "a", 1)).await.expect("room");
        tokens.look().await;
        let newest = tokens.looks.lock().await.version.expect("there is one");
        // A broken list, older ones, and none.
        for (version, value) in
            [(newest + 1, &b"no list"[..]), (newest - 1, b""), (newest - 1, b" "), (7, b"")]
        {
            put(&memory, version, value).await;
            tokens.look().await;
            assert_eq!(names(&tokens.current().expect("the one before")), ["a"], "{version}");
        }
        change(&mut cells, |tokens| add(tokens, "b", 2)).await.expect("room");
        tokens.look().await;
        assert_eq!(names(&tokens.current().expect("a newer one")), ["b"]);
    }

    #[tokio::test]
    async fn a_store_that_is_away_changes_nothing() {
        let memory = Memory::new();
        let tokens = known(&memory.failing(|| Fault::Lost));
        tokens.look().await;
        assert!(tokens.current().is_none());
        let mut cells = Cells::Memory(memory.clone());
        change(&mut cells, |tokens| add(tokens, "a", 1)).await.expect("room");
        tokens.looks.lock().await.cells = Cells::Memory(memory.clone());
        tokens.look().await;
        tokens.looks.lock().await.cells = Cells::Memory(memory.failing(|| Fault::Lost));
        tokens.look().await;
        assert_eq!(names(&tokens.current().expect("the one before")), ["a"]);
        let mut lost = {
            let mut calls = 0;
            let after_the_load = move || {
                calls += 1;
                if calls == 1 { Fault::None } else { Fault::AnswerLost }
            };
            Cells::Memory(memory.failing(after_the_load))
        };
        let unknown = change(&mut lost, |tokens| add(tokens, "b", 2)).await;
        assert!(matches!(unknown, Err(StoredTokensError::Unknown(_))), "{unknown:?}");
        assert_eq!(names(&read(&mut cells).await.expect("a list")), ["a", "b"]);
    }
}
