//! The image a container is made from.
//!
//! Without a name it is one of this machine's own programs: a small root of its own, into which the
//! machine's `/usr` is mounted read-only. A name is that of an image an operator imported, or one that
//! the engine has or pulls.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::Duration;

use bollard::errors::Error;
use bollard::models::CreateImageInfo;
use bollard::query_parameters::{CreateImageOptions, CreateImageOptionsBuilder};
use futures_util::{Stream, StreamExt};
use tokio::time::Instant;
use tokio_util::io::ReaderStream;

use super::Docker;
use super::engine::{self, Engine};
use crate::namespace::launch::machine_directories;
use crate::namespace::{blocking, disk, is_image_name};
use base::event::EventKind;
use provider::ProviderError;

/// How often the progress of a pull is told.
const PROGRESS: Duration = Duration::from_secs(1);

const PULLING: &str = "pull an image";
const IMPORTING: &str = "import an image";

/// An image that the engine has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Image {
    /// What the engine knows it by.
    pub(super) reference: String,
    base: Base,
}

/// Whose programs are in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Base {
    Machine,
    Own,
}

impl Image {
    /// The directories of this machine that belong into it.
    pub(super) fn shown(&self, beside: &[PathBuf]) -> Vec<PathBuf> {
        match self.base {
            Base::Machine => machine_directories(beside),
            Base::Own => vec![],
        }
    }
}

impl Docker {
    /// Makes the engine have an image.
    pub(super) async fn image(
        &self,
        engine: &Engine,
        name: Option<&str>,
    ) -> Result<Image, ProviderError> {
        let Some(name) = name else { return self.machine_image(engine).await };
        let reference = match self.imported(name) {
            None => self.0.images.with(name, self.pulled(engine, name)).await?,
            Some(root) => self.0.images.with(name, self.import(engine, name, root)).await?,
        };
        Ok(Image { reference, base: Base::Own })
    }

    /// Where an operator's image of this name is.
    fn imported(&self, name: &str) -> Option<PathBuf> {
        let root = self.0.options.home.join("images").join(name).join("rootfs");
        (is_image_name(name) && root.is_dir()).then_some(root)
    }

    async fn machine_image(&self, engine: &Engine) -> Result<Image, ProviderError> {
        let made = || self.0.machine_image.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let reference = match made() {
            Some(reference) => reference,
            None => {
                let make = async {
                    if let Some(reference) = made() {
                        return Ok(reference);
                    }
                    let reference = self.make_machine_image(engine).await?;
                    *self.0.machine_image.lock().unwrap_or_else(PoisonError::into_inner) =
                        Some(reference.clone());
                    Ok::<_, ProviderError>(reference)
                };
                self.0.images.with("", make).await?
            }
        };
        Ok(Image { reference, base: Base::Machine })
    }

