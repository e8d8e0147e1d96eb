//! A PostgreSQL server for a test, with a directory of its own.

use std::{
    fs,
    io::Write,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use crate::wait_for;

/// Where Debian keeps the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// A running server. It is stopped, and its files are removed, when this is dropped; it also ends with this process.
#[derive(Debug)]
pub struct Postgres {
    programs: PathBuf,
    directory: PathBuf,
    /// The account that the server runs as, because it refuses to run as root.
    account: Option<(u32, u32)>,
    server: Option<Child>,
}

impl Postgres {
    /// Starts a server. Returns `None`, after a message, if PostgreSQL is not installed.
    pub fn start() -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let Some(programs) = programs() else {
            eprintln!("skipped: PostgreSQL is not installed (Debian: postgresql)");
            return None;
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("stead-pg-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let account = rustix::process::geteuid().is_root().then(account);
        if let Some((user, group)) = account {
            chown(&directory, Some(user), Some(group)).unwrap();
        }
        let mut started = Self { programs, directory, account, server: None };
        let data = started.data();
        let options =
            ["-D", &data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"];
        started.run("initdb", &options);
        let mut settings =
            fs::OpenOptions::new().append(true).open(format!("{data}/postgresql.conf")).unwrap();
        let directory = started.directory.display();
        writeln!(
            settings,
            "listen_addresses = ''\nunix_socket_directories = '{directory}'\nmax_connections = 60\n\
             shared_buffers = 32MB\nlogging_collector = off"
        )
        .unwrap();
        started.resume();
        Some(started)
    }

    fn data(&self) -> String {
        self.directory.join("data").display().to_string()
    }

    /// Starts the server again after [`kill`](Self::kill) or [`stop`](Self::stop).
    pub fn resume(&mut self) {
        let log = fs::File::options().create(true).append(true).open(self.log()).unwrap();
        let mut command = self.command("postgres", &["-D", &self.data()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.server = Some(command.spawn().unwrap());
        wait_for("PostgreSQL to accept connections", || {
            let output = self.try_run("pg_isready", &["-q", "-h", &self.host()]);
            if output.status.success() { Ok(()) } else { Err(self.messages()) }
        });
    }

    /// Ends all connections and stops the server, which writes its state first.
    pub fn stop(&mut self) {
        self.run("pg_ctl", &["-D", &self.data(), "-m", "fast", "-w", "stop"]);
        self.reap();
    }

    /// Ends the server at once, as a crash does; the next start recovers.
    pub fn kill(&mut self) {
        self.run("pg_ctl", &["-D", &self.data(), "-m", "immediate", "-w", "stop"]);
        self.reap();
    }

    fn reap(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.wait().unwrap();
        }
    }

    fn host(&self) -> String {
        self.directory.display().to_string()
    }

    fn log(&self) -> PathBuf {
        self.directory.join("log")
    }

    /// What the server reported so far.
    pub fn messages(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// Creates a database.
    pub fn create(&self, database: &str) {
        self.run("createdb", &["-h", &self.host(), "-U", "postgres", database]);
    }

    /// The URL of a database.
    pub fn url(&self, database: &str) -> String {
        let host = self.host().replace('/', "%2F");
        format!("postgres://postgres@{host}/{database}")
    }

    /// Runs statements and returns the rows, one per line with `|` between columns.
    pub fn query(&self, database: &str, sql: &str) -> String {
        let options = [
            "-h",
            &self.host(),
            "-U",
            "postgres",
            "-d",
            database,
            "-v",
            "ON_ERROR_STOP=1",
            "-qAtc",
            sql,
        ];
        let output = self.run("psql", &options);
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    fn try_run(&self, program: &str, arguments: &[&str]) -> Output {
        self.command(program, arguments).stdin(Stdio::null()).output().unwrap()
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let output = self.try_run(program, arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {message}");
        output
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        // SIGQUIT ends the server at once.
        command.args(["--pdeathsig", "QUIT"]);
        if let Some((user, group)) = self.account {
            command.args(["--clear-groups", "--reuid", &user.to_string()]);
            command.args(["--regid", &group.to_string()]);
        }
        command.arg(self.programs.join(program)).args(arguments).current_dir(&self.directory);
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            // The children of the server notice its end.
            let _ = server.kill();
            let _ = server.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The programs of the newest installed version.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir(VERSIONS).ok()?.flatten();
    let found = versions.map(|entry| entry.path().join("bin"));
    found.filter(|path| path.join("initdb").exists()).max()
}

/// The user and group of the package, or else those without rights.
fn account() -> (u32, u32) {
    let accounts = fs::read_to_string(Path::new("/etc/passwd")).unwrap();
    let find = |name: &str| {
        let line = accounts.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut parts = line.split(':').skip(2);
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    };
    find("postgres").unwrap_or((65534, 65534))
}
