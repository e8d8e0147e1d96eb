//! Commands for threads, their sessions and leases, and for providers and the server itself.

use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use http::{HeaderMap, Method};
use serde_json::{Value, json};

use super::{
    client::{ServerArgs, escape},
    list::{self, ListArgs, Table},
    names,
    sandboxes::SandboxArgs,
    show::{Column, PrintArgs, line},
};

/// Maximum number of items in a list.
const MAX_ITEMS: usize = 100_000;

#[derive(Debug, Args)]
pub(super) struct ThreadArgs {
    /// Thread
    #[arg(default_value = names::DEFAULT_THREAD)]
    thread: String,
    #[command(flatten)]
    form: PrintArgs,
    #[command(flatten)]
    target: ServerArgs,
}

impl ThreadArgs {
    /// Sends a request about the thread and prints the response.
    async fn ask(&self, method: Method, rest: &str, body: Option<&Value>) -> anyhow::Result<()> {
        let client = self.target.client()?;
        let ask = async |thread: &str| {
            let path = format!("/api/threads/{}{rest}", escape(thread));
            client.json(method.clone(), &path, body).await
        };
        let answer = match ask(&self.thread).await {
            // It may be a sandbox, a terminal, or a prefix of an id.
            Err(error) if names::is_missing(&error) => {
                let thread = if method == Method::GET {
                    names::thread(&client, &self.thread).await?
                } else {
                    // Never by a prefix: the thread that was meant may be gone.
                    names::thread_or_new(&client, &self.thread).await?
                };
                if thread == self.thread { Err(error) } else { ask(&thread).await }
            }
            answer => answer,
        }?;
        if !answer.is_null() {
            self.form.one(&answer)?;
        }
        Ok(())
    }
}

#[derive(Debug, Args)]
pub(super) struct ThreadListArgs {
    /// Thread or sandbox
    #[arg(default_value = names::DEFAULT_THREAD)]
    name: String,
    /// The same as NAME
    #[arg(short, long, visible_alias = "terminal", value_name = "NAME", conflicts_with = "name")]
    thread: Option<String>,
    #[command(flatten)]
    form: ListArgs,
    #[command(flatten)]
    target: ServerArgs,
}

impl ThreadListArgs {
    fn name(&self) -> &str {
        self.thread.as_ref().unwrap_or(&self.name)
    }
}

/// What a thread does; without a command, the state of its instance.
fn state(thread: &Value) -> String {
    let last = &thread["last_command"];
    let instance = thread["sandbox"]["status"].as_str().unwrap_or("none");
    let failed = || match last["exit_code"].as_i64() {
        Some(0) => "idle".to_owned(),
        Some(code) => format!("exit {code}"),
        None => last["status"].as_str().unwrap_or("idle").replace('_', " "),
    };
    match (instance, last["running"].as_bool()) {
        ("running", Some(true)) if last["waiting_for_input"] == true => "waiting".to_owned(),
        ("running", Some(true)) => "running".to_owned(),
        ("running", Some(false)) => failed(),
        ("running", None) => "idle".to_owned(),
        (other, _) => other.to_owned(),
    }
}

/// Prints the items of a path.
async fn list(
    path: &str,
    columns: &[Column],
    form: ListArgs,
    target: &ServerArgs,
) -> anyhow::Result<()> {
    form.show_path(Table::new(columns), &target.client()?, path, MAX_ITEMS).await
}

