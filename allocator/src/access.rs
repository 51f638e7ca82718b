//! Identities and their rights: the tokens and roles in force, and the [`Visitor`] that sends a request. Without a
//! configuration of identities each peer may do all. With one, a peer that proves no identity may do nothing.

use crate::addresses::network;
use crate::audit::Origin;
use crate::cells::CellsError;
use crate::config::{AuthConfig, StoreConfig, TokensAt};
use crate::paces::Paces;
use crate::shared::Reader;
use crate::stored_tokens::StoredTokens;
use arc_swap::ArcSwap;
use lessor_access::{
    Identity, Issuer, Jwks, Kind, Rights, Role, TokenId, Tokens, Unproven, calendar, is_token,
};
use lessor_files::{FileError, Reloading};
use lessor_ledger::share::Owner;
use lessor_protocol::CLOCK;
use lessor_tls::PeerName;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

/// Largest file of tokens, in bytes: the most tokens that there may be take about three million.
const TOKENS_FILE_MAX: u64 = 4 << 20;

/// The tokens and roles in force.
#[derive(Debug)]
pub(crate) struct Access {
    roles: ArcSwap<Vec<Arc<Role>>>,
    tokens: Option<TokensKept>,
    /// The keys of an identity provider, and the issuer whose tokens are accepted.
    jwt: Option<(Arc<Reloading<Jwks, FileError>>, Issuer)>,
    /// Recent exchanges of each identity.
    paces: Paces,
}

/// Where the tokens in force come from.
#[derive(Clone, Debug)]
enum TokensKept {
    File(Arc<Reloading<Tokens, FileError>>),
    Store(Arc<StoredTokens>),
}

/// Why tokens or keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The store of tokens cannot be used.
    #[error("tokens is \"store\": {0}")]
    Store(#[from] CellsError),
    /// There is no store that several allocators share.
    #[error("tokens is \"store\", and no store is shared")]
    NoStore,
}

impl TokensKept {
    fn load(at: &TokensAt, store: &StoreConfig) -> Result<Self, AccessError> {
        Ok(match (at, store) {
            (TokensAt::File(file), _) => {
                let (files, file, has_any) = (vec![file.clone()], file.clone(), AtomicBool::new(false));
                let read = move || {
                    let read = tokens(&file, has_any.load(Relaxed))?;
                    has_any.store(!read.is_empty(), Relaxed);
                    Ok(read)
                };
                TokensKept::File(Arc::new(Reloading::load("tokens", files, Box::new(read))?))
            }
            (TokensAt::Store, StoreConfig::Shared(store)) => {
                TokensKept::Store(Arc::new(StoredTokens::new(&store.cells)?))
            }
            (TokensAt::Store, StoreConfig::Memory | StoreConfig::Embedded { .. }) => {
                return Err(AccessError::NoStore);
            }
        })
    }

    /// Returns the tokens in force; `None` before they were first read.
    fn current(&self) -> Option<Arc<Tokens>> {
        match self {
            TokensKept::File(tokens) => Some(tokens.current()),
            TokensKept::Store(tokens) => tokens.current(),
        }
    }
}

/// The sender of a request, with its rights.
#[derive(Clone, Debug)]
pub(crate) enum Visitor {
    /// No identities are configured: it may do all.
    Any,
    /// A sender that has proven an identity.
    Known(Arc<Known>),
}

/// A proven identity.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) identity: Identity,
    pub(crate) rights: Rights,
    owner: Owner,
    /// The token that proved it, if that is a token of the file or the store.
    token: Option<TokenId>,
    /// When its proof expires.
    expires: Option<SystemTime>,
    /// Where its request came from.
    pub(crate) origin: Origin,
}

/// Why a request has no visitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unidentified {
    /// It proves no identity.
    Unproven,
    /// It shows a token, and the tokens in the store were not read yet.
    Unread,
}

impl From<Unproven> for Unidentified {
    fn from(_: Unproven) -> Self {
        Unidentified::Unproven
    }
}

/// The proofs of identity that a request shows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shown<'a> {
    /// A token.
    pub(crate) token: Option<&'a str>,
    /// The name in the certificate of its connection.
    pub(crate) peer: Option<&'a PeerName>,
}

impl Access {
    /// Loads the roles of `config`, and the tokens and keys in its files. Tokens in `store` are read later, by
    /// [`Access::begin`].
    ///
    /// # Errors
    /// If one of the files cannot be used.
    pub(crate) fn load(config: &AuthConfig, store: &StoreConfig) -> Result<Self, AccessError> {
        let tokens = config.tokens.as_ref().map(|at| TokensKept::load(at, store));
        let jwt = config.jwt.clone().map(|(file, issuer)| {
            let files = vec![file.clone()];
            let keys = Reloading::load("keys of an identity provider", files, Box::new(move || jwks(&file)))?;
            Ok::<_, FileError>((Arc::new(keys), issuer))
        });
        Ok(Access {
            jwt: jwt.transpose()?,
            roles: ArcSwap::from_pointee(config.roles.clone()),
            tokens: tokens.transpose()?,
            paces: Paces::new(config.exchanges_per_second_max),
        })
    }

