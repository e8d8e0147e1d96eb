//! `stead doctor`, which works on this machine without a server.

use std::{fs, io::Write, path::Path, process::ExitCode};

use clap::Args;
use serde_json::json;

use super::settings::SettingArgs;
use machine::namespace::{Check, Finding, Verdict};
use store::{FileCheck, Rehearsal};

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stead doctor\n\n\
    Where a command helps, it is printed below the finding; `--json` has it as `command`.")]
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
    let database = match settings.store.url.reveal() {
        "" => DatabaseFinding::of(&settings.home),
        url => DatabaseFinding::of_postgres(url),
    };
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
        let prefix = if rustix::process::geteuid().is_root() { "" } else { "sudo " };
        for finding in &check.findings {
            writeln!(out, "{}", lines(finding, prefix))?;
        }
        let word = if database.is_sound { "ok" } else { "damaged" };
        writeln!(out, "{word:8} {:18} {}", "database", database.detail)?;
        let word = if check.passes() { "can" } else { "cannot" };
        writeln!(out, "\nThis machine {word} run namespace sandboxes.")?;
    }
    let passes = check.passes() && database.is_sound;
    Ok(if passes { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Formats a finding, and below it the command that meets the requirement, after what makes its user root.
fn lines(finding: &Finding, prefix: &str) -> String {
    let word = match finding.verdict {
        Verdict::Yes => "ok",
        Verdict::Without => "without",
        Verdict::No => "missing",
    };
    let line = format!("{word:8} {:18} {}", finding.what, finding.detail);
    match &finding.command {
        Some(command) => format!("{line}\n{:27} $ {prefix}{command}", ""),
        None => line,
    }
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

impl DatabaseFinding {
    fn of_postgres(url: &str) -> DatabaseFinding {
        let (is_sound, detail) = match store::inspect_postgres(url) {
            Ok(Rehearsal { applied, known }) if applied <= known => {
                (true, format!("PostgreSQL answers; its schema version is {applied} of {known}"))
            }
            Ok(Rehearsal { applied, known }) => (
                false,
                format!(
                    "its schema version {applied} is later than {known}, the last that this version supports"
                ),
            ),
            Err(error) => (false, format!("{:#}", anyhow::Error::from(error))),
        };
        DatabaseFinding { is_sound, detail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_which_command_helps() {
        let mut finding = Finding {
            what: "loop devices".into(),
            verdict: Verdict::No,
            detail: "load the module loop".into(),
            command: Some("modprobe loop".into()),
        };
        assert_eq!(
            lines(&finding, "sudo "),
            "missing  loop devices       load the module loop\n\
             \x20                           $ sudo modprobe loop"
        );
        let shown = serde_json::to_value(&finding).unwrap();
        assert_eq!(shown["command"], "modprobe loop");
        (finding.verdict, finding.command) = (Verdict::Yes, None);
        assert_eq!(lines(&finding, ""), "ok       loop devices       load the module loop");
    }
}
