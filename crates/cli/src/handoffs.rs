//! Commands for hand-offs: what agents ask people for.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    process::ExitCode,
};

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::{
    client::{ApiClient, ServerArgs, escape},
    list::{ListArgs, Table},
    names::{self, IfMissing},
    raw,
    show::{Column, PrintArgs, line},
};

/// Maximum number of hand-offs in a list.
const MAX_ITEMS: usize = 10_000;
/// The longest wait of one request, in milliseconds.
const MAX_WAIT_MS: u64 = 60_000;

const COLUMNS: &[Column] = &[
    ("handoff", "/handoff_id"),
    ("thread", "/thread_id"),
    ("kind", "/kind"),
    ("status", "/status"),
    ("reason", "/reason"),
    ("options", "/options"),
    ("expires", "/expires_at"),
];

#[derive(Debug, Subcommand)]
pub(super) enum HandoffVerb {
    /// List open hand-offs
    #[command(after_help = "Examples:\n  stead handoffs ls\n  stead handoffs ls --all --json")]
    Ls {
        /// Include answered, declined and expired hand-offs
        #[arg(short, long)]
        all: bool,
        /// Only hand-offs of this thread or sandbox
        #[arg(short, long)]
        thread: Option<String>,
        #[command(flatten)]
        form: ListArgs,
        #[command(flatten)]
        target: ServerArgs,
    },
    /// Answer a hand-off
    Answer(AnswerArgs),
    /// Decline a hand-off
    #[command(after_help = "Example:\n  stead handoffs decline handoff_… --text \"not today\"")]
    Decline {
        /// Id of the hand-off, or a unique prefix
        handoff: String,
        /// Text for the agent
        #[arg(long)]
        text: Option<String>,
        #[command(flatten)]
        form: PrintArgs,
        #[command(flatten)]
        target: ServerArgs,
    },
    /// Ask a person, and print the answer
    Ask(AskArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  stead handoffs answer handoff_… --approve\n  \
    stead handoffs answer handoff_… --option deploy\n  stead handoffs answer handoff_… --text blue\n  \
    stead handoffs answer handoff_…               ask for what is missing, a secret without echo\n  \
    pass show sudo | stead handoffs answer handoff_…")]
pub(super) struct AnswerArgs {
    /// Id of the hand-off, or a unique prefix
    handoff: String,
    /// Approve
    #[arg(long, conflicts_with = "reject")]
    approve: bool,
    /// Do not approve
    #[arg(long)]
    reject: bool,
    /// Choose one of the options
    #[arg(long, value_name = "OPTION", conflicts_with = "reject")]
    option: Option<String>,
    /// Text for the agent (default: the first line of standard input)
    #[arg(long)]
    text: Option<String>,
    #[command(flatten)]
    form: PrintArgs,
    #[command(flatten)]
    target: ServerArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  stead handoffs ask main --kind approval --reason \"Deploy?\"\n  \
    stead handoffs ask main --kind input --reason \"Which branch?\" --option main --option next\n\n\
    Exit status: 0 answered, 3 declined or not approved, 4 expired."
)]
pub(super) struct AskArgs {
    /// Terminal id, or thread or sandbox for its default terminal
    terminal: String,
    /// What to ask for
    #[arg(long, value_enum)]
    kind: AskKind,
    /// What the person is asked, and why
    #[arg(long)]
    reason: String,
    /// An answer to choose from; may be repeated
    #[arg(long = "option", value_name = "OPTION")]
    options: Vec<String>,
    /// Time until the hand-off expires: 90s, 30m, 2h, 7d (default: 24h)
    #[arg(long, value_name = "TIME", value_parser = config::parse_duration)]
    timeout: Option<std::time::Duration>,
    /// Do not wait for the answer; print the id of the hand-off
    #[arg(short, long)]
    detached: bool,
    #[command(flatten)]
    form: PrintArgs,
    #[command(flatten)]
    target: ServerArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AskKind {
    /// Text
    Input,
    /// Text that is typed into the program that reads the terminal
    Secret,
    /// A decision
    Approval,
}

impl AskKind {
    fn word(self) -> &'static str {
        match self {
            AskKind::Input => "input",
            AskKind::Secret => "secret",
            AskKind::Approval => "approval",
        }
    }
}

/// Exit status of `ask` if a person declined or did not approve.
const DECLINED_STATUS: u8 = 3;
/// Exit status of `ask` if no person answered in time.
const EXPIRED_STATUS: u8 = 4;

pub(super) async fn handoffs(verb: HandoffVerb) -> anyhow::Result<ExitCode> {
    match verb {
        HandoffVerb::Ls { all, thread, form, target } => {
            let client = target.client()?;
            let mut path = "/api/handoffs".to_owned();
            let mut separator = '?';
            if !all {
                path.push_str("?status=open");
                separator = '&';
            }
            if let Some(name) = thread {
                let thread = names::thread(&client, &name).await?;
                path.push_str(&format!("{separator}thread_id={}", escape(&thread)));
            }
            let empty = Some(if all { "no hand-offs" } else { "no open hand-offs" });
            let table = Table { columns: COLUMNS, empty, item: None };
            form.show_path(table, &client, &path, MAX_ITEMS).await?;
            Ok(ExitCode::SUCCESS)
        }
        HandoffVerb::Answer(args) => answer(args).await,
        HandoffVerb::Decline { handoff, text, form, target } => {
            let client = target.client()?;
            let path = handoff_path(&client, &handoff).await?;
            let declined = client.post(&format!("{path}/decline"), &json!({"text": text})).await?;
            if form.json {
                form.one(&declined)?;
            }
            Ok(ExitCode::SUCCESS)
        }
        HandoffVerb::Ask(args) => ask(args).await,
    }
}

async fn answer(args: AnswerArgs) -> anyhow::Result<ExitCode> {
    let client = args.target.client()?;
    let path = handoff_path(&client, &args.handoff).await?;
    let handoff = client.get(&path).await?;
    if handoff["status"] != "open" {
        let status = handoff["status"].as_str().unwrap_or("not open");
        bail!("the hand-off is {status}");
    }
    let body = match handoff["kind"].as_str() {
        Some("secret") => {
            let given = args.approve || args.reject || args.option.is_some() || args.text.is_some();
            if given {
                bail!(
                    "a secret is read from the terminal or from standard input, never from an option"
                );
            }
            json!({"secret": read_secret(&handoff)?})
        }
        Some("approval") if args.approve || args.reject || args.option.is_some() => {
            let approve = (args.approve || args.reject).then_some(args.approve);
            json!({"approve": approve, "option": args.option, "text": args.text})
        }
        Some("approval") => {
            bail!("give --approve, --reject or --option; {}", question(&handoff))
        }
        _ if args.approve || args.reject => bail!("only an approval is approved or rejected"),
        _ => {
            let text = match (&args.option, args.text) {
                (None, None) => Some(read_line(&handoff)?),
                (_, text) => text,
            };
            json!({"option": args.option, "text": text})
        }
    };
    let answered = client.post(&format!("{path}/answer"), &body).await?;
    if args.form.json {
        args.form.one(&answered)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn ask(args: AskArgs) -> anyhow::Result<ExitCode> {
    let client = args.target.client()?;
    let terminal = names::terminal(&client, &args.terminal, IfMissing::Fail).await?;
    let mut body =
        json!({"kind": args.kind.word(), "reason": args.reason, "options": args.options});
    if let Some(timeout) = args.timeout {
        body["timeout_ms"] = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).into();
    }
    let path = format!("/api/terminals/{}/handoffs", escape(&terminal));
    let mut handoff = client.post(&path, &body).await?;
    let id = names::id(&handoff, "handoff_id")?;
    if args.detached {
        match args.form.json {
            true => args.form.one(&handoff)?,
            false => line(&id)?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    while handoff["status"] == "open" {
        handoff = client.get(&format!("/api/handoffs/{id}?wait_ms={MAX_WAIT_MS}")).await?;
    }
    let answer = &handoff["answer"];
    if args.form.json {
        args.form.one(&handoff)?;
    } else if let Some(text) = answer["option"].as_str().or(answer["text"].as_str()) {
        line(text)?;
    }
    Ok(match handoff["status"].as_str() {
        Some("answered") if answer["approve"] != json!(false) => ExitCode::SUCCESS,
        Some("expired") => ExitCode::from(EXPIRED_STATUS),
        _ => ExitCode::from(DECLINED_STATUS),
    })
}

/// Returns the path of a hand-off, given by its id or a unique prefix.
async fn handoff_path(client: &ApiClient, name: &str) -> anyhow::Result<String> {
    Ok(format!("/api/handoffs/{}", escape(&names::handoff(client, name).await?)))
}

/// The question of a hand-off, for a person.
fn question(handoff: &Value) -> String {
    let reason = handoff["reason"].as_str().unwrap_or_default();
    let safe = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
    reason.chars().map(safe).collect()
}

/// Reads a line; a terminal is prompted.
fn read_line(handoff: &Value) -> anyhow::Result<String> {
    prompt(handoff)?;
    let mut text = String::new();
    let bytes = io::stdin().lock().read_line(&mut text).context("cannot read the answer")?;
    if bytes == 0 {
        bail!("no answer on standard input");
    }
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// Reads a line that a terminal does not echo.
fn read_secret(handoff: &Value) -> anyhow::Result<String> {
    let hidden = raw::EchoOff::enter().context("cannot turn the echo of the terminal off")?;
    let secret = read_line(handoff);
    drop(hidden);
    if io::stdin().is_terminal() {
        eprintln!();
    }
    let secret = secret?;
    if secret.is_empty() {
        bail!("the secret is empty");
    }
    Ok(secret)
}

fn prompt(handoff: &Value) -> io::Result<()> {
    if !io::stdin().is_terminal() {
        return Ok(());
    }
    let mut out = io::stderr().lock();
    write!(out, "{} ", question(handoff))?;
    out.flush()
}
