//! `stead image build`: sends a directory to the server, and shows the log of the build.

use std::{
    fs::{self, File},
    io::{Seek, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use clap::Args;
use http::Method;
use machine::inside::DOCKERFILE;
use rustix::fs::{Mode, OFlags};
use serde_json::{Map, Value};

use super::{
    client::{ApiClient, ServerArgs, escape},
    dockerignore::IgnoreRules,
    progress::TransferProgress,
    sse::EventStream,
};

const IGNORE_FILE: &str = ".dockerignore";

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  stead image build -t tools .\n  stead image build -t app:2 -f deploy/Dockerfile --build-arg VERSION=2 .\n  \
    stead new --image tools\n\n\
    FROM, RUN, COPY, ADD of local files, ENV, ARG, WORKDIR, USER, SHELL, ENTRYPOINT, CMD, LABEL and EXPOSE of one stage are\n\
    supported. The image replaces that of its name when the build succeeds. Files that .dockerignore lists are not sent."
)]
pub(super) struct ImageBuildArgs {
    /// Name of the image: NAME or NAME:TAG
    #[arg(short, long, value_name = "NAME")]
    tag: String,
    /// Dockerfile (default: DIR/Dockerfile)
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Value of an ARG of the Dockerfile; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    build_arg: Vec<String>,
    /// Directory with the files for COPY and ADD
    #[arg(default_value = ".", value_name = "DIR")]
    directory: PathBuf,
    #[command(flatten)]
    target: ServerArgs,
}

pub(super) async fn build(args: &ImageBuildArgs) -> anyhow::Result<ExitCode> {
    let values = build_args(&args.build_arg)?;
    let archive = archive(&args.directory, args.file.as_deref())?;
    let client = args.target.client()?;
    let mut path = format!("/api/images/builds?name={}&file={DOCKERFILE}", escape(&args.tag));
    if !values.is_empty() {
        path.push_str(&format!("&args={}", escape(&Value::Object(values).to_string())));
    }
    let length = archive.metadata()?.len();
    let progress = TransferProgress::new("sent", Some(length));
    let sent = progress.clone();
    let content = tokio::fs::File::from_std(archive);
    let upload = client.upload(Method::POST, &path, content, length, move |count| sent.add(count));
    let started: Value = serde_json::from_slice(&upload.await?.bytes().await?)?;
    progress.end();
    let id = started["build_id"].as_str().context("the server named no build")?;
    let build = follow(&client, id).await?;
    match build["status"].as_str() {
        Some("succeeded") => {
            writeln!(std::io::stdout().lock(), "{}", build["image"].as_str().unwrap_or_default())?;
            Ok(ExitCode::SUCCESS)
        }
        _ => bail!("{}", build["error"].as_str().unwrap_or("the build did not succeed")),
    }
}

fn build_args(pairs: &[String]) -> anyhow::Result<Map<String, Value>> {
    let pair = |pair: &String| match pair.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.into())),
        // As with Docker, the value is that of the variable here.
        None => match std::env::var(pair) {
            Ok(value) => Ok((pair.clone(), value.into())),
            Err(_) => {
                bail!("--build-arg {pair} has no value, and there is no variable of this name")
            }
        },
    };
    pairs.iter().map(pair).collect()
}

/// Shows the log of a build until its end, across interruptions of the connection. Returns the build.
async fn follow(client: &ApiClient, id: &str) -> anyhow::Result<Value> {
    let mut from = 0;
    loop {
        let path = format!("/api/images/builds/{id}/log?from={from}");
        let response =
            client.send(Method::GET, &path, None, &[("accept", "text/event-stream")]).await?;
        let mut events = EventStream::new(response);
        // A broken connection is continued where it ended.
        while let Ok(Some(event)) = events.next().await {
            match event.name.as_str() {
                "line" => {
                    from = event.id.unwrap_or(from + 1);
                    let text = event.data["text"].as_str().unwrap_or_default();
                    writeln!(std::io::stderr().lock(), "{text}")?;
                }
                "end" => return Ok(event.data),
                _ => {}
            }
        }
    }
}

/// Writes the files of a directory to an unnamed archive, which is open at its beginning.
fn archive(directory: &Path, dockerfile: Option<&Path>) -> anyhow::Result<File> {
    let default = directory.join("Dockerfile");
    let dockerfile = dockerfile.unwrap_or(&default);
    let text =
        fs::read(dockerfile).with_context(|| format!("cannot read {}", dockerfile.display()))?;
    let rules = match fs::read_to_string(directory.join(IGNORE_FILE)) {
        Ok(text) => IgnoreRules::parse(&text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => IgnoreRules::default(),
        Err(error) => return Err(error).with_context(|| format!("cannot read {IGNORE_FILE}")),
    };
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR);
    let file = File::from(file.context("cannot create a temporary file")?);
    let mut archive = tar::Builder::new(std::io::BufWriter::new(file));
    archive.follow_symlinks(false);
    archive.sparse(false);
    let mut header = tar::Header::new_gnu();
    header.set_size(text.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, DOCKERFILE, text.as_slice())?;
    let mut open = vec![PathBuf::new()];
    while let Some(below) = open.pop() {
        let at = directory.join(&below);
        let read = || format!("cannot read {}", at.display());
        let mut entries = fs::read_dir(&at)
            .with_context(read)?
            .collect::<Result<Vec<_>, _>>()
            .with_context(read)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = below.join(entry.file_name());
            let name = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
            let (kind, is_excluded) = (entry.file_type()?, rules.excludes(name));
            if kind.is_dir() {
                if !is_excluded || !rules.has_no_exceptions() {
                    open.push(path.clone());
                }
                if !is_excluded {
                    archive.append_dir(&path, entry.path())?;
                }
            } else if !is_excluded && (kind.is_file() || kind.is_symlink()) {
                let failed = || format!("cannot read {}", entry.path().display());
                archive.append_path_with_name(entry.path(), &path).with_context(failed)?;
            }
        }
    }
    let mut file =
        archive.into_inner()?.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    file.rewind()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_files_are_not_sent_and_the_dockerfile_always_is() {
        let dir = std::env::temp_dir().join(format!("stead-context-{}", uuid::Uuid::now_v7()));
        for (path, text) in [
            ("Dockerfile", "FROM a"),
            (IGNORE_FILE, "Dockerfile\nout\n!out/keep\n"),
            ("a/b", "b"),
            ("out/drop", ""),
            ("out/keep", "kept"),
        ] {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let mut archive = tar::Archive::new(archive(&dir, None).unwrap());
        let mut names: Vec<String> = archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().to_string_lossy().into_owned())
            .collect();
        names.sort();
        assert_eq!(names, [IGNORE_FILE, DOCKERFILE, "a", "a/b", "out/keep"]);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn build_arguments_have_a_value() {
        let given = build_args(&["A=b=c".to_owned()]).unwrap();
        assert_eq!(Value::Object(given), serde_json::json!({"A": "b=c"}));
        assert!(build_args(&["NO_SUCH_VARIABLE_HERE".to_owned()]).is_err());
    }
}
