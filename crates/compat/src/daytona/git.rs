//! Repositories, by the `git` that the sandbox has.
//!
//! Names and passwords go by the environment, never by the words of a command, which are kept.

use std::time::Duration;

use axum::{
    extract::{Query, State},
    http::StatusCode,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Asked, Guest, Refusal, fault::kind};
use crate::Compat;
use crate::{
    instance::absolute,
    process::{End, Start},
    wrap::Config,
};
use model::Env;
use store::SandboxRecord;

/// How long a repository may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// Between the fields of a commit.
const FIELD: char = '\x1f';

/// What may be asked; which of it means something depends on the call.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Ask {
    path: String,
    name: String,
    files: Option<Vec<String>>,
    branch: Option<String>,
    url: String,
    commit_id: Option<String>,
    depth: Option<u32>,
    insecure_skip_tls: Option<bool>,
    username: Option<String>,
    password: Option<String>,
    message: String,
    author: String,
    email: String,
    allow_empty: Option<bool>,
    remote: Option<String>,
    set_upstream: Option<bool>,
    bare: Option<bool>,
    initial_branch: Option<String>,
    mode: Option<String>,
    target: Option<String>,
    source: Option<String>,
    staged: Option<bool>,
    worktree: Option<bool>,
    fetch: Option<bool>,
    overwrite: Option<bool>,
    key: String,
    value: String,
    scope: Option<String>,
    host: Option<String>,
    protocol: Option<String>,
}

impl Ask {
    /// What `git` needs to know of whoever asks.
    fn environment(&self) -> Env {
        let mut env = Env::new();
        if let (Some(user), Some(password)) = (&self.username, &self.password) {
            let both = STANDARD.encode(format!("{user}:{password}"));
            env.extend([
                ("GIT_CONFIG_COUNT".to_owned(), "1".to_owned()),
                ("GIT_CONFIG_KEY_0".to_owned(), "http.extraHeader".to_owned()),
                ("GIT_CONFIG_VALUE_0".to_owned(), format!("Authorization: Basic {both}")),
            ]);
        }
        if self.insecure_skip_tls == Some(true) {
            env.insert("GIT_SSL_NO_VERIFY".to_owned(), "1".to_owned());
        }
        env
    }

    /// Where settings are kept, as `git config` is told.
    fn place(&self) -> Result<String, Refusal> {
        match self.scope.as_deref() {
            None | Some("" | "global") => Ok("--global".to_owned()),
            Some("local") => Ok("--local".to_owned()),
            Some("system") => Ok("--system".to_owned()),
            Some(other) => Err(Refusal::bad(format!("unknown scope: {other}"))),
        }
    }
}

/// A repository, and what is asked of it.
struct Repository<'a> {
    app: &'a Compat,
    sandbox: &'a SandboxRecord,
    path: String,
    env: Env,
}

impl<'a> Repository<'a> {
    fn new(app: &'a Compat, Guest(sandbox): &'a Guest, ask: &Ask) -> Repository<'a> {
        let path = absolute(&ask.path, &sandbox.row.home);
        Repository { app, sandbox, path, env: ask.environment() }
    }

    /// Runs `git` and gives its exit code and what it wrote.
    async fn try_run(&self, words: &[&str]) -> Result<(i32, String, String), Refusal> {
        if words.iter().any(|word| word.contains('\0')) {
            return Err(Refusal::bad("no word may contain NUL"));
        }
        let mut envs = self.env.clone();
        envs.insert("GIT_TERMINAL_PROMPT".to_owned(), "0".to_owned());
        envs.insert("LC_ALL".to_owned(), "C.UTF-8".to_owned());
        let args = words.iter().map(|word| (*word).to_owned()).collect();
        let start = Start {
            config: Config { cmd: "git".to_owned(), args, envs, cwd: None },
            tag: None,
            stdin: false,
            timeout: Some(PATIENCE),
            pty: None,
        };
        let ran = self.app.run_process(self.sandbox, start).await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match ran.end {
            End::Exit(code) => Ok((code, text(&ran.stdout), text(&ran.stderr))),
            End::Signal(_) | End::TimedOut | End::Lost => {
                Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "git did not come to an end"))
            }
        }
    }

    async fn run_anywhere(&self, words: &[&str]) -> Result<String, Refusal> {
        match self.try_run(words).await? {
            (0, out, _) => Ok(out),
            (_, out, err) => {
                let kind = kind(&format!("{err}\n{out}"));
                let said = if err.trim().is_empty() { out } else { err };
                let said = format!("git: {}", said.trim());
                Err(match kind {
                    Some((status, code)) => Refusal::coded(status, code, said),
                    None => Refusal::bad(said),
                })
            }
        }
    }

    /// The same in the repository.
    async fn run(&self, words: &[&str]) -> Result<String, Refusal> {
        self.run_anywhere(&[&["-C", &self.path], words].concat()).await
    }
}

