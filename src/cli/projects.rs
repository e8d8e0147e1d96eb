//! Verbs for projects.

use std::{
    io::{IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    time::Instant,
};

use anyhow::Context;
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::{
    client::{Target, escape},
    names,
    show::{Form, line},
};

/// Most items a listing prints.
const MOST: usize = 100_000;

/// A project, and the server it is on.
#[derive(Debug, Args)]
pub(super) struct OfProject {
    /// The project's id
    project: String,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    target: Target,
}

impl OfProject {
    async fn ask(&self, method: Method, rest: &str, body: Option<&Value>) -> anyhow::Result<()> {
        let path = format!("/api/projects/{}{rest}", escape(&self.project));
        let answer = self.target.client()?.json(method, &path, body).await?;
        if !answer.is_null() {
            self.form.one(&answer)?;
        }
        Ok(())
    }
}

/// What may be chosen for a project.
#[derive(Debug, Args)]
pub(super) struct Choices {
    /// What it is
    #[arg(long)]
    description: Option<String>,
    /// A tag; may be given several times
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Its configuration, as JSON
    #[arg(long, value_name = "JSON")]
    config: Option<String>,
}

impl Choices {
    fn body(&self) -> anyhow::Result<Value> {
        let mut body = json!({});
        if let Some(description) = &self.description {
            body["description"] = description.as_str().into();
        }
        if !self.tags.is_empty() {
            body["tags"] = self.tags.clone().into();
        }
        if let Some(config) = &self.config {
            body["config"] = serde_json::from_str(config).context("--config is not JSON")?;
        }
        Ok(body)
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum ProjectVerb {
    /// Make a project
    #[command(after_help = "Example:\n  stead project create my-api --tag work")]
    Create {
        /// What its id begins with: a-z, 0-9 and dashes
        prefix: String,
        #[command(flatten)]
        choices: Choices,
        #[command(flatten)]
        form: Form,
        #[command(flatten)]
        target: Target,
    },
    /// List projects
    Ls {
        /// Only those with this prefix
        #[arg(long)]
        prefix: Option<String>,
        /// Only those with this tag
        #[arg(long)]
        tag: Option<String>,
        /// Those in the trash
        #[arg(long)]
        deleted: bool,
        #[command(flatten)]
        form: Form,
        #[command(flatten)]
        target: Target,
    },
    /// Show one
    Show(OfProject),
    /// Change one
    Set {
        #[command(flatten)]
        of: OfProject,
        #[command(flatten)]
        choices: Choices,
    },
    /// List its sessions, ended ones too
    Sessions(OfProject),
    /// Keep one for good
    Pin(OfProject),
    /// Keep it no longer than others
    Unpin(OfProject),
    /// Move its clean-up away
    Extend {
        #[command(flatten)]
        of: OfProject,
        /// Days
        #[arg(long, default_value_t = 30)]
        days: u32,
    },
    /// Delete one with its threads; it can be restored for some days
    Rm(OfProject),
    /// Bring a deleted one back
    Restore(OfProject),
    /// Write one into a file, for another machine
    Export {
        /// The project's id
        project: String,
        /// The file; - is standard output
        file: PathBuf,
        #[command(flatten)]
        target: Target,
    },
    /// Take one in from a file
    Import {
        /// The file
        file: PathBuf,
        #[command(flatten)]
        form: Form,
        #[command(flatten)]
        target: Target,
    },
    /// Show what clean-up would do, or do it
    Cleanup {
        /// Do it
        #[arg(long)]
        run: bool,
        /// Only show (the default)
        #[arg(long, conflicts_with = "run")]
        dry_run: bool,
        #[command(flatten)]
        form: Form,
        #[command(flatten)]
        target: Target,
    },
}

pub(super) async fn project(verb: ProjectVerb) -> anyhow::Result<ExitCode> {
    match verb {
        ProjectVerb::Create { prefix, choices, form, target } => {
            let mut body = choices.body()?;
            body["prefix"] = prefix.into();
            let made = target.client()?.post("/api/projects", &body).await?;
            match form.json {
                true => form.one(&made)?,
                false => line(&names::id(&made, "project_id")?)?,
            }
        }
        ProjectVerb::Ls { prefix, tag, deleted, form, target } => {
            list(prefix.as_deref(), tag.as_deref(), deleted, form, &target).await?;
        }
        ProjectVerb::Show(of) => of.ask(Method::GET, "", None).await?,
        ProjectVerb::Set { of, choices } => {
            of.ask(Method::PATCH, "", Some(&choices.body()?)).await?;
        }
        ProjectVerb::Sessions(of) => {
            let path = format!("/api/projects/{}/sessions", escape(&of.project));
            let items = of.target.client()?.list(&path, MOST).await?;
            of.form.list(
                &items,
                &[
                    ("session", "/session_id"),
                    ("thread", "/thread_id"),
                    ("status", "/status"),
                    ("opened", "/created_at"),
                    ("ended", "/ended_at"),
                ],
            )?;
        }
        ProjectVerb::Pin(of) => of.ask(Method::POST, "/pin", None).await?,
        ProjectVerb::Unpin(of) => of.ask(Method::POST, "/unpin", None).await?,
        ProjectVerb::Extend { of, days } => {
            of.ask(Method::POST, "/extend", Some(&json!({"days": days}))).await?;
        }
        ProjectVerb::Rm(of) => of.ask(Method::DELETE, "", None).await?,
        ProjectVerb::Restore(of) => of.ask(Method::POST, "/restore", None).await?,
        ProjectVerb::Export { project, file, target } => export(&project, file, &target).await?,
        ProjectVerb::Import { file, form, target } => import(file, form, &target).await?,
        ProjectVerb::Cleanup { run, dry_run: _, form, target } => {
            let client = target.client()?;
            let method = if run { Method::POST } else { Method::GET };
            let answer = client.json(method, "/api/projects/cleanup", None).await?;
            let items = answer["items"].as_array().cloned().unwrap_or_default();
            form.list(
                &items,
                &[
                    ("project", "/project_id"),
                    ("action", "/action"),
                    ("deleted", "/at"),
                    ("days", "/days_left"),
                    ("why", "/reason"),
                ],
            )?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(
    prefix: Option<&str>,
    tag: Option<&str>,
    deleted: bool,
    form: Form,
    target: &Target,
) -> anyhow::Result<()> {
    let client = target.client()?;
    if deleted {
        let answer = client.get("/api/projects/trash").await?;
        let items = answer["items"].as_array().cloned().unwrap_or_default();
        let columns = [
            ("project", "/project_id"),
            ("deleted", "/deleted_at"),
            ("restorable until", "/restorable_until"),
            ("why", "/reason"),
        ];
        return Ok(form.list(&items, &columns)?);
    }
    let mut path = String::from("/api/projects?");
    for (name, value) in [("prefix", prefix), ("tag", tag)] {
        if let Some(value) = value {
            path.push_str(&format!("{name}={}&", escape(value)));
        }
    }
    let items = client.list(path.trim_end_matches(['?', '&']), MOST).await?;
    form.list(
        &items,
        &[
            ("project", "/project_id"),
            ("tags", "/tags"),
            ("pinned", "/pinned"),
            ("sessions", "/statistics/sessions"),
            ("commands", "/statistics/commands"),
            ("last access", "/statistics/last_access"),
            ("deleted at", "/deletes_at"),
            ("warned", "/warned_at"),
            ("description", "/description"),
        ],
    )?;
    Ok(())
}

async fn export(project: &str, file: PathBuf, target: &Target) -> anyhow::Result<()> {
    let path = format!("/api/projects/{}/export", escape(project));
    let mut answer = target.client()?.send(Method::GET, &path, None, &[]).await?;
    if file.as_os_str() == "-" {
        let mut out = tokio::io::stdout();
        while let Some(chunk) = answer.chunk().await? {
            out.write_all(&chunk).await?;
        }
        return Ok(out.flush().await?);
    }
    // Beside, synced, renamed: a file of that name is whole.
    let part = file.with_extension("part");
    let made = async {
        let mut out = tokio::fs::File::create(&part).await?;
        let mut progress = Progress::new("exported");
        while let Some(chunk) = answer.chunk().await? {
            out.write_all(&chunk).await?;
            progress.add(chunk.len());
        }
        out.sync_all().await?;
        tokio::fs::rename(&part, &file).await?;
        progress.end();
        anyhow::Ok(())
    };
    let made = made.await.with_context(|| format!("cannot write {}", file.display()));
    if made.is_err() {
        let _ = tokio::fs::remove_file(&part).await;
    }
    made
}

async fn import(file: PathBuf, form: Form, target: &Target) -> anyhow::Result<()> {
    let context = || format!("cannot read {}", file.display());
    let archive = tokio::fs::File::open(&file).await.with_context(context)?;
    let length = archive.metadata().await.with_context(context)?.len();
    let mut progress = Progress::new("sent");
    let client = target.client()?;
    let sent = client.upload(Method::POST, "/api/projects/import", archive, length, move |count| {
        progress.add(count);
    });
    let arrived: Value = serde_json::from_slice(&sent.await?.bytes().await?)?;
    if form.json {
        form.one(&arrived)?;
        return Ok(());
    }
    eprintln!();
    for left in arrived["left_out"].as_array().into_iter().flatten() {
        eprintln!("left out by the exporting machine: {left}");
    }
    line(&names::id(&arrived["project"], "project_id")?)?;
    Ok(())
}

/// Tells a person how far it is.
struct Progress {
    what: &'static str,
    bytes: usize,
    shown: Instant,
    is_terminal: bool,
}

impl Progress {
    fn new(what: &'static str) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { what, bytes: 0, shown: Instant::now(), is_terminal }
    }

    fn add(&mut self, count: usize) {
        self.bytes += count;
        if self.is_terminal && self.shown.elapsed().as_millis() >= 100 {
            self.shown = Instant::now();
            self.show();
        }
    }

    fn show(&self) {
        #[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
        let mebibytes = self.bytes as f64 / f64::from(1 << 20);
        eprint!("\r{} {mebibytes:.1} MiB", self.what);
        let _ = std::io::stderr().flush();
    }

    fn end(&self) {
        self.show();
        eprintln!();
    }
}
