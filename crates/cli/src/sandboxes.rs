//! Commands for sandboxes.

use std::{process::ExitCode, time::Duration};

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use serde_json::{Map, Value, json};

use super::{
    client::{ApiClient, ServerArgs, escape},
    list::{ListArgs, Table},
    names,
    repository::{self, RepositorySource},
    show::{Column, PrintArgs},
};

/// Maximum number of sandboxes in a list.
const MAX_ITEMS: usize = 100_000;

const COLUMNS: [Column; 6] = [
    ("sandbox", "/sandbox_id"),
    ("name", "/name"),
    ("state", "/state"),
    ("provider", "/provider"),
    ("expires", "/expires_at"),
    ("last used", "/last_active_at"),
];

const EGRESS_COLUMNS: [Column; 7] = [
    ("address", "/address"),
    ("port", "/port"),
    ("protocol", "/protocol"),
    ("name", "/name"),
    ("verdict", "/verdict"),
    ("attempts", "/attempts"),
    ("last", "/last_seen_at"),
];

#[derive(Debug, Subcommand)]
pub(super) enum SandboxVerb {
    /// List sandboxes
    #[command(after_help = "Examples:\n  stead sandbox ls --state running\n  \
        stead sandbox ls --label team=web --json")]
    Ls {
        /// Only sandboxes with this label
        #[arg(short, long, value_name = "KEY=VALUE")]
        label: Vec<String>,
        /// Only sandboxes in this state: running, paused, suspended, stopped or archived
        #[arg(long)]
        state: Option<String>,
        #[command(flatten)]
        form: ListArgs,
        #[command(flatten)]
        target: ServerArgs,
    },
    /// Create a sandbox and start it
    #[command(after_help = "Examples:\n  stead sandbox create build --memory 2g --timeout 8h\n  \
        stead exec -t \"$(stead sandbox create --quiet)\" -- make test\n  \
        stead sandbox create build --repo https://example.com/team/app.git\n  \
        stead sandbox create build --repo ./app\n\n\
        If a sandbox of this name exists, it is printed unchanged.\n\
        --repo creates a directory in /workspace. For a private repository at an https URL, `git clone` uses\n\
        the variable GIT_TOKEN of the sandbox as its password.")]
    Create(Box<NewSandboxArgs>),
    /// Show a sandbox
    #[command(after_help = "Example:\n  stead sandbox show build --json")]
    Show(SandboxName),
    /// Pause a sandbox with its processes; the next use resumes it
    #[command(after_help = "Example:\n  stead sandbox pause build")]
    Pause(SandboxName),
    /// Resume a paused or suspended sandbox
    #[command(after_help = "Example:\n  stead sandbox resume build")]
    Resume(SandboxName),
    /// End the processes of a sandbox and keep its files; the next use starts it
    #[command(after_help = "Example:\n  stead sandbox suspend build")]
    Suspend(SandboxName),
    /// Extend the lifetime of a sandbox to at least this long from now
    #[command(after_help = "Example:\n  stead sandbox extend build 2h")]
    Extend {
        #[command(flatten)]
        of: SandboxName,
        /// Time from now, such as 2h
        #[arg(value_parser = config::parse_duration)]
        time: Duration,
    },
    /// Create a sandbox with the files and the shell of another
    #[command(after_help = "Example:\n  stead sandbox fork build --name attempt-2")]
    Fork {
        #[command(flatten)]
        of: SandboxName,
        /// Name of the fork
        #[arg(long)]
        name: Option<String>,
    },
    /// List the destinations that a sandbox connected to, and those that were refused
    #[command(after_help = "Example:\n  stead sandbox egress build\n\n\
        The log begins when the sandbox starts, and ends when it is suspended.")]
    Egress {
        /// Name, id or unique prefix of an id
        sandbox: String,
        #[command(flatten)]
        form: ListArgs,
        #[command(flatten)]
        target: ServerArgs,
    },
    /// Save the files of a sandbox under a name
    #[command(after_help = "Example:\n  stead sandbox snapshot build with-dependencies\n  \
        stead sandbox create --snapshot with-dependencies")]
    Snapshot {
        #[command(flatten)]
        of: SandboxName,
        /// Name of the snapshot
        name: String,
    },
    /// Delete sandboxes with everything in them
    #[command(after_help = "Examples:\n  stead sandbox rm build\n  \
        stead sandbox rm $(stead sandbox ls --quiet --label team=web)")]
    Rm {
        /// Names, ids or unique prefixes of ids
        #[arg(required = true, value_name = "SANDBOX")]
        sandboxes: Vec<String>,
        #[command(flatten)]
        target: ServerArgs,
    },
}

