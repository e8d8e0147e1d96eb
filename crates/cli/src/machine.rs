//! `stead doctor`, which works on this machine without a server.

use std::{fs, io::Write, path::Path, process::ExitCode};

use clap::Args;
use serde_json::json;

use super::settings::SettingArgs;
use machine::namespace::{Check, Verdict};
use store::FileCheck;

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stead doctor")]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    settings: SettingArgs,
    /// Only inspect the machine; do not start a sandbox
    #[arg(long, alias = "look")]
    inspect: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Reports what this machine can do; fails if it cannot run sandboxes.
pub(super) fn doctor(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let mut settings = config::load(&args.settings.given()?)?.settings;
    let database = DatabaseFinding::of(&settings.home);
    // A separate home: a running server would treat the trial sandbox as an orphan.
    let home = std::env::temp_dir().join(format!("stead-doctor-{}", std::process::id()));
    settings.home = home.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let check = match server::confined(&settings)? {
        Some(_) if args.inspect => Check::inspect_as_user(),
        Some(provider) => runtime.block_on(Check::try_as_user(&provider)),
        None if args.inspect => Check::inspect(&server::sandboxes(&settings)?),
        None => runtime.block_on(Check::try_out(&server::sandboxes(&settings)?)),
    };
    let _ = fs::remove_dir_all(&home);
    let mut out = std::io::stdout().lock();
    if args.json {
        let mut shown = serde_json::to_value(&check)?;
        shown["database"] = json!({"sound": database.is_sound, "detail": &database.detail});
        serde_json::to_writer_pretty(&mut out, &shown)?;
        writeln!(out)?;
    } else {
        for finding in &check.findings {
            let word = match finding.verdict {
                Verdict::Yes => "ok",
                Verdict::Without => "without",
                Verdict::No => "missing",
            };
            writeln!(out, "{word:8} {:18} {}", finding.what, finding.detail)?;
        }
        let word = if database.is_sound { "ok" } else { "damaged" };
        writeln!(out, "{word:8} {:18} {}", "database", database.detail)?;
        let word = if check.passes() { "can" } else { "cannot" };
        writeln!(out, "\nThis machine {word} run namespace sandboxes.")?;
    }
    let passes = check.passes() && database.is_sound;
    Ok(if passes { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The state of the database in a home.
struct DatabaseFinding {
    is_sound: bool,
    detail: String,
}

impl DatabaseFinding {
    fn of(home: &Path) -> DatabaseFinding {
        let file = home.join("stead.db").display().to_string();
        let (is_sound, detail) = match store::check_file(home) {
            Ok(None) => (true, format!("{file} does not exist yet")),
            Ok(Some(FileCheck { structure: None, damaged })) if damaged.is_empty() => {
                (true, format!("every row of {file} matches its checksum"))
            }
            Ok(Some(FileCheck { structure, damaged })) => {
                let rows = damaged.iter().map(|it| format!("{} in {}", it.rows, it.table));
                let rows = rows.collect::<Vec<_>>().join(", ");
                let rows = (!rows.is_empty()).then(|| format!("damaged rows: {rows}"));
                let found: Vec<String> = structure.into_iter().chain(rows).collect();
                (false, format!("{file}: {}", found.join("; ")))
            }
            Err(error) => (false, format!("cannot check {file}: {error}")),
        };
        DatabaseFinding { is_sound, detail }
    }
}
