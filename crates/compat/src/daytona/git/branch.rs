//! Branches of a repository.

use axum::{
    extract::{Query, State},
    http::StatusCode,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::repository::{Repository, RepositoryPath};
use crate::daytona::{DaytonaJson, DaytonaRefusal, ToolboxSandbox};
use adapter::Adapter;

/// A branch that is created or deleted.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::daytona) struct BranchName {
    path: String,
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::daytona) struct CheckoutRequest {
    path: String,
    branch: Option<String>,
}

/// The branches of a repository.
pub(in crate::daytona) async fn branches(
    State(app): State<Adapter>,
    sandbox: ToolboxSandbox,
    Query(query): Query<RepositoryPath>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let repository = Repository::new(&app, &sandbox, &query.path);
    let listed = ["for-each-ref", "--format=%(refname:short)", "refs/heads"];
    let listed = repository.run(&listed).await?;
    let words = ["-C", &repository.path, "symbolic-ref", "--quiet", "--short", "HEAD"];
    let (_, current, _) = repository.try_run(&words).await?;
    let branches: Vec<&str> = listed.lines().collect();
    Ok(axum::Json(json!({"branches": branches, "current": current.trim()})))
}

/// Creates a branch and checks it out.
pub(in crate::daytona) async fn create_branch(
    State(app): State<Adapter>,
    sandbox: ToolboxSandbox,
    DaytonaJson(request): DaytonaJson<BranchName>,
) -> Result<StatusCode, DaytonaRefusal> {
    let repository = Repository::new(&app, &sandbox, &request.path);
    repository.run(&["checkout", "--quiet", "-b", &request.name]).await?;
    Ok(StatusCode::CREATED)
}

/// Deletes a branch, merged or not.
pub(in crate::daytona) async fn delete_branch(
    State(app): State<Adapter>,
    sandbox: ToolboxSandbox,
    DaytonaJson(request): DaytonaJson<BranchName>,
) -> Result<StatusCode, DaytonaRefusal> {
    let repository = Repository::new(&app, &sandbox, &request.path);
    let name = format!("refs/heads/{}", request.name);
    repository.run(&["show-ref", "--verify", &name]).await?;
    repository.run(&["update-ref", "-d", &name]).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Checks out a branch or a commit.
pub(in crate::daytona) async fn checkout(
    State(app): State<Adapter>,
    sandbox: ToolboxSandbox,
    DaytonaJson(request): DaytonaJson<CheckoutRequest>,
) -> Result<StatusCode, DaytonaRefusal> {
    let branch =
        request.branch.as_deref().filter(|name| !name.is_empty() && !name.starts_with('-'));
    let branch = branch.ok_or_else(|| DaytonaRefusal::bad("branch is missing"))?;
    Repository::new(&app, &sandbox, &request.path)
        .run(&["checkout", "--quiet", branch, "--"])
        .await?;
    Ok(StatusCode::OK)
}
