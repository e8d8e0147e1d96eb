//! `stead upgrade --check`, which works on this machine without a server.

use std::{io::Write, path::Path, process::ExitCode};

use anyhow::bail;
use clap::Args;
use serde_json::json;

use super::settings::SettingArgs;
use store::{FileCheck, OpenError, Rehearsal};

#[derive(Debug, Args)]
#[command(
    after_help = "Run it with the new executable before you replace the old one. It changes nothing, and the \
    server may keep running.\n\nExample:\n  ./stead upgrade --check --home /var/lib/stead"
)]
pub(super) struct UpgradeArgs {
    #[command(flatten)]
    settings: SettingArgs,
    /// Check the home directory: try the migrations of this version on a copy of its database
    #[arg(long)]
    check: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One line of the report.
struct Finding {
    is_fine: bool,
    what: &'static str,
    detail: String,
}

/// Reports what an upgrade to this version would do; fails if it cannot be done.
pub(super) fn run(args: &UpgradeArgs) -> anyhow::Result<ExitCode> {
    if !args.check {
        bail!(
            "stead does not replace itself: install the new package, or replace the executable and restart \
             the server. Shells keep running. `stead upgrade --check` says whether this version can take over"
        );
    }
    let settings = config::load(&args.settings.given()?)?.settings;
    let home = settings.home;
    let findings = match settings.store.url.reveal() {
        "" => vec![database(&home), migrations(&home)],
        url => vec![postgres(url)],
    };
    let can = findings.iter().all(|it| it.is_fine);
    let version = env!("CARGO_PKG_VERSION");
    let mut out = std::io::stdout().lock();
    if args.json {
        let finding =
            |it: &Finding| json!({"what": it.what, "ok": it.is_fine, "detail": it.detail});
        let findings: Vec<_> = findings.iter().map(finding).collect();
        let report =
            json!({"version": version, "home": home, "can_upgrade": can, "findings": findings});
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
    } else {
        for finding in findings {
            let word = if finding.is_fine { "ok" } else { "no" };
            writeln!(out, "{word:8} {:12} {}", finding.what, finding.detail)?;
        }
        let word = if can { "can" } else { "cannot" };
        writeln!(out, "\nVersion {version} {word} take over {}.", home.display())?;
    }
    Ok(if can { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether the database of PostgreSQL can be used. Its migrations are not tried: a copy would need its space and rights.
fn postgres(url: &str) -> Finding {
    let (is_fine, detail) = match store::inspect_postgres(url) {
        Ok(Rehearsal { applied, known }) if applied == known => {
            (true, format!("none are needed: PostgreSQL has schema version {known}"))
        }
        Ok(Rehearsal { applied, known }) if applied < known => (
            true,
            format!(
                "from schema version {applied} to {known}, at the next start; make a backup with pg_dump, earlier \
                 versions cannot open the database afterwards"
            ),
        ),
        Ok(Rehearsal { applied, known }) => {
            (false, OpenError::TooNew { found: applied, known }.to_string())
        }
        Err(error) => (false, format!("{:#}", anyhow::Error::from(error))),
    };
    Finding { is_fine, what: "migrations", detail }
}

/// Whether the database is sound.
fn database(home: &Path) -> Finding {
    let (is_fine, detail) = match store::check_file(home) {
        Ok(None) => (true, "there is none yet".to_owned()),
        Ok(Some(FileCheck { structure: None, damaged })) if damaged.is_empty() => {
            (true, "every row matches its checksum".to_owned())
        }
        Ok(Some(_)) => (false, "it is damaged; `stead doctor` says where".to_owned()),
        Err(error) => (false, format!("cannot be read: {error}")),
    };
    Finding { is_fine, what: "database", detail }
}

/// Whether the migrations of this version succeed on a copy.
fn migrations(home: &Path) -> Finding {
    let (is_fine, detail) = match store::rehearse(home) {
        Ok(None) => (true, "none are needed".to_owned()),
        Ok(Some(Rehearsal { applied, known })) if applied == known => {
            (true, format!("none are needed: the database has schema version {known}"))
        }
        Ok(Some(Rehearsal { applied, known })) => (
            true,
            format!(
                "from schema version {applied} to {known}, tried on a copy; make a backup, earlier versions \
                 cannot open the database afterwards"
            ),
        ),
        Err(error @ OpenError::TooNew { .. }) => (false, error.to_string()),
        Err(error) => (false, format!("failed on a copy: {:#}", anyhow::Error::from(error))),
    };
    Finding { is_fine, what: "migrations", detail }
}
