//! `stead cp`: copies files and directories between this machine and a thread or sandbox.

use std::{path::Path, process::ExitCode};

use anyhow::{Context, bail};
use clap::Args;
use http::Method;
use serde_json::{Value, json};
use tokio::fs;

use super::{
    client::{ApiClient, ServerArgs, escape},
    download::{self, FileDurability},
    names,
    progress::TransferProgress,
    show::PrintArgs,
};

/// Maximum number of files in a directory that is copied.
const MAX_FILES: usize = 1_000_000;
/// Maximum depth of a directory that is copied.
const MAX_DEPTH: u32 = 64;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  stead cp ./src main:/workspace/          copy a directory into the workspace\n  \
    stead cp main:report.pdf .               copy a file of the workspace to here\n  \
    stead cp main:/var/log/app.log -         print a file\n  \
    stead cp data.csv build:/tmp/            copy to a sandbox by its name\n\n\
    NAME:PATH names a file of a thread or sandbox; a relative PATH starts in /workspace. A directory is\n\
    copied with its content. Permissions and symbolic links are not copied."
)]
pub(super) struct CopyArgs {
    /// File or directory: PATH, or NAME:PATH
    source: String,
    /// Where to: PATH, NAME:PATH, or - for standard output
    destination: String,
    #[command(flatten)]
    form: PrintArgs,
    #[command(flatten)]
    target: ServerArgs,
}

/// One side of a copy.
#[derive(Debug, PartialEq, Eq)]
enum Side<'a> {
    Here(&'a Path),
    There { name: &'a str, path: String },
}

/// A text with a colon before its first slash names a file of a thread, as in `docker cp` and `scp`.
fn side(text: &str) -> Side<'_> {
    match text.split_once(':') {
        Some((name, path)) if !name.is_empty() && !name.contains('/') => {
            let path = match path {
                absolute if absolute.starts_with('/') => absolute.to_owned(),
                relative => format!("/workspace/{relative}"),
            };
            Side::There { name, path }
        }
        Some(_) | None => Side::Here(Path::new(text)),
    }
}

pub(super) async fn cp(args: CopyArgs) -> anyhow::Result<ExitCode> {
    let client = args.target.client()?;
    let copied = match (side(&args.source), side(&args.destination)) {
        (Side::Here(source), Side::There { name, path }) => {
            let tree = RemoteTree::find(&client, name).await?;
            upload(&tree, source, path).await?
        }
        (Side::There { name, path }, Side::Here(destination)) => {
            let tree = RemoteTree::find(&client, name).await?;
            if destination == Path::new("-") {
                tree.print(&path).await?;
                return Ok(ExitCode::SUCCESS);
            }
            download(&tree, path.trim_end_matches('/'), destination).await?
        }
        (Side::Here(_), Side::Here(_)) => {
            bail!("neither side is a thread; NAME:PATH names a file of a thread or sandbox")
        }
        (Side::There { .. }, Side::There { .. }) => {
            bail!("one side must be a file of this machine")
        }
    };
    if args.form.json {
        args.form.one(&json!({"files": copied.files, "bytes": copied.progress.bytes()}))?;
    } else {
        copied.progress.end();
    }
    Ok(ExitCode::SUCCESS)
}

/// Copies a directory of this machine into the workspace of a thread, and shows the progress.
pub(super) async fn into_workspace(
    client: &ApiClient,
    thread: String,
    source: &Path,
) -> anyhow::Result<()> {
    let tree = RemoteTree { client, thread };
    let copied = upload(&tree, source, "/workspace/".to_owned()).await?;
    copied.progress.end();
    Ok(())
}

struct Copied {
    files: usize,
    progress: TransferProgress,
}

/// The files of one thread.
struct RemoteTree<'a> {
    client: &'a ApiClient,
    thread: String,
}