    /// The next container looks whether the engine still has the machine's image.
    pub(super) fn forget_machine_image(&self) {
        *self.0.machine_image.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    async fn make_machine_image(&self, engine: &Engine) -> Result<String, ProviderError> {
        let root = self.0.options.home.join("templates").join("container.root");
        let skeleton = root.clone();
        let key = blocking(IMPORTING, move || {
            disk::remove_all(&skeleton)?;
            fs::create_dir_all(&skeleton)?;
            disk::furnish(&skeleton)?;
            fingerprint(&skeleton)
        })
        .await?;
        let reference = self.upload(engine, "localhost/stead/machine", &key, &root).await?;
        blocking(IMPORTING, move || disk::remove_all(&root)).await?;
        Ok(reference)
    }

    async fn import(
        &self,
        engine: &Engine,
        name: &str,
        root: PathBuf,
    ) -> Result<String, ProviderError> {
        let files = root.clone();
        // An import puts a fresh directory in place of the old one.
        let key = blocking(IMPORTING, move || {
            use std::os::unix::fs::MetadataExt;
            let found = fs::metadata(files)?;
            Ok(format!("{:x}-{:x}", found.ino(), found.ctime()))
        })
        .await?;
        let name = name.to_ascii_lowercase();
        self.upload(engine, &format!("localhost/stead/image-{name}"), &key, &root).await
    }

    /// Makes the engine have the files of a directory as an image, unless it has them already.
    async fn upload(
        &self,
        engine: &Engine,
        repository: &str,
        tag: &str,
        root: &Path,
    ) -> Result<String, ProviderError> {
        let reference = format!("{repository}:{tag}");
        if has(engine, &reference).await.map_err(engine::failed(IMPORTING))? {
            return Ok(reference);
        }
        let archive = root.with_extension("tar");
        let (files, packed) = (root.to_owned(), archive.clone());
        blocking(IMPORTING, move || pack(&files, &packed)).await?;
        let failed = |error| ProviderError::failed(IMPORTING, error);
        let file = tokio::fs::File::open(&archive).await.map_err(failed)?;
        let body = bollard::body_try_stream(ReaderStream::with_capacity(file, 256 << 10));
        // Podman takes a tag only as part of the name.
        let options = CreateImageOptionsBuilder::new().from_src("-").repo(&reference).build();
        let steps = engine.client.create_image(Some(options), Some(body), None);
        let done = self.follow(&reference, steps).await;
        tokio::fs::remove_file(&archive).await.map_err(failed)?;
        done.map_err(engine::failed(IMPORTING))?;
        Ok(reference)
    }

    /// Makes the engine have the image of a registry.
    async fn pulled(&self, engine: &Engine, name: &str) -> Result<String, ProviderError> {
        if has(engine, name).await.map_err(engine::failed(PULLING))? {
            return Ok(name.to_owned());
        }
        tracing::info!(image = name, "pulling an image");
        let steps = engine.client.create_image(Some(from_registry(name)), None, None);
        let refused = |error: Error| match engine::failed(PULLING)(error) {
            ProviderError::Failed { source, .. } => {
                ProviderError::Refused { doing: PULLING, reason: format!("{name}: {source}") }
            }
            other => other,
        };
        self.follow(name, steps).await.map_err(refused)?;
        tracing::info!(image = name, "pulled an image");
        Ok(name.to_owned())
    }

    /// Tells how a pull or an import goes, until it is over.
    async fn follow(
        &self,
        image: &str,
        mut steps: impl Stream<Item = Result<CreateImageInfo, Error>> + Unpin,
    ) -> Result<(), Error> {
        let mut progress = Progress::default();
        let mut told: Option<Instant> = None;
        while let Some(step) = steps.next().await {
            progress.apply(&step?);
            if told.is_none_or(|told| told.elapsed() >= PROGRESS) {
                told = Some(Instant::now());
                self.tell(image, &progress);
            }
        }
        self.tell(image, &progress);
        Ok(())
    }

    fn tell(&self, image: &str, progress: &Progress) {
        let (done_bytes, total_bytes) = progress.bytes();
        let status = progress.status.clone();
        tracing::debug!(image, status, done_bytes, total_bytes, "an image comes");
        if let Some(events) = &self.0.options.events {
            let image = image.to_owned();
            events.publish(EventKind::ImageProgress { image, status, done_bytes, total_bytes });
        }
    }
}

async fn has(engine: &Engine, reference: &str) -> Result<bool, Error> {
    match engine.client.inspect_image(reference).await {
        Ok(_) => Ok(true),
        Err(error) if engine::is_missing(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What an engine is asked for an image of a registry. Without a tag it would pull every one.
fn from_registry(name: &str) -> CreateImageOptions {
    let options = CreateImageOptionsBuilder::new();
    let last = name.rsplit('/').next().unwrap_or(name);
    match (last.contains('@'), last.rsplit_once(':')) {
        (true, _) => options.from_image(name).build(),
        (false, Some((_, tag))) => {
            options.from_image(&name[..name.len() - tag.len() - 1]).tag(tag).build()
        }
        (false, None) => options.from_image(name).tag("latest").build(),
    }
}

/// How far a pull is.
#[derive(Debug, Default)]
struct Progress {
    status: String,
    /// What was fetched of each layer, and how large it is. As many as an image has layers.
    layers: BTreeMap<String, (u64, u64)>,
}

/// Images have no more layers than this; what an engine says beyond is left out.
const MOST_LAYERS: usize = 512;

impl Progress {
    fn apply(&mut self, step: &CreateImageInfo) {
        if let Some(status) = &step.status {
            self.status = status.chars().take(200).collect();
        }
        let Some(layer) = &step.id else { return };
        let Some(detail) = &step.progress_detail else { return };
        let bytes = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
        let (Some(done), Some(total)) = (bytes(detail.current), bytes(detail.total)) else {
            return;
        };
        if self.layers.len() < MOST_LAYERS || self.layers.contains_key(layer) {
            let kept = self.layers.entry(layer.clone()).or_default();
            // Unpacking begins again at nothing; what was fetched stays fetched.
            *kept = (kept.0.max(done), kept.1.max(total));
        }
    }

    fn bytes(&self) -> (u64, u64) {
        self.layers.values().fold((0, 0), |sum, layer| (sum.0 + layer.0, sum.1 + layer.1))
    }
}

/// Writes the files of a directory into an archive. Blocking.
fn pack(root: &Path, archive: &Path) -> io::Result<()> {
    let mut builder = tar::Builder::new(io::BufWriter::new(fs::File::create(archive)?));
    builder.follow_symlinks(false);
    builder.append_dir_all(".", root)?;
    builder.into_inner()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    Ok(())
}

/// What tells one content of a directory from another: names, modes, links and bytes. Blocking.
fn fingerprint(root: &Path) -> io::Result<String> {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;
    let mut hasher = blake3::Hasher::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        let mut entries: Vec<_> = fs::read_dir(&dir)?.collect::<Result<_, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (path, found) = (entry.path(), entry.metadata()?);
            let name = path.strip_prefix(root).unwrap_or(&path).as_os_str().as_bytes();
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name);
            hasher.update(&found.mode().to_le_bytes());
            let content = if found.is_symlink() {
                fs::read_link(&path)?.into_os_string().into_encoded_bytes()
            } else if found.is_file() {
                fs::read(&path)?
            } else {
                vec![]
            };
            hasher.update(&(content.len() as u64).to_le_bytes());
            hasher.update(&content);
            if found.is_dir() {
                open.push(path);
            }
        }
    }
    Ok(hasher.finalize().to_hex()[..24].to_owned())
}

#[cfg(test)]
mod tests {
    use bollard::models::ProgressDetail;

