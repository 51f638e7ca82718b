//! `lessor token`: makes, lists and revokes the tokens that allocators know, in a file or in the store that they share.
//! Each allocator takes a change over within a second.

mod kept;

pub(crate) use self::kept::Kept;
use crate::failure::Failure;
use crate::print::print;
use clap::{Args, Subcommand};
use lessor_access::{NewToken, SECRET_BYTES, Token, TokenId, Tokens, calendar};
use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::json;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// Text below the help of `lessor token`.
pub(crate) const TOKEN_EXAMPLE: &str = "\
Examples:
  (umask 077; lessor token new billing > billing.token)  the token is shown this once; the file is for its owner alone
  (umask 077; lessor token new on-call --valid 90d > on-call.token)
  lessor token list
  lessor token revoke 3f2a9c01                           by its id; by a name, all tokens of that name
  lessor token new billing --config lessor.toml          where that configuration keeps them: a file, or its store
  lessor token list --store-url 'postgres://lessor@db.internal/lessor?sslmode=verify-full'

To rotate a token: make another of the same name, give it to its bearer, revoke the old one by its id.

  [auth]
  tokens = \"tokens.toml\"      or \"store\", for those in the store that allocators share
  [[role]]
  name = \"billing\"
  identities = [\"token:billing\"]
  lease = [\"vendor/*\"]
  as = [\"billing-*\"]

Exit codes: 0 done; 1 stdout cannot be written, or the store is unreachable or unfit; 2 bad command line, or a file or a list of
tokens that cannot be used.";

/// Longest validity of a token or certificate: ten years are more than any that is meant to end, and calendars of
/// certificates end.
const VALID_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Default file of tokens.
const FILE: &str = "tokens.toml";

/// `lessor token`.
#[derive(Debug, Args)]
pub(crate) struct TokensArgs {
    #[command(subcommand)]
    command: TokenCommand,
    /// The file of tokens that allocators read. It has their names and hashes, and no token. Default: tokens.toml
    #[arg(long, value_name = "FILE", env = "LESSOR_TOKENS", global = true)]
    file: Option<PathBuf>,
    /// Instead of --file: the configuration of an allocator. Its [auth] says where the tokens are.
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Instead of --file: address of a store that allocators share. The password is a part of it, or in --store-password-file,
    /// or in the environment variable LESSOR_STORE_PASSWORD.
    #[arg(long, value_name = "URL", global = true)]
    store_url: Option<String>,
    /// File with the password of the store, if the URL has none: one line.
    #[arg(long, value_name = "FILE", global = true)]
    store_password_file: Option<PathBuf>,
    /// Prefix of the names of keys and tables in the store. Default: lessor
    #[arg(long, value_name = "NAME", global = true)]
    store_prefix: Option<String>,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Make a token, and print it on stdout. It is kept nowhere else.
    New {
        /// The identity that the token proves: token:NAME in roles. Several tokens may prove the same identity.
        name: String,
        /// How long the token is valid. Default: until it is revoked.
        #[arg(long, value_name = "DURATION", value_parser = parse_valid)]
        valid: Option<Duration>,
    },
    /// Print the ids and names of all tokens, and when they expire.
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Revoke tokens: allocators refuse them within a second.
    Revoke {
        /// The id of one token, or the name of all tokens to revoke.
        which: String,
    },
}

/// Runs the command.
pub(crate) fn run(args: &TokensArgs) -> Result<(), Failure> {
    let kept = Kept::of(args)?;
    match &args.command {
        TokenCommand::New { name, valid } => {
            let made = make(&kept, name, *valid)?;
            // The line needs no reader: the token is what was asked for.
            let _ = writeln!(io::stderr(), "{} proves token:{name}, kept in {kept}", made.id);
            print_secret(&format!("{}\n", made.text.reveal()))
        }
        TokenCommand::List { json } => {
            let tokens = kept.read()?;
            print(if *json { as_json(&tokens) } else { as_table(&tokens, calendar()) })
        }
        TokenCommand::Revoke { which } => {
            let gone = revoke(&kept, which)?;
            print(gone.iter().map(|id| format!("revoked {id}\n")).collect::<String>())
        }
    }
}

/// Adds a token for `name` that is valid for the time `valid`, or until it is revoked.
///
/// # Errors
/// If `name` is invalid, or the tokens cannot be read or written.
pub(crate) fn make(kept: &Kept, name: &str, valid: Option<Duration>) -> Result<NewToken, Failure> {
    let mut random = [0; SECRET_BYTES];
    let filled = getrandom(&mut random[..], GetRandomFlags::empty());
    if filled.map_err(|error| Failure::Run(format!("no random bytes: {error}")))? != SECRET_BYTES {
        return Err(Failure::Run("too few random bytes".to_owned()));
    }
    let add = |tokens: &mut Tokens| tokens.add(name, valid, calendar(), &random);
    kept.change(|tokens| add(tokens).map_err(|error| error.to_string()))
}

/// Revokes the token with the id `which`, or all tokens of the name `which`. Returns their ids.
///
/// # Errors
/// If there is no such token, or the tokens cannot be read or written.
pub(crate) fn revoke(kept: &Kept, which: &str) -> Result<Vec<TokenId>, Failure> {
    kept.change(|tokens| {
        let gone = tokens.revoke(which);
        if gone.is_empty() { Err(format!("there is no token {which:?}")) } else { Ok(gone) }
    })
}

/// Prints `text`, which is kept nowhere else: a closed pipe is a failure.
fn print_secret(text: &str) -> Result<(), Failure> {
    let printed = io::stdout().write_all(text.as_bytes());
    printed.map_err(|error| Failure::Run(format!("cannot write to stdout: {error}")))
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
            Some(end) if end <= now => format!("{} (expired)", time(end)),
            Some(end) => time(end),
        };
        table.push_str(&format!("{id:8}  {:widest$}  {:20}  {expires}\n", token.name, time(token.created)));
    }
    table
}

/// Parses the validity of a token or certificate.
pub(crate) fn parse_valid(text: &str) -> Result<Duration, String> {
    let valid = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let is_fit = !valid.is_zero() && valid <= VALID_MAX;
    if is_fit { Ok(valid) } else { Err("not between 1s and 3650d".to_owned()) }
}
