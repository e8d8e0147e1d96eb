//! The files of an instance that is not on this machine, through short scripts that its provider runs there.
//!
//! Scripts, and not the vendors' file APIs: these differ, write in place or as another user, and know no version
//! of a file. A script does the same everywhere, with the identity of the instance's shells.
//! [`functions.sh`](functions.sh) has all of them; a script is a call of one.

mod output;
mod read;
mod search;
mod watch;
mod write;

use std::sync::Arc;

use provider::{Provider, ProviderError, Scripts};

use crate::{Above, FileError, Relative, Stat, memory::Expect};
use base::durable::part_name;
use model::Instance;
use output::{Listed, error_of, records};

pub(crate) use read::RemoteFile;
pub(crate) use watch::RemoteWatch;
pub use write::RemoteWrite;

const FUNCTIONS: &str = include_str!("functions.sh");
/// The exit code of a script that failed on the source of a move.
const SOURCE_FAILED: i32 = 3;
/// The size of a directory listing, compressed and not.
const MAX_LIST_BYTES: usize = 64 << 20;
/// How much of an unexpected output is repeated in an error.
const MAX_MESSAGE_CHARS: usize = 300;

/// The root directory of an instance elsewhere. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RemoteDirectory {
    provider: Arc<dyn Provider>,
    instance: Instance,
}

/// Why a script failed.
enum ScriptFailure {
    Exit { code: i32, message: String },
    Other(FileError),
}

impl RemoteDirectory {
    /// Returns the files of an instance, or `None` if its provider runs no scripts.
    #[must_use]
    pub fn new(provider: Arc<dyn Provider>, instance: Instance) -> Option<Self> {
        provider.scripts()?;
        Some(Self { provider, instance })
    }

    /// Returns the metadata of a path; a link is not followed.
    pub(crate) async fn stat(&self, path: &Relative) -> Result<Stat, FileError> {
        let file = self.quoted(path);
        let script = format!("status {file} || exit 1\n[ ! -L {file} ] || link {file}");
        Ok(self.first(&script, path).await?.stat)
    }

    async fn status_followed(&self, path: &Relative) -> Result<Listed, FileError> {
        self.first(&format!("status -L {}", self.quoted(path)), path).await
    }

    async fn first(&self, script: &str, path: &Relative) -> Result<Listed, FileError> {
        let (mark, output) = self.run(script, path.as_str()).await?;
        let found = records(&output, &mark).and_then(|found| found.into_iter().next());
        let mut found = found.ok_or_else(|| self.unexpected(&output))?;
        found.stat.path = path.to_string();
        Ok(found)
    }

    /// Lists the entries below a path as [`Directory::list`](crate::Directory::list) does.
    pub(crate) async fn list(
        &self,
        path: &Relative,
        depth: u32,
        after: Option<&Relative>,
        limit: usize,
    ) -> Result<Vec<Stat>, FileError> {
        let directory = self.quoted(path);
        let script = format!("listable {directory}\nlist {directory} {depth}");
        let fetched = self.fetch(&script, path, MAX_LIST_BYTES).await?;
        if fetched.is_cut {
            let limit = MAX_LIST_BYTES as u64;
            return Err(FileError::TooLarge { path: path.to_string(), limit });
        }
        let found = records(&fetched.bytes, &fetched.mark);
        let found = found.ok_or_else(|| self.unexpected(&fetched.bytes))?;
        let mut found: Vec<Stat> = found.into_iter().map(|listed| listed.stat).collect();
        let order = |one: &str, other: &str| one.split('/').cmp(other.split('/'));
        found.retain(|stat| after.is_none_or(|after| order(&stat.path, after.as_str()).is_gt()));
        found.sort_by(|one, other| order(&one.path, &other.path));
        found.truncate(limit);
        Ok(found)
    }

    /// Creates a directory; with [`Above::Make`] also its parents, and it may exist.
    pub(crate) async fn make_directory(
        &self,
        path: &Relative,
        above: Above,
    ) -> Result<(), FileError> {
        let parents = match above {
            Above::Make => "-p ",
            Above::MustExist => "",
        };
        self.run(&format!("mkdir {parents}{}", self.quoted(path)), path.as_str()).await.map(drop)
    }

