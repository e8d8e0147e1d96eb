//! A connection to PostgreSQL, with its statements and rows.
//!
//! The closures of the store are synchronous, so each connection has a runtime of its own, which runs only while a
//! thread waits for an answer. Every wait has a deadline. A connection that failed once, or whose server did not answer
//! in time, is broken for good: [`super::Db`] is then dropped, and another one is opened.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    time::Duration,
};

use base::outbound::bounded;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, Config, SimpleQueryMessage, types::Type};

use super::{
    column::ColumnKey,
    dialect::translate,
    error::{Error, PostgresError, Result, chain},
    params::{Parameter, ParameterList},
    tls::MakeTls,
    value::{ValueKind, ValueRef},
    wire::{BoundValue, ColumnValue, parameter_type},
};

/// How long one statement may take, by the clock of this process. The server's own limit is shorter, so that it reports
/// which statement it was.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(15);

/// How long it may take to open a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of statements that one connection keeps prepared.
const MAX_PREPARED: usize = 256;

/// A statement that the server has prepared.
struct Prepared {
    kinds: Vec<ValueKind>,
    names: Vec<String>,
    statement: tokio_postgres::Statement,
}

/// A connection with what it has prepared.
pub(crate) struct PostgresSession {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    client: Client,
    prepared: RefCell<HashMap<String, Prepared>>,
    /// The first failure of a statement in the current transaction, which is why nothing more is executed in it.
    failure: RefCell<Option<PostgresError>>,
    is_broken: Cell<bool>,
}

impl std::fmt::Debug for PostgresSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresSession")
            .field("is_broken", &self.is_broken)
            .finish_non_exhaustive()
    }
}

impl Drop for PostgresSession {
    fn drop(&mut self) {
        // Dropping a runtime waits for its tasks, which is not allowed on the threads of another one.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl PostgresSession {
    /// Opens a connection. Blocks.
    pub(crate) fn connect(
        config: &Config,
        tls: MakeTls,
    ) -> std::result::Result<Self, PostgresError> {
        let refused = |reason: String| PostgresError::Connection { reason };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| refused(error.to_string()))?;
        let connecting = bounded("postgres.connect", CONNECT_TIMEOUT, config.connect(tls));
        let (client, connection) = runtime
            .block_on(connecting)
            .map_err(|error| refused(error.to_string()))?
            .map_err(PostgresError::from)?;
        runtime.spawn(async move {
            // The statement that waits for an answer reports the error.
            if let Err(error) = connection.await {
                tracing::debug!(error = chain(&error), "a connection to PostgreSQL ended");
            }
        });
        Ok(Self {
            runtime: Some(runtime),
            client,
            prepared: RefCell::default(),
            failure: RefCell::default(),
            is_broken: Cell::new(false),
        })
    }

