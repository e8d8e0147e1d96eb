//! A checksum in every row, so that a damaged row is reported instead of being used.
//!
//! Two triggers per table keep the column `checksum` up to date with the function `row_checksum`, which every connection
//! registers. They follow from the schema: [`install`] renews them, and the checksums, after a migration has changed the
//! columns of a table. Readers of whole rows compare ([`verify`]); [`damaged_rows`] compares all rows. A row without a
//! checksum is not checked. The table `blobs` needs none: the key of a blob is the hash of its content.

use rusqlite::{Connection, functions::FunctionFlags, types::ValueRef as SqliteValue};

use super::{
    error::StoreError,
    sql::{self, SqlRow, ValueRef},
};

const COLUMN: &str = "checksum";
const FUNCTION: &str = "row_checksum";

/// Rows of a table whose content does not match their checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedTable {
    pub table: String,
    pub rows: u64,
}

#[derive(Default)]
struct RowSum(blake3::Hasher);

impl RowSum {
    fn add(&mut self, value: &ValueRef<'_>) {
        match value {
            ValueRef::Null => self.part(0, &[]),
            ValueRef::Integer(number) => self.part(1, &number.to_le_bytes()),
            ValueRef::Text(text) => self.part(3, text),
            ValueRef::Blob(bytes) => self.part(4, bytes),
        }
    }

    /// The same for a parameter of the function.
    fn add_argument(&mut self, value: SqliteValue<'_>) {
        match value {
            SqliteValue::Null => self.part(0, &[]),
            SqliteValue::Integer(number) => self.part(1, &number.to_le_bytes()),
            SqliteValue::Real(number) => self.part(2, &number.to_bits().to_le_bytes()),
            SqliteValue::Text(text) => self.part(3, text),
            SqliteValue::Blob(bytes) => self.part(4, bytes),
        }
    }

