//! Commands for the memories of a project.

use std::{
    io::{Read, Write},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use http::Method;

use super::{
    client::{ApiClient, ServerArgs, escape},
    list::{ListArgs, Table},
    names,
    show::PrintArgs,
};

/// Maximum number of memories in a list.
const MAX_ITEMS: usize = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MemoryArea {
    /// In memory, and durable on disk
    Hot,
    /// Files
    Persistent,
}

#[derive(Debug, Args)]
pub(super) struct MemoryArgs {
    /// Project id, or a unique prefix
    #[arg(long, short, default_value = "default-00000000")]
    project: String,
    /// Store of the memories
    #[arg(long, short, value_enum, default_value = "persistent")]
    store: MemoryArea,
    #[command(flatten)]
    target: ServerArgs,
}

impl MemoryArgs {
    /// Returns the client and the path of a memory.
    async fn find(&self, below: &str) -> anyhow::Result<(ApiClient, String)> {
        let client = self.target.client()?;
        let project = names::project(&client, &self.project).await?;
        let store = match self.store {
            MemoryArea::Hot => "hot",
            MemoryArea::Persistent => "persistent",
        };
        let names: Vec<String> =
            below.split('/').filter(|name| !name.is_empty()).map(escape).collect();
        let mut path = format!("/api/projects/{}/memories/{store}", escape(&project));
        if !names.is_empty() {
            path.push('/');
            path.push_str(&names.join("/"));
        }
        Ok((client, path))
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum MemoryVerb {
    /// Print a memory
    #[command(after_help = "Example:\n  stead memory get -p my-api-a7b3c2d1 notes/today")]
    Get {
        /// Path of the memory
        path: String,
        #[command(flatten)]
        of: MemoryArgs,
    },
    /// Write a memory
    #[command(after_help = "Examples:\n  stead memory put notes/today 'ship it'\n  \
                            stead memory put -s hot plan --file plan.md\n  make | stead memory put log -")]
    Put {
        /// Path of the memory
        path: String,
        /// Content; - reads standard input
        #[arg(required_unless_present = "file")]
        content: Option<String>,
        /// File with the content
        #[arg(long, conflicts_with = "content")]
        file: Option<PathBuf>,
        #[command(flatten)]
        form: PrintArgs,
        #[command(flatten)]
        of: MemoryArgs,
    },
    /// List memories
    #[command(after_help = "Example:\n  stead memory ls -s hot -r --json")]
    Ls {
        /// Directory
        #[arg(default_value = "")]
        path: String,
        /// Include subdirectories
        #[arg(long, short)]
        recursive: bool,
        #[command(flatten)]
        form: ListArgs,
        #[command(flatten)]
        of: MemoryArgs,
    },
    /// Delete a memory
    #[command(after_help = "Example:\n  stead memory rm notes -r")]
    Rm {
        /// Path of the memory
        path: String,
        /// Delete a directory and everything in it
        #[arg(long, short)]
        recursive: bool,
        #[command(flatten)]
        of: MemoryArgs,
    },
}

pub(super) async fn memory(verb: MemoryVerb) -> anyhow::Result<ExitCode> {
    match verb {
        MemoryVerb::Get { path, of } => {
            let (client, path) = of.find(&path).await?;
            let mut answer = client.send(Method::GET, &path, None, &[]).await?;
            let mut out = std::io::stdout().lock();
            while let Some(chunk) = answer.chunk().await? {
                out.write_all(&chunk)?;
            }
            out.flush()?;
        }
        MemoryVerb::Put { path, content, file, form, of } => {
            let (client, path) = of.find(&path).await?;
            let answer = match (content, file) {
                (_, Some(file)) => {
                    let context = || format!("cannot read {}", file.display());
                    let opened = tokio::fs::File::open(&file).await.with_context(context)?;
                    let length = opened.metadata().await.with_context(context)?.len();
                    client.upload(Method::PUT, &path, opened, length, |_| {}).await?
                }
                (Some(text), None) => {
                    let mut content = text.into_bytes();
                    if content == b"-" {
                        content.clear();
                        std::io::stdin().lock().read_to_end(&mut content)?;
                    }
                    let length = content.len() as u64;
                    let content = std::io::Cursor::new(content);
                    client.upload(Method::PUT, &path, content, length, |_| {}).await?
                }
                (None, None) => anyhow::bail!("nothing to write"),
            };
            if form.json {
                form.one(&serde_json::from_slice(&answer.bytes().await?)?)?;
            }
        }
        MemoryVerb::Ls { path, recursive, form, of } => {
            let depth = if recursive { 64 } else { 1 };
            let (client, path) = of.find(&path).await?;
            let path = format!("{path}?depth={depth}");
            let columns = [
                ("path", "/path"),
                ("type", "/type"),
                ("size", "/size"),
                ("modified", "/modified_at"),
            ];
            form.show_path(Table::new(&columns), &client, &path, MAX_ITEMS).await?;
        }
        MemoryVerb::Rm { path, recursive, of } => {
            let (client, path) = of.find(&path).await?;
            let path = format!("{path}?recursive={recursive}");
            client.json(Method::DELETE, &path, None).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
