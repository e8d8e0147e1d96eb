//! `stead mcp install`: adds Stead to the configuration file of an MCP client.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::{args::BridgeArgs, entries};
use crate::show::line;
use base::durable;

/// The name of our entry in every file.
const ENTRY_NAME: &str = "stead";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum McpClient {
    /// Claude Code (~/.claude.json)
    Claude,
    /// Codex (~/.codex/config.toml)
    Codex,
    /// Cursor (~/.cursor/mcp.json)
    Cursor,
    /// Visual Studio Code (~/.config/Code/User/mcp.json)
    Vscode,
}

#[derive(Debug, Args)]
pub(super) struct InstallArgs {
    /// The client
    #[arg(value_enum)]
    client: McpClient,
    /// Print the entry and where it belongs, and change nothing
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    bridge: BridgeArgs,
}

/// How a client names the command that it starts.
struct ClientEntry {
    command: String,
    arguments: Vec<String>,
}

impl ClientEntry {
    fn of(bridge: &BridgeArgs) -> anyhow::Result<ClientEntry> {
        let command = env::current_exe().context("cannot find the path of this program")?;
        let mut arguments = vec!["mcp".to_owned()];
        if let Some(thread) = &bridge.thread {
            arguments.extend(["--thread".to_owned(), thread.clone()]);
        }
        arguments.extend(bridge.target.arguments()?);
        Ok(ClientEntry { command: command.display().to_string(), arguments })
    }

    fn json(&self, client: McpClient) -> Value {
        let mut entry = json!({"command": self.command, "args": self.arguments});
        if matches!(client, McpClient::Claude | McpClient::Vscode) {
            entry["type"] = json!("stdio");
        }
        entry
    }

    fn toml(&self) -> anyhow::Result<String> {
        let table = toml::Table::from_iter([
            ("command".to_owned(), self.command.clone().into()),
            ("args".to_owned(), self.arguments.clone().into()),
        ]);
        toml::to_string(&table).context("cannot write the entry as TOML")
    }
}

impl McpClient {
    /// Returns the user's configuration file of the client.
    fn file(self) -> anyhow::Result<PathBuf> {
        let home = env::var_os("HOME").context("HOME is not set")?;
        let home = PathBuf::from(home);
        Ok(match self {
            McpClient::Claude => home.join(".claude.json"),
            McpClient::Codex => match env::var_os("CODEX_HOME") {
                Some(codex) => PathBuf::from(codex).join("config.toml"),
                None => home.join(".codex/config.toml"),
            },
            McpClient::Cursor => home.join(".cursor/mcp.json"),
            McpClient::Vscode => {
                let config = env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
                config.unwrap_or_else(|| home.join(".config")).join("Code/User/mcp.json")
            }
        })
    }

    /// The member of the file that has an entry for each server.
    fn section(self) -> &'static str {
        match self {
            McpClient::Claude | McpClient::Cursor => "mcpServers",
            McpClient::Codex => "mcp_servers",
            McpClient::Vscode => "servers",
        }
    }

    /// Sets our entry in the text of the file.
    fn set(self, text: &str, entry: &ClientEntry) -> anyhow::Result<String> {
        match self {
            McpClient::Codex => entries::set_toml(text, self.section(), ENTRY_NAME, &entry.toml()?),
            McpClient::Claude | McpClient::Cursor | McpClient::Vscode => {
                entries::set_json(text, self.section(), ENTRY_NAME, &entry.json(self))
            }
        }
    }
}

pub(super) fn run(args: &InstallArgs) -> anyhow::Result<ExitCode> {
    let (client, entry) = (args.client, ClientEntry::of(&args.bridge)?);
    let file = client.file()?;
    let shown = client.set("", &entry)?;
    if args.print {
        line(&format!("{}:\n{}", file.display(), shown.trim_end()))?;
        return Ok(ExitCode::SUCCESS);
    }
    // A link stays a link: its target is replaced.
    let target = fs::canonicalize(&file).unwrap_or_else(|_| file.clone());
    let before = read(&target)?;
    let after = client.set(&before, &entry).with_context(|| {
        format!("cannot change {}; add the entry yourself (see --print)", file.display())
    })?;
    if before == after {
        line(&format!("{} already has this entry", file.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    write(&target, &after).with_context(|| format!("cannot write {}", file.display()))?;
    line(&format!("wrote to {}:\n{}", file.display(), shown.trim_end()))?;
    Ok(ExitCode::SUCCESS)
}

/// Reads a file; a missing one is empty.
fn read(path: &Path) -> anyhow::Result<String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Replaces a file atomically. It keeps its permissions.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let permissions = fs::metadata(path).map(|metadata| metadata.permissions()).ok();
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    durable::replace(path, text.as_bytes())?;
    match permissions {
        Some(permissions) => fs::set_permissions(path, permissions),
        None => Ok(()),
    }
}
