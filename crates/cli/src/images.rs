//! `stead image`. All but `build` works on this machine without a server.

use std::{
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use clap::Subcommand;
use images::{
    ExistingImage, ImageReference, ImageStore, ImportError, ImportedImages, PullStage, PulledImage,
};
use serde_json::{Value, json};

use super::{
    image_build::ImageBuildArgs,
    list::{ListArgs, Table},
    settings::SettingArgs,
};
use config::Settings;
use machine::is_image_name;

#[derive(Debug, Subcommand)]
pub(super) enum ImageVerb {
    /// Pull an image from a registry, or update one that was pulled
    #[command(after_help = "Examples:\n  stead image pull python:3.13-slim\n  \
        stead image pull ghcr.io/owner/name@sha256:…")]
    Pull {
        /// Reference of the image; without a registry, it is Docker Hub's
        image: String,
        #[command(flatten)]
        settings: SettingArgs,
    },
    /// Create an image from a directory or a tar file: a root file system, or an OCI image layout
    #[command(after_help = "Examples:\n  stead image import debian /srv/debian-rootfs\n  \
        stead image import alpine alpine.tar.gz")]
    Import {
        /// Name of the image
        name: String,
        /// Root file system or OCI image layout: a directory or a tar file
        source: PathBuf,
        /// Replace an existing image of this name, unless a sandbox uses it
        #[arg(long)]
        replace: bool,
        #[command(flatten)]
        settings: SettingArgs,
    },
    /// Build an image from a Dockerfile, in a sandbox of the server
    Build(ImageBuildArgs),
    /// List images
    #[command(after_help = "Example:\n  stead image ls --json")]
    Ls {
        #[command(flatten)]
        form: ListArgs,
        #[command(flatten)]
        settings: SettingArgs,
    },
    /// Delete an image that no sandbox uses
    #[command(after_help = "Examples:\n  stead image rm alpine\n  stead image rm python:3.13-slim")]
    Rm {
        /// Name of an imported image, or reference of a pulled one
        name: String,
        /// Delete the image even if sandboxes use it. The files of a pulled image are kept as long as they do;
        /// sandboxes that use an imported one cannot start again
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        settings: SettingArgs,
    },
}

pub(super) fn run(verb: &ImageVerb) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match verb {
        ImageVerb::Pull { image, settings } => runtime.block_on(pull(&load(settings)?, image))?,
        ImageVerb::Import { name, source, replace, settings } => {
            let existing = if *replace { ExistingImage::Replace } else { ExistingImage::Keep };
            runtime.block_on(import(&load(settings)?, checked(name)?, source, existing))?;
        }
        ImageVerb::Build(args) => return runtime.block_on(super::image_build::build(args)),
        ImageVerb::Ls { form, settings } => {
            let settings = load(settings)?;
            let columns = [("image", "/name"), ("bytes", "/bytes"), ("digest", "/digest")];
            let read = async || list(&settings);
            runtime.block_on(form.show_local(Table::new(&columns), read))?;
        }
        ImageVerb::Rm { name, force, settings } => {
            let settings = load(settings)?;
            if !force {
                refuse_use(&settings, name)?;
            }
            runtime.block_on(remove(&settings, name))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn load(settings: &SettingArgs) -> anyhow::Result<Settings> {
    Ok(config::load(&settings.given()?)?.settings)
}

fn checked(name: &str) -> anyhow::Result<&str> {
    if !is_image_name(name) {
        bail!("{name:?} is not a valid image name; use letters, digits, '.', '_' and '-'");
    }
    Ok(name)
}

fn store(settings: &Settings) -> ImageStore {
    machine::image_store(&settings.home, server::image_options(settings))
}

/// Refuses to change an image below the disk of a sandbox.
fn refuse_use(settings: &Settings, name: &str) -> anyhow::Result<()> {
    let mut names = vec![name.to_owned()];
    if let Ok(reference) = name.parse::<ImageReference>() {
        names.push(reference.to_string());
        let images = store(settings).list().context("cannot read the pulled images")?;
        let pulled = images.iter().find(|image| image.reference == reference.to_string());
        // The files of an image stay as long as any reference stands for them.
        let is_shared = |image: &PulledImage| {
            images.iter().any(|other| other.id == image.id && other.reference != image.reference)
        };
        let only = pulled.filter(|image| !is_shared(image));
        names.extend(only.map(|image| image.id.to_string()));
    }
    let uses = machine::image_uses(&settings.home).context("cannot read the disks of sandboxes")?;
    let users = uses.into_iter().filter(|found| names.contains(&found.image));
    let users: Vec<String> = users.map(|found| found.user).collect();
    if users.is_empty() {
        return Ok(());
    }
    bail!("image {name} is in use by {}; delete that first", users.join(", "))
}

async fn import(
    settings: &Settings,
    name: &str,
    source: &Path,
    existing: ExistingImage,
) -> anyhow::Result<()> {
    if existing == ExistingImage::Replace {
        refuse_use(settings, name)?;
    }
    match ImportedImages::new(&settings.home)
        .import(name, source, existing, settings.image.max_size)
        .await
    {
        Err(ImportError::Exists(name)) => {
            bail!("image {name} already exists; --replace replaces it")
        }
        imported => Ok(imported?),
    }
}

async fn pull(settings: &Settings, image: &str) -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("images can be pulled by root only: their files belong to many users");
    }
    let reference: ImageReference = image.parse()?;
    let is_terminal = std::io::stderr().is_terminal();
    let report = |stage| {
        if is_terminal {
            let mut line = std::io::stderr().lock();
            let _ = write!(line, "\r\x1b[K{}", stage_text(stage));
            let _ = line.flush();
        }
    };
    let pulled = store(settings).pull(&reference, &report).await;
    if is_terminal {
        let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
    }
    let pulled = pulled?;
    writeln!(std::io::stdout().lock(), "{}\n{}", pulled.reference, pulled.manifest)?;
    Ok(())
}

fn stage_text(stage: PullStage) -> String {
    const MIB: u64 = 1 << 20;
    match stage {
        PullStage::Fetching { done_bytes, total_bytes } => {
            format!("pulling: {} of {} MiB", done_bytes / MIB, total_bytes.div_ceil(MIB))
        }
        PullStage::Unpacking { .. } => "unpacking".to_owned(),
    }
}

fn list(settings: &Settings) -> anyhow::Result<Vec<Value>> {
    let names = ImportedImages::new(&settings.home).names().context("cannot list the images")?;
    let imported = names.iter().filter(|name| is_image_name(name));
    let mut images: Vec<_> = imported.map(|name| json!({"name": name})).collect();
    for image in store(settings).list().context("cannot list the pulled images")? {
        images.push(json!({
            "name": image.reference,
            "digest": image.manifest,
            "bytes": (!image.is_built()).then(|| image.bytes()),
        }));
    }
    Ok(images)
}

async fn remove(settings: &Settings, name: &str) -> anyhow::Result<()> {
    let failed = || format!("cannot remove image {name}");
    let imported = ImportedImages::new(&settings.home);
    if is_image_name(name) && imported.remove(name).await.with_context(failed)? {
        return Ok(());
    }
    let store = store(settings);
    let reference: ImageReference = name.parse()?;
    if !store.remove(&reference).with_context(failed)? {
        bail!("image {name} does not exist");
    }
    if store.collect().with_context(failed)?.is_none() {
        writeln!(
            std::io::stderr().lock(),
            "its files are removed later: other images are being pulled or used"
        )?;
    }
    Ok(())
}
