//! `stead env`: the configuration for clients of other APIs.

use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde_json::json;

use super::{
    client::{ServerAddress, ServerArgs},
    show::{self, line},
};
use model::{AccessToken, TokenPrefix};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ClientKind {
    /// E2B's SDKs and command line
    E2b,
    /// Daytona's SDKs
    Daytona,
    /// MCP clients, as a server entry in JSON
    Mcp,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  eval \"$(stead env e2b)\"\n  stead env mcp > .mcp.json\n\n\
    The output contains the token. With --cacert it also sets the certificate file for Python\n\
    (SSL_CERT_FILE, which replaces the system's authorities) and Node (NODE_EXTRA_CA_CERTS).")]
pub(super) struct EnvArgs {
    /// API of the client
    #[arg(value_enum)]
    kind: ClientKind,
    #[command(flatten)]
    target: ServerArgs,
}

pub(super) fn run(args: &EnvArgs) -> anyhow::Result<ExitCode> {
    let ServerAddress { url, token, .. } = args.target.find()?;
    let url = url.trim_end_matches('/');
    let token = token
        .context("no token found; set STEAD_TOKEN, or pass the server's directory with --home")?;
    let token = AccessToken::read(&token);
    let mut variables = match args.kind {
        ClientKind::E2b => vec![
            ("E2B_API_KEY", token.with_prefix(TokenPrefix::E2b)),
            ("E2B_API_URL", url.to_owned()),
            ("E2B_SANDBOX_URL", url.to_owned()),
            ("E2B_VOLUME_API_URL", url.to_owned()),
        ],
        ClientKind::Daytona => vec![
            ("DAYTONA_API_KEY", token.with_prefix(TokenPrefix::Stead)),
            ("DAYTONA_API_URL", format!("{url}/daytona")),
        ],
        ClientKind::Mcp => {
            let bearer = format!("Bearer {}", token.with_prefix(TokenPrefix::Stead));
            show::json(&json!({"mcpServers": {"stead": {
                "type": "http",
                "url": format!("{url}/mcp"),
                "headers": {"Authorization": bearer},
            }}}))?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    if let Some(file) = args.target.cacert() {
        let file = std::path::absolute(file)?.display().to_string();
        variables.push(("SSL_CERT_FILE", file.clone()));
        variables.push(("NODE_EXTRA_CA_CERTS", file));
    }
    for (name, value) in variables {
        line(&format!("export {name}={}", quoted(&value)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the text as one word of a POSIX shell.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn any_value_is_quoted_as_one_word() {
        assert_eq!(quoted("http://a:1"), "'http://a:1'");
        assert_eq!(quoted("a'b $(c)"), r"'a'\''b $(c)'");
    }
}