#[derive(Debug, Args)]
pub(super) struct SandboxName {
    /// Name, id or unique prefix of an id
    sandbox: String,
    #[command(flatten)]
    form: PrintArgs,
    #[command(flatten)]
    target: ServerArgs,
}

impl SandboxName {
    /// Sends a request about the sandbox and prints the response.
    async fn ask(&self, method: Method, rest: &str, body: Option<&Value>) -> anyhow::Result<()> {
        let client = self.target.client()?;
        let path = path(&client, &self.sandbox).await?;
        Ok(self.form.one(&client.json(method, &format!("{path}{rest}"), body).await?)?)
    }
}

#[derive(Debug, Args)]
pub(super) struct NewSandboxArgs {
    /// Name, unique within the project
    name: Option<String>,
    /// Project it belongs to
    #[arg(long)]
    project: Option<String>,
    /// Provider of its compute
    #[arg(long)]
    provider: Option<String>,
    #[command(flatten)]
    sandbox: SandboxArgs,
    /// Set an environment variable of its shells
    #[arg(short, long, value_name = "KEY=VALUE")]
    env: Vec<String>,
    /// Lifetime, such as 8h; unlimited by default
    #[arg(long, value_parser = config::parse_duration)]
    timeout: Option<Duration>,
    /// What happens at the end of the lifetime
    #[arg(long, value_enum, requires = "timeout")]
    on_timeout: Option<TimeoutChoice>,
    /// Set a label
    #[arg(short, long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// Repository for its workspace: a URL to clone inside, or a directory of this machine to copy
    #[arg(long, value_name = "URL|DIR")]
    repo: Option<String>,
    /// Print only the id
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    #[command(flatten)]
    form: PrintArgs,
    #[command(flatten)]
    target: ServerArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum TimeoutChoice {
    /// End the processes and keep the files
    Suspend,
    /// Delete the sandbox
    Destroy,
}

/// The files, resources and network of a sandbox.
#[derive(Debug, Default, Args)]
pub(super) struct SandboxArgs {
    /// Memory of the sandbox, such as 512m or 1g
    #[arg(long)]
    memory: Option<String>,
    /// CPUs of the sandbox, such as 0.5 or 2
    #[arg(long)]
    cpus: Option<String>,
    /// Maximum number of processes and threads in the sandbox
    #[arg(long)]
    processes: Option<u64>,
    /// Disk size of the sandbox, such as 2g
    #[arg(long)]
    disk: Option<String>,
    /// Network access of the sandbox: none, public, all, or HOST:PORT,…
    #[arg(long)]
    egress: Option<String>,
    /// Capabilities of root in the sandbox, over its own files and users: root or none
    #[arg(long)]
    capabilities: Option<String>,
    /// Image of the sandbox
    #[arg(long)]
    image: Option<String>,
    /// Snapshot that the sandbox's files start from
    #[arg(long)]
    snapshot: Option<String>,
}

impl SandboxArgs {
    /// Returns the given options as they are named in requests.
    pub(super) fn given(self) -> Map<String, Value> {
        let given = [
            ("memory", self.memory.map(Value::from)),
            ("cpus", self.cpus.map(Value::from)),
            ("processes", self.processes.map(Value::from)),
            ("disk", self.disk.map(Value::from)),
            ("egress", self.egress.map(Value::from)),
            ("capabilities", self.capabilities.map(Value::from)),
            ("image", self.image.map(Value::from)),
            ("snapshot", self.snapshot.map(Value::from)),
        ];
        given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

pub(super) async fn sandboxes(verb: SandboxVerb) -> anyhow::Result<ExitCode> {
    let (get, post) = (Method::GET, Method::POST);
    match verb {
        SandboxVerb::Ls { label, state, form, target } => {
            let filters = [("label", label.join(",")), ("state", state.unwrap_or_default())];
            let given = filters.iter().filter(|(_, value)| !value.is_empty());
            let query: Vec<_> =
                given.map(|(name, value)| format!("{name}={}", escape(value))).collect();
            let path = match query.as_slice() {
                [] => "/api/sandboxes".to_owned(),
                query => format!("/api/sandboxes?{}", query.join("&")),
            };
            let client = target.client()?;
            form.show_path(Table::new(&COLUMNS), &client, &path, MAX_ITEMS).await?;
        }
        SandboxVerb::Create(args) => create(*args).await?,
        SandboxVerb::Show(of) => of.ask(get, "", None).await?,
        SandboxVerb::Pause(of) => of.ask(post, "/pause", Some(&json!({}))).await?,
        SandboxVerb::Resume(of) => of.ask(post, "/resume", Some(&json!({}))).await?,
        SandboxVerb::Suspend(of) => of.ask(post, "/suspend", Some(&json!({}))).await?,
        SandboxVerb::Extend { of, time } => {
            let body = json!({"timeout_s": time.as_secs()});
            of.ask(post, "/extend", Some(&body)).await?;
        }
        SandboxVerb::Fork { of, name } => {
            let body = name.map_or(json!({}), |name| json!({"name": name}));
            of.ask(post, "/fork", Some(&body)).await?;
        }
        SandboxVerb::Snapshot { of, name } => {
            of.ask(post, "/snapshot", Some(&json!({"name": name}))).await?;
        }
        SandboxVerb::Egress { sandbox, form, target } => egress(&sandbox, form, &target).await?,
        SandboxVerb::Rm { sandboxes, target } => {
            let client = target.client()?;
            for sandbox in sandboxes {
                let path = path(&client, &sandbox).await?;
                client.json(Method::DELETE, &path, None).await?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn egress(sandbox: &str, form: ListArgs, target: &ServerArgs) -> anyhow::Result<()> {
    let client = target.client()?;
    let path = format!("{}/egress", path(&client, sandbox).await?);
    let mut is_reported = false;
    let read = async || {
        let log = client.get(&path).await?;
        for verdict in ["allowed", "refused"] {
            let unlisted = log[format!("unlisted_{verdict}")].as_u64().unwrap_or(0);
            if unlisted > 0 && !is_reported {
                eprintln!("stead: the log is full; {unlisted} {verdict} attempts are not listed");
            }
        }
        // Once, however often the list is read.
        is_reported = true;
        Ok(log["items"].as_array().cloned().unwrap_or_default())
    };
    form.show(Table::new(&EGRESS_COLUMNS), &client, read).await
}

async fn create(args: NewSandboxArgs) -> anyhow::Result<()> {
    // Refused before anything is created.
    let source = args.repo.as_deref().map(RepositorySource::parse).transpose()?;
    let client = args.target.client()?;
    let mut body = args.sandbox.given();
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            body.insert(key.to_owned(), value);
        }
    };
    put("name", args.name.map(Value::from));
    if let Some(project) = args.project {
        put("project_id", Some(names::project(&client, &project).await?.into()));
    }
    put("provider", args.provider.map(Value::from));
    put("env", (!args.env.is_empty()).then(|| names::pairs(&args.env)).transpose()?);
    put("labels", (!args.label.is_empty()).then(|| names::pairs(&args.label)).transpose()?);
    put("timeout_s", args.timeout.map(|timeout| timeout.as_secs().into()));
    put(
        "on_timeout",
        args.on_timeout.map(|action| match action {
            TimeoutChoice::Suspend => "suspend".into(),
            TimeoutChoice::Destroy => "destroy".into(),
        }),
    );
    let sandbox = client.post("/api/sandboxes", &Value::Object(body)).await?;
    let id = names::id(&sandbox, "sandbox_id")?;
    if let Some(source) = source {
        let brought = repository::bring(&client, &sandbox, &source).await;
        brought.with_context(|| format!("sandbox {id} runs, but without its repository"))?;
    }
    match args.quiet {
        true => super::show::line(&id)?,
        false => args.form.one(&sandbox)?,
    }
    Ok(())
}

/// Returns the path of a sandbox, given by its name, its id or a unique prefix of the id.
async fn path(client: &ApiClient, name: &str) -> anyhow::Result<String> {
    let id = names::sandbox(client, name).await?;
    Ok(format!("/api/sandboxes/{}", escape(&id)))
}
