//! Verbs for the memories of a project.

use std::{
    io::{Read, Write},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use http::Method;

use super::{
    client::{ServerArgs, escape},
    show::Form,
};

/// Which memories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Store {
    /// In RAM, and safe on disk
    Hot,
    /// Files
    Persistent,
}

/// A project's memories, and the server they are on.
#[derive(Debug, Args)]
pub(super) struct Of {
    /// The project's id
    #[arg(long, short, default_value = "default-00000000")]
    project: String,
    /// Which memories
    #[arg(long, short, value_enum, default_value = "persistent")]
    store: Store,
    #[command(flatten)]
    target: ServerArgs,
}

impl Of {
    fn path(&self, below: &str) -> String {
        let store = match self.store {
            Store::Hot => "hot",
            Store::Persistent => "persistent",
        };
        let names: Vec<String> =
            below.split('/').filter(|name| !name.is_empty()).map(escape).collect();
        let mut path = format!("/api/projects/{}/memories/{store}", escape(&self.project));
        if !names.is_empty() {
            path.push('/');
            path.push_str(&names.join("/"));
        }
        path
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum MemoryVerb {
    /// Print a memory
    #[command(after_help = "Example:\n  stead memory get -p my-api-a7b3c2d1 notes/today")]
    Get {
        /// The memory
        path: String,
        #[command(flatten)]
        of: Of,
    },
    /// Write a memory
    #[command(after_help = "Examples:\n  stead memory put notes/today 'ship it'\n  \
                            stead memory put -s hot plan --file plan.md\n  make | stead memory put log -")]
    Put {
        /// The memory
        path: String,
        /// Its content; - is standard input
        #[arg(required_unless_present = "file")]
        content: Option<String>,
        /// A file with its content
        #[arg(long, conflicts_with = "content")]
        file: Option<PathBuf>,
        #[command(flatten)]
        form: Form,
        #[command(flatten)]
        of: Of,
    },
    /// List memories
    #[command(after_help = "Example:\n  stead memory ls -s hot -r --json")]
    Ls {
        /// Below which path
        #[arg(default_value = "")]
        path: String,
        /// All below it, not only what is in it
        #[arg(long, short)]
        recursive: bool,
        #[command(flatten)]
        form: Form,
        #[command(flatten)]
        of: Of,
    },
    /// Remove a memory
    #[command(after_help = "Example:\n  stead memory rm notes -r")]
    Rm {
        /// The memory
        path: String,
        /// And all below it
        #[arg(long, short)]
        recursive: bool,
        #[command(flatten)]
        of: Of,
    },
}

pub(super) async fn memory(verb: MemoryVerb) -> anyhow::Result<ExitCode> {
    match verb {
        MemoryVerb::Get { path, of } => {
            let client = of.target.client()?;
            let mut answer = client.send(Method::GET, &of.path(&path), None, &[]).await?;
            let mut out = std::io::stdout().lock();
            while let Some(chunk) = answer.chunk().await? {
                out.write_all(&chunk)?;
            }
            out.flush()?;
        }
        MemoryVerb::Put { path, content, file, form, of } => {
            let (client, path) = (of.target.client()?, of.path(&path));
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
            let path = format!("{}?depth={depth}", of.path(&path));
            let items = of.target.client()?.list(&path, 100_000).await?;
            let columns = [
                ("path", "/path"),
                ("type", "/type"),
                ("size", "/size"),
                ("modified", "/modified_at"),
            ];
            form.list(&items, &columns)?;
        }
        MemoryVerb::Rm { path, recursive, of } => {
            let path = format!("{}?recursive={recursive}", of.path(&path));
            of.target.client()?.json(Method::DELETE, &path, None).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
