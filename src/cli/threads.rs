//! Verbs for threads, their sessions and leases, and the providers.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::{
    client::{ServerArgs, escape},
    names,
    show::{Form, line},
};

/// Most items a listing prints.
const MOST: usize = 100_000;

/// A thread, and the server it is on.
#[derive(Debug, Args)]
pub(super) struct OfThread {
    /// The thread
    #[arg(default_value = names::DEFAULT_THREAD)]
    thread: String,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    target: ServerArgs,
}

impl OfThread {
    /// Asks for something of the thread and shows it.
    async fn ask(&self, method: Method, rest: &str, body: Option<&Value>) -> anyhow::Result<()> {
        let path = format!("/api/threads/{}{rest}", escape(&self.thread));
        let answer = self.target.client()?.json(method, &path, body).await?;
        if !answer.is_null() {
            self.form.one(&answer)?;
        }
        Ok(())
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum ThreadsVerb {
    /// List threads
    Ls {
        #[command(flatten)]
        form: Form,
        #[command(flatten)]
        target: ServerArgs,
    },
    /// Show one
    Show(OfThread),
    /// Make one, with choices
    #[command(after_help = "Example:\n  stead threads create build --provider local --idle 1h")]
    Create {
        #[command(flatten)]
        of: OfThread,
        /// Provider of its compute
        #[arg(long)]
        provider: Option<String>,
        #[command(flatten)]
        sandbox: Box<SandboxArgs>,
        /// Share this lease
        #[arg(long)]
        lease: Option<String>,
        /// Project it belongs to
        #[arg(long)]
        project: Option<String>,
        /// Idle time after which its sessions expire
        #[arg(long, value_parser = config::parse_duration)]
        idle: Option<std::time::Duration>,
        /// Longest life of its sessions
        #[arg(long, value_parser = config::parse_duration)]
        longest: Option<std::time::Duration>,
        /// Set a variable
        #[arg(short, long, value_name = "KEY=VALUE")]
        env: Vec<String>,
        /// Directory its shells start in
        #[arg(long)]
        cwd: Option<String>,
    },
    /// Destroy one, with its terminals
    Rm(OfThread),
    /// Show its conversation
    Messages(OfThread),
    /// Add to its conversation
    Say {
        /// The thread
        thread: String,
        /// Who says it: user, assistant or system
        #[arg(long, default_value = "user")]
        role: String,
        /// What is said
        content: String,
        #[command(flatten)]
        target: ServerArgs,
    },
}

/// What a sandbox is to have.
#[derive(Debug, Default, clap::Args)]
pub(super) struct SandboxArgs {
    /// Memory of its sandbox, as in 512m or 1g
    #[arg(long)]
    memory: Option<String>,
    /// Processors of its sandbox, as in 0.5 or 2
    #[arg(long)]
    cpus: Option<String>,
    /// Processes and threads of its sandbox
    #[arg(long)]
    processes: Option<u64>,
    /// Disk of its sandbox, as in 2g
    #[arg(long)]
    disk: Option<String>,
    /// What its sandbox may reach: none, public, all, or HOST:PORT,…
    #[arg(long)]
    egress: Option<String>,
    /// Image its sandbox is made from
    #[arg(long)]
    image: Option<String>,
    /// Snapshot its files begin with
    #[arg(long)]
    snapshot: Option<String>,
}

impl SandboxArgs {
    /// The same as a request says it; `None` if nothing was said.
    pub(super) fn spec(self) -> Option<Value> {
        let said = [
            ("memory", self.memory.map(Value::from)),
            ("cpus", self.cpus.map(Value::from)),
            ("processes", self.processes.map(Value::from)),
            ("disk", self.disk.map(Value::from)),
            ("egress", self.egress.map(Value::from)),
            ("image", self.image.map(Value::from)),
            ("snapshot", self.snapshot.map(Value::from)),
        ];
        let spec: serde_json::Map<String, Value> =
            said.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        (!spec.is_empty()).then_some(Value::Object(spec))
    }
}

pub(super) async fn threads(verb: ThreadsVerb) -> anyhow::Result<ExitCode> {
    match verb {
        ThreadsVerb::Ls { form, target } => {
            let items = target.client()?.list("/api/threads", MOST).await?;
            form.list(
                &items,
                &[
                    ("thread", "/thread_id"),
                    ("project", "/project_id"),
                    ("provider", "/sandbox/type"),
                    ("status", "/sandbox/status"),
                    ("terminal", "/sandbox/terminal_id"),
                    ("updated", "/updated_at"),
                ],
            )?;
        }
        ThreadsVerb::Show(of) => of.ask(Method::GET, "", None).await?,
        ThreadsVerb::Rm(of) => of.ask(Method::DELETE, "", None).await?,
        ThreadsVerb::Create { of, provider, sandbox, lease, project, idle, longest, env, cwd } => {
            let mut body = json!({});
            let mut put = |key: &str, value: Option<Value>| {
                if let Some(value) = value {
                    body[key] = value;
                }
            };
            put("provider", provider.map(Value::from));
            put("sandbox", sandbox.spec());
            put("lease_id", lease.map(Value::from));
            put("project_id", project.map(Value::from));
            put("cwd", cwd.map(Value::from));
            put("env", (!env.is_empty()).then(|| names::pairs(&env)).transpose()?);
            let mut policy = json!({});
            if let Some(idle) = idle {
                policy["idle_timeout_s"] = idle.as_secs().into();
            }
            if let Some(longest) = longest {
                policy["max_duration_s"] = longest.as_secs().into();
            }
            put("policy", policy.as_object().is_some_and(|p| !p.is_empty()).then_some(policy));
            of.ask(Method::PUT, "", Some(&body)).await?;
        }
        ThreadsVerb::Messages(of) => {
            let path = format!("/api/threads/{}/messages", escape(&of.thread));
            let items = of.target.client()?.list(&path, MOST).await?;
            let columns = [("at", "/at"), ("role", "/role"), ("content", "/content")];
            of.form.list(&items, &columns)?;
        }
        ThreadsVerb::Say { thread, role, content, target } => {
            let path = format!("/api/threads/{}/messages", escape(&thread));
            target.client()?.post(&path, &json!({"role": role, "content": content})).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Subcommand)]
pub(super) enum SessionsVerb {
    /// Show the session of a thread
    Show(OfThread),
    /// Say that it is in use
    Touch(OfThread),
    /// End it; the durable state stays
    Close(OfThread),
}

pub(super) async fn sessions(verb: SessionsVerb) -> anyhow::Result<ExitCode> {
    match verb {
        SessionsVerb::Show(of) => of.ask(Method::GET, "/session", None).await?,
        SessionsVerb::Touch(of) => of.ask(Method::POST, "/session/touch", None).await?,
        SessionsVerb::Close(of) => of.ask(Method::POST, "/session/close", None).await?,
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Args)]
pub(super) struct OfLease {
    /// The lease's id
    lease: String,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    target: ServerArgs,
}

impl OfLease {
    async fn ask(&self, method: Method, rest: &str, body: Option<&Value>) -> anyhow::Result<()> {
        let path = format!("/api/leases/{}{rest}", escape(&self.lease));
        let answer = self.target.client()?.json(method, &path, body).await?;
        if !answer.is_null() {
            self.form.one(&answer)?;
        }
        Ok(())
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum LeasesVerb {
    /// List leases
    Ls {
        #[command(flatten)]
        form: Form,
        #[command(flatten)]
        target: ServerArgs,
    },
    /// Show one
    Show(OfLease),
    /// Freeze its processes
    Pause(OfLease),
    /// Let them go on
    Resume(OfLease),
    /// End its processes
    Destroy(OfLease),
    /// End its processes and keep its files for the next use
    Suspend(OfLease),
    /// Make another with a copy of its files
    Fork(OfLease),
    /// Keep a copy of its files under a name
    #[command(after_help = "Example:\n  stead leases snapshot lease_… ready\n  \
        stead new -t next --snapshot ready")]
    Snapshot {
        #[command(flatten)]
        of: OfLease,
        /// What it is to be called
        name: String,
    },
    /// List the snapshots
    Snapshots {
        #[command(flatten)]
        form: Form,
        #[command(flatten)]
        target: ServerArgs,
    },
    /// Remove a snapshot
    RmSnapshot {
        /// Which
        name: String,
        #[command(flatten)]
        target: ServerArgs,
    },
}

pub(super) async fn leases(verb: LeasesVerb) -> anyhow::Result<ExitCode> {
    match verb {
        LeasesVerb::Ls { form, target } => {
            let items = target.client()?.list("/api/leases", MOST).await?;
            form.list(
                &items,
                &[
                    ("lease", "/lease_id"),
                    ("provider", "/provider_name"),
                    ("instance", "/instance/instance_id"),
                    ("state", "/instance/state"),
                    ("shared by", "/shared_by"),
                    ("updated", "/updated_at"),
                ],
            )?;
        }
        LeasesVerb::Show(of) => of.ask(Method::GET, "", None).await?,
        LeasesVerb::Pause(of) => of.ask(Method::POST, "/pause", None).await?,
        LeasesVerb::Resume(of) => of.ask(Method::POST, "/resume", None).await?,
        LeasesVerb::Destroy(of) => of.ask(Method::POST, "/destroy", None).await?,
        LeasesVerb::Suspend(of) => of.ask(Method::POST, "/suspend", None).await?,
        LeasesVerb::Fork(of) => of.ask(Method::POST, "/fork", None).await?,
        LeasesVerb::Snapshot { of, name } => {
            of.ask(Method::POST, "/snapshot", Some(&json!({"name": name}))).await?;
        }
        LeasesVerb::Snapshots { form, target } => {
            let items = target.client()?.list("/api/snapshots", MOST).await?;
            let columns = [("snapshot", "/name"), ("bytes", "/bytes"), ("created", "/created_at")];
            form.list(&items, &columns)?;
        }
        LeasesVerb::RmSnapshot { name, target } => {
            let path = format!("/api/snapshots/{}", escape(&name));
            target.client()?.json(Method::DELETE, &path, None).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn pause(of: OfThread) -> anyhow::Result<ExitCode> {
    of.ask(Method::POST, "/pause", None).await?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn resume(of: OfThread) -> anyhow::Result<ExitCode> {
    of.ask(Method::POST, "/resume", None).await?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Args)]
pub(super) struct Plain {
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    target: ServerArgs,
}

pub(super) async fn providers(args: Plain) -> anyhow::Result<ExitCode> {
    let items = args.target.client()?.list("/api/providers", MOST).await?;
    args.form.list(
        &items,
        &[("provider", "/name"), ("default", "/default"), ("can", "/capabilities")],
    )?;
    Ok(ExitCode::SUCCESS)
}

/// So much of what the server ended by itself is shown.
const ENDED: u32 = 10;

/// `stead status`: whether the server is well, and how much it has.
pub(super) async fn status(args: Plain) -> anyhow::Result<ExitCode> {
    let client = args.target.client()?;
    let health = client.get("/healthz").await?;
    let ready = match client.get("/readyz").await {
        Ok(_) => "yes".to_owned(),
        Err(error) => format!("no: {error:#}"),
    };
    let metrics = client.send(Method::GET, "/metrics", None, &[]).await?.bytes().await?;
    let metrics = String::from_utf8_lossy(&metrics).into_owned();
    let ended = client.get(&format!("/api/ledger?limit={ENDED}")).await?["items"].take();
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
        status["ended"] = ended;
        args.form.one(&status)?;
    } else {
        args.form.one(&status)?;
        if let Some(ended) = ended.as_array().filter(|ended| !ended.is_empty()) {
            line("")?;
            let columns = [("ended by itself", "/at"), ("what", "/kind"), ("which", "/subject")];
            args.form.list(ended, &[&columns[..], &[("why", "/detail/reason")]].concat())?;
        }
    }
    Ok(if ready == "yes" { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `stead login`: a link that signs a browser in.
pub(super) async fn login(args: Plain) -> anyhow::Result<ExitCode> {
    let link = args.target.client()?.post("/api/login-links", &json!({})).await?;
    if args.form.json {
        args.form.one(&link)?;
    } else {
        line(&names::id(&link, "url")?)?;
    }
    Ok(ExitCode::SUCCESS)
}