    use super::*;

    #[test]
    fn a_name_is_split_where_its_tag_begins() {
        for (name, image, tag) in [
            ("debian", "debian", Some("latest")),
            ("debian:12", "debian", Some("12")),
            ("localhost:5000/a/b", "localhost:5000/a/b", Some("latest")),
            ("localhost:5000/a/b:1", "localhost:5000/a/b", Some("1")),
            ("a/b@sha256:00", "a/b@sha256:00", None),
        ] {
            let options = from_registry(name);
            assert_eq!(options.from_image.as_deref(), Some(image), "{name}");
            assert_eq!(options.tag.as_deref(), tag, "{name}");
        }
    }

    #[test]
    fn progress_is_the_sum_of_the_layers() {
        let step = |id: &str, current, total| CreateImageInfo {
            id: Some(id.into()),
            status: Some("Downloading".into()),
            progress_detail: Some(ProgressDetail { current: Some(current), total: Some(total) }),
            ..Default::default()
        };
        let mut progress = Progress::default();
        for step in [step("a", 10, 100), step("b", 5, 50), step("a", 100, 100), step("a", 3, 100)] {
            progress.apply(&step);
        }
        assert_eq!(progress.bytes(), (105, 150));
        assert_eq!(progress.status, "Downloading");
    }

    #[test]
    fn a_fingerprint_tells_contents_and_modes_apart() {
        use std::os::unix::fs::PermissionsExt;
        let root = std::env::temp_dir().join(format!("stead-image-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::write(root.join("etc/passwd"), "root").unwrap();
        let first = fingerprint(&root).unwrap();
        assert_eq!(fingerprint(&root).unwrap(), first);
        fs::write(root.join("etc/passwd"), "toor").unwrap();
        let second = fingerprint(&root).unwrap();
        assert_ne!(second, first);
        fs::set_permissions(root.join("etc/passwd"), PermissionsExt::from_mode(0o600)).unwrap();
        assert_ne!(fingerprint(&root).unwrap(), second);
        let archive = root.with_extension("tar");
        pack(&root, &archive).unwrap();
        let mut names: Vec<_> = tar::Archive::new(fs::File::open(&archive).unwrap())
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().to_string_lossy().into_owned())
            .collect();
        names.sort();
        assert!(names.iter().any(|name| name.ends_with("etc/passwd")), "{names:?}");
        fs::remove_file(archive).unwrap();
        fs::remove_dir_all(root).unwrap();
    }
}
