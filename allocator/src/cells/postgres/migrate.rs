//! Makes the tables, step by step. The first allocator makes them; others wait meanwhile.

use super::Shared;
use super::line::{Line, failed};
use crate::cells::CellsError;
use tokio_postgres::Client;

/// The steps that make the tables, in order. A published step is never changed. `CELLS` stands for the table.
///
/// Cells are overwritten all the time. Half of each page is left for their next versions, so that the index need not
/// change. Old versions are vacuumed after a fixed number of them, however few cells there are.
const STEPS: [(&str, &str); 1] = [(
    "cells",
    "CREATE TABLE CELLS (
       name text COLLATE \"C\" PRIMARY KEY,
       version bigint NOT NULL,
       value bytea NOT NULL
     ) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000)",
)];

/// Does the steps that were not done yet, and returns their names. All are one transaction.
pub(super) async fn migrate(shared: &Shared) -> Result<Vec<String>, CellsError> {
    let mut line = Line::open(shared, &mut 0).await?;
    steps(line.client_mut(), shared).await.map_err(|error| failed(&error))
}

async fn steps(client: &mut Client, shared: &Shared) -> Result<Vec<String>, tokio_postgres::Error> {
    let (cells, migrations) = (&shared.statements.cells, &shared.statements.migrations);
    let transaction = client.transaction().await?;
    // The lock waits for the allocator that makes the tables, within the time-out of the whole migration.
    transaction.batch_execute("SET LOCAL statement_timeout = 0").await?;
    transaction.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", &[migrations]).await?;
    let table = format!(
        "CREATE TABLE IF NOT EXISTS {migrations} (
           step int PRIMARY KEY, name text NOT NULL, done_at timestamptz NOT NULL DEFAULT now())"
    );
    if !exists(&transaction, migrations).await? {
        transaction.batch_execute(&table).await?;
    }
    let done = format!("SELECT coalesce(max(step), 0) FROM {migrations}");
    let done: i32 = transaction.query_one(&done, &[]).await?.try_get(0)?;
    let mut made = vec![];
    for ((name, step), number) in STEPS.into_iter().zip(1_i32..) {
        if number > done {
            transaction.batch_execute(&step.replace("CELLS", cells)).await?;
            let insert = format!("INSERT INTO {migrations} (step, name) VALUES ($1, $2)");
            transaction.execute(&insert, &[&number, &name]).await?;
            made.push(format!("{number} {name}"));
        }
    }
    transaction.commit().await?;
    Ok(made)
}

async fn exists(
    client: &impl tokio_postgres::GenericClient,
    table: &str,
) -> Result<bool, tokio_postgres::Error> {
    client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&table]).await?.try_get(0)
}

/// Checks that the tables are as this version knows them, and outlast a crash.
pub(super) async fn check(client: &Client, shared: &Shared) -> Result<(), CellsError> {
    let (cells, migrations) = (&shared.statements.cells, &shared.statements.migrations);
    let failed = |error: tokio_postgres::Error| failed(&error);
    let run = "run `lessor store migrate`";
    if !exists(client, migrations).await.map_err(failed)? {
        return Err(CellsError::Unfit(format!("there is no table {migrations}: {run}")));
    }
    let ask = format!(
        "SELECT (SELECT coalesce(max(step), 0) FROM {migrations}),
           (SELECT relpersistence = 'p' FROM pg_class WHERE oid = to_regclass($1))"
    );
    let row = client.query_one(&ask, &[cells]).await.map_err(failed)?;
    let done: i32 = row.try_get(0).map_err(failed)?;
    let lasts: Option<bool> = row.try_get(1).map_err(failed)?;
    let steps = i32::try_from(STEPS.len()).expect("there are few");
    match (done, lasts) {
        (done, _) if done < steps => {
            Err(CellsError::Unfit(format!("{migrations} is at step {done} of {steps}: {run}")))
        }
        // A newer version may have changed the table in an unknown way.
        (done, _) if done > steps => Err(CellsError::Unfit(format!(
            "{migrations} is at step {done}, and this version knows {steps}: use a newer one"
        ))),
        (_, None) => Err(CellsError::Unfit(format!("there is no table {cells}"))),
        (_, Some(false)) => {
            Err(CellsError::Unfit(format!("the table {cells} is unlogged or temporary: a crash empties it")))
        }
        (_, Some(true)) => Ok(()),
    }
}
