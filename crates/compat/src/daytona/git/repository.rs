//! Runs the `git` of a sandbox.

use std::time::Duration;

use axum::http::StatusCode;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;

use super::error_code::error_code;
use crate::daytona::{DaytonaRefusal, ToolboxSandbox};
use adapter::{
    Adapter,
    instance::absolute,
    process::{ProcessEnd, Start},
    wrap::Config,
};
use model::Env;
use store::SandboxRecord;

const GIT_TIMEOUT: Duration = Duration::from_secs(600);

/// How a client authenticates to the server of a repository.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::daytona) struct GitCredentials {
    username: Option<String>,
    password: Option<String>,
    insecure_skip_tls: Option<bool>,
}

impl GitCredentials {
    fn environment(&self) -> Env {
        let mut env = Env::new();
        if let (Some(user), Some(password)) = (&self.username, &self.password) {
            let credentials = STANDARD.encode(format!("{user}:{password}"));
            env.extend([
                ("GIT_CONFIG_COUNT".to_owned(), "1".to_owned()),
                ("GIT_CONFIG_KEY_0".to_owned(), "http.extraHeader".to_owned()),
                ("GIT_CONFIG_VALUE_0".to_owned(), format!("Authorization: Basic {credentials}")),
            ]);
        }
        if self.insecure_skip_tls == Some(true) {
            env.insert("GIT_SSL_NO_VERIFY".to_owned(), "1".to_owned());
        }
        env
    }
}

/// A request with only the path of a repository.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::daytona) struct RepositoryPath {
    pub(super) path: String,
}

/// A repository in a sandbox.
pub(super) struct Repository<'a> {
    app: &'a Adapter,
    sandbox: &'a SandboxRecord,
    pub(super) path: String,
    pub(super) env: Env,
}

impl<'a> Repository<'a> {
    pub(super) fn new(
        app: &'a Adapter,
        ToolboxSandbox(sandbox): &'a ToolboxSandbox,
        path: &str,
    ) -> Repository<'a> {
        let path = absolute(path, &sandbox.row.home);
        Repository { app, sandbox, path, env: Env::new() }
    }

    pub(super) fn authenticated(self, credentials: &GitCredentials) -> Repository<'a> {
        Repository { env: credentials.environment(), ..self }
    }

    /// Runs `git`. Returns its exit code, standard output and standard error.
    pub(super) async fn try_run(
        &self,
        words: &[&str],
    ) -> Result<(i32, String, String), DaytonaRefusal> {
        if words.iter().any(|word| word.contains('\0')) {
            return Err(DaytonaRefusal::bad("arguments must not contain NUL"));
        }
        let mut envs = self.env.clone();
        envs.insert("GIT_TERMINAL_PROMPT".to_owned(), "0".to_owned());
        envs.insert("LC_ALL".to_owned(), "C.UTF-8".to_owned());
        let args = words.iter().map(|word| (*word).to_owned()).collect();
        let start = Start {
            config: Config { cmd: "git".to_owned(), args, envs, cwd: None },
            tag: None,
            stdin: false,
            timeout: Some(GIT_TIMEOUT),
            pty: None,
        };
        let result = self.app.run_process(self.sandbox, start).await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match result.end {
            ProcessEnd::Exit(code) => Ok((code, text(&result.stdout), text(&result.stderr))),
            ProcessEnd::Signal(_) | ProcessEnd::TimedOut | ProcessEnd::Lost => {
                Err(DaytonaRefusal::new(StatusCode::REQUEST_TIMEOUT, "git did not finish"))
            }
        }
    }

    /// Runs `git`. An exit code other than 0 is an error with the message of `git`.
    pub(super) async fn run_anywhere(&self, words: &[&str]) -> Result<String, DaytonaRefusal> {
        match self.try_run(words).await? {
            (0, out, _) => Ok(out),
            (_, out, err) => {
                let code = error_code(&format!("{err}\n{out}"));
                let output = if err.trim().is_empty() { out } else { err };
                let message = format!("git: {}", output.trim());
                Err(match code {
                    Some((status, code)) => DaytonaRefusal::coded(status, code, message),
                    None => DaytonaRefusal::bad(message),
                })
            }
        }
    }

    /// Runs `git` in the repository.
    pub(super) async fn run(&self, words: &[&str]) -> Result<String, DaytonaRefusal> {
        self.run_anywhere(&[&["-C", &self.path], words].concat()).await
    }
}

/// Appends arguments to a command.
pub(super) fn with<'a>(words: &[&'a str], more: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    words.iter().copied().chain(more).collect()
}
