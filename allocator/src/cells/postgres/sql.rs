//! The statements, and the meaning of their rows.

use crate::cells::{Cell, CellsError, Timeline, VALUE_MAX};
use tokio_postgres::Row;

/// Kinds of rows in the answer to a swap: the server, a done swap (1), or a cell that was there instead.
pub(super) const HERE: i32 = 0;
pub(super) const OTHER: i32 = 2;

/// Why a standby is unfit.
pub(super) const STANDBY: &str = "it is in recovery, a standby: only a primary can be written to";

/// Asks whether the server is a standby, and for the time of its clock.
pub(super) const TIME: &str = "SELECT pg_is_in_recovery() AS is_standby,
                               (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS micros";

/// The statements for one prefix.
pub(super) struct Statements {
    pub(super) load: String,
    pub(super) swap: String,
    pub(super) cells: String,
    pub(super) migrations: String,
}

impl Statements {
    pub(super) fn new(prefix: &str) -> Self {
        // A prefix has no quotes in it.
        let cells = format!("\"{prefix}_cells\"");
        let here = here_sql();
        let value = format!("CASE WHEN octet_length(c.value) <= {VALUE_MAX} THEN c.value END");
        let load = format!(
            "WITH here AS MATERIALIZED ({here})
             SELECT here.timeline, here.unfit, c.name, c.version, octet_length(c.value) AS length, {value} AS value
             FROM here LEFT JOIN {cells} c ON c.name = ANY ($1::text[])"
        );
        // `held` has each cell in its state under the lock. All statements lock cells in one order, so that no two wait
        // for each other. Cells are made after all locks are taken, in the same order: a statement that makes a cell
        // waits only for another one that makes a cell.
        let swap = format!(
            "WITH here AS MATERIALIZED ({here}),
             asked AS MATERIALIZED (
               SELECT a.* FROM here, unnest($1::text[], $4::bigint[], $5::bigint[], $6::bytea[])
                 AS a (name, expected, version, value)
               WHERE here.timeline = $3::text AND here.unfit IS NULL
             ),
             held AS MATERIALIZED (
               SELECT asked.*, c.version AS found, octet_length(c.value) AS length,
                 CASE WHEN c.version IS DISTINCT FROM asked.expected THEN {value} END AS there
               FROM asked JOIN {cells} c ON c.name = asked.name
               ORDER BY c.name FOR UPDATE OF c
             ),
             changed AS (
               UPDATE {cells} c SET version = held.version, value = held.value FROM held
               WHERE c.name = held.name AND held.found = held.expected AND held.version IS NOT NULL
               RETURNING c.name
             ),
             deleted AS (
               DELETE FROM {cells} c USING held
               WHERE c.name = held.name AND held.found = held.expected AND held.version IS NULL
               RETURNING c.name
             ),
             made AS (
               INSERT INTO {cells} (name, version, value)
               SELECT name, version, value FROM asked
               WHERE expected IS NULL AND version IS NOT NULL AND (SELECT count(*) FROM held) >= 0
               ORDER BY name COLLATE \"C\" ON CONFLICT (name) DO NOTHING
               RETURNING name
             )
             SELECT {HERE} AS outcome, timeline, unfit, NULL::text AS name, NULL::bigint AS version,
               NULL::int AS length, NULL::bytea AS value FROM here
             UNION ALL SELECT 1, NULL, NULL, name, NULL, NULL, NULL FROM changed
             UNION ALL SELECT 1, NULL, NULL, name, NULL, NULL, NULL FROM deleted
             UNION ALL SELECT 1, NULL, NULL, name, NULL, NULL, NULL FROM made
             UNION ALL SELECT {OTHER}, NULL, NULL, name, found, length, there FROM held
               WHERE found IS DISTINCT FROM expected"
        );
        Statements { load, swap, cells, migrations: format!("\"{prefix}_migrations\"") }
    }
}

/// Returns the query of one row with the system, its timeline, and what makes it unfit, if anything. `$2` is the number
/// of replicas that must have a commit. Both statements have the names as `$1`.
fn here_sql() -> String {
    let must_be = |setting: &str, allowed: &str| {
        format!(
            "WHEN current_setting('{setting}') NOT IN ({allowed})
             THEN '{setting} is ' || current_setting('{setting}')"
        )
    };
    let settings = [
        must_be("fsync", "'on'"),
        must_be("full_page_writes", "'on'"),
        must_be("synchronous_commit", "'on', 'remote_apply'"),
        must_be("transaction_isolation", "'read committed'"),
    ]
    .join("\n");
    let standbys = "current_setting('synchronous_standby_names')";
    format!(
        "SELECT CASE WHEN NOT pg_is_in_recovery() THEN
             system_identifier::text || '/' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
           END AS timeline,
           CASE WHEN pg_is_in_recovery() THEN '{STANDBY}'
             {settings}
             WHEN $2::bigint > 0 AND $2::bigint > CASE WHEN {standbys} = '' THEN 0 ELSE
               coalesce(substring({standbys} FROM '^\\s*(?:[A-Za-z]+\\s+)?(\\d+)\\s*\\('), '1')::bigint END
             THEN 'synchronous_standby_names is ' || quote_literal({standbys}) || ': ' || $2::bigint || ' are needed'
           END AS unfit
         FROM pg_control_system()"
    )
}

/// Returns the timeline of a row, if the server is fit.
pub(super) fn here(row: &Row) -> Result<Timeline, CellsError> {
    let wrong = |error: tokio_postgres::Error| super::line::failed(&error);
    if let Some(unfit) = row.try_get::<_, Option<&str>>("unfit").map_err(wrong)? {
        return Err(CellsError::Unfit(unfit.to_owned()));
    }
    row.try_get::<_, &str>("timeline").map(Timeline::new).map_err(wrong)
}

/// Returns the cell of a row.
pub(super) fn cell(row: &Row, name: &str) -> Result<Cell, CellsError> {
    let wrong = |error: tokio_postgres::Error| super::line::failed(&error);
    let length: i32 = row.try_get("length").map_err(wrong)?;
    crate::cells::check::value(name, length.unsigned_abs() as usize)?;
    let version: i64 = row.try_get("version").map_err(wrong)?;
    let value = row.try_get("value").map_err(wrong)?;
    Ok(Cell { version: version.cast_unsigned(), value })
}