    /// Takes over the roles and the pace of `config`. Other files of tokens or keys need a restart.
    pub(crate) fn reload(&self, config: &AuthConfig) {
        self.roles.store(Arc::new(config.roles.clone()));
        self.paces.set(config.exchanges_per_second_max);
    }

    /// Reads the tokens in a store once, within the time-out of a call. Until they were read no token can be checked.
    pub(crate) async fn begin(&self) {
        if let Some(TokensKept::Store(tokens)) = &self.tokens {
            tokens.look().await;
        }
    }

    /// Whether there are tokens in a store that were not read yet.
    pub(crate) fn is_unread(&self) -> bool {
        self.tokens.as_ref().is_some_and(|tokens| tokens.current().is_none())
    }

    /// Rereads the files and the store periodically, until it is dropped.
    pub(crate) fn watch(&self) -> impl Future<Output = ()> + Send + use<> {
        let (tokens, keys) = (self.tokens.clone(), self.jwt.as_ref().map(|(keys, _)| keys.clone()));
        async move {
            let tokens = async {
                match tokens {
                    Some(TokensKept::File(tokens)) => tokens.watch().await,
                    Some(TokensKept::Store(tokens)) => tokens.watch().await,
                    None => {}
                }
            };
            let keys = async {
                if let Some(keys) = keys {
                    keys.watch().await;
                }
            };
            tokio::join!(tokens, keys);
        }
    }

    /// Identifies the sender of a request from `origin`: by the token that it shows, or else by its certificate.
    ///
    /// # Errors
    /// If the request shows nothing, nothing that proves an identity, or a token that cannot be checked yet.
    pub(crate) fn visitor(&self, shown: Shown<'_>, origin: Origin) -> Result<Visitor, Unidentified> {
        let (identity, token, expires) = match shown {
            Shown { token: Some(token), .. } if is_token(token) => {
                let tokens = self.tokens.as_ref().ok_or(Unidentified::Unproven)?;
                let tokens = tokens.current().ok_or(Unidentified::Unread)?;
                let (id, found) = tokens.find(token, calendar())?;
                (Identity::new(Kind::Token, &*found.name), Some(id.clone()), found.expires)
            }
            Shown { token: Some(token), .. } => {
                let (keys, issuer) = self.jwt.as_ref().ok_or(Unidentified::Unproven)?;
                let subject = keys.current().subject(token, issuer, calendar())?;
                (Identity::new(Kind::Jwt, subject.name), None, Some(subject.expires))
            }
            Shown { peer: Some(peer), .. } => (Identity::new(Kind::Certificate, peer.as_str()), None, None),
            Shown { token: None, peer: None } => return Err(Unidentified::Unproven),
        };
        let rights = Rights::of(&identity, &self.roles.load());
        // The default owner stands for no identity.
        let owner = Owner(identity.number() | 1);
        Ok(Visitor::Known(Arc::new(Known { identity, rights, owner, token, expires, origin })))
    }

    /// Counts an exchange of `visitor`.
    ///
    /// # Errors
    /// If its identity asks more often than it may. The error is the time to wait.
    pub(crate) fn check_pace(&self, visitor: &Visitor) -> Result<(), Duration> {
        self.paces.ask(visitor.owner(), CLOCK.now())
    }

    /// Returns `visitor` with its present rights, for requests that last; `None` if its token is no longer valid.
    pub(crate) fn again(&self, visitor: &Visitor) -> Option<Visitor> {
        let Visitor::Known(known) = visitor else { return None };
        if let Some(id) = &known.token {
            self.tokens.as_ref()?.current()?.get(id)?;
        }
        if known.expires.is_some_and(|end| calendar() >= end) {
            return None;
        }
        let rights = Rights::of(&known.identity, &self.roles.load());
        Some(Visitor::Known(Arc::new(Known { rights, ..Known::clone(known) })))
    }
}

impl Visitor {
    /// Returns the owner of its sessions.
    pub(crate) fn owner(&self) -> Owner {
        match self {
            Visitor::Any => Owner::default(),
            Visitor::Known(known) => known.owner,
        }
    }

    /// Returns who reads what it asks for from `origin`, if that is known: its identity, or else its address.
    pub(crate) fn reader(&self, origin: Option<&Origin>) -> Option<Reader> {
        match self {
            Visitor::Any => Some(Reader::Address(network(origin?.address?))),
            Visitor::Known(known) => Some(Reader::Identity(known.owner)),
        }
    }

