//! The allocator that a command asks, and the certificates and the token for it.

use crate::failure::Failure;
use clap::Args;
use lessor_tls::{Tls, Token};
use std::path::PathBuf;

/// The environment variable that holds a token.
const TOKEN: &str = "LESSOR_TOKEN";

/// The allocator that is asked.
#[derive(Debug, Args)]
pub(crate) struct AddressArgs {
    /// The URL of the allocator: http://host:port, https://host:port, or unix: and the path of its socket.
    #[arg(
        long,
        value_name = "URL",
        env = "LESSOR_SERVER",
        hide_env_values = true,
        default_value = "http://127.0.0.1:7400",
        global = true
    )]
    pub(crate) server: String,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
}

/// The proof of identity for an allocator. The variable LESSOR_TOKEN holds the token itself: on a command line every
/// user of the machine could read it.
#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// The file of the token to show. Without it the variable LESSOR_TOKEN is shown, if that is set.
    #[arg(long, value_name = "FILE", env = "LESSOR_TOKEN_FILE", global = true)]
    token_file: Option<PathBuf>,
}

impl TokenArgs {
    /// Returns the token to show, if there is any.
    pub(crate) fn token(&self) -> Option<Token> {
        let is_set = || std::env::var_os(TOKEN).is_some_and(|token| !token.is_empty());
        let of_env = || is_set().then(|| Token::env(TOKEN));
        self.token_file.as_ref().map(Token::file).or_else(of_env)
    }
}

/// Certificates for `https://`. All files are in PEM form.
#[derive(Debug, Args)]
pub(crate) struct TlsArgs {
    /// The authorities to trust instead of those of this machine, for https://.
    #[arg(long, value_name = "FILE", env = "LESSOR_CA", global = true)]
    ca: Option<PathBuf>,
    /// The certificate to show to an allocator that asks for one.
    #[arg(long, value_name = "FILE", env = "LESSOR_CERT", global = true)]
    cert: Option<PathBuf>,
    /// The private key of that certificate.
    #[arg(long, value_name = "FILE", env = "LESSOR_KEY", global = true)]
    key: Option<PathBuf>,
}

impl TlsArgs {
    /// Returns the TLS settings.
    ///
    /// # Errors
    /// If there is a certificate without a key, or a key without a certificate.
    pub(crate) fn tls(&self) -> Result<Tls, Failure> {
        let tls = match &self.ca {
            Some(ca) => Tls::new().ca(ca),
            None => Tls::new(),
        };
        match (&self.cert, &self.key) {
            (None, None) => Ok(tls),
            (Some(certificate), Some(key)) => Ok(tls.certificate(certificate, key)),
            (Some(file), None) => {
                Err(Failure::Input(format!("--cert is {} without --key: give both", file.display())))
            }
            (None, Some(file)) => {
                Err(Failure::Input(format!("--key is {} without --cert: give both", file.display())))
            }
        }
    }
}