    /// Renames a file or directory. Only a file may replace a file.
    pub(crate) async fn rename(
        &self,
        from: &Relative,
        to: &Relative,
        expect: Expect,
    ) -> Result<(), FileError> {
        if to.below(from).is_some_and(|rest| !rest.is_root()) {
            let why = "it is below the source";
            return Err(FileError::BadPath { path: to.to_string(), why });
        }
        if from == to {
            return self.stat(from).await.map(drop);
        }
        let expect = match expect {
            Expect::Anything => "any",
            Expect::Absent | Expect::Version(_) => "absent",
        };
        let script = format!("move {} {} {expect}", self.quoted(from), self.quoted(to));
        match self.attempt(&script).await {
            Ok(_) => Ok(()),
            Err(ScriptFailure::Exit { code: SOURCE_FAILED, message }) => {
                Err(self.failed(&message, from.as_str()))
            }
            Err(ScriptFailure::Exit { message, .. }) => Err(self.failed(&message, to.as_str())),
            Err(ScriptFailure::Other(error)) => Err(error),
        }
    }

    /// Removes a file, a link or an empty directory.
    pub(crate) async fn remove(&self, path: &Relative) -> Result<(), FileError> {
        self.run(&format!("delete {} one", self.quoted(path)), path.as_str()).await.map(drop)
    }

    /// Removes a file, or a directory with everything below it.
    pub(crate) async fn remove_tree(&self, path: &Relative) -> Result<(), FileError> {
        self.run(&format!("delete {} all", self.quoted(path)), path.as_str()).await.map(drop)
    }

    /// Runs a script. Returns the mark of its records and its output.
    async fn run(&self, script: &str, path: &str) -> Result<(String, Vec<u8>), FileError> {
        self.attempt(script).await.map_err(|failure| match failure {
            ScriptFailure::Exit { message, .. } => self.failed(&message, path),
            ScriptFailure::Other(error) => error,
        })
    }

    async fn attempt(&self, script: &str) -> Result<(String, Vec<u8>), ScriptFailure> {
        let mark = part_name().map_err(|error| {
            ScriptFailure::Other(FileError::Unavailable { reason: error.to_string() })
        })?;
        let functions: Vec<&str> = FUNCTIONS
            .lines()
            .map(str::trim_start)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .collect();
        let directory = quoted(&self.directory());
        let text = format!("m={mark} o={directory}\n{}\n{script}\n", functions.join("\n"));
        let ran = self.scripts().run_script(&self.instance, &text).await;
        let ran = ran.map_err(|error| ScriptFailure::Other(FileError::Provider(error)))?;
        match ran.exit_code {
            Some(0) => Ok((mark, ran.stdout)),
            Some(code) => {
                let message = String::from_utf8_lossy(&ran.stderr).into_owned();
                Err(ScriptFailure::Exit { code, message })
            }
            None => Err(ScriptFailure::Other(self.broken("the script took too long"))),
        }
    }

    async fn put(&self, path: &str, bytes: Vec<u8>) -> Result<(), FileError> {
        let put = self.scripts().put_file(&self.instance, path, bytes);
        put.await.map_err(FileError::Provider)
    }

    fn scripts(&self) -> &dyn Scripts {
        self.provider.scripts().expect("`new` checked that the provider runs scripts")
    }

    /// The directory of temporary files in the instance.
    fn directory(&self) -> String {
        self.scripts().script_directory(&self.instance)
    }

    /// Returns the absolute path as a word of a shell.
    fn quoted(&self, path: &Relative) -> String {
        quoted(&format!("/{path}"))
    }

    fn failed(&self, message: &str, path: &str) -> FileError {
        error_of(message, path).unwrap_or_else(|| self.broken(message))
    }

    fn unexpected(&self, output: &[u8]) -> FileError {
        self.broken(&format!("unexpected output {:?}", String::from_utf8_lossy(output)))
    }

    fn broken(&self, reason: &str) -> FileError {
        let reason: String = reason.trim().chars().take(MAX_MESSAGE_CHARS).collect();
        let source = std::io::Error::other(reason);
        FileError::Provider(ProviderError::failed("use the files of an instance", source))
    }
}

/// Quotes a text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests;
