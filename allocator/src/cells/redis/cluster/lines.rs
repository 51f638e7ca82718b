//! The connections of a handle to the servers of a cluster, one for each, which are asked all at once.

use crate::cells::CellsError;
use crate::cells::redis::answer::Answer;
use crate::cells::redis::line::Line;
use crate::cells::redis::script::SwapArgs;
use crate::cells::redis::{Shared, at};
use crate::cells::url::Address;
use redis::Pipeline;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// A request to one server.
pub(super) enum Question {
    /// All of these commands, in order.
    Look(Pipeline),
    /// These swaps, and to wait until they are as durable as configured.
    Swap(Vec<SwapArgs>),
}

/// A server with its answers.
pub(super) type Answered = (Address, Result<Vec<Answer>, CellsError>);

/// Connections that have answered everything that they were asked.
#[derive(Default)]
pub(super) struct Lines(BTreeMap<Address, Line>);

impl Lines {
    /// Asks these servers, each once and for at most `span`. Answers are in the order of the questions. After a
    /// failure, a time-out, or a dropped future, a connection is dropped with any answer that it may still give. The
    /// others are kept.
    pub(super) async fn ask(
        &mut self,
        shared: &Arc<Shared>,
        questions: impl IntoIterator<Item = (Address, Question)>,
        span: Duration,
    ) -> Vec<Answered> {
        let mut asking = JoinSet::new();
        let mut answered = vec![];
        for (place, (address, question)) in questions.into_iter().enumerate() {
            // A connection that was closed while unused is no error: nothing was asked over it.
            let line = self.0.remove(&address).filter(|line| !line.is_over());
            // Replaced by the answer.
            answered.push((address.clone(), Err(CellsError::Unreachable("it was not asked".to_owned()))));
            let shared = Arc::clone(shared);
            asking.spawn(async move {
                let asked = timeout(span, one(&shared, &address, line, question)).await;
                (place, asked.unwrap_or_else(|_| (None, Err(shared.config.no_answer()))))
            });
        }
        while let Some(one) = asking.join_next().await {
            // The runtime ends, and the caller with it.
            let Ok((place, (line, answers))) = one else { continue };
            let (address, outcome) = &mut answered[place];
            if let Some(line) = line {
                self.0.insert(address.clone(), line);
            }
            *outcome = answers;
        }
        for (address, outcome) in &mut answered {
            if let Err(error) = outcome {
                *error = at(error.clone(), address);
            }
        }
        answered
    }

    /// Whether there is a connection to this server.
    pub(super) fn has(&self, address: &Address) -> bool {
        self.0.contains_key(address)
    }

    /// Drops all connections but those to `servers`.
    pub(super) fn keep(&mut self, servers: &[Address]) {
        self.0.retain(|address, _| servers.contains(address));
    }
}

/// Asks one server. The connection is returned if no answer is left in it.
async fn one(
    shared: &Shared,
    address: &Address,
    line: Option<Line>,
    question: Question,
) -> (Option<Line>, Result<Vec<Answer>, CellsError>) {
    let line = match line {
        Some(line) => Ok(line),
        None => Line::connect(shared, address).await,
    };
    let mut line = match line {
        Ok(line) => line,
        Err(error) => return (None, Err(error)),
    };
    let answers = match question {
        Question::Look(pipeline) => line.ask(&pipeline).await,
        Question::Swap(told) => swap(&mut line, shared, &told).await,
    };
    let is_whole = matches!(answers, Ok(_) | Err(CellsError::NotDurable(_)));
    (is_whole.then_some(line), answers)
}

async fn swap(line: &mut Line, shared: &Shared, told: &[SwapArgs]) -> Result<Vec<Answer>, CellsError> {
    let answers = line.swap(told).await?;
    if answers.iter().any(|answer| matches!(answer, Answer::Number(1))) {
        line.wait(&shared.config).await?;
    }
    Ok(answers)
}
