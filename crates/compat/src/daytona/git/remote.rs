//! Remote repositories: clone, pull, push, and the remotes of a repository.

use axum::{
    extract::{Query, State},
    http::StatusCode,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::repository::{GitCredentials, Repository, RepositoryPath, with};
use crate::daytona::{DaytonaJson, DaytonaRefusal, ToolboxSandbox};
use adapter::Adapter;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::daytona) struct CloneRequest {
    path: String,
    url: String,
    branch: Option<String>,
    commit_id: Option<String>,
    depth: Option<u32>,
    #[serde(flatten)]
    credentials: GitCredentials,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::daytona) struct InitRequest {
    path: String,
    bare: Option<bool>,
    initial_branch: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::daytona) struct PullRequest {
    path: String,
    remote: Option<String>,
    branch: Option<String>,
    #[serde(flatten)]
    credentials: GitCredentials,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::daytona) struct PushRequest {
    path: String,
    remote: Option<String>,
    branch: Option<String>,
    set_upstream: Option<bool>,
    #[serde(flatten)]
    credentials: GitCredentials,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::daytona) struct RemoteRequest {
    path: String,
    name: String,
    url: String,
    fetch: Option<bool>,
    overwrite: Option<bool>,
    #[serde(flatten)]
    credentials: GitCredentials,
}

pub(in crate::daytona) async fn clone(
    State(app): State<Adapter>,
    sandbox: ToolboxSandbox,
    DaytonaJson(request): DaytonaJson<CloneRequest>,
) -> Result<StatusCode, DaytonaRefusal> {
    let repository =
        Repository::new(&app, &sandbox, &request.path).authenticated(&request.credentials);
    let depth = request.depth.map(|depth| format!("--depth={depth}"));
    let branch = request.branch.as_deref().filter(|name| !name.is_empty());
    let branch = branch.map(|name| format!("--branch={name}"));
    let options = depth.iter().chain(&branch).map(String::as_str);
    let words = with(&with(&["clone", "--quiet"], options), ["--", &request.url, &repository.path]);
    repository.run_anywhere(&words).await?;
    if let Some(commit) = request.commit_id.as_deref().filter(|commit| !commit.is_empty()) {
        repository.run(&["checkout", "--quiet", "--detach", commit]).await?;
    }
    Ok(StatusCode::OK)
}

/// Creates an empty repository.
pub(in crate::daytona) async fn init(
    State(app): State<Adapter>,
    sandbox: ToolboxSandbox,
    DaytonaJson(request): DaytonaJson<InitRequest>,
) -> Result<StatusCode, DaytonaRefusal> {
    let repository = Repository::new(&app, &sandbox, &request.path);
    let branch = request.initial_branch.as_deref().filter(|name| !name.is_empty());
    let branch = branch.map(|name| format!("--initial-branch={name}"));
    let bare = request.bare.unwrap_or_default().then_some("--bare");
    let options = bare.into_iter().chain(branch.as_deref());
    let words = with(&with(&["init", "--quiet"], options), ["--", &repository.path]);
    repository.run_anywhere(&words).await?;
    Ok(StatusCode::CREATED)
}

/// Fetches and merges commits of a remote.
pub(in crate::daytona) async fn pull(
    State(app): State<Adapter>,
    sandbox: ToolboxSandbox,
    DaytonaJson(request): DaytonaJson<PullRequest>,
) -> Result<StatusCode, DaytonaRefusal> {
    let repository =
        Repository::new(&app, &sandbox, &request.path).authenticated(&request.credentials);
    let remote = request.remote.as_deref().or(request.branch.as_ref().map(|_| "origin"));
    let words = with(
        &["pull", "--quiet", "--no-rebase", "--"],
        remote.into_iter().chain(request.branch.as_deref()),
    );
    repository.run(&words).await?;
    Ok(StatusCode::OK)
}

/// Pushes commits to a remote.
pub(in crate::daytona) async fn push(
    State(app): State<Adapter>,
    sandbox: ToolboxSandbox,
    DaytonaJson(request): DaytonaJson<PushRequest>,
) -> Result<StatusCode, DaytonaRefusal> {
    let repository =
        Repository::new(&app, &sandbox, &request.path).authenticated(&request.credentials);
    let upstream = request.set_upstream.unwrap_or_default().then_some("--set-upstream");
    let remote = request.remote.as_deref().unwrap_or("origin");
    let branch = request.branch.as_deref().unwrap_or("HEAD");
    let words = with(&with(&["push", "--quiet"], upstream), ["--", remote, branch]);
    repository.run(&words).await?;
    Ok(StatusCode::OK)
}

/// Lists the remotes of a repository.
pub(in crate::daytona) async fn remotes(
    State(app): State<Adapter>,
    sandbox: ToolboxSandbox,
    Query(query): Query<RepositoryPath>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let listed = Repository::new(&app, &sandbox, &query.path).run(&["remote", "-v"]).await?;
    let remotes = listed.lines().filter_map(|line| {
        let (name, rest) = line.split_once('\t')?;
        let url = rest.strip_suffix(" (fetch)")?;
        Some(json!({"name": name, "url": url}))
    });
    Ok(axum::Json(json!({"remotes": remotes.collect::<Vec<_>>()})))
}

/// Adds a remote to a repository.
pub(in crate::daytona) async fn add_remote(
    State(app): State<Adapter>,
    sandbox: ToolboxSandbox,
    DaytonaJson(request): DaytonaJson<RemoteRequest>,
) -> Result<StatusCode, DaytonaRefusal> {
    let repository =
        Repository::new(&app, &sandbox, &request.path).authenticated(&request.credentials);
    if request.overwrite == Some(true) {
        // The remote may not exist.
        let words = ["-C", &repository.path, "remote", "remove", &request.name];
        repository.try_run(&words).await?;
    }
    repository.run(&["remote", "add", "--", &request.name, &request.url]).await?;
    if request.fetch == Some(true) {
        repository.run(&["fetch", "--quiet", "--", &request.name]).await?;
    }
    Ok(StatusCode::CREATED)
}
