//! Links that show one terminal, read-only: create, ls, revoke.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::json;

use super::{
    client::{ServerArgs, escape},
    names::{self, IfMissing},
    show::{Form, line},
};

/// Most links that are listed.
const MOST: usize = 10_000;

#[derive(Debug, Subcommand)]
pub(super) enum ShareVerb {
    /// Make a link that shows a terminal to whoever has it, and print it
    #[command(after_help = "Example:\n  stead share create main --for 2h --name review")]
    Create(CreateArgs),
    /// List the links, ended ones too
    Ls {
        /// Only those to this terminal or thread
        terminal: Option<String>,
        #[command(flatten)]
        form: Form,
        #[command(flatten)]
        target: ServerArgs,
    },
    /// Take a link back: who looks by it sees no more
    Revoke {
        /// The link's id, as `share ls` shows it
        share: String,
        #[command(flatten)]
        target: ServerArgs,
    },
}

#[derive(Debug, Args)]
pub(super) struct CreateArgs {
    /// The terminal or thread
    terminal: String,
    /// How long it works: 90s, 30m, 2h, 7d
    #[arg(long = "for", value_name = "TIME", value_parser = config::parse_duration)]
    lifetime: Option<std::time::Duration>,
    /// Whom or what it is for
    #[arg(long, default_value = "")]
    name: String,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    target: ServerArgs,
}

pub(super) async fn share(verb: ShareVerb) -> anyhow::Result<ExitCode> {
    match verb {
        ShareVerb::Create(args) => {
            let client = args.target.client()?;
            let terminal = names::terminal(&client, &args.terminal, IfMissing::Refuse).await?;
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
                    let terminal = names::terminal(&client, &name, IfMissing::Refuse).await?;
                    format!("/api/terminals/{}/shares", escape(&terminal))
                }
                None => "/api/shares".to_owned(),
            };
            let items = client.list(&path, MOST).await?;
            form.list(
                &items,
                &[
                    ("share", "/share_id"),
                    ("name", "/name"),
                    ("status", "/status"),
                    ("terminal", "/terminal_id"),
                    ("expires", "/expires_at"),
                ],
            )?;
        }
        ShareVerb::Revoke { share, target } => {
            let path = format!("/api/shares/{}", escape(&share));
            target.client()?.json(Method::DELETE, &path, None).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