#[derive(Debug, Subcommand)]
pub(super) enum ThreadVerb {
    /// List threads
    #[command(after_help = "Examples:\n  stead thread ls --json\n  stead thread ls --watch")]
    Ls {
        #[command(flatten)]
        form: ListArgs,
        #[command(flatten)]
        target: ServerArgs,
    },
    /// Show a thread
    #[command(after_help = "Example:\n  stead thread show build --json")]
    Show(ThreadArgs),
    /// Create a thread with options
    #[command(after_help = "Example:\n  stead thread create build --provider local --idle 1h")]
    Create {
        #[command(flatten)]
        of: ThreadArgs,
        /// Provider of its sandbox
        #[arg(long)]
        provider: Option<String>,
        #[command(flatten)]
        sandbox: Box<SandboxArgs>,
        /// Lease to share
        #[arg(long)]
        lease: Option<String>,
        /// Project it belongs to
        #[arg(long)]
        project: Option<String>,
        /// Idle timeout of its sessions, such as 1h
        #[arg(long, value_parser = config::parse_duration)]
        idle: Option<std::time::Duration>,
        /// Maximum duration of its sessions, such as 8h
        #[arg(long, alias = "longest", value_parser = config::parse_duration)]
        max_duration: Option<std::time::Duration>,
        /// Set an environment variable
        #[arg(short, long, value_name = "KEY=VALUE")]
        env: Vec<String>,
        /// Working directory of its shells
        #[arg(long)]
        cwd: Option<String>,
    },
    /// Delete a thread and its terminals
    #[command(after_help = "Example:\n  stead thread rm build")]
    Rm(ThreadArgs),
    /// List the messages of a thread
    #[command(after_help = "Example:\n  stead thread messages build --json")]
    Messages(ThreadListArgs),
    /// Add a message to a thread
    #[command(after_help = "Example:\n  stead thread say build --role assistant 'tests pass'")]
    Say {
        /// Thread
        thread: String,
        /// Role of the author: user, assistant or system
        #[arg(long, default_value = "user")]
        role: String,
        /// Text of the message
        content: String,
        #[command(flatten)]
        target: ServerArgs,
    },
}

pub(super) async fn threads(verb: ThreadVerb) -> anyhow::Result<ExitCode> {
    match verb {
        ThreadVerb::Ls { form, target } => {
            let columns = [
                ("thread", "/thread_id"),
                ("project", "/project_id"),
                ("provider", "/sandbox/type"),
                ("state", "/state"),
                ("updated", "/updated_at"),
                ("last command", "/last_command/command"),
            ];
            let client = target.client()?;
            let threads = async || {
                let mut threads = client.list("/api/threads", MAX_ITEMS).await?;
                if !form.print.json {
                    threads.iter_mut().for_each(|thread| thread["state"] = state(thread).into());
                }
                Ok(threads)
            };
            form.show(Table::new(&columns), &client, threads).await?;
        }
        ThreadVerb::Show(of) => of.ask(Method::GET, "", None).await?,
        ThreadVerb::Rm(of) => of.ask(Method::DELETE, "", None).await?,
        ThreadVerb::Create {
            of,
            provider,
            sandbox,
            lease,
            project,
            idle,
            max_duration,
            env,
            cwd,
        } => {
            let mut body = json!({});
            let mut put = |key: &str, value: Option<Value>| {
                if let Some(value) = value {
                    body[key] = value;
                }
            };
            put("provider", provider.map(Value::from));
            let settings = sandbox.given();
            put("sandbox", (!settings.is_empty()).then_some(Value::Object(settings)));
            put("lease_id", lease.map(Value::from));
            put("project_id", project.map(Value::from));
            put("cwd", cwd.map(Value::from));
            put("env", (!env.is_empty()).then(|| names::pairs(&env)).transpose()?);
            let mut policy = json!({});
            if let Some(idle) = idle {
                policy["idle_timeout_s"] = idle.as_secs().into();
            }
            if let Some(max_duration) = max_duration {
                policy["max_duration_s"] = max_duration.as_secs().into();
            }
            put("policy", policy.as_object().is_some_and(|p| !p.is_empty()).then_some(policy));
            of.ask(Method::PUT, "", Some(&body)).await?;
        }
        ThreadVerb::Messages(of) => {
            let path = format!("/api/threads/{}/messages", escape(of.name()));
            let columns = [
                ("message", "/message_id"),
                ("at", "/at"),
                ("role", "/role"),
                ("content", "/content"),
            ];
            list(&path, &columns, of.form, &of.target).await?;
        }
        ThreadVerb::Say { thread, role, content, target } => {
            let path = format!("/api/threads/{}/messages", escape(&thread));
            target.client()?.post(&path, &json!({"role": role, "content": content})).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Subcommand)]
pub(super) enum SessionVerb {
    /// List the sessions of all threads, newest first
    #[command(
        after_help = "Examples:\n  stead session ls --status active\n  stead session ls --watch"
    )]
    Ls {
        /// Only sessions with this status
        #[arg(long, value_parser = ["active", "idle", "expired", "closed"])]
        status: Option<String>,
        #[command(flatten)]
        form: ListArgs,
        #[command(flatten)]
        target: ServerArgs,
    },
    /// Show the session of a thread
    #[command(after_help = "Example:\n  stead session show build")]
    Show(ThreadArgs),
    /// Keep the session alive
    #[command(after_help = "Example:\n  stead session touch build")]
    Touch(ThreadArgs),
    /// Close the session; the thread keeps its files and shell state
    #[command(after_help = "Example:\n  stead session close build")]
    Close(ThreadArgs),
}

