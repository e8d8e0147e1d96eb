//! Commands for projects.

use std::{collections::BTreeSet, io::IsTerminal, path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::{
    client::{ServerArgs, escape},
    download::{self, FileDurability},
    list::{self, ListArgs, Table},
    names,
    progress::TransferProgress,
    show::{PrintArgs, line, plain, relative},
};

/// Maximum number of projects in a list.
const MAX_ITEMS: usize = 100_000;

#[derive(Debug, Args)]
pub(super) struct ProjectArgs {
    /// Project id, or a unique prefix
    project: String,
    #[command(flatten)]
    form: PrintArgs,
    #[command(flatten)]
    target: ServerArgs,
}

impl ProjectArgs {
    async fn ask(&self, method: Method, rest: &str, body: Option<&Value>) -> anyhow::Result<()> {
        let client = self.target.client()?;
        // The server looks up a deleted project by its whole id only.
        let project = match rest {
            "/restore" => self.project.clone(),
            _ => names::project(&client, &self.project).await?,
        };
        let path = format!("/api/projects/{}{rest}", escape(&project));
        let answer = client.json(method, &path, body).await?;
        if !answer.is_null() {
            self.form.one(&answer)?;
        }
        Ok(())
    }
}

#[derive(Debug, Args)]
pub(super) struct ProjectOptions {
    /// Description
    #[arg(long)]
    description: Option<String>,
    /// Tag; can be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Configuration, as JSON
    #[arg(long, value_name = "JSON")]
    config: Option<String>,
}

impl ProjectOptions {
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
    /// Create a project and print its id
    #[command(after_help = "Example:\n  stead project create my-api --tag work")]
    Create {
        /// Name that its id starts with: a-z, 0-9 and dashes
        prefix: String,
        #[command(flatten)]
        choices: ProjectOptions,
        #[command(flatten)]
        form: PrintArgs,
        #[command(flatten)]
        target: ServerArgs,
    },
    /// List projects
    #[command(after_help = "Example:\n  stead project ls --tag work --json")]
    Ls {
        /// Only projects whose id has this prefix
        #[arg(long)]
        prefix: Option<String>,
        /// Only projects with this tag
        #[arg(long)]
        tag: Option<String>,
        /// Only deleted projects that can be restored
        #[arg(long)]
        deleted: bool,
        #[command(flatten)]
        form: ListArgs,
        #[command(flatten)]
        target: ServerArgs,
    },
    /// Show a project
    #[command(after_help = "Example:\n  stead project show my-api-a7b3c2d1")]
    Show(ProjectArgs),
    /// Change a project
    #[command(
        after_help = "Example:\n  stead project set my-api-a7b3c2d1 --description 'the API' --config '{\"stop_on_disconnect\": true}'"
    )]
    Set {
        #[command(flatten)]
        of: ProjectArgs,
        #[command(flatten)]
        choices: ProjectOptions,
    },
    /// List the sessions of a project, including ended ones
    #[command(after_help = "Example:\n  stead project sessions my-api-a7b3c2d1")]
    Sessions {
        /// Project id, or a unique prefix
        project: String,
        #[command(flatten)]
        form: ListArgs,
        #[command(flatten)]
        target: ServerArgs,
    },
    /// Exempt a project from automatic deletion
    #[command(after_help = "Example:\n  stead project pin my-api-a7b3c2d1")]
    Pin(ProjectArgs),
    /// Allow automatic deletion again
    #[command(after_help = "Example:\n  stead project unpin my-api-a7b3c2d1")]
    Unpin(ProjectArgs),
    /// Postpone automatic deletion
    #[command(after_help = "Example:\n  stead project extend my-api-a7b3c2d1 --days 14")]
    Extend {
        #[command(flatten)]
        of: ProjectArgs,
        /// Number of days
        #[arg(long, default_value_t = 30)]
        days: u32,
    },
    /// Delete a project and its threads; it can be restored for some days
    #[command(after_help = "Example:\n  stead project rm my-api-a7b3c2d1")]
    Rm(ProjectArgs),
    /// Restore a deleted project
    #[command(after_help = "Example:\n  stead project restore my-api-a7b3c2d1")]
    Restore(ProjectArgs),
    /// Export a project to an archive
    #[command(after_help = "Example:\n  stead project export my-api-a7b3c2d1 my-api.tar.zst")]
    Export {
        /// Project id, or a unique prefix
        project: String,
        /// Archive to write; - is standard output
        file: PathBuf,
        #[command(flatten)]
        form: PrintArgs,
        #[command(flatten)]
        target: ServerArgs,
    },
    /// Import a project from an archive
    #[command(after_help = "Example:\n  stead project import my-api.tar.zst")]
    Import {
        /// Archive to read
        file: PathBuf,
        #[command(flatten)]
        form: PrintArgs,
        #[command(flatten)]
        target: ServerArgs,
    },
    /// Show which unused projects would be deleted, or delete them
    #[command(after_help = "Example:\n  stead project cleanup --dry-run")]
    Cleanup {
        /// Delete them
        #[arg(long)]
        run: bool,
        /// Only show them (the default)
        #[arg(long, conflicts_with = "run")]
        dry_run: bool,
        #[command(flatten)]
        form: PrintArgs,
        #[command(flatten)]
        target: ServerArgs,
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
                false => {
                    let id = names::id(&made, "project_id")?;
                    line(&id)?;
                    if std::io::stderr().is_terminal() && made["deletes_at"].is_string() {
                        let deletes = plain(&made["deletes_at"]);
                        eprintln!(
                            "stead: deletes {deletes} if unused; `stead project pin {id}` keeps it"
                        );
                    }
                }
            }
        }
        ProjectVerb::Ls { prefix, tag, deleted, form, target } => {
            list(prefix.as_deref(), tag.as_deref(), deleted, form, &target).await?;
        }
        ProjectVerb::Show(of) => of.ask(Method::GET, "", None).await?,
        ProjectVerb::Set { of, choices } => {
            of.ask(Method::PATCH, "", Some(&choices.body()?)).await?;
        }
        ProjectVerb::Sessions { project, form, target } => {
            let client = target.client()?;
            let project = names::project(&client, &project).await?;
            let path = format!("/api/projects/{}/sessions", escape(&project));
            let columns = [
                ("session", "/session_id"),
                ("thread", "/thread_id"),
                ("status", "/status"),
                ("opened", "/created_at"),
                ("ended", "/ended_at"),
            ];
            form.show_path(Table::new(&columns), &client, &path, MAX_ITEMS).await?;
        }
        ProjectVerb::Pin(of) => of.ask(Method::POST, "/pin", None).await?,
        ProjectVerb::Unpin(of) => of.ask(Method::POST, "/unpin", None).await?,
        ProjectVerb::Extend { of, days } => {
            of.ask(Method::POST, "/extend", Some(&json!({"days": days}))).await?;
        }
        ProjectVerb::Rm(of) => of.ask(Method::DELETE, "", None).await?,
        ProjectVerb::Restore(of) => of.ask(Method::POST, "/restore", None).await?,
        ProjectVerb::Export { project, file, form, target } => {
            export(&project, file, form, &target).await?;
        }
        ProjectVerb::Import { file, form, target } => import(file, form, &target).await?,
        ProjectVerb::Cleanup { run, dry_run: _, form, target } => {
            let client = target.client()?;
            let method = if run { Method::POST } else { Method::GET };
            let answer = client.json(method, "/api/projects/cleanup", None).await?;
            let items = answer["items"].as_array().cloned().unwrap_or_default();
            let columns = [
                ("project", "/project_id"),
                ("action", "/action"),
                ("deletes", "/at"),
                ("days left", "/days_left"),
                ("reason", "/reason"),
            ];
            list::print(form, Table::new(&columns), &items)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(
    prefix: Option<&str>,
    tag: Option<&str>,
    deleted: bool,
    form: ListArgs,
    target: &ServerArgs,
) -> anyhow::Result<()> {
    let client = target.client()?;
    if deleted {
        let columns = [
            ("project", "/project_id"),
            ("deleted", "/deleted_at"),
            ("restorable until", "/restorable_until"),
            ("reason", "/reason"),
        ];
        let read = async || {
            let answer = client.get("/api/projects/trash").await?;
            Ok(answer["items"].as_array().cloned().unwrap_or_default())
        };
        return form.show(Table::new(&columns), &client, read).await;
    }
    let mut path = String::from("/api/projects?");
    for (name, value) in [("prefix", prefix), ("tag", tag)] {
        if let Some(value) = value {
            path.push_str(&format!("{name}={}&", escape(value)));
        }
    }
    let path = path.trim_end_matches(['?', '&']);
    let columns = [
        ("project", "/project_id"),
        ("tags", "/tags"),
        ("pinned", "/pinned"),
        ("sessions", "/statistics/sessions"),
        ("commands", "/statistics/commands"),
        ("last access", "/statistics/last_access"),
        ("deletes", "/deletes_at"),
        ("warned", "/warned_at"),
        ("description", "/description"),
    ];
    let mut warned = BTreeSet::new();
    let read = async || {
        let items = client.list(path, MAX_ITEMS).await?;
        warn(&items, &mut warned);
        Ok(items)
    };
    form.show(Table::new(&columns), &client, read).await
}

/// Warns about each project that will be deleted, once and on standard error, because a program may read the list.
fn warn(items: &[Value], warned: &mut BTreeSet<String>) {
    for item in items.iter().filter(|item| item["warned_at"].is_string()) {
        let (id, at) = (item["project_id"].as_str(), item["deletes_at"].as_str());
        if let (Some(id), Some(at)) = (id, at)
            && warned.insert(id.to_owned())
        {
            eprintln!(
                "warning: {id} is unused and will be deleted {}; `stead project extend {id}` postpones that",
                relative(at)
            );
        }
    }
}

async fn export(
    project: &str,
    file: PathBuf,
    form: PrintArgs,
    target: &ServerArgs,
) -> anyhow::Result<()> {
    let client = target.client()?;
    let project = names::project(&client, project).await?;
    let path = format!("/api/projects/{}/export", escape(&project));
    let archive = client.send(Method::GET, &path, None, &[]).await?;
    if file.as_os_str() == "-" {
        return download::to_stdout(archive).await;
    }
    let progress = TransferProgress::new("exported", None);
    download::to_file(archive, &file, FileDurability::Synced, &progress).await?;
    progress.end();
    if form.json {
        let (file, bytes) = (file.to_string_lossy(), progress.bytes());
        form.one(&json!({"project_id": project, "file": file, "bytes": bytes}))?;
    }
    Ok(())
}

async fn import(file: PathBuf, form: PrintArgs, target: &ServerArgs) -> anyhow::Result<()> {
    let context = || format!("cannot read {}", file.display());
    let archive = tokio::fs::File::open(&file).await.with_context(context)?;
    let length = archive.metadata().await.with_context(context)?.len();
    let progress = TransferProgress::new("sent", Some(length));
    let client = target.client()?;
    let counted = progress.clone();
    let sent = client.upload(Method::POST, "/api/projects/import", archive, length, move |count| {
        counted.add(count);
    });
    let arrived: Value = serde_json::from_slice(&sent.await?.bytes().await?)?;
    if form.json {
        form.one(&arrived)?;
        return Ok(());
    }
    progress.end();
    for left in arrived["left_out"].as_array().into_iter().flatten() {
        eprintln!("not in the archive: {left}");
    }
    line(&names::id(&arrived["project"], "project_id")?)?;
    Ok(())
}
