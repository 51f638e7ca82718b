//! A connection to one server that was checked to be fit.

use super::Shared;
use super::answer::{Answer, State, failed, unreachable};
use super::script::{SCRIPT, SwapArgs};
use crate::cells::url::Address;
use crate::cells::{CellsConfig, CellsError};
use lessor_protocol::foreign::excerpt;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Pipeline, RedisConnectionInfo};
use std::io;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Retries of a batch for which the server had forgotten the script.
const FORGOTTEN_MAX: usize = 3;

/// A connection. Dropping it ends the task that reads and writes, so that the connection is closed whatever it waits
/// for.
pub(super) struct Line {
    connection: MultiplexedConnection,
    driver: JoinHandle<()>,
    /// Hash by which the server knows the script.
    sha: String,
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

    pub(super) async fn connect(shared: &Shared, address: &Address) -> Result<Self, CellsError> {
        let cannot = |error: io::Error| CellsError::Unreachable(excerpt(&error.to_string()));
        let stream = TcpStream::connect((address.host.as_str(), address.port)).await.map_err(cannot)?;
        stream.set_nodelay(true).map_err(cannot)?;
        let mut line = match &shared.tls {
            Some(encryptor) => {
                let stream = encryptor.connect(&address.host, stream).await.map_err(cannot)?;
                Line::over(stream, shared).await?
            }
            None => Line::over(stream, shared).await?,
        };
        let mut info = Pipeline::new();
        info.cmd("INFO");
        State::of(line.ask_one(&info).await?)?.check(shared)?;
        line.load_script().await?;
        Ok(line)
    }

    async fn over<S>(stream: S, shared: &Shared) -> Result<Self, CellsError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut info = RedisConnectionInfo::default().set_db(shared.place.db).set_skip_set_lib_name();
        if let Some(user) = &shared.place.user {
            info = info.set_username(user);
        }
        if let Some(password) = shared.place.password.as_ref().or(shared.config.password.as_ref()) {
            info = info.set_password(password.reveal().await);
        }
        // The caller has one time-out for everything.
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let made = MultiplexedConnection::new_with_config(&info, stream, config).await;
        let (connection, driver) = made.map_err(|error| unreachable(&error))?;
        Ok(Line { connection, driver: tokio::spawn(driver), sha: String::new() })
    }

    /// Returns the answers to all commands, errors included.
    pub(super) async fn ask(&mut self, pipeline: &Pipeline) -> Result<Vec<Answer>, CellsError> {
        let count = pipeline.len();
        let answers = self.connection.send_packed_commands(pipeline, 0, count).await;
        let answers = answers.map_err(|error| unreachable(&error))?;
        match answers.len() == count {
            true => Ok(answers.into_iter().map(Answer::from).collect()),
            false => Err(CellsError::Unreachable(format!("{} answers to {count} commands", answers.len()))),
        }
    }

    async fn ask_one(&mut self, pipeline: &Pipeline) -> Result<Answer, CellsError> {
        Ok(self.ask(pipeline).await?.pop().unwrap_or(Answer::Strange))
    }

    /// Returns the script's answer to each of these swaps.
    pub(super) async fn swap(&mut self, told: &[SwapArgs]) -> Result<Vec<Answer>, CellsError> {
        let mut answers = self.evaluate(told.iter()).await?;
        for _ in 0..FORGOTTEN_MAX {
            let forgotten = (0..answers.len()).filter(|&at| answers[at].is_forgotten());
            let forgotten: Vec<usize> = forgotten.collect();
            if forgotten.is_empty() {
                break;
            }
            self.load_script().await?;
            let again = self.evaluate(forgotten.iter().map(|&at| &told[at])).await?;
            forgotten.into_iter().zip(again).for_each(|(at, answer)| answers[at] = answer);
        }
        Ok(answers)
    }

    async fn evaluate(&mut self, told: impl Iterator<Item = &SwapArgs>) -> Result<Vec<Answer>, CellsError> {
        let (mut pipeline, mut own) = (Pipeline::new(), vec![]);
        for told in told {
            let before = told.add_to(&mut pipeline, &self.sha);
            own.extend(std::iter::repeat_n(false, before).chain([true]));
        }
        let answers = self.ask(&pipeline).await?.into_iter().zip(own);
        Ok(answers.filter_map(|(answer, is_own)| is_own.then_some(answer)).collect())
    }

    async fn load_script(&mut self) -> Result<(), CellsError> {
        let mut load = Pipeline::new();
        load.cmd("SCRIPT").arg("LOAD").arg(SCRIPT);
        let sha = self.ask_one(&load).await?.bytes()?;
        self.sha = String::from_utf8_lossy(&sha).into_owned();
        Ok(())
    }

    /// Waits until the writes of this connection are as durable as configured, for at most half of the time-out. A
    /// longer wait would run into the time-out of the call, whose error does not say that the write is not durable.
    pub(super) async fn wait(&mut self, config: &CellsConfig) -> Result<(), CellsError> {
        if config.replicas == 0 && !config.synced {
            return Ok(());
        }
        let patience = (config.timeout / 2).as_millis().max(1).to_string();
        let mut wait = Pipeline::new();
        match config.synced {
            true => wait.cmd("WAITAOF").arg(1).arg(config.replicas).arg(patience),
            false => wait.cmd("WAIT").arg(config.replicas).arg(patience),
        };
        let replicas = match self.ask_one(&wait).await? {
            Answer::Number(replicas) => replicas,
            Answer::List(counts) => match counts[..] {
                [Answer::Number(here), Answer::Number(_)] if here < 1 => {
                    return Err(CellsError::NotDurable("the write is not synced yet".to_owned()));
                }
                [Answer::Number(_), Answer::Number(replicas)] => replicas,
                _ => return Err(Answer::Strange.failed()),
            },
            // The swap itself is done, whatever this error is.
            Answer::Error(error) => return Err(CellsError::NotDurable(failed(&error).to_string())),
            Answer::Bytes(_) | Answer::Strange => return Err(Answer::Strange.failed()),
        };
        if replicas < i64::from(config.replicas) {
            let asked = config.replicas;
            return Err(CellsError::NotDurable(format!("it is on {replicas} replicas, of {asked}")));
        }
        Ok(())
    }
}
