//! `lessor token`: makes, lists and revokes the tokens that allocators know. The file of them is all that allocators read; each takes a
//! change over within a second.

use crate::failure::Failure;
use clap::{Args, Subcommand};
use lessor_access::{SECRET_BYTES, Token, TokenId, Tokens, calendar};
use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::json;
use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Shown below its help.
pub(crate) const TOKEN_EXAMPLE: &str = "\
Examples:
  lessor token new billing > billing.token               the token is shown this once
  lessor token new on-call --valid 90d > on-call.token
  lessor token list
  lessor token revoke 3f2a9c01                           by its id; by a name, all tokens of that name

To rotate a token: make another of the same name, give it to its bearer, revoke the old one by its id.

  [auth]
  tokens = \"tokens.toml\"
  [[role]]
  name = \"billing\"
  identities = [\"token:billing\"]
  lease = [\"vendor/*\"]
  as = [\"billing-*\"]

Exit codes: 0 done, 1 stdout cannot be written, 2 bad command line, or a file that cannot be used.";

/// The largest file of tokens, in bytes.
const FILE_MAX: u64 = 4 << 20;

/// The longest that a token may hold: ten years are more than any that is to end.
const VALID_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// `lessor token`.
#[derive(Debug, Args)]
pub(crate) struct TokensArgs {
    #[command(subcommand)]
    command: TokenCommand,
    /// The file of tokens that allocators read. It has their names and hashes, and no token.
    #[arg(long, value_name = "FILE", env = "LESSOR_TOKENS", default_value = "tokens.toml", global = true)]
    file: PathBuf,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Make a token, and print it on stdout. It is kept nowhere else.
    New {
        /// The identity that it proves: token:NAME in roles. Several tokens may prove one.
        name: String,
        /// How long it holds. Without this it holds until it is revoked.
        #[arg(long, value_name = "DURATION", value_parser = parse_valid)]
        valid: Option<Duration>,
    },
    /// Print the ids and names of all tokens, and when they end.
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Take tokens away: allocators refuse them within a second.
    Revoke {
        /// The id of one token, or a name for all tokens that prove it.
        which: String,
    },
}

/// Does what the command line says.
pub(crate) fn run(args: &TokensArgs) -> Result<(), Failure> {
    let wrong = |problem: String| Failure::Input(format!("{}: {problem}", args.file.display()));
    match &args.command {
        TokenCommand::New { name, valid } => {
            let mut random = [0; SECRET_BYTES];
            let filled = getrandom(&mut random[..], GetRandomFlags::empty());
            if filled.map_err(|error| Failure::Run(format!("no random bytes: {error}")))? != SECRET_BYTES {
                return Err(Failure::Run("too few random bytes".to_owned()));
            }
            let add = |tokens: &mut Tokens| tokens.add(name, *valid, calendar(), &random);
            let made =
                change(&args.file, |tokens| add(tokens).map_err(|error| error.to_string())).map_err(wrong)?;
            // The line needs no reader: the token is what was asked for.
            let _ = writeln!(io::stderr(), "{} proves token:{name}, by {}", made.id, args.file.display());
            print(&format!("{}\n", made.text.reveal()))
        }
        TokenCommand::List { json } => {
            let tokens = read(&args.file).map_err(wrong)?;
            print(&if *json { as_json(&tokens) } else { as_table(&tokens, calendar()) })
        }
        TokenCommand::Revoke { which } => {
            let gone = change(&args.file, |tokens| {
                let gone = tokens.revoke(which);
                if gone.is_empty() { Err(format!("there is no token {which:?}")) } else { Ok(gone) }
            });
            print(&gone.map_err(wrong)?.iter().map(|id| format!("revoked {id}\n")).collect::<String>())
        }
    }
}

fn print(text: &str) -> Result<(), Failure> {
    let printed = io::stdout().write_all(text.as_bytes());
    printed.map_err(|error| Failure::Run(format!("cannot write to stdout: {error}")))
}

fn read(file: &Path) -> Result<Tokens, String> {
    let bytes = lessor_files::read(file, FILE_MAX).map_err(|error| error.problem)?;
    let text = String::from_utf8(bytes).map_err(|_| "it is no text".to_owned())?;
    Tokens::parse(&text).map_err(|error| error.to_string())
}

/// Changes what is in `file`, which may not be there yet. Another command that does so at once waits. A reader sees the old file or the
/// new one, whole.
fn change<T>(file: &Path, change: impl FnOnce(&mut Tokens) -> Result<T, String>) -> Result<T, String> {
    let said = |error: io::Error| error.to_string();
    let file = if file.exists() { file.canonicalize().map_err(said)? } else { file.to_owned() };
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let lock = File::open(folder).map_err(said)?;
    lock.lock().map_err(said)?;
    let mut tokens = if file.exists() { read(&file)? } else { Tokens::default() };
    let done = change(&mut tokens)?;
    // Made for its owner alone.
    let mut new = tempfile::NamedTempFile::new_in(folder).map_err(said)?;
    if let Ok(old) = file.metadata() {
        // An allocator that could read the old one can read the new one.
        fchown(new.as_file(), Some(old.uid()), Some(old.gid())).map_err(said)?;
        new.as_file().set_permissions(Permissions::from_mode(old.mode() & 0o777)).map_err(said)?;
    }
    new.write_all(tokens.to_string().as_bytes()).and_then(|()| new.as_file().sync_all()).map_err(said)?;
    new.persist(&file).map_err(|error| error.to_string())?;
    lock.sync_all().map_err(said)?;
    Ok(done)
}

fn time(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

fn as_json(tokens: &Tokens) -> String {
    let one = |(id, token): (&TokenId, &Token)| {
        let (created, expires) = (time(token.created), token.expires.map(time));
        json!({ "id": id, "name": token.name, "created": created, "expires": expires })
    };
    json!({ "tokens": tokens.iter().map(one).collect::<Vec<_>>() }).to_string() + "\n"
}

fn as_table(tokens: &Tokens, now: SystemTime) -> String {
    let widest = tokens.iter().map(|(_, token)| token.name.len()).max().unwrap_or(0).max(4);
    let mut table = format!("{:8}  {:widest$}  {:20}  EXPIRES\n", "ID", "NAME", "CREATED");
    for (id, token) in tokens.iter() {
        let expires = match token.expires {
            None => "never".to_owned(),
            Some(end) if end <= now => format!("{} (over)", time(end)),
            Some(end) => time(end),
        };
        table.push_str(&format!("{id:8}  {:widest$}  {:20}  {expires}\n", token.name, time(token.created)));
    }
    table
}

fn parse_valid(text: &str) -> Result<Duration, String> {
    let valid = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let is_fit = !valid.is_zero() && valid <= VALID_MAX;
    if is_fit { Ok(valid) } else { Err("not between 1s and 3650d".to_owned()) }
}
