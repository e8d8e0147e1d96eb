//! Settings of `git`, and credentials that it stores.

use axum::{
    extract::{Query, State},
    http::StatusCode,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::repository::Repository;
use crate::daytona::{DaytonaJson, DaytonaRefusal, ToolboxSandbox};
use adapter::Adapter;
use model::Env;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::daytona) struct ConfigQuery {
    path: String,
    key: String,
    scope: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::daytona) struct ConfigRequest {
    path: String,
    key: String,
    value: String,
    scope: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::daytona) struct UserRequest {
    path: String,
    name: String,
    email: String,
    scope: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::daytona) struct CredentialsRequest {
    path: String,
    username: Option<String>,
    password: Option<String>,
    host: Option<String>,
    protocol: Option<String>,
}

/// The option of `git config` for a scope.
fn scope_option(scope: Option<&str>) -> Result<&'static str, DaytonaRefusal> {
    match scope {
        None | Some("" | "global") => Ok("--global"),
        Some("local") => Ok("--local"),
        Some("system") => Ok("--system"),
        Some(other) => Err(DaytonaRefusal::bad(format!("unknown scope: {other}"))),
    }
}

/// The value of a setting; `null` if it is not set.
pub(in crate::daytona) async fn config(
    State(app): State<Adapter>,
    sandbox: ToolboxSandbox,
    Query(query): Query<ConfigQuery>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let repository = Repository::new(&app, &sandbox, &query.path);
    let scope = scope_option(query.scope.as_deref())?;
    let words = ["-C", &repository.path, "config", scope, "--get", "--", &query.key];
    match repository.try_run(&words).await? {
        (0, value, _) => Ok(axum::Json(json!({"value": value.trim_end_matches('\n')}))),
        (1, ..) => Ok(axum::Json(json!({"value": null}))),
        (_, _, stderr) => Err(DaytonaRefusal::bad(format!("git: {}", stderr.trim()))),
    }
}

pub(in crate::daytona) async fn set_config(
    State(app): State<Adapter>,
    sandbox: ToolboxSandbox,
    DaytonaJson(request): DaytonaJson<ConfigRequest>,
) -> Result<StatusCode, DaytonaRefusal> {
    let scope = scope_option(request.scope.as_deref())?;
    let words = ["config", scope, "--", &request.key, &request.value];
    Repository::new(&app, &sandbox, &request.path).run(&words).await?;
    Ok(StatusCode::OK)
}

/// Sets the name and address of the committer.
pub(in crate::daytona) async fn set_user(
    State(app): State<Adapter>,
    sandbox: ToolboxSandbox,
    DaytonaJson(request): DaytonaJson<UserRequest>,
) -> Result<StatusCode, DaytonaRefusal> {
    let (scope, repository) =
        (scope_option(request.scope.as_deref())?, Repository::new(&app, &sandbox, &request.path));
    for (key, value) in [("user.name", &request.name), ("user.email", &request.email)] {
        repository.run(&["config", scope, "--", key, value]).await?;
    }
    Ok(StatusCode::OK)
}

/// Stores a name and a password for a server in the home directory of the sandbox.
pub(in crate::daytona) async fn authenticate(
    State(app): State<Adapter>,
    sandbox: ToolboxSandbox,
    DaytonaJson(request): DaytonaJson<CredentialsRequest>,
) -> Result<StatusCode, DaytonaRefusal> {
    let (Some(user), Some(password)) = (&request.username, &request.password) else {
        return Err(DaytonaRefusal::bad("username and password are required"));
    };
    let text = "printf 'protocol=%s\\nhost=%s\\nusername=%s\\npassword=%s\\n\\n' \
        \"$STEAD_GIT_PROTOCOL\" \"$STEAD_GIT_HOST\" \"$STEAD_GIT_USER\" \"$STEAD_GIT_PASSWORD\" \
        | git credential approve";
    let mut repository = Repository::new(&app, &sandbox, &request.path);
    repository.run_anywhere(&["config", "--global", "credential.helper", "store"]).await?;
    repository.env = Env::from([
        (
            "STEAD_GIT_PROTOCOL".to_owned(),
            request.protocol.clone().unwrap_or_else(|| "https".to_owned()),
        ),
        (
            "STEAD_GIT_HOST".to_owned(),
            request.host.clone().unwrap_or_else(|| "github.com".to_owned()),
        ),
        ("STEAD_GIT_USER".to_owned(), user.clone()),
        ("STEAD_GIT_PASSWORD".to_owned(), password.clone()),
    ]);
    if repository.env.values().any(|value| value.contains(['\n', '\0'])) {
        return Err(DaytonaRefusal::bad("credentials must not contain line breaks or NUL"));
    }
    let alias = format!("alias.store-credential=!{text}");
    repository.run_anywhere(&["-c", &alias, "store-credential"]).await?;
    Ok(StatusCode::OK)
}