    /// Whether the connection is of no further use.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.get() || self.client.is_closed()
    }

    /// Returns the first failure since the last call.
    pub(crate) fn take_failure(&self) -> Option<PostgresError> {
        self.failure.borrow_mut().take()
    }

    /// Waits for an answer of the server, up to the deadline of a statement.
    fn wait<T>(
        &self,
        call: &'static str,
        answer: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        let Some(runtime) = self.runtime.as_ref().filter(|_| !self.is_broken()) else {
            let reason = "it was lost during an earlier statement".to_owned();
            return Err(self.failed(PostgresError::Connection { reason }));
        };
        match runtime.block_on(bounded(call, STATEMENT_TIMEOUT, answer)) {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(self.failed(error.into())),
            Err(timed_out) => {
                Err(self.failed(PostgresError::Connection { reason: timed_out.to_string() }))
            }
        }
    }

    fn failed(&self, error: PostgresError) -> Error {
        if matches!(error, PostgresError::Connection { .. }) {
            self.is_broken.set(true);
        }
        self.failure.borrow_mut().get_or_insert_with(|| error.clone());
        Error::Postgres(error)
    }

    /// Executes statements without parameters, in one message.
    pub(crate) fn batch(&self, sql: &str) -> Result<()> {
        self.wait("postgres.batch", self.client.batch_execute(sql))
    }

    /// Executes statements without parameters and returns the first column of the first row.
    pub(crate) fn batch_value(&self, sql: &str) -> Result<Option<String>> {
        let messages = self.wait("postgres.batch", self.client.simple_query(sql))?;
        Ok(messages.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        }))
    }

    /// Prepares the statement unless it is, and passes it with its parameters to `run`.
    fn run<T>(
        &self,
        sql: &str,
        params: &impl ParameterList,
        run: impl FnOnce(&tokio_postgres::Statement, &[BoundValue]) -> Result<T>,
    ) -> Result<T> {
        let mut values = Vec::new();
        let mut kinds = Vec::new();
        let mut names = Vec::new();
        params.each(&mut |parameter, value| {
            kinds.push(value.kind());
            values.push(BoundValue::new(&value.value()));
            match parameter {
                Parameter::Position(index) if index == values.len() => {}
                Parameter::Position(index) => {
                    return Err(wrong(format!("parameter {index} comes at {}", values.len())));
                }
                Parameter::Name(name) => names.push(name.to_owned()),
            }
            Ok(())
        })?;
        if !self.prepared.borrow().get(sql).is_some_and(|it| it.matches(&kinds, &names)) {
            self.prepare(sql, &mut kinds, &names)?;
        }
        let prepared = self.prepared.borrow();
        let Some(found) = prepared.get(sql) else {
            return Err(wrong("the statement was not prepared".to_owned()));
        };
        if !names.is_empty() {
            // In the order of the statement.
            let mut by_name: HashMap<_, _> = names.into_iter().zip(values).collect();
            values = Vec::with_capacity(found.names.len());
            for name in &found.names {
                let value = by_name.remove(name);
                values.push(value.ok_or_else(|| wrong(format!("{name} has no value")))?);
            }
        }
        run(&found.statement, &values)
    }

    fn prepare(&self, sql: &str, kinds: &mut [ValueKind], names: &[String]) -> Result<()> {
        let translated = translate(sql);
        let types: Vec<Type> = if names.is_empty() {
            kinds.iter().copied().map(parameter_type).collect()
        } else {
            let kind =
                |name: &String| names.iter().position(|other| other == name).map(|at| kinds[at]);
            let types = translated.names.iter().map(|name| kind(name).map(parameter_type));
            types
                .collect::<Option<_>>()
                .ok_or_else(|| wrong("a parameter has no value".to_owned()))?
        };
        let preparing = self.client.prepare_typed(&translated.sql, &types);
        let statement = self.wait("postgres.prepare", preparing)?;
        let mut prepared = self.prepared.borrow_mut();
        if prepared.len() >= MAX_PREPARED {
            prepared.clear();
        }
        let kinds = kinds.to_vec();
        let names = if names.is_empty() { Vec::new() } else { translated.names };
        prepared.insert(sql.to_owned(), Prepared { kinds, names, statement });
        Ok(())
    }

    pub(super) fn execute(&self, sql: &str, params: &impl ParameterList) -> Result<usize> {
        self.run(sql, params, |statement, values| {
            let done = self.client.execute_raw(statement, values);
            let count = self.wait("postgres.execute", done)?;
            usize::try_from(count).map_err(|error| wrong(error.to_string()))
        })
    }

    pub(super) fn query(
        &self,
        sql: &str,
        params: &impl ParameterList,
    ) -> Result<Vec<tokio_postgres::Row>> {
        self.run(sql, params, |statement, values| {
            let values: Vec<&(dyn tokio_postgres::types::ToSql + Sync)> =
                values.iter().map(|value| value as _).collect();
            self.wait("postgres.query", self.client.query(statement, &values))
        })
    }
}

impl Prepared {
    fn matches(&self, kinds: &[ValueKind], names: &[String]) -> bool {
        // A statement always has the same names.
        self.kinds == kinds && self.names.is_empty() == names.is_empty()
    }
}

/// A fault of this program.
fn wrong(reason: String) -> Error {
    Error::Postgres(PostgresError::Refused { reason })
}

/// A row of a result.
pub(crate) struct PostgresRow<'r>(pub(super) &'r tokio_postgres::Row);

impl PostgresRow<'_> {
    pub(super) fn value(&self, place: ColumnKey<'_>) -> Result<ValueRef<'_>> {
        let value = match place {
            ColumnKey::Position(index) => self.0.try_get::<_, ColumnValue<'_>>(index),
            ColumnKey::Name(name) => self.0.try_get::<_, ColumnValue<'_>>(name),
        };
        let bad = |error| {
            let reason = chain(&error).into();
            Error::BadValue { column: place.to_string(), reason }
        };
        value.map(|ColumnValue(value)| value).map_err(bad)
    }
}