    /// Whether `may` is true of its rights, or it may do all.
    pub(crate) fn may(&self, may: impl FnOnce(&Rights) -> bool) -> bool {
        match self {
            Visitor::Any => true,
            Visitor::Known(known) => may(&known.rights),
        }
    }
}

impl fmt::Display for Visitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Visitor::Any => f.write_str("any"),
            Visitor::Known(known) => write!(f, "{}", known.identity),
        }
    }
}

/// Largest file of keys, in bytes.
const KEYS_FILE_MAX: u64 = 1 << 20;

fn jwks(file: &Path) -> Result<Jwks, FileError> {
    let text = lessor_files::text(file, KEYS_FILE_MAX)?;
    Jwks::parse(&text).map_err(|error| FileError::of(file, error))
}

/// Reads the tokens in `file`. If it `had_any`, it may not be blank: it was cut off, by a full disk for example. The file
/// of which the last token was revoked has a comment.
fn tokens(file: &Path, had_any: bool) -> Result<Tokens, FileError> {
    let text = lessor_files::text(file, TOKENS_FILE_MAX)?;
    lessor_files::warn_if_open(file, "the names of tokens");
    if had_any && text.trim().is_empty() {
        return Err(FileError::of(
            file,
            "it is blank, and had tokens before: leave a comment in it if it should have none",
        ));
    }
    Tokens::parse(&text).map_err(|error| FileError::of(file, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{LIMIT, config};
    use lessor_files::Look;
    use std::time::Duration;

    fn access(tokens: &Tokens, roles: &str) -> (tempfile::TempDir, Access) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("tokens.toml");
        std::fs::write(&file, tokens.to_string()).expect("written");
        let config = config(&format!("[auth]\ntokens = {file:?}\n{roles}\n{LIMIT}"));
        (folder, Access::load(&config.auth.expect("it is said"), &config.server.store).expect("good"))
    }

    const ROLE: &str = "[[role]]\nname = \"r\"\nidentities = [\"token:ops\"]\nread = [\"*\"]\n";

    #[test]
    fn a_token_is_believed_as_long_as_its_file_has_it() {
        let (mut tokens, now) = (Tokens::default(), calendar());
        let made = tokens.add("ops", None, now, &[7; 36]).expect("room");
        let (folder, access) = access(&tokens, ROLE);
        let shown = Shown { token: Some(made.text.reveal()), peer: None };
        let visitor = access.visitor(shown, Origin::default()).expect("it is there");
        assert!(visitor.may(|rights| rights.may_read("a")) && !visitor.may(|rights| rights.may_operate("a")));
        assert_eq!(visitor.to_string(), "token:ops");
        assert_ne!(visitor.owner(), Owner::default());
        assert!(access.again(&visitor).is_some());
        assert!(
            access.visitor(Shown { token: Some("lessor_07070707_"), peer: None }, Origin::default()).is_err()
        );
        assert!(access.visitor(Shown::default(), Origin::default()).is_err());
        let jwt = None;
        access.reload(&AuthConfig { tokens: None, jwt, exchanges_per_second_max: 10, roles: vec![] });
        let later = access.again(&visitor).expect("the token is good");
        assert!(!later.may(|rights| rights.may_read("a")), "the role is gone");
        tokens.revoke("ops");
        let Some(TokensKept::File(kept)) = &access.tokens else { panic!("a file") };
        let write = |text: &str| {
            std::fs::write(folder.path().join("tokens.toml"), text).expect("written");
            (kept.look(), kept.look())
        };
        // The bug: an empty file, of which nothing was written yet, was taken for a list without tokens.
        for blank in ["", "\n"] {
            assert!(matches!(write(blank), (Look::Unfinished, Look::Refused(_))), "{blank:?}");
            assert!(access.visitor(shown, Origin::default()).is_ok() && access.again(&visitor).is_some());
        }
        assert_eq!(write(&tokens.to_string()), (Look::Unfinished, Look::Taken));
        assert!(access.visitor(shown, Origin::default()).is_err() && access.again(&visitor).is_none());
        assert_eq!(write(""), (Look::Unfinished, Look::Taken), "it had none");
    }

    #[test]
    fn tokens_of_one_name_are_one_owner() {
        let (mut tokens, now) = (Tokens::default(), calendar());
        let made: Vec<_> = [("ops", 1), ("ops", 2), ("other", 3)]
            .map(|(name, byte)| {
                tokens.add(name, Some(Duration::from_secs(9)), now, &[byte; 36]).expect("room")
            })
            .into();
        let (_folder, access) = access(&tokens, ROLE);
        let owner = |index: usize| {
            let token = Some(made[index].text.reveal());
            access.visitor(Shown { token, peer: None }, Origin::default()).expect("good").owner()
        };
        assert_eq!(owner(0), owner(1));
        assert_ne!(owner(0), owner(2));
    }
}