pub(super) async fn sessions(verb: SessionVerb) -> anyhow::Result<ExitCode> {
    match verb {
        SessionVerb::Ls { status, form, target } => {
            let columns = [
                ("session", "/session_id"),
                ("thread", "/thread_id"),
                ("status", "/status"),
                ("last active", "/last_active_at"),
                ("expires", "/expires_at"),
            ];
            let query = status.map(|status| format!("?status={status}")).unwrap_or_default();
            list(&format!("/api/sessions{query}"), &columns, form, &target).await?;
        }
        SessionVerb::Show(of) => of.ask(Method::GET, "/session", None).await?,
        SessionVerb::Touch(of) => of.ask(Method::POST, "/session/touch", None).await?,
        SessionVerb::Close(of) => of.ask(Method::POST, "/session/close", None).await?,
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Args)]
pub(super) struct LeaseArgs {
    /// Lease id
    lease: String,
    #[command(flatten)]
    form: PrintArgs,
    #[command(flatten)]
    target: ServerArgs,
}

impl LeaseArgs {
    async fn ask(&self, method: Method, rest: &str, body: Option<&Value>) -> anyhow::Result<()> {
        let client = self.target.client()?;
        let lease = names::lease(&client, &self.lease).await?;
        let path = format!("/api/leases/{}{rest}", escape(&lease));
        let answer = client.json(method, &path, body).await?;
        if !answer.is_null() {
            self.form.one(&answer)?;
        }
        Ok(())
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum LeaseVerb {
    /// List leases
    #[command(after_help = "Example:\n  stead lease ls --json")]
    Ls {
        #[command(flatten)]
        form: ListArgs,
        #[command(flatten)]
        target: ServerArgs,
    },
    /// Show a lease
    #[command(after_help = "Example:\n  stead lease show lease_0198…")]
    Show(LeaseArgs),
    /// Pause the sandbox of a lease
    #[command(after_help = "Example:\n  stead lease pause lease_0198…")]
    Pause(LeaseArgs),
    /// Resume the sandbox of a lease
    #[command(after_help = "Example:\n  stead lease resume lease_0198…")]
    Resume(LeaseArgs),
    /// Destroy the sandbox of a lease
    #[command(after_help = "Example:\n  stead lease destroy lease_0198…")]
    Destroy(LeaseArgs),
    /// Stop the sandbox of a lease but keep its files
    #[command(after_help = "Example:\n  stead lease suspend lease_0198…")]
    Suspend(LeaseArgs),
    /// Create a lease with a copy of the files
    #[command(after_help = "Example:\n  stead lease fork lease_0198…")]
    Fork(LeaseArgs),
    /// Save the files as a snapshot
    #[command(after_help = "Example:\n  stead lease snapshot lease_… ready\n  \
        stead new -t next --snapshot ready")]
    Snapshot {
        #[command(flatten)]
        of: LeaseArgs,
        /// Name of the snapshot
        name: String,
    },
    /// List snapshots
    #[command(after_help = "Example:\n  stead lease snapshots --json")]
    Snapshots {
        #[command(flatten)]
        form: ListArgs,
        #[command(flatten)]
        target: ServerArgs,
    },
    /// Delete a snapshot
    #[command(after_help = "Example:\n  stead lease rm-snapshot ready")]
    RmSnapshot {
        /// Name of the snapshot
        name: String,
        #[command(flatten)]
        target: ServerArgs,
    },
}

pub(super) async fn leases(verb: LeaseVerb) -> anyhow::Result<ExitCode> {
    match verb {
        LeaseVerb::Ls { form, target } => {
            let columns = [
                ("lease", "/lease_id"),
                ("provider", "/provider_name"),
                ("instance", "/instance/instance_id"),
                ("state", "/instance/state"),
                ("shared by", "/shared_by"),
                ("updated", "/updated_at"),
            ];
            list("/api/leases", &columns, form, &target).await?;
        }
        LeaseVerb::Show(of) => of.ask(Method::GET, "", None).await?,
        LeaseVerb::Pause(of) => of.ask(Method::POST, "/pause", None).await?,
        LeaseVerb::Resume(of) => of.ask(Method::POST, "/resume", None).await?,
        LeaseVerb::Destroy(of) => of.ask(Method::POST, "/destroy", None).await?,
        LeaseVerb::Suspend(of) => of.ask(Method::POST, "/suspend", None).await?,
        LeaseVerb::Fork(of) => of.ask(Method::POST, "/fork", None).await?,
        LeaseVerb::Snapshot { of, name } => {
            of.ask(Method::POST, "/snapshot", Some(&json!({"name": name}))).await?;
        }
        LeaseVerb::Snapshots { form, target } => {
            let columns = [("snapshot", "/name"), ("bytes", "/bytes"), ("created", "/created_at")];
            list("/api/snapshots", &columns, form, &target).await?;
        }
        LeaseVerb::RmSnapshot { name, target } => {
            let path = format!("/api/snapshots/{}", escape(&name));
            target.client()?.json(Method::DELETE, &path, None).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn pause(of: ThreadArgs) -> anyhow::Result<ExitCode> {
    of.ask(Method::POST, "/pause", None).await?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn resume(of: ThreadArgs) -> anyhow::Result<ExitCode> {
    of.ask(Method::POST, "/resume", None).await?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Args)]
pub(super) struct PortsArgs {
    #[command(flatten)]
    of: ThreadListArgs,
    /// Create a link that opens this port and print it; anyone with the link can use the port
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    link: Option<u16>,
    /// Lifetime of the link: 90s, 30m, 2h, 7d
    #[arg(long = "for", value_name = "TIME", requires = "link", value_parser = config::parse_duration)]
    lifetime: Option<std::time::Duration>,
}

/// `stead ports`: the TCP ports that programs listen on, or a link to one of them.
pub(super) async fn ports(args: PortsArgs) -> anyhow::Result<ExitCode> {
    let PortsArgs { of, link, lifetime } = args;
    let client = of.target.client()?;
    let thread = names::thread(&client, of.name()).await?;
    let path = format!("/api/threads/{}/ports", escape(&thread));
    if let Some(port) = link {
        let mut body = json!({});
        if let Some(lifetime) = lifetime {
            body["expires_in_ms"] = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX).into();
        }
        let made = client.post(&format!("{path}/{port}/links"), &body).await?;
        if of.form.print.json {
            of.form.print.one(&made)?;
        } else {
            line(&names::id(&made, "url")?)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    list(&path, &[("port", "/port")], of.form, &of.target).await?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Args)]
pub(super) struct PlainArgs {
    #[command(flatten)]
    form: PrintArgs,
    #[command(flatten)]
    target: ServerArgs,
}

#[derive(Debug, Args)]
pub(super) struct PlainListArgs {
    #[command(flatten)]
    form: ListArgs,
    #[command(flatten)]
    target: ServerArgs,
}

pub(super) async fn providers(args: PlainListArgs) -> anyhow::Result<ExitCode> {
    let columns =
        [("provider", "/name"), ("default", "/default"), ("capabilities", "/capabilities")];
    list("/api/providers", &columns, args.form, &args.target).await?;
    Ok(ExitCode::SUCCESS)
}

/// How many automatic shutdowns are shown.
const MAX_SHUTDOWNS: u32 = 10;

/// `stead status`: whether the server is ready, and its main counters.
pub(super) async fn status(args: PlainArgs) -> anyhow::Result<ExitCode> {
    let client = args.target.client()?;
    let health = client.get("/healthz").await?;
    let readiness = client.open("/readyz", None, HeaderMap::new()).await?;
    let is_ready = readiness.status().is_success();
    let readiness = readiness.bytes().await.context("the response was cut off")?;
    let readiness: Value = serde_json::from_slice(&readiness).unwrap_or_default();
    let ready = match is_ready {
        true => "yes".to_owned(),
        false => format!("no: {}", readiness["detail"].as_str().unwrap_or("no reason given")),
    };
    let checks = readiness["checks"].as_array().cloned().unwrap_or_default();
    let metrics = client.send(Method::GET, "/metrics", None, &[]).await?.bytes().await?;
    let metrics = String::from_utf8_lossy(&metrics).into_owned();
    let ended = client.get(&format!("/api/ledger?limit={MAX_SHUTDOWNS}")).await?["items"].take();
    let number = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse::<f64>().ok()).map_or(Value::Null, |n| json!(n as u64))
    };
    let mut status = json!({
        "server": client.authority(),
        "version": health["version"],
        "ready": ready,
        "terminals_live": number("stead_terminals_live"),
        "watchers": number("stead_watchers"),
        "commands": number("stead_commands_total"),
        "sessions_opened": number("stead_sessions_opened_total"),
        "sessions_closed": number("stead_sessions_closed_total"),
        "instances_created": number("stead_instances_created_total"),
        "instances_failed": number("stead_instances_failed_total"),
        "reconnects": number("stead_reconnects_total"),
        "recoveries_failed": number("stead_recoveries_failed_total"),
    });
    if args.form.json {
        status["checks"] = json!(checks);
        status["ended"] = ended;
        args.form.one(&status)?;
    } else {
        args.form.one(&status)?;
        let failed: Vec<_> = checks.into_iter().filter(|check| check["ok"] == false).collect();
        if !failed.is_empty() {
            line("")?;
            list::print(
                args.form,
                Table::new(&[("problem", "/name"), ("reason", "/reason")]),
                &failed,
            )?;
        }
        if let Some(ended) = ended.as_array().filter(|ended| !ended.is_empty()) {
            line("")?;
            let columns = [("shut down", "/at"), ("kind", "/kind"), ("id", "/subject")];
            let columns = [&columns[..], &[("reason", "/detail/reason")]].concat();
            list::print(args.form, Table::new(&columns), ended)?;
        }
    }
    Ok(if is_ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `stead login`: prints a link that signs a browser in.
pub(super) async fn login(args: PlainArgs) -> anyhow::Result<ExitCode> {
    let link = args.target.client()?.post("/api/login-links", &json!({})).await?;
    if args.form.json {
        args.form.one(&link)?;
    } else {
        line(&names::id(&link, "url")?)?;
    }
    Ok(ExitCode::SUCCESS)
}