/// Adds words to a command.
fn with<'a>(words: &[&'a str], more: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    words.iter().copied().chain(more).collect()
}

/// Copies a repository.
pub(super) async fn clone(
    State(app): State<Compat>,
    guest: Guest,
    Asked(ask): Asked<Ask>,
) -> Result<StatusCode, Refusal> {
    let repository = Repository::new(&app, &guest, &ask);
    let depth = ask.depth.map(|depth| format!("--depth={depth}"));
    let branch = ask.branch.as_deref().filter(|name| !name.is_empty());
    let branch = branch.map(|name| format!("--branch={name}"));
    let options = depth.iter().chain(&branch).map(String::as_str);
    let words = with(&with(&["clone", "--quiet"], options), ["--", &ask.url, &repository.path]);
    repository.run_anywhere(&words).await?;
    if let Some(commit) = ask.commit_id.as_deref().filter(|commit| !commit.is_empty()) {
        repository.run(&["checkout", "--quiet", "--detach", commit]).await?;
    }
    Ok(StatusCode::OK)
}

/// Makes a repository.
pub(super) async fn init(
    State(app): State<Compat>,
    guest: Guest,
    Asked(ask): Asked<Ask>,
) -> Result<StatusCode, Refusal> {
    let repository = Repository::new(&app, &guest, &ask);
    let branch = ask.initial_branch.as_deref().filter(|name| !name.is_empty());
    let branch = branch.map(|name| format!("--initial-branch={name}"));
    let bare = ask.bare.unwrap_or_default().then_some("--bare");
    let options = bare.into_iter().chain(branch.as_deref());
    let words = with(&with(&["init", "--quiet"], options), ["--", &repository.path]);
    repository.run_anywhere(&words).await?;
    Ok(StatusCode::CREATED)
}

/// How a repository stands.
pub(super) async fn status(
    State(app): State<Compat>,
    guest: Guest,
    Query(ask): Query<Ask>,
) -> Result<axum::Json<Value>, Refusal> {
    let repository = Repository::new(&app, &guest, &ask);
    let words = ["status", "--porcelain=v2", "--branch", "--untracked-files=all", "-z"];
    Ok(axum::Json(told(&repository.run(&words).await?)))
}

/// The word for what happened to a file.
fn word(letter: u8) -> &'static str {
    match letter {
        b'M' | b'T' => "Modified",
        b'A' => "Added",
        b'D' => "Deleted",
        b'R' => "Renamed",
        b'C' => "Copied",
        b'U' => "Updated but unmerged",
        b'?' => "Untracked",
        _ => "Unmodified",
    }
}

/// What `git status` says, as clients read it.
fn told(said: &str) -> Value {
    let (mut branch, mut upstream, mut ahead, mut behind) = ("", "", 0, 0);
    let mut files = Vec::new();
    let mut entries = said.split('\0').filter(|entry| !entry.is_empty());
    while let Some(entry) = entries.next() {
        if let Some(rest) = entry.strip_prefix("# branch.") {
            match rest.split_once(' ') {
                Some(("head", name)) => branch = name,
                Some(("upstream", name)) => upstream = name,
                Some(("ab", both)) => {
                    let mut numbers = both
                        .split(' ')
                        .map(|it| it.get(1..).unwrap_or_default().parse::<u64>().unwrap_or(0));
                    (ahead, behind) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
                }
                _ => {}
            }
            continue;
        }
        let (kind, rest) = entry.split_once(' ').unwrap_or((entry, ""));
        // How many fields go before the name.
        let before = match kind {
            "1" => 7,
            "2" => 8,
            "u" => 9,
            _ => 0,
        };
        let letters = match before {
            0 => b"??",
            _ => rest.as_bytes().get(..2).unwrap_or(b".."),
        };
        let name = rest.splitn(before + 1, ' ').last().unwrap_or_default();
        let extra = if kind == "2" { entries.next().unwrap_or_default() } else { "" };
        files.push(json!({
            "name": name,
            "staging": word(letters[0]),
            "worktree": word(letters[1]),
            "extra": extra,
        }));
    }
    let detached = branch == "(detached)";
    json!({
        "currentBranch": if detached { "HEAD" } else { branch },
        "detached": detached,
        "upstream": upstream,
        "branchPublished": !upstream.is_empty(),
        "ahead": ahead,
        "behind": behind,
        "fileStatus": files,
    })
}