    fn part(&mut self, tag: u8, bytes: &[u8]) {
        self.0.update(&[tag]);
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn finish(&self) -> i64 {
        let hash = self.0.finalize();
        i64::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
    }
}

/// Registers the function that the triggers call.
pub(super) fn register(connection: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_INNOCUOUS;
    connection.create_scalar_function(FUNCTION, -1, flags, |context| {
        let mut sum = RowSum::default();
        (0..context.len()).for_each(|index| sum.add_argument(context.get_raw(index)));
        Ok(sum.finish())
    })
}

/// Compares a row with its checksum, the last column of its table. The statement selects all columns of the table first.
pub(super) fn verify(row: &SqlRow<'_>, noun: &'static str) -> sql::Result<()> {
    let Some(columns) = row.checked_columns() else { return Ok(()) };
    let mut sum = RowSum::default();
    for (index, name) in columns.enumerate() {
        let value = row.value(index)?;
        if name != COLUMN {
            sum.add(&value);
            continue;
        }
        return match value {
            ValueRef::Null => Ok(()),
            ValueRef::Integer(recorded) if recorded == sum.finish() => Ok(()),
            ValueRef::Integer(_) | ValueRef::Text(_) | ValueRef::Blob(_) => {
                Err(sql::Error::DamagedRow { noun })
            }
        };
    }
    Ok(())
}

/// A table with checksums.
struct ChecksumTable {
    name: String,
    /// The columns that the checksum covers, separated by commas.
    columns: String,
    /// The condition that selects the row of a trigger.
    this_row: String,
}

fn tables(connection: &Connection) -> rusqlite::Result<Vec<ChecksumTable>> {
    let mut listed = connection.prepare(
        "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND type = 'table'
           AND name NOT LIKE 'sqlite_%' ORDER BY name",
    )?;
    let listed = listed.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut tables = Vec::new();
    for listed in listed {
        let (name, without_rowid): (String, bool) = listed?;
        let mut statement =
            connection.prepare("SELECT name, pk FROM pragma_table_info(?1) ORDER BY cid")?;
        let columns = statement.query_map([&name], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let columns = columns.collect::<rusqlite::Result<Vec<(String, i64)>>>()?;
        if !columns.iter().any(|(column, _)| column == COLUMN) {
            continue;
        }
        let key = columns.iter().filter(|(_, position)| *position > 0);
        let key = key.map(|(column, _)| format!("\"{column}\" = NEW.\"{column}\""));
        let this_row = match without_rowid {
            true => key.collect::<Vec<_>>().join(" AND "),
            false => "rowid = NEW.rowid".to_owned(),
        };
        let covered = columns.iter().filter(|(column, _)| column != COLUMN);
        let columns = covered.map(|(column, _)| format!("\"{column}\"")).collect::<Vec<_>>();
        tables.push(ChecksumTable { name, columns: columns.join(", "), this_row });
    }
    Ok(tables)
}

/// Creates the triggers that are missing or outdated, and the checksums of their tables.
pub(super) fn install(connection: &Connection) -> rusqlite::Result<()> {
    for ChecksumTable { name, columns, this_row } in tables(connection)? {
        let body =
            format!("UPDATE \"{name}\" SET {COLUMN} = {FUNCTION}({columns}) WHERE {this_row};");
        let triggers = [
            ("inserted", "INSERT".to_owned()),
            ("updated", format!("UPDATE OF {columns}")),
        ]
        .map(|(event, condition)| {
            let trigger = format!("{name}_{event}_checksum");
            let sql = format!(
                "CREATE TRIGGER \"{trigger}\" AFTER {condition} ON \"{name}\" BEGIN {body} END"
            );
            (trigger, sql)
        });
        let is_current = |(trigger, sql): &(String, String)| {
            let count = connection.query_row(
                "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger' AND name = ?1 AND sql = ?2",
                [trigger, sql],
                |row| row.get::<_, i64>(0),
            )?;
            Ok::<_, rusqlite::Error>(count == 1)
        };
        if is_current(&triggers[0])? && is_current(&triggers[1])? {
            continue;
        }
        let [(inserted, create_inserted), (updated, create_updated)] = &triggers;
        connection.execute_batch(&format!(
            "BEGIN IMMEDIATE;
             DROP TRIGGER IF EXISTS \"{inserted}\";
             DROP TRIGGER IF EXISTS \"{updated}\";
             UPDATE \"{name}\" SET {COLUMN} = {FUNCTION}({columns});
             {create_inserted};
             {create_updated};
             COMMIT;"
        ))?;
    }
    Ok(())
}

/// Counts the rows that do not match their checksums, by table.
pub(super) fn damaged_rows(connection: &Connection) -> Result<Vec<DamagedTable>, StoreError> {
    let mut found = Vec::new();
    for ChecksumTable { name, columns, .. } in tables(connection)? {
        let sql =
            format!("SELECT count(*) FROM \"{name}\" WHERE {COLUMN} <> {FUNCTION}({columns})");
        let rows: i64 = connection.query_row(&sql, [], |row| row.get(0))?;
        if rows > 0 {
            found.push(DamagedTable { table: name, rows: u64::try_from(rows).unwrap_or(0) });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Store, schema};

    #[test]
    fn every_table_has_checksums_except_the_one_that_has_hashes() {
        let home = tempfile::tempdir().unwrap();
        drop(Store::open(home.path()).unwrap());
        let raw = Connection::open(home.path().join("stead.db")).unwrap();
        let mut all = raw
            .prepare(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'
                 ORDER BY name",
            )
            .unwrap();
        let all = all.query_map([], |row| row.get(0)).unwrap();
        let mut all: Vec<String> = all.map(Result::unwrap).collect();
        all.retain(|name| name != "blobs");
        let covered: Vec<String> = tables(&raw).unwrap().into_iter().map(|it| it.name).collect();
        assert_eq!(covered, all);
    }

    #[test]
    fn a_home_of_an_earlier_version_gets_checksums() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("stead.db");
        let old = crate::connect::connect(&path).unwrap();
        schema::migrate_to(&old, 11).unwrap();
        let insert = "INSERT INTO ledger (at, kind, subject, detail) VALUES (1, 'k', 's', '{}')";
        old.execute_batch(insert).unwrap();
        drop(old);
        drop(Store::open(home.path()).unwrap());
        let raw = Connection::open(&path).unwrap();
        let sum = "SELECT checksum IS NOT NULL FROM ledger";
        assert!(raw.query_row(sum, [], |row| row.get::<_, bool>(0)).unwrap());
    }
}
