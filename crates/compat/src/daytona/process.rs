//! Commands that end with their request, and information about the sandbox.

use std::time::Duration;

use axum::{
    extract::{Path, State},
    http::StatusCode,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{DaytonaJson, DaytonaRefusal, TOOLBOX, ToolboxSandbox};
use adapter::Adapter;
use adapter::{
    instance::{absolute, relative},
    process::{ProcessEnd, ProcessResult, Start},
    usage::UsageSample,
    wrap::Config,
};
use files::FileKind;
use model::Env;

/// The version of the toolbox.
pub(super) async fn version() -> axum::Json<Value> {
    axum::Json(json!({"version": TOOLBOX}))
}

/// The resource usage of the sandbox.
pub(super) async fn metrics(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    Ok(axum::Json(UsageSample::of(&app, &sandbox).await?.control_json()))
}

/// The directory that programs start in: the home directory.
pub(super) async fn work_dir(ToolboxSandbox(sandbox): ToolboxSandbox) -> axum::Json<Value> {
    axum::Json(json!({"dir": sandbox.row.home}))
}

/// The ports that programs listen on.
pub(super) async fn ports(
    State(app): State<Adapter>,
    ToolboxSandbox(sandbox): ToolboxSandbox,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let ports = app.terminals.ports(&sandbox.thread.lease_id).await?;
    Ok(axum::Json(json!({"ports": ports})))
}

/// Whether a program listens on a port.
pub(super) async fn port_in_use(
    State(app): State<Adapter>,
    sandbox: ToolboxSandbox,
    Path(names): Path<std::collections::HashMap<String, String>>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let port = names.get("port").and_then(|port| port.parse::<u16>().ok());
    let port = port.ok_or_else(|| DaytonaRefusal::bad("port must be a number up to 65535"))?;
    let axum::Json(all) = ports(State(app), sandbox).await?;
    let used = all["ports"].as_array().is_some_and(|all| all.contains(&json!(port)));
    Ok(axum::Json(json!({"isInUse": used})))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ExecuteCommand {
    command: String,
    cwd: Option<String>,
    envs: Option<Env>,
    env: Option<Env>,
    timeout: Option<u64>,
}

/// Runs a command; its output streams are combined.
pub(super) async fn execute(
    State(app): State<Adapter>,
    sandbox: ToolboxSandbox,
    DaytonaJson(request): DaytonaJson<ExecuteCommand>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    if request.command.trim().is_empty() {
        return Err(DaytonaRefusal::bad("empty command"));
    }
    let words = ["-c".to_owned(), format!("exec 2>&1\n{}", request.command)];
    let envs = request.envs.or(request.env).unwrap_or_default();
    let (cwd, timeout) = (request.cwd, request.timeout);
    answer(run(&app, &sandbox, "/bin/bash", words.to_vec(), envs, cwd, timeout).await?)
}

fn answer(result: ProcessResult) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let code = match result.end {
        ProcessEnd::Exit(code) => code,
        ProcessEnd::Signal(signal) => 128 + signal,
        ProcessEnd::TimedOut => {
            let (status, code) = (StatusCode::REQUEST_TIMEOUT, "PROCESS_EXECUTION_TIMEOUT");
            return Err(DaytonaRefusal::coded(status, code, "command execution timeout"));
        }
        ProcessEnd::Lost => {
            let message = "the command was lost; its exit code is unknown";
            return Err(DaytonaRefusal::new(StatusCode::SERVICE_UNAVAILABLE, message));
        }
    };
    let text = String::from_utf8_lossy(&result.stdout);
    Ok(axum::Json(json!({"exitCode": code, "result": text})))
}

async fn run(
    app: &Adapter,
    ToolboxSandbox(sandbox): &ToolboxSandbox,
    cmd: &str,
    args: Vec<String>,
    envs: Env,
    cwd: Option<String>,
    seconds: Option<u64>,
) -> Result<ProcessResult, DaytonaRefusal> {
    let has_nul = args.iter().chain(envs.values()).any(|word| word.contains('\0'));
    if has_nul {
        return Err(DaytonaRefusal::bad("commands and variables must not contain NUL"));
    }
    api::check_env(Some(&envs), "/envs")?;
    let cwd = absolute(cwd.as_deref().unwrap_or(""), &sandbox.row.home);
    let (files, path) = (app.sandbox_files(sandbox).await?, cwd.clone());
    let found = files.act(move |directory| directory.stat_followed(&relative(&path)?)).await;
    if !found.is_ok_and(|found| found.kind == FileKind::Directory) {
        return Err(DaytonaRefusal::bad(format!("cwd {cwd} does not exist")));
    }
    let cwd = Some(cwd);
    let start = Start {
        config: Config { cmd: cmd.to_owned(), args, envs, cwd },
        tag: None,
        stdin: false,
        timeout: seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs),
        pty: None,
    };
    Ok(app.run_process(sandbox, start).await?)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CodeRun {
    code: String,
    language: Option<String>,
    argv: Option<Vec<String>>,
    params: Option<CodeRunParams>,
    envs: Option<Env>,
    timeout: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CodeRunParams {
    argv: Option<Vec<String>>,
    env: Option<Env>,
}

/// Runs code in a new interpreter.
pub(super) async fn code_run(
    State(app): State<Adapter>,
    sandbox: ToolboxSandbox,
    DaytonaJson(request): DaytonaJson<CodeRun>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let (cmd, flag) = match request.language.as_deref() {
        None | Some("python") => ("python3", "-c"),
        Some("javascript" | "typescript") => ("node", "-e"),
        Some(other) => return Err(DaytonaRefusal::bad(format!("unsupported language: {other}"))),
    };
    let params = request.params.unwrap_or_default();
    let envs = request.envs.or(params.env).unwrap_or_default();
    // Both output streams are combined in the order in which they are written.
    let text = format!("exec 2>&1; exec {cmd} {flag} \"$@\"");
    let mut args = vec!["-c".to_owned(), text, cmd.to_owned(), request.code];
    args.extend(request.argv.or(params.argv).unwrap_or_default());
    answer(run(&app, &sandbox, "/bin/bash", args, envs, None, request.timeout).await?)
}
