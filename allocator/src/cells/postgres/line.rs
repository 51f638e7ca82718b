//! A connection to one server that was checked to be fit.

use super::{Shared, migrate};
use crate::cells::CellsError;
use crate::cells::hosts::Tries;
use lessor_protocol::foreign::{causes, excerpt};
use lessor_protocol::lock_anyway::LockAnyway;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, Statement};

/// PostgreSQL 14, as a number.
const OLDEST: i32 = 140_000;

/// Settings of each connection, whatever those of roles and the database are. A statement whose caller has stopped
/// waiting must not wait for others. A plan that scans the whole table is right for none of our statements.
const SETTINGS: &str = "\
    SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE, ISOLATION LEVEL READ COMMITTED;
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') <> 'remote_apply';
    SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;";

type Warning = Arc<Mutex<Option<String>>>;

/// A connection. Dropping it ends the task that reads and writes.
pub(super) struct Line {
    client: Client,
    driver: JoinHandle<()>,
    /// The last warning since a commit was asked for, above all that a replica does not have it yet.
    warning: Warning,
    /// Index of its host in the URL.
    pub(super) host: usize,
    statements: Option<(Statement, Statement)>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Line {
    /// Whether the connection ended by itself.
    pub(super) fn is_over(&self) -> bool {
        self.driver.is_finished()
    }

    /// Connects as [`Line::open`], and checks that the tables are there.
    pub(super) async fn connect(shared: &Shared, first: &mut usize) -> Result<Self, CellsError> {
        let mut line = Line::open(shared, first).await?;
        migrate::check(&line.client, shared).await?;
        let failed = |error: tokio_postgres::Error| failed(&error);
        let load = line.client.prepare(&shared.statements.load).await.map_err(failed)?;
        let swap = line.client.prepare(&shared.statements.swap).await.map_err(failed)?;
        line.statements = Some((load, swap));
        Ok(line)
    }

    /// Connects to the first usable host, from `first` on and around, with or without tables. If there is none, or its
    /// caller stops waiting, `first` becomes the one to begin with next time.
    pub(super) async fn open(shared: &Shared, first: &mut usize) -> Result<Self, CellsError> {
        let mut tries = Tries::new(shared.place.hosts.len(), shared.config.timeout);
        while let Some((host, patience, late)) = tries.next(first) {
            match timeout(patience, Line::open_at(shared, host)).await.map_err(|_| late).flatten() {
                Ok(line) => return Ok(line),
                Err(error) => tries.failed(error)?,
            }
        }
        Err(tries.error())
    }

    async fn open_at(shared: &Shared, host: usize) -> Result<Self, CellsError> {
        let mut config = shared.place.hosts[host].clone();
        config.connect_timeout(shared.config.timeout);
        if config.get_application_name().is_none() {
            config.application_name("lessor");
        }
        if let (None, Some(password)) = (config.get_password(), &shared.config.password) {
            config.password(password.reveal().await);
        }
        let warning = Warning::default();
        let (client, driver) = match &shared.tls {
            Some(tls) => {
                let (client, connection) =
                    config.connect(tls.clone()).await.map_err(|error| failed(&error))?;
                (client, tokio::spawn(drive(connection, Arc::clone(&warning))))
            }
            None => {
                let (client, connection) = config.connect(NoTls).await.map_err(|error| failed(&error))?;
                (client, tokio::spawn(drive(connection, Arc::clone(&warning))))
            }
        };
        let line = Line { client, driver, warning, host, statements: None };
        let patience = shared.config.timeout.as_millis().max(1);
        let settings = format!("SET statement_timeout = {patience}; {SETTINGS}");
        line.client.batch_execute(&settings).await.map_err(|error| failed(&error))?;
        line.check().await?;
        Ok(line)
    }

    async fn check(&self) -> Result<(), CellsError> {
        let ask = "SELECT current_setting('server_version_num')::int, current_setting('server_version'),
                   current_setting('server_encoding')";
        let row = self.client.query_one(ask, &[]).await.map_err(|error| failed(&error))?;
        let (number, version, encoding): (i32, &str, &str) = (row.get(0), row.get(1), row.get(2));
        if number < OLDEST {
            return Err(CellsError::Unfit(format!("server_version is {version}: it must be 14 or later")));
        }
        if encoding != "UTF8" {
            return Err(CellsError::Unfit(format!("server_encoding is {encoding}: it must be UTF8")));
        }
        Ok(())
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn client_mut(&mut self) -> &mut Client {
        &mut self.client
    }

    pub(super) fn load(&self) -> &Statement {
        &self.statements.as_ref().expect("a line to cells has both").0
    }

    pub(super) fn swap(&self) -> &Statement {
        &self.statements.as_ref().expect("a line to cells has both").1
    }

    pub(super) fn forget_warnings(&self) {
        *self.warning.lock_anyway() = None;
    }

    /// Returns the server's last warning. The server sends it before the end of the statement, and messages are read in
    /// order.
    pub(super) fn warning(&self) -> Option<String> {
        self.warning.lock_anyway().take()
    }
}

/// Reads and writes until the connection ends.
async fn drive<S, T>(mut connection: Connection<S, T>, warning: Warning)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        if let AsyncMessage::Notice(notice) = message
            && notice.code() == &SqlState::WARNING
        {
            *warning.lock_anyway() = Some(excerpt(notice.message()));
        }
    }
}

/// Returns what an error means. Its details may show values, and are left out.
pub(super) fn failed(error: &tokio_postgres::Error) -> CellsError {
    let Some(db) = error.as_db_error() else { return CellsError::Unreachable(causes(error)) };
    let text = format!("{}: {}", db.severity(), excerpt(db.message()));
    let code = db.code();
    if *code == SqlState::UNDEFINED_TABLE {
        CellsError::Unfit(format!("{text}: run `lessor store migrate`"))
    } else if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        CellsError::Unfit(text)
    } else if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
        CellsError::Unfit(format!("transaction_read_only is on: {text}"))
    } else {
        CellsError::Unreachable(text)
    }
}