impl<'a> RemoteTree<'a> {
    /// Finds a thread by its id, or the thread of a sandbox by the sandbox's name or id.
    async fn find(client: &'a ApiClient, name: &str) -> anyhow::Result<RemoteTree<'a>> {
        let thread = names::thread(client, name).await?;
        Ok(RemoteTree { client, thread })
    }

    fn path(&self, verb: &str, path: &str) -> String {
        format!("/api/threads/{}/fs/{verb}?path={}", escape(&self.thread), escape(path))
    }

    async fn stat(&self, path: &str) -> anyhow::Result<Option<Value>> {
        match self.client.get(&self.path("stat", path)).await {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if names::is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn make_directory(&self, path: &str) -> anyhow::Result<()> {
        if self.stat(path).await?.is_some_and(|stat| is_directory(&stat)) {
            return Ok(());
        }
        let route = format!("/api/threads/{}/fs/mkdir", escape(&self.thread));
        self.client.post(&route, &json!({"path": path, "create_dirs": true})).await.map(drop)
    }

    async fn write(&self, from: &Path, to: &str, progress: TransferProgress) -> anyhow::Result<()> {
        let context = || format!("cannot read {}", from.display());
        let file = fs::File::open(from).await.with_context(context)?;
        let length = file.metadata().await.with_context(context)?.len();
        let route = format!("{}&create_dirs=true", self.path("write", to));
        let sent =
            self.client.upload(Method::PUT, &route, file, length, move |count| progress.add(count));
        sent.await.map(drop).with_context(|| format!("cannot write {to}"))
    }

    async fn read(&self, from: &str, to: &Path, progress: &TransferProgress) -> anyhow::Result<()> {
        let body = self.client.send(Method::GET, &self.path("read", from), None, &[]).await?;
        download::to_file(body, to, FileDurability::Volatile, progress).await
    }

    async fn print(&self, path: &str) -> anyhow::Result<()> {
        let body = self.client.send(Method::GET, &self.path("read", path), None, &[]).await?;
        download::to_stdout(body).await
    }
}

fn is_directory(stat: &Value) -> bool {
    stat["type"] == "directory"
}

/// Copies to a thread. A destination that is a directory, or ends with a slash, gets a file of the source's name.
async fn upload(
    tree: &RemoteTree<'_>,
    source: &Path,
    destination: String,
) -> anyhow::Result<Copied> {
    let context = || format!("cannot read {}", source.display());
    let top = fs::metadata(source).await.with_context(context)?;
    let into = destination.ends_with('/')
        || tree.stat(&destination).await?.is_some_and(|stat| is_directory(&stat));
    let mut base = destination.trim_end_matches('/').to_owned();
    if into {
        let absolute = fs::canonicalize(source).await.with_context(context)?;
        let name =
            absolute.file_name().with_context(|| format!("{} has no name", source.display()))?;
        base = format!("{base}/{}", utf8(Path::new(name))?);
    }
    let mut queue = vec![(source.to_owned(), base, top.is_dir())];
    let mut copied = Copied { files: 0, progress: TransferProgress::new("sent", None) };
    while let Some((from, to, directory)) = queue.pop() {
        if !directory {
            tree.write(&from, &to, copied.progress.clone()).await?;
            copied.files += 1;
            continue;
        }
        tree.make_directory(&to).await?;
        let context = || format!("cannot read {}", from.display());
        let mut entries = fs::read_dir(&from).await.with_context(context)?;
        while let Some(entry) = entries.next_entry().await.with_context(context)? {
            let kind = entry.file_type().await.with_context(context)?;
            let path = entry.path();
            if kind.is_file() || kind.is_dir() {
                let below = format!("{to}/{}", utf8(Path::new(&entry.file_name()))?);
                queue.push((path, below, kind.is_dir()));
            } else {
                eprintln!("stead: skipped {}: not a file or directory", path.display());
            }
        }
    }
    Ok(copied)
}

/// Copies from a thread. An existing directory gets a file of the source's name.
async fn download(
    tree: &RemoteTree<'_>,
    source: &str,
    destination: &Path,
) -> anyhow::Result<Copied> {
    let source = if source.is_empty() { "/" } else { source };
    let stat = tree.stat(source).await?;
    let stat = stat.with_context(|| format!("{source} does not exist in {}", tree.thread))?;
    let name = source.rsplit('/').next().unwrap_or_default();
    let base = if destination.is_dir() { destination.join(name) } else { destination.to_owned() };
    let mut copied = Copied { files: 0, progress: TransferProgress::new("received", None) };
    if !is_directory(&stat) {
        tree.read(source, &base, &copied.progress).await?;
        copied.files = 1;
        return Ok(copied);
    }
    make_directory(&base).await?;
    let list = format!("{}&depth={MAX_DEPTH}", tree.path("list", source));
    for entry in tree.client.list(&list, MAX_FILES).await? {
        let path = names::id(&entry, "path")?;
        let below = path.strip_prefix(source).unwrap_or(&path).trim_start_matches('/');
        if below.split('/').any(|name| name == "..") {
            bail!("the server listed {path:?}, which leads out of the directory");
        }
        let local = base.join(below);
        match entry["type"].as_str() {
            Some("directory") => make_directory(&local).await?,
            Some("file") => {
                tree.read(&path, &local, &copied.progress).await?;
                copied.files += 1;
            }
            Some(_) | None => eprintln!("stead: skipped {path}: not a file or directory"),
        }
    }
    Ok(copied)
}

async fn make_directory(path: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(path).await.with_context(|| format!("cannot create {}", path.display()))
}

fn utf8(path: &Path) -> anyhow::Result<&str> {
    path.to_str().with_context(|| format!("{}: the name is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_a_path_or_a_name_with_a_path() {
        let here = |text: &'static str| assert_eq!(side(text), Side::Here(Path::new(text)));
        let there = |text: &'static str, name: &'static str, path: &str| {
            assert_eq!(side(text), Side::There { name, path: path.into() });
        };
        here("src");
        here("./a:b");
        here("/a:b");
        here("-");
        here(":x");
        there("main:/tmp/x", "main", "/tmp/x");
        there("main:x", "main", "/workspace/x");
        there("main:", "main", "/workspace/");
        there("sb_1:a/b:c", "sb_1", "/workspace/a/b:c");
    }
}
