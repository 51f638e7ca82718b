//! The folder of an allocator that requires identities, with valid, expired and unknown tokens.

pub(super) use crate::tls::desk::Allocator;
use crate::tls::desk::{Desk as Certified, serve_by};
use lessor::Tls;
use lessor_access::{SECRET_BYTES, Tokens, calendar};
use lessor_tls::{HttpClient, Token};
use scenarios::process::lessor;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Longest wait for an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// How peers connect to the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Plain,
    Tls,
    Mutual,
}

impl Way {
    pub(super) const ALL: [Way; 3] = [Way::Plain, Way::Tls, Way::Mutual];
}

/// The roles of most of these tests. Nodes are called `a-…` and `b-…`. They may lease `vendor` and not `other`.
const ROLES: &str = r#"
[[role]]
name = "nodes"
identities = ["token:a"]
lease = ["vendor"]
as = ["a-*"]
[[role]]
name = "more nodes"
identities = ["token:b"]
lease = ["vendor"]
as = ["a-*", "b-*"]
[[role]]
name = "eyes"
identities = ["token:reader"]
read = ["vendor"]
[[role]]
name = "hands"
identities = ["token:operator"]
operate = ["vendor"]
top_up_max = 10
[[role]]
name = "all of one"
identities = ["token:admin"]
admin = ["vendor"]
[[role]]
name = "figures"
identities = ["token:prometheus"]
metrics = true
"#;

const LIMITS: &str = r#"
[[limit]]
name = "vendor"
rules = [{ kind = "sliding_window", limit = 600, per = "60s", margin = "0s" }]
[[limit]]
name = "other"
rules = [{ kind = "sliding_window", limit = 600, per = "60s", margin = "0s" }]
"#;

/// A folder with the files of an allocator.
pub(super) struct Desk {
    certified: Certified,
    pub(super) way: Way,
}

impl Desk {
    /// Makes a folder with certificates and roles, and without tokens.
    pub(super) fn new(way: Way) -> Self {
        let desk = Desk { certified: Certified::new(), way };
        fs::write(desk.file("tokens.toml"), Tokens::default().to_string()).expect("a writable file");
        fs::write(desk.file("lessor.toml"), desk.config(ROLES)).expect("a writable file");
        desk
    }

    fn config(&self, roles: &str) -> String {
        let tls = match self.way {
            Way::Plain => String::new(),
            Way::Tls | Way::Mutual => self.certified.setting(self.way == Way::Mutual),
        };
        let tokens = self.file("tokens.toml");
        format!("[server]\n{tls}[store]\nkind = \"memory\"\n[auth]\ntokens = {tokens:?}\n{roles}{LIMITS}")
    }

    /// Replaces the roles. The file changes in one step.
    pub(super) fn roles_are(&self, roles: &str) {
        let new = self.file("new.toml");
        fs::write(&new, self.config(roles)).expect("a writable file");
        fs::rename(new, self.file("lessor.toml")).expect("the file can be renamed");
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.certified.file(name)
    }

    pub(super) fn folder(&self) -> &Path {
        self.certified.folder()
    }

    /// Runs `lessor token …` on the tokens of this folder.
    pub(super) fn token_command(&self, args: &[&str]) -> Output {
        let mut command = Command::new(lessor());
        command.arg("token").args(args).arg("--file").arg(self.file("tokens.toml"));
        command.output().expect("the command runs")
    }

    /// Makes a new token for `name`.
    pub(super) fn token(&self, name: &str) -> String {
        let output = self.token_command(&["new", name]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }

    /// Makes a token for `name` that expired a minute ago.
    pub(super) fn expired(&self, name: &str) -> String {
        let file = self.file("tokens.toml");
        let mut tokens = Tokens::parse(&fs::read_to_string(&file).expect("a readable file")).expect("good");
        let made = calendar() - Duration::from_secs(120);
        let made = tokens.add(name, Some(Duration::from_secs(60)), made, &[5; SECRET_BYTES]).expect("room");
        fs::write(file, tokens.to_string()).expect("a writable file");
        made.text.reveal().to_owned()
    }

    /// Starts the allocator fresh. It logs into a file of the folder.
    pub(super) fn serve(&self) -> Allocator {
        self.serve_with(&["--fresh"])
    }

    /// Starts the allocator with `options`. It restarts from its store if there is one.
    pub(super) fn serve_with(&self, options: &[&str]) -> Allocator {
        let mut command = Command::new(lessor());
        command.args(["serve", "--listen", "127.0.0.1:0", "--log-level", "debug", "--config"]);
        command.arg(self.file("lessor.toml")).args(options);
        serve_by(&self.certified, command)
    }

    /// The client's side of TLS: trusts the folder's authority, and shows a certificate if the server requires one.
    pub(super) fn tls(&self) -> Tls {
        let tls = Tls::new().ca(self.file("ca.crt"));
        match self.way {
            Way::Plain | Way::Tls => tls,
            Way::Mutual => tls.certificate(self.file("client.crt"), self.file("client.key")),
        }
    }

    /// Returns an HTTP client that shows `token`.
    pub(super) fn http(&self, token: Option<&str>) -> HttpClient {
        let tls = (self.way != Way::Plain).then(|| self.tls());
        let http = HttpClient::try_new(PATIENCE, tls).expect("good files");
        http.with_token(token.map(Token::new)).expect("a token")
    }

    /// Runs a `lessor` command that shows `token`.
    pub(super) fn lessor(&self, allocator: &Allocator, token: &str, args: &[&str]) -> Output {
        let mut command = Command::new(lessor());
        command.args(args).env("LESSOR_SERVER", &allocator.url).env("LESSOR_TOKEN", token);
        command.stdin(Stdio::null()).output().expect("the command runs")
    }
}

/// The answer to a request: status, headers and body.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: http::HeaderMap,
    pub(super) body: String,
}

/// Sends a request and returns the answer. `PUT` and `DELETE` change a limit whatever its version.
pub(super) async fn ask(http: &HttpClient, method: &str, url: &str, body: &str) -> Answer {
    let if_match = ["PUT", "DELETE"].contains(&method).then_some("*");
    ask_if(if_match, http, method, url, body).await
}

/// Sends a request that changes the version `if_match` of a limit, if that is there, and returns the answer.
pub(super) async fn ask_if(
    if_match: Option<&str>,
    http: &HttpClient,
    method: &str,
    url: &str,
    body: &str,
) -> Answer {
    let mut request =
        http::Request::builder().method(method).uri(url).header("content-type", "application/json");
    if let Some(if_match) = if_match {
        request = request.header("if-match", if_match);
    }
    let request = request.body(body.as_bytes().to_vec()).expect("a request");
    let mut answer = http.send(request, PATIENCE).await.expect("the server answers");
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    // A stream of events has no end, so its first piece is enough.
    let is_endless = headers.get("content-type").is_some_and(|value| value == "text/event-stream");
    let mut read = vec![];
    while let Some(piece) = answer.chunk().await.expect("a whole body") {
        read.extend_from_slice(&piece);
        if is_endless {
            break;
        }
    }
    Answer { status, headers, body: String::from_utf8(read).expect("text") }
}
