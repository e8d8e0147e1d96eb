//! `stead config`: all settings, their values and where they were set.

use std::{io::Write, process::ExitCode};

use clap::Args;

use super::settings::SettingArgs;

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stead config --json")]
pub(super) struct ConfigArgs {
    #[command(flatten)]
    settings: SettingArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let settings = config::load(&args.settings.given()?)?.shown;
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &settings)?;
        writeln!(out)?;
        return Ok(ExitCode::SUCCESS);
    }
    for setting in settings {
        writeln!(out, "# {}", setting.doc)?;
        writeln!(out, "# {}; environment: {}", setting.origin, setting.environment)?;
        writeln!(out, "{} = {:?}\n", setting.key, setting.value)?;
    }
    Ok(ExitCode::SUCCESS)
}
