//! The working tree of a repository and its commits.

use axum::{
    extract::{Query, State},
    http::StatusCode,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    repository::{Repository, RepositoryPath, with},
    status,
};
use crate::daytona::{DaytonaJson, DaytonaRefusal, ToolboxSandbox};
use adapter::Adapter;

/// Separates the fields of a commit in the output of `git log`.
const FIELD_SEPARATOR: char = '\x1f';

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::daytona) struct AddRequest {
    path: String,
    files: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::daytona) struct CommitRequest {
    path: String,
    message: String,
    author: String,
    email: String,
    allow_empty: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::daytona) struct ResetRequest {
    path: String,
    mode: Option<String>,
    target: Option<String>,
    files: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::daytona) struct RestoreRequest {
    path: String,
    files: Option<Vec<String>>,
    source: Option<String>,
    staged: Option<bool>,
    worktree: Option<bool>,
}

/// The branch of a repository and its changed files.
pub(in crate::daytona) async fn status(
    State(app): State<Adapter>,
    sandbox: ToolboxSandbox,
    Query(query): Query<RepositoryPath>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let repository = Repository::new(&app, &sandbox, &query.path);
    let words = ["status", "--porcelain=v2", "--branch", "--untracked-files=all", "-z"];
    Ok(axum::Json(status::parse(&repository.run(&words).await?)))
}

/// Adds files to the index.
pub(in crate::daytona) async fn add(
    State(app): State<Adapter>,
    sandbox: ToolboxSandbox,
    DaytonaJson(request): DaytonaJson<AddRequest>,
) -> Result<StatusCode, DaytonaRefusal> {
    let files = request.files.as_deref().unwrap_or_default();
    let words = with(&["add", "--"], files.iter().map(String::as_str));
    Repository::new(&app, &sandbox, &request.path).run(&words).await?;
    Ok(StatusCode::OK)
}

pub(in crate::daytona) async fn commit(
    State(app): State<Adapter>,
    sandbox: ToolboxSandbox,
    DaytonaJson(request): DaytonaJson<CommitRequest>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    if request.message.is_empty() || request.author.is_empty() || request.email.is_empty() {
        return Err(DaytonaRefusal::bad("message, author and email are required"));
    }
    let mut repository = Repository::new(&app, &sandbox, &request.path);
    for role in ["AUTHOR", "COMMITTER"] {
        repository.env.insert(format!("GIT_{role}_NAME"), request.author.clone());
        repository.env.insert(format!("GIT_{role}_EMAIL"), request.email.clone());
    }
    let empty = request.allow_empty.unwrap_or_default().then_some("--allow-empty");
    let words = with(&["commit", "--quiet", "--cleanup=verbatim", "-m", &request.message], empty);
    repository.run(&words).await?;
    let hash = repository.run(&["rev-parse", "HEAD"]).await?;
    Ok(axum::Json(json!({"hash": hash.trim()})))
}

/// The commits that lead to `HEAD`, the newest first.
pub(in crate::daytona) async fn history(
    State(app): State<Adapter>,
    sandbox: ToolboxSandbox,
    Query(query): Query<RepositoryPath>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let repository = Repository::new(&app, &sandbox, &query.path);
    let words = ["log", "-z", "--format=%H%x1f%an%x1f%ae%x1f%aI%x1f%B"];
    let log = repository.run(&words).await?;
    let commits = log.split('\0').filter_map(|commit| {
        let mut fields = commit.splitn(5, FIELD_SEPARATOR);
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

/// Moves `HEAD` to a commit, or removes files from the index.
pub(in crate::daytona) async fn reset(
    State(app): State<Adapter>,
    sandbox: ToolboxSandbox,
    DaytonaJson(request): DaytonaJson<ResetRequest>,
) -> Result<StatusCode, DaytonaRefusal> {
    let mode = match request.mode.as_deref() {
        None | Some("") => None,
        Some(mode @ ("soft" | "mixed" | "hard" | "merge" | "keep")) => Some(format!("--{mode}")),
        Some(other) => return Err(DaytonaRefusal::bad(format!("unknown mode: {other}"))),
    };
    let target = request.target.as_deref().filter(|target| !target.is_empty()).unwrap_or("HEAD");
    let files = request.files.as_deref().unwrap_or_default();
    let words = with(&with(&["reset", "--quiet"], mode.as_deref()), [target, "--"]);
    let words = with(&words, files.iter().map(String::as_str));
    Repository::new(&app, &sandbox, &request.path).run(&words).await?;
    Ok(StatusCode::OK)
}

/// Restores the content of files from the index or a commit.
pub(in crate::daytona) async fn restore(
    State(app): State<Adapter>,
    sandbox: ToolboxSandbox,
    DaytonaJson(request): DaytonaJson<RestoreRequest>,
) -> Result<StatusCode, DaytonaRefusal> {
    let source = request.source.as_deref().filter(|source| !source.is_empty());
    let source = source.map(|source| format!("--source={source}"));
    let staged = request.staged.unwrap_or_default().then_some("--staged");
    let worktree = request.worktree.unwrap_or_default().then_some("--worktree");
    let options = staged.into_iter().chain(worktree).chain(source.as_deref());
    let files = request.files.as_deref().unwrap_or_default();
    let words = with(&with(&["restore", "--quiet"], options), ["--"]);
    let words = with(&words, files.iter().map(String::as_str));
    Repository::new(&app, &sandbox, &request.path).run(&words).await?;
    Ok(StatusCode::OK)
}
