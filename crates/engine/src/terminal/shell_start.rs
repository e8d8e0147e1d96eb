//! What a shell is started with: program, directory and environment.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::{Env, ProjectId, ShellKind, Terminal, Thread};

/// Prepares the directories of a project for its shells. Blocks.
pub type ShellSetupFn = Arc<dyn Fn(&ProjectId) -> std::io::Result<ShellSetup> + Send + Sync>;

/// Where a shell of a project starts, and what it can use.
#[derive(Debug, Clone, Default)]
pub struct ShellSetup {
    pub directory: PathBuf,
    /// Variables that name the directories. A value that is a mount is replaced by its path in the sandbox.
    pub env: Env,
    /// Directories that must be accessible, each with its path in a sandbox.
    pub mounts: Vec<(PathBuf, PathBuf)>,
    /// The directory of the project that these belong to.
    pub workspace: Option<PathBuf>,
}

impl ShellSetup {
    /// Returns the setup with the paths as they are inside an instance. Shells start in the directory that its image
    /// names, if there is one.
    pub(super) fn inside(self, placed: &provider::MountedPaths) -> Self {
        let name = |value: String| {
            placed.inside(Path::new(&value)).into_os_string().into_string().unwrap_or(value)
        };
        Self {
            directory: placed.image.directory.clone().unwrap_or(placed.inside(&self.directory)),
            env: self.env.into_iter().map(|(key, value)| (key, name(value))).collect(),
            mounts: placed.seen.clone(),
            workspace: self.workspace,
        }
    }
}

/// Returns the first directory that is set: of the last state, the terminal, the thread, the project.
pub(super) fn start_directory(
    terminal: &Terminal,
    thread: Option<&Thread>,
    last: &str,
    setup: &ShellSetup,
) -> Vec<u8> {
    let chosen = [last, &terminal.cwd, thread.and_then(|t| t.cwd.as_deref()).unwrap_or_default()]
        .into_iter()
        .find(|directory| !directory.is_empty());
    match chosen {
        Some(directory) => directory.as_bytes().to_vec(),
        None => setup.directory.clone().into_os_string().into_encoded_bytes(),
    }
}

/// Variables of the server that a shell on this machine inherits.
const INHERITED: &[&str] = &[
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "PATH",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "SSH_AUTH_SOCK",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

/// Returns the variables of the server that a shell on this machine inherits.
pub(super) fn inherited() -> Env {
    let inherited = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let wanted = INHERITED.contains(&name.as_str()) || name.starts_with("LC_");
        wanted.then_some((name, value.into_string().ok()?))
    });
    inherited.collect()
}

pub(super) fn environment(
    mut env: Env,
    terminal: &Terminal,
    thread: Option<&Thread>,
    setup: Env,
) -> Env {
    env.entry("PATH".into())
        .or_insert_with(|| "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into());
    env.entry("HOME".into()).or_insert_with(|| "/".into());
    env.entry("LANG".into()).or_insert_with(|| "C.UTF-8".into());
    env.insert("STEAD_THREAD".into(), terminal.thread_id.to_string());
    env.extend(setup);
    if let Some(thread) = thread {
        env.extend(thread.env.clone());
    }
    env.extend(terminal.env.clone());
    env
}

pub(super) fn argv(terminal: &Terminal) -> Vec<Vec<u8>> {
    if !terminal.argv.is_empty() {
        return terminal.argv.iter().map(|word| word.clone().into_bytes()).collect();
    }
    let shell = match terminal.shell {
        ShellKind::Bash => "bash",
        ShellKind::Zsh => "zsh",
        ShellKind::Sh | ShellKind::Plain => "sh",
    };
    vec![shell.into()]
}

pub(super) fn wire_shell(shell: ShellKind) -> wire::Shell {
    match shell {
        ShellKind::Bash => wire::Shell::Bash,
        ShellKind::Zsh => wire::Shell::Zsh,
        ShellKind::Sh => wire::Shell::Sh,
        ShellKind::Plain => wire::Shell::Plain,
    }
}
