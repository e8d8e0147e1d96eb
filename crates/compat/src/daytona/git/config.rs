//! Settings of `git`, and credentials that it stores.

use axum::{
    extract::{Query, State},
    http::StatusCode,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::repository::Repository;
use crate::daytona::{DaytonaGuest, DaytonaJson, DaytonaRefusal};
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
    guest: DaytonaGuest,
    Query(asked): Query<ConfigQuery>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let repository = Repository::new(&app, &guest, &asked.path);
    let scope = scope_option(asked.scope.as_deref())?;
    let words = ["-C", &repository.path, "config", scope, "--get", "--", &asked.key];
    match repository.try_run(&words).await? {
        (0, value, _) => Ok(axum::Json(json!({"value": value.trim_end_matches('\n')}))),
        (1, ..) => Ok(axum::Json(json!({"value": null}))),
        (_, _, stderr) => Err(DaytonaRefusal::bad(format!("git: {}", stderr.trim()))),
    }
}

pub(in crate::daytona) async fn set_config(
    State(app): State<Adapter>,
    guest: DaytonaGuest,
    DaytonaJson(asked): DaytonaJson<ConfigRequest>,
) -> Result<StatusCode, DaytonaRefusal> {
    let scope = scope_option(asked.scope.as_deref())?;
    let words = ["config", scope, "--", &asked.key, &asked.value];
    Repository::new(&app, &guest, &asked.path).run(&words).await?;
    Ok(StatusCode::OK)
}

/// Sets the name and address of the committer.
pub(in crate::daytona) async fn set_user(
    State(app): State<Adapter>,
    guest: DaytonaGuest,
    DaytonaJson(asked): DaytonaJson<UserRequest>,
) -> Result<StatusCode, DaytonaRefusal> {
    let (scope, repository) =
        (scope_option(asked.scope.as_deref())?, Repository::new(&app, &guest, &asked.path));
    for (key, value) in [("user.name", &asked.name), ("user.email", &asked.email)] {
        repository.run(&["config", scope, "--", key, value]).await?;
    }
    Ok(StatusCode::OK)
}

/// Stores a name and a password for a server in the home directory of the sandbox.
pub(in crate::daytona) async fn authenticate(
    State(app): State<Adapter>,
    guest: DaytonaGuest,
    DaytonaJson(asked): DaytonaJson<CredentialsRequest>,
) -> Result<StatusCode, DaytonaRefusal> {
    let (Some(user), Some(password)) = (&asked.username, &asked.password) else {
        return Err(DaytonaRefusal::bad("username and password are needed"));
    };
    let text = "printf 'protocol=%s\\nhost=%s\\nusername=%s\\npassword=%s\\n\\n' \
        \"$GIT_PROTOCOL_IS\" \"$GIT_HOST_IS\" \"$GIT_USER_IS\" \"$GIT_WORD_IS\" \
        | git credential approve";
    let mut repository = Repository::new(&app, &guest, &asked.path);
    repository.run_anywhere(&["config", "--global", "credential.helper", "store"]).await?;
    repository.env = Env::from([
        (
            "GIT_PROTOCOL_IS".to_owned(),
            asked.protocol.clone().unwrap_or_else(|| "https".to_owned()),
        ),
        ("GIT_HOST_IS".to_owned(), asked.host.clone().unwrap_or_else(|| "github.com".to_owned())),
        ("GIT_USER_IS".to_owned(), user.clone()),
        ("GIT_WORD_IS".to_owned(), password.clone()),
    ]);
    if repository.env.values().any(|value| value.contains(['\n', '\0'])) {
        return Err(DaytonaRefusal::bad("no line ends in names and passwords"));
    }
    let alias = format!("alias.keep=!{text}");
    repository.run_anywhere(&["-c", &alias, "keep"]).await?;
    Ok(StatusCode::OK)
}
