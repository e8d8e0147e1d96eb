//! Commands that end with their request, and facts about the toolbox.

use std::{collections::BTreeSet, time::Duration};

use axum::{
    extract::{Path, State},
    http::StatusCode,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{DaytonaGuest, DaytonaJson, DaytonaRefusal, TOOLBOX};
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

/// What the sandbox uses.
pub(super) async fn metrics(
    State(app): State<Adapter>,
    DaytonaGuest(sandbox): DaytonaGuest,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    Ok(axum::Json(UsageSample::of(&app, &sandbox).await?.control_json()))
}

/// Where programs start, which is where the user is at home.
pub(super) async fn work_dir(DaytonaGuest(sandbox): DaytonaGuest) -> axum::Json<Value> {
    axum::Json(json!({"dir": sandbox.row.home}))
}

/// The ports that programs listen on.
pub(super) async fn ports(
    State(app): State<Adapter>,
    guest: DaytonaGuest,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(str::to_owned).to_vec();
    let ran = run(&app, &guest, "cat", tables, Env::new(), None, Some(30)).await?;
    Ok(axum::Json(json!({"ports": listening(&String::from_utf8_lossy(&ran.stdout))})))
}

/// Whether a program listens on a port.
pub(super) async fn port_in_use(
    State(app): State<Adapter>,
    guest: DaytonaGuest,
    Path(names): Path<std::collections::HashMap<String, String>>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let port = names.get("port").and_then(|port| port.parse::<u16>().ok());
    let port = port.ok_or_else(|| DaytonaRefusal::bad("a port is a number up to 65535"))?;
    let axum::Json(all) = ports(State(app), guest).await?;
    let used = all["ports"].as_array().is_some_and(|all| all.contains(&json!(port)));
    Ok(axum::Json(json!({"isInUse": used})))
}

/// The listening ports in the kernel's tables.
fn listening(tables: &str) -> BTreeSet<u16> {
    let port = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, state) = (fields.next()?, fields.nth(1)?);
        let (_, port) = local.rsplit_once(':').filter(|_| state == "0A")?;
        u16::from_str_radix(port, 16).ok()
    };
    tables.lines().filter_map(port).collect()
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

/// Runs a command; both of its streams are one.
pub(super) async fn execute(
    State(app): State<Adapter>,
    guest: DaytonaGuest,
    DaytonaJson(asked): DaytonaJson<ExecuteCommand>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    if asked.command.trim().is_empty() {
        return Err(DaytonaRefusal::bad("empty command"));
    }
    let words = ["-c".to_owned(), format!("exec 2>&1\n{}", asked.command)];
    let envs = asked.envs.or(asked.env).unwrap_or_default();
    let ran =
        run(&app, &guest, "/bin/bash", words.to_vec(), envs, asked.cwd, asked.timeout).await?;
    answer(ran)
}

fn answer(ran: ProcessResult) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let code = match ran.end {
        ProcessEnd::Exit(code) => code,
        ProcessEnd::Signal(signal) => 128 + signal,
        ProcessEnd::TimedOut => {
            let (status, code) = (StatusCode::REQUEST_TIMEOUT, "PROCESS_EXECUTION_TIMEOUT");
            return Err(DaytonaRefusal::coded(status, code, "command execution timeout"));
        }
        ProcessEnd::Lost => {
            let message = "the command is gone, and nobody knows how it ended";
            return Err(DaytonaRefusal::new(StatusCode::SERVICE_UNAVAILABLE, message));
        }
    };
    let text = String::from_utf8_lossy(&ran.stdout);
    Ok(axum::Json(json!({"exitCode": code, "result": text})))
}

async fn run(
    app: &Adapter,
    DaytonaGuest(sandbox): &DaytonaGuest,
    cmd: &str,
    args: Vec<String>,
    envs: Env,
    cwd: Option<String>,
    seconds: Option<u64>,
) -> Result<ProcessResult, DaytonaRefusal> {
    let words = args.iter().chain(envs.values()).any(|word| word.contains('\0'));
    if words {
        return Err(DaytonaRefusal::bad("neither commands nor variables may contain NUL"));
    }
    api::check_env(Some(&envs), "/envs")?;
    let cwd = absolute(cwd.as_deref().unwrap_or(""), &sandbox.row.home);
    let (files, place) = (app.sandbox_files(sandbox).await?, cwd.clone());
    let found = files.act(move |directory| directory.stat_followed(&relative(&place)?)).await;
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

/// Runs a program in a language.
pub(super) async fn code_run(
    State(app): State<Adapter>,
    guest: DaytonaGuest,
    DaytonaJson(asked): DaytonaJson<CodeRun>,
) -> Result<axum::Json<Value>, DaytonaRefusal> {
    let (cmd, flag) = match asked.language.as_deref() {
        None | Some("python") => ("python3", "-c"),
        Some("javascript" | "typescript") => ("node", "-e"),
        Some(other) => return Err(DaytonaRefusal::bad(format!("unsupported language: {other}"))),
    };
    let params = asked.params.unwrap_or_default();
    let envs = asked.envs.or(params.env).unwrap_or_default();
    // Both streams are one, in the order in which they are written.
    let text = format!("exec 2>&1; exec {cmd} {flag} \"$@\"");
    let mut args = vec!["-c".to_owned(), text, cmd.to_owned(), asked.code];
    args.extend(asked.argv.or(params.argv).unwrap_or_default());
    let ran = run(&app, &guest, "/bin/bash", args, envs, None, asked.timeout).await?;
    answer(ran)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_from_the_tables_of_the_kernel() {
        let tables = "  sl  local_address rem_address   st tx_queue rx_queue\n   \
            0: 0100007F:1F41 00000000:0000 0A 00000000:00000000 00:00000000\n   \
            1: 0100007F:1F42 0100007F:D431 01 00000000:00000000 00:00000000\n   \
            0: 00000000000000000000000000000000:0050 0000:0000 0A 00000000:00000000\n";
        assert_eq!(listening(tables), BTreeSet::from([80, 8001]));
        assert_eq!(listening(""), BTreeSet::new());
    }
}
