//! The databases that keep the contract.

use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    thread,
};

use harness::Postgres;
use tempfile::TempDir;

use crate::Store;

thread_local! {
    /// The server of the case that runs on this thread. Without one, the case runs on SQLite.
    static SERVER: RefCell<Option<Rc<Postgres>>> = const { RefCell::new(None) };
}

fn server() -> Option<Rc<Postgres>> {
    SERVER.with_borrow(Clone::clone)
}

/// Whether the case runs on PostgreSQL.
pub(super) fn is_postgres() -> bool {
    server().is_some()
}

/// The database of a home.
fn database(home: &TempDir) -> String {
    let name = home.path().file_name().unwrap().to_string_lossy();
    name.chars().filter(char::is_ascii_alphanumeric).collect()
}

/// Opens the store of a home.
pub(super) fn open(home: &TempDir) -> Store {
    let Some(server) = server() else { return Store::open(home.path()).unwrap() };
    let database = database(home);
    let exists = format!("SELECT count(*) FROM pg_database WHERE datname = '{database}'");
    if server.query("postgres", &exists) == "0" {
        // The name is folded to lower case without quotes.
        server.query("postgres", &format!("CREATE DATABASE \"{database}\""));
    }
    open_url(&server.url(&database))
}

/// Opens a database on a thread that belongs to no runtime.
pub(super) fn open_url(url: &str) -> Store {
    thread::scope(|scope| scope.spawn(|| Store::open_postgres(url)).join()).unwrap().unwrap()
}

/// Executes statements beside the store, each in the words of its database.
pub(super) fn execute(home: &TempDir, sqlite: &str, postgres: &str) -> String {
    match server() {
        Some(server) => server.query(&database(home), postgres),
        None => {
            let file = home.path().join("stead.db");
            let connection = crate::connect::connect(&file).unwrap();
            if !sqlite.starts_with("SELECT") {
                connection.execute_batch(sqlite).unwrap();
                return String::new();
            }
            let number: i64 = connection.query_row(sqlite, [], |row| row.get(0)).unwrap();
            number.to_string()
        }
    }
}

/// Runs all cases on one server of PostgreSQL.
pub(super) fn run_on_postgres(cases: &[(&str, fn())]) {
    let Some(server) = Postgres::start() else { return };
    let server = Rc::new(server);
    SERVER.set(Some(server.clone()));
    let failed: Vec<&str> = cases
        .iter()
        .filter(|(name, case)| {
            eprintln!("on PostgreSQL: {name}");
            catch_unwind(AssertUnwindSafe(case)).is_err()
        })
        .map(|(name, _)| *name)
        .collect();
    SERVER.set(None);
    let messages = server.messages();
    let first: Vec<&str> = messages.lines().take(40).collect();
    assert!(failed.is_empty(), "{failed:#?}; the server reported:\n{}", first.join("\n"));
}

/// A test that runs the named cases on PostgreSQL.
macro_rules! on_postgres {
    ($($case:ident),* $(,)?) => {
        #[test]
        fn postgresql_keeps_the_contract() {
            crate::contract::backend::run_on_postgres(&[$((stringify!($case), $case as fn())),*]);
        }
    };
}
pub(super) use on_postgres;
