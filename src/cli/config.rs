//! `stead config`: every setting, its value and where it came from.

use std::{io::Write, process::ExitCode};

use clap::Args;

use super::SettingArgs;

#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    #[command(flatten)]
    settings: SettingArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let shown = config::load(&args.settings.said()?)?.shown;
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &shown)?;
        writeln!(out)?;
        return Ok(ExitCode::SUCCESS);
    }
    for setting in shown {
        writeln!(out, "# {}", setting.doc)?;
        writeln!(out, "# {}; environment: {}", setting.origin, setting.environment)?;
        writeln!(out, "{} = {:?}\n", setting.key, setting.value)?;
    }
    Ok(ExitCode::SUCCESS)
}