/// The branches of a repository.
pub(super) async fn branches(
    State(app): State<Compat>,
    guest: Guest,
    Query(ask): Query<Ask>,
) -> Result<axum::Json<Value>, Refusal> {
    let repository = Repository::new(&app, &guest, &ask);
    let listed = ["for-each-ref", "--format=%(refname:short)", "refs/heads"];
    let listed = repository.run(&listed).await?;
    let words = ["-C", &repository.path, "symbolic-ref", "--quiet", "--short", "HEAD"];
    let (_, current, _) = repository.try_run(&words).await?;
    let branches: Vec<&str> = listed.lines().collect();
    Ok(axum::Json(json!({"branches": branches, "current": current.trim()})))
}

/// Makes a branch and goes to it.
pub(super) async fn create_branch(
    State(app): State<Compat>,
    guest: Guest,
    Asked(ask): Asked<Ask>,
) -> Result<StatusCode, Refusal> {
    let repository = Repository::new(&app, &guest, &ask);
    repository.run(&["checkout", "--quiet", "-b", &ask.name]).await?;
    Ok(StatusCode::CREATED)
}

/// Deletes a branch, merged or not.
pub(super) async fn delete_branch(
    State(app): State<Compat>,
    guest: Guest,
    Asked(ask): Asked<Ask>,
) -> Result<StatusCode, Refusal> {
    let repository = Repository::new(&app, &guest, &ask);
    let name = format!("refs/heads/{}", ask.name);
    repository.run(&["show-ref", "--verify", &name]).await?;
    repository.run(&["update-ref", "-d", &name]).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Goes to a branch or a commit.
pub(super) async fn checkout(
    State(app): State<Compat>,
    guest: Guest,
    Asked(ask): Asked<Ask>,
) -> Result<StatusCode, Refusal> {
    let branch = ask.branch.as_deref().filter(|name| !name.is_empty() && !name.starts_with('-'));
    let branch = branch.ok_or_else(|| Refusal::bad("branch is missing"))?;
    Repository::new(&app, &guest, &ask).run(&["checkout", "--quiet", branch, "--"]).await?;
    Ok(StatusCode::OK)
}

/// Puts files into what is to be committed.
pub(super) async fn add(
    State(app): State<Compat>,
    guest: Guest,
    Asked(ask): Asked<Ask>,
) -> Result<StatusCode, Refusal> {
    let files = ask.files.as_deref().unwrap_or_default();
    let words = with(&["add", "--"], files.iter().map(String::as_str));
    Repository::new(&app, &guest, &ask).run(&words).await?;
    Ok(StatusCode::OK)
}

/// Commits what was added.
pub(super) async fn commit(
    State(app): State<Compat>,
    guest: Guest,
    Asked(ask): Asked<Ask>,
) -> Result<axum::Json<Value>, Refusal> {
    if ask.message.is_empty() || ask.author.is_empty() || ask.email.is_empty() {
        return Err(Refusal::bad("message, author and email are needed"));
    }
    let mut repository = Repository::new(&app, &guest, &ask);
    for who in ["AUTHOR", "COMMITTER"] {
        repository.env.insert(format!("GIT_{who}_NAME"), ask.author.clone());
        repository.env.insert(format!("GIT_{who}_EMAIL"), ask.email.clone());
    }
    let empty = ask.allow_empty.unwrap_or_default().then_some("--allow-empty");
    let words = with(&["commit", "--quiet", "--cleanup=verbatim", "-m", &ask.message], empty);
    repository.run(&words).await?;
    let hash = repository.run(&["rev-parse", "HEAD"]).await?;
    Ok(axum::Json(json!({"hash": hash.trim()})))
}

/// The commits that led to where the repository is, the latest first.
pub(super) async fn history(
    State(app): State<Compat>,
    guest: Guest,
    Query(ask): Query<Ask>,
) -> Result<axum::Json<Value>, Refusal> {
    let repository = Repository::new(&app, &guest, &ask);
    let words = ["log", "-z", "--format=%H%x1f%an%x1f%ae%x1f%aI%x1f%B"];
    let said = repository.run(&words).await?;
    let commits = said.split('\0').filter_map(|commit| {
        let mut fields = commit.splitn(5, FIELD);
        let mut field = || fields.next();
        Some(json!({
            "hash": field()?.trim(),
            "author": field()?,
            "email": field()?,
            "timestamp": field()?,
            "message": field()?.trim_end_matches('\n'),
        }))
    });
    Ok(axum::Json(commits.collect()))
}

/// Takes what others have pushed.
pub(super) async fn pull(
    State(app): State<Compat>,
    guest: Guest,
    Asked(ask): Asked<Ask>,
) -> Result<StatusCode, Refusal> {
    let repository = Repository::new(&app, &guest, &ask);
    let named = ask.remote.as_deref().or(ask.branch.as_ref().map(|_| "origin"));
    let words = with(
        &["pull", "--quiet", "--no-rebase", "--"],
        named.into_iter().chain(ask.branch.as_deref()),
    );
    repository.run(&words).await?;
    Ok(StatusCode::OK)
}

/// Gives others what was committed.
pub(super) async fn push(
    State(app): State<Compat>,
    guest: Guest,
    Asked(ask): Asked<Ask>,
) -> Result<StatusCode, Refusal> {
    let repository = Repository::new(&app, &guest, &ask);
    let upstream = ask.set_upstream.unwrap_or_default().then_some("--set-upstream");
    let remote = ask.remote.as_deref().unwrap_or("origin");
    let branch = ask.branch.as_deref().unwrap_or("HEAD");
    let words = with(&with(&["push", "--quiet"], upstream), ["--", remote, branch]);
    repository.run(&words).await?;
    Ok(StatusCode::OK)
}

/// Goes back to a commit, or takes files out of what is to be committed.
pub(super) async fn reset(
    State(app): State<Compat>,
    guest: Guest,
    Asked(ask): Asked<Ask>,
) -> Result<StatusCode, Refusal> {
    let mode = match ask.mode.as_deref() {
        None | Some("") => None,
        Some(mode @ ("soft" | "mixed" | "hard" | "merge" | "keep")) => Some(format!("--{mode}")),
        Some(other) => return Err(Refusal::bad(format!("unknown mode: {other}"))),
    };
    let target = ask.target.as_deref().filter(|target| !target.is_empty()).unwrap_or("HEAD");
    let files = ask.files.as_deref().unwrap_or_default();
    let words = with(&with(&["reset", "--quiet"], mode.as_deref()), [target, "--"]);
    let words = with(&words, files.iter().map(String::as_str));
    Repository::new(&app, &guest, &ask).run(&words).await?;
    Ok(StatusCode::OK)
}

/// Gives files the content they had.
pub(super) async fn restore(
    State(app): State<Compat>,
    guest: Guest,
    Asked(ask): Asked<Ask>,
) -> Result<StatusCode, Refusal> {
    let source = ask.source.as_deref().filter(|source| !source.is_empty());
    let source = source.map(|source| format!("--source={source}"));
    let staged = ask.staged.unwrap_or_default().then_some("--staged");
    let worktree = ask.worktree.unwrap_or_default().then_some("--worktree");
    let options = staged.into_iter().chain(worktree).chain(source.as_deref());
    let files = ask.files.as_deref().unwrap_or_default();
    let words = with(&with(&["restore", "--quiet"], options), ["--"]);
    let words = with(&words, files.iter().map(String::as_str));
    Repository::new(&app, &guest, &ask).run(&words).await?;
    Ok(StatusCode::OK)
}

/// The other repositories that this one knows.
pub(super) async fn remotes(
    State(app): State<Compat>,
    guest: Guest,
    Query(ask): Query<Ask>,
) -> Result<axum::Json<Value>, Refusal> {
    let said = Repository::new(&app, &guest, &ask).run(&["remote", "-v"]).await?;
    let remotes = said.lines().filter_map(|line| {
        let (name, rest) = line.split_once('\t')?;
        let url = rest.strip_suffix(" (fetch)")?;
        Some(json!({"name": name, "url": url}))
    });
    Ok(axum::Json(json!({"remotes": remotes.collect::<Vec<_>>()})))
}

/// Makes another repository known to this one.
pub(super) async fn add_remote(
    State(app): State<Compat>,
    guest: Guest,
    Asked(ask): Asked<Ask>,
) -> Result<StatusCode, Refusal> {
    let repository = Repository::new(&app, &guest, &ask);
    if ask.overwrite == Some(true) {
        // It may not be there.
        let words = ["-C", &repository.path, "remote", "remove", &ask.name];
        repository.try_run(&words).await?;
    }
    repository.run(&["remote", "add", "--", &ask.name, &ask.url]).await?;
    if ask.fetch == Some(true) {
        repository.run(&["fetch", "--quiet", "--", &ask.name]).await?;
    }
    Ok(StatusCode::CREATED)
}

/// A setting; `null` if it is not set.
pub(super) async fn config(
    State(app): State<Compat>,
    guest: Guest,
    Query(ask): Query<Ask>,
) -> Result<axum::Json<Value>, Refusal> {
    let repository = Repository::new(&app, &guest, &ask);
    let place = ask.place()?;
    let words = ["-C", &repository.path, "config", &place, "--get", "--", &ask.key];
    match repository.try_run(&words).await? {
        (0, value, _) => Ok(axum::Json(json!({"value": value.trim_end_matches('\n')}))),
        (1, ..) => Ok(axum::Json(json!({"value": null}))),
        (_, _, said) => Err(Refusal::bad(format!("git: {}", said.trim()))),
    }
}

/// Changes a setting.
pub(super) async fn set_config(
    State(app): State<Compat>,
    guest: Guest,
    Asked(ask): Asked<Ask>,
) -> Result<StatusCode, Refusal> {
    let place = ask.place()?;
    let words = ["config", &place, "--", &ask.key, &ask.value];
    Repository::new(&app, &guest, &ask).run(&words).await?;
    Ok(StatusCode::OK)
}

/// Says who commits.
pub(super) async fn set_user(
    State(app): State<Compat>,
    guest: Guest,
    Asked(ask): Asked<Ask>,
) -> Result<StatusCode, Refusal> {
    let (place, repository) = (ask.place()?, Repository::new(&app, &guest, &ask));
    for (key, value) in [("user.name", &ask.name), ("user.email", &ask.email)] {
        repository.run(&["config", &place, "--", key, value]).await?;
    }
    Ok(StatusCode::OK)
}

/// Keeps a name and a password for a server, in the home of the sandbox.
pub(super) async fn authenticate(
    State(app): State<Compat>,
    guest: Guest,
    Asked(ask): Asked<Ask>,
) -> Result<StatusCode, Refusal> {
    let (Some(user), Some(password)) = (&ask.username, &ask.password) else {
        return Err(Refusal::bad("username and password are needed"));
    };
    let text = "printf 'protocol=%s\\nhost=%s\\nusername=%s\\npassword=%s\\n\\n' \
        \"$GIT_PROTOCOL_IS\" \"$GIT_HOST_IS\" \"$GIT_USER_IS\" \"$GIT_WORD_IS\" \
        | git credential approve";
    let mut repository = Repository::new(&app, &guest, &ask);
    repository.run_anywhere(&["config", "--global", "credential.helper", "store"]).await?;
    repository.env = Env::from([
        ("GIT_PROTOCOL_IS".to_owned(), ask.protocol.clone().unwrap_or_else(|| "https".to_owned())),
        ("GIT_HOST_IS".to_owned(), ask.host.clone().unwrap_or_else(|| "github.com".to_owned())),
        ("GIT_USER_IS".to_owned(), user.clone()),
        ("GIT_WORD_IS".to_owned(), password.clone()),
    ]);
    if repository.env.values().any(|value| value.contains(['\n', '\0'])) {
        return Err(Refusal::bad("no line ends in names and passwords"));
    }
    let alias = format!("alias.keep=!{text}");
    repository.run_anywhere(&["-c", &alias, "keep"]).await?;
    Ok(StatusCode::OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_told_as_clients_read_it() {
        let said = "# branch.oid 1\0# branch.head main\0# branch.upstream origin/main\0\
            # branch.ab +2 -1\0\
            1 M. N... 100644 100644 100644 a b changed name.txt\0\
            1 .D N... 100644 100644 000000 a b gone.txt\0\
            2 R. N... 100644 100644 100644 a b R100 new.txt\0old.txt\0\
            u UU N... 100644 100644 100644 100644 a b c both.txt\0\
            ? free.txt\0";
        let file = |name: &str, staging: &str, worktree: &str, extra: &str| json!({"name": name, "staging": staging, "worktree": worktree, "extra": extra});
        let unmerged = "Updated but unmerged";
        let expected = json!({
            "currentBranch": "main",
            "detached": false,
            "upstream": "origin/main",
            "branchPublished": true,
            "ahead": 2,
            "behind": 1,
            "fileStatus": [
                file("changed name.txt", "Modified", "Unmodified", ""),
                file("gone.txt", "Unmodified", "Deleted", ""),
                file("new.txt", "Renamed", "Unmodified", "old.txt"),
                file("both.txt", unmerged, unmerged, ""),
                file("free.txt", "Untracked", "Untracked", ""),
            ],
        });
        assert_eq!(told(said), expected);
        let nothing = told("# branch.oid (initial)\0# branch.head (detached)\0");
        assert_eq!((&nothing["detached"], &nothing["fileStatus"]), (&json!(true), &json!([])));
    }
}
