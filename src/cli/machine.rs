//! `stead doctor` and `stead image`, which work on this machine without a server.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use serde_json::json;

use super::{settings::SettingArgs, show::PrintArgs};
use crate::server;
use machine::is_image_name;
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

#[derive(Debug, Subcommand)]
pub(super) enum ImageVerb {
    /// Create an image from a directory or a tar file
    #[command(after_help = "Examples:\n  stead image import debian /srv/debian-rootfs\n  \
        stead image import alpine alpine.tar.gz")]
    Import {
        /// Name of the image
        name: String,
        /// Root file system: a directory or a tar file
        source: PathBuf,
        /// Replace an existing image of this name
        #[arg(long)]
        replace: bool,
        #[command(flatten)]
        settings: SettingArgs,
    },
    /// List images
    #[command(after_help = "Example:\n  stead image ls --json")]
    Ls {
        #[command(flatten)]
        form: PrintArgs,
        #[command(flatten)]
        settings: SettingArgs,
    },
    /// Delete an image; sandboxes that use it cannot start again
    #[command(after_help = "Example:\n  stead image rm alpine")]
    Rm {
        /// Name of the image
        name: String,
        #[command(flatten)]
        settings: SettingArgs,
    },
}

pub(super) fn image(verb: &ImageVerb) -> anyhow::Result<ExitCode> {
    match verb {
        ImageVerb::Import { name, source, replace, settings } => {
            import(&images(settings)?, name, source, *replace)?;
        }
        ImageVerb::Ls { form, settings } => {
            let mut names: Vec<String> = fs::read_dir(images(settings)?)
                .into_iter()
                .flatten()
                .flatten()
                .filter_map(|entry| entry.file_name().into_string().ok())
                .filter(|name| is_image_name(name))
                .collect();
            names.sort();
            let images: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
            form.list(&images, &[("image", "/name")])?;
        }
        ImageVerb::Rm { name, settings } => {
            let path = images(settings)?.join(checked(name)?);
            fs::remove_dir_all(&path).with_context(|| format!("cannot remove image {name}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn images(settings: &SettingArgs) -> anyhow::Result<PathBuf> {
    Ok(config::load(&settings.given()?)?.settings.home.join("images"))
}

fn checked(name: &str) -> anyhow::Result<&str> {
    if !is_image_name(name) {
        bail!("{name:?} is not a valid image name; use letters, digits, '.', '_' and '-'");
    }
    Ok(name)
}

fn import(images: &Path, name: &str, source: &Path, replace: bool) -> anyhow::Result<()> {
    let target = images.join(checked(name)?);
    if target.exists() && !replace {
        bail!("image {name} already exists; --replace replaces it");
    }
    // The name starts with a dot, so that an incomplete image is not listed.
    let beside = images.join(format!(".{name}"));
    let _ = fs::remove_dir_all(&beside);
    let root = beside.join("rootfs");
    fs::create_dir_all(&root).context("cannot create the directory of the image")?;
    let mut copy = if source.is_dir() {
        let mut copy = Command::new("cp");
        copy.args(["-a", "--reflink=auto"]).arg(source.join(".")).arg(&root);
        copy
    } else {
        let mut unpack = Command::new("tar");
        unpack.args(["-x", "-p", "--numeric-owner", "-C"]).arg(&root).arg("-f").arg(source);
        unpack
    };
    let copied = copy.status().with_context(|| format!("cannot run {:?}", copy.get_program()))?;
    if !copied.success() || !root.join("bin").exists() && !root.join("usr").exists() {
        let _ = fs::remove_dir_all(&beside);
        bail!("{} is not a root file system: it has neither bin nor usr", source.display());
    }
    if replace {
        let _ = fs::remove_dir_all(&target);
    }
    fs::rename(&beside, &target).context("cannot rename the image into place")
}
