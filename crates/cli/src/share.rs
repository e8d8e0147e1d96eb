//! Commands for links that show one terminal, read-only.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::json;

use super::{
    client::{ServerArgs, escape},
    list::{ListArgs, Table},
    names::{self, IfMissing},
    show::{PrintArgs, line},
};

/// Maximum number of links in a list.
const MAX_ITEMS: usize = 10_000;

#[derive(Debug, Subcommand)]
pub(super) enum ShareVerb {
    /// Create a link to a terminal and print it; anyone with the link can watch
    #[command(after_help = "Example:\n  stead share create main --for 2h --name review")]
    Create(ShareArgs),
    /// List links, including expired and revoked ones
    #[command(after_help = "Example:\n  stead share ls main --json")]
    Ls {
        /// Only links to this terminal or thread
        terminal: Option<String>,
        #[command(flatten)]
        form: ListArgs,
        #[command(flatten)]
        target: ServerArgs,
    },
    /// Revoke a link; current viewers are disconnected
    #[command(after_help = "Example:\n  stead share revoke share_…")]
    Revoke {
        /// Id of the link, or a unique prefix
        share: String,
        #[command(flatten)]
        target: ServerArgs,
    },
}

#[derive(Debug, Args)]
pub(super) struct ShareArgs {
    /// Terminal id, or thread or sandbox for its default terminal
    terminal: String,
    /// Lifetime of the link: 90s, 30m, 2h, 7d
    #[arg(long = "for", value_name = "TIME", value_parser = config::parse_duration)]
    lifetime: Option<std::time::Duration>,
    /// Name of the link
    #[arg(long, default_value = "")]
    name: String,
    #[command(flatten)]
    form: PrintArgs,
    #[command(flatten)]
    target: ServerArgs,
}

pub(super) async fn share(verb: ShareVerb) -> anyhow::Result<ExitCode> {
    match verb {
        ShareVerb::Create(args) => {
            let client = args.target.client()?;
            let terminal = names::terminal(&client, &args.terminal, IfMissing::Fail).await?;
            let path = format!("/api/terminals/{}/shares", escape(&terminal));
            let mut body = json!({"name": args.name});
            if let Some(lifetime) = args.lifetime {
                body["expires_in_s"] = lifetime.as_secs().into();
            }
            let made = client.post(&path, &body).await?;
            if args.form.json {
                args.form.one(&made)?;
            } else {
                line(&names::id(&made, "url")?)?;
            }
        }
        ShareVerb::Ls { terminal, form, target } => {
            let client = target.client()?;
            let path = match terminal {
                Some(name) => {
                    let terminal = names::terminal(&client, &name, IfMissing::Fail).await?;
                    format!("/api/terminals/{}/shares", escape(&terminal))
                }
                None => "/api/shares".to_owned(),
            };
            let columns = [
                ("share", "/share_id"),
                ("name", "/name"),
                ("status", "/status"),
                ("terminal", "/terminal_id"),
                ("expires", "/expires_at"),
            ];
            form.show_path(Table::new(&columns), &client, &path, MAX_ITEMS).await?;
        }
        ShareVerb::Revoke { share, target } => {
            let client = target.client()?;
            let share = names::share(&client, &share).await?;
            client.json(Method::DELETE, &format!("/api/shares/{}", escape(&share)), None).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
