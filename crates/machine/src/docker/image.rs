//! The images of containers.
//!
//! The default image has this machine's programs: a small root file system, into which the machine's `/usr`
//! is mounted read-only. A named image is one that an operator imported or pulled, or one that the engine has
//! or pulls.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::errors::Error;
use bollard::models::CreateImageInfo;
use bollard::query_parameters::{CreateImageOptions, CreateImageOptionsBuilder};
use futures_util::{Stream, StreamExt};
use images::ImageSettings;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::io::ReaderStream;

use super::engine::{self, ContainerEngine};
use super::launch::ImagePrograms;
use super::options::DockerOptions;
use crate::blocking::blocking;
use crate::disk::image::DiskBase;
use crate::files::remove_all;
use crate::layout;
use crate::sandbox_images::{SandboxImages, imported_root};
use crate::spec::SandboxSpec;
use base::event::{EventKind, Events};
use base::keyed_lock::KeyedLock;
use provider::{CREATION_LIMIT, ProviderError};

/// The interval between two reports of a pull's progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

const PULLING: &str = "pull an image";
const IMPORTING: &str = "import an image";

/// An image that the engine has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EngineImage {
    /// The engine's name for it.
    pub(super) reference: String,
    pub(super) programs: ImagePrograms,
    /// What the image says about programs.
    pub(super) settings: ImageSettings,
}

impl EngineImage {
    /// The directories of this machine to be mounted in its containers.
    pub(super) fn machine_directories(&self, shown: &[PathBuf]) -> Vec<PathBuf> {
        match self.programs {
            ImagePrograms::Machine => layout::machine_directories(shown),
            ImagePrograms::Own => vec![],
        }
    }
}

/// The images that containers of a home are created from.
#[derive(Debug)]
pub(super) struct Images {
    home: PathBuf,
    /// Receives the progress of pulls.
    events: Option<Events>,
    /// The references of the default images that the engine has.
    machine_images: Mutex<HashMap<DiskBase, String>>,
    /// The images that are being pulled or imported.
    loading: KeyedLock,
    /// The images that we pulled ourselves.
    pulled_images: SandboxImages,
}

impl Images {
    pub(super) fn new(home: PathBuf, options: &DockerOptions) -> Self {
        let DockerOptions { events, images, .. } = options;
        Self {
            pulled_images: SandboxImages::new(&home, images.clone(), events.clone()),
            home,
            events: events.clone(),
            machine_images: Mutex::default(),
            loading: KeyedLock::new("the image", CREATION_LIMIT),
        }
    }

    /// Pulls or imports an image, unless the engine has it.
    pub(super) async fn ready(
        &self,
        engine: &ContainerEngine,
        spec: &SandboxSpec,
    ) -> Result<EngineImage, ProviderError> {
        let Some(name) = spec.image.as_deref() else {
            return self.machine_image(engine, DiskBase::of_machine(spec.capabilities)).await;
        };
        let imported = match self.imported(name) {
            Some(root) => Some((name.to_ascii_lowercase(), root, None)),
            // The digest names the repository: a reference contains what a repository's name may not.
            None => self
                .pulled_images
                .pulled_root(name)
                .await?
                .map(|image| (image.name.replace(':', "-"), image.root.clone(), Some(image))),
        };
        let (reference, settings) = match imported {
            None => {
                let pulled = self.loading.with(name, self.pulled(engine, name)).await??;
                let settings =
                    settings_of(engine, &pulled).await.map_err(engine::failed(PULLING))?;
                (pulled, settings)
            }
            Some((repository, root, _guarded)) => {
                let read = root.clone();
                let settings = blocking(IMPORTING, move || ImageSettings::of_root(&read)).await?;
                let import = self.import(engine, &repository, root);
                (self.loading.with(name, import).await??, settings)
            }
        };
        Ok(EngineImage { reference, programs: ImagePrograms::Own, settings })
    }

    /// The root directory of an imported image.
    fn imported(&self, name: &str) -> Option<PathBuf> {
        imported_root(&self.home, name)
    }

    async fn machine_image(
        &self,
        engine: &ContainerEngine,
        base: DiskBase,
    ) -> Result<EngineImage, ProviderError> {
        let known = || self.machine_images.lock().get(&base).cloned();
        let reference = match known() {
            Some(reference) => reference,
            None => {
                let import = async {
                    if let Some(reference) = known() {
                        return Ok(reference);
                    }
                    let reference = self.import_machine_image(engine, base).await?;
                    self.machine_images.lock().insert(base, reference.clone());
                    Ok::<_, ProviderError>(reference)
                };
                self.loading.with("", import).await??
            }
        };
        let settings = ImageSettings::default();
        Ok(EngineImage { reference, programs: ImagePrograms::Machine, settings })
    }

    /// Makes the next start check whether the engine still has the default images.
    pub(super) fn forget_machine_images(&self) {
        self.machine_images.lock().clear();
    }

    async fn import_machine_image(
        &self,
        engine: &ContainerEngine,
        base: DiskBase,
    ) -> Result<String, ProviderError> {
        let root = self.home.join("templates").join("container.root");
        let files = root.clone();
        let key = blocking(IMPORTING, move || {
            remove_all(&files)?;
            fs::create_dir_all(&files)?;
            base.furnish(&files)?;
            fingerprint(&files)
        })
        .await?;
        let reference = self.upload(engine, "localhost/stead/machine", &key, &root).await?;
        blocking(IMPORTING, move || remove_all(&root)).await?;
        Ok(reference)
    }

    async fn import(
        &self,
        engine: &ContainerEngine,
        name: &str,
        root: PathBuf,
    ) -> Result<String, ProviderError> {
        let files = root.clone();
        // Importing again replaces the directory.
        let key = blocking(IMPORTING, move || {
            use std::os::unix::fs::MetadataExt;
            let found = fs::metadata(files)?;
            Ok(format!("{:x}-{:x}", found.ino(), found.ctime()))
        })
        .await?;
        self.upload(engine, &format!("localhost/stead/image-{name}"), &key, &root).await
    }

    /// Uploads a directory as an image, unless the engine has it.
    async fn upload(
        &self,
        engine: &ContainerEngine,
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
        // Podman accepts a tag only as a part of the name.
        let options = CreateImageOptionsBuilder::new().from_src("-").repo(&reference).build();
        let steps = engine.client.create_image(Some(options), Some(body), None);
        let done = self.follow(&reference, steps).await;
        tokio::fs::remove_file(&archive).await.map_err(failed)?;
        done.map_err(engine::failed(IMPORTING))?;
        Ok(reference)
    }

    /// Pulls an image from a registry, unless the engine has it.
    async fn pulled(&self, engine: &ContainerEngine, name: &str) -> Result<String, ProviderError> {
        if has(engine, name).await.map_err(engine::failed(PULLING))? {
            return Ok(name.to_owned());
        }
        tracing::info!(image = name, "pulling an image");
        let steps = engine.client.create_image(Some(from_registry(name)), None, None);
        self.follow(name, steps).await.map_err(|error| pull_failed(name, error))?;
        tracing::info!(image = name, "pulled an image");
        Ok(name.to_owned())
    }

    /// Reports the progress of a pull or an import until its end.
    async fn follow(
        &self,
        image: &str,
        mut steps: impl Stream<Item = Result<CreateImageInfo, Error>> + Unpin,
    ) -> Result<(), Error> {
        let mut progress = PullProgress::default();
        let mut reported: Option<Instant> = None;
        while let Some(step) = steps.next().await {
            progress.apply(&step?);
            if reported.is_none_or(|at| at.elapsed() >= PROGRESS_INTERVAL) {
                reported = Some(Instant::now());
                self.report(image, &progress);
            }
        }
        self.report(image, &progress);
        Ok(())
    }

    fn report(&self, image: &str, progress: &PullProgress) {
        let (done_bytes, total_bytes) = progress.bytes();
        let status = progress.status.clone();
        tracing::debug!(image, status, done_bytes, total_bytes, "loading an image");
        if let Some(events) = &self.events {
            let image = image.to_owned();
            events.publish(EventKind::ImageProgress { image, status, done_bytes, total_bytes });
        }
    }
}

async fn has(engine: &ContainerEngine, reference: &str) -> Result<bool, Error> {
    match engine.client.inspect_image(reference).await {
        Ok(_) => Ok(true),
        Err(error) if engine::is_missing(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What an image of the engine says about programs.
async fn settings_of(engine: &ContainerEngine, name: &str) -> Result<ImageSettings, Error> {
    let config = engine.client.inspect_image(name).await?.config.unwrap_or_default();
    Ok(ImageSettings::of_config(config.env.unwrap_or_default(), config.working_dir))
}

/// Parts of the errors of engines for an image that does not exist.
const MISSING: [&str; 6] = [
    "manifest unknown",
    "name unknown",
    "not found",
    "http 404",
    "statuscode: 404",
    "invalid reference",
];

/// Converts the error of an engine's pull. Engines report what a registry answered as text, most with status 500.
fn pull_failed(name: &str, error: Error) -> ProviderError {
    let (status, message) = match &error {
        Error::DockerResponseServerError { status_code, message } => (*status_code, message),
        Error::DockerStreamError { error } => (500, error),
        _ => return engine::failed(PULLING)(error),
    };
    let text = message.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let advice = if says(&["denied", "unauthorized", "authentication required"]) {
        "check its name, and the credentials for its registry: those of the container engine, or those of \
         the setting image.credentials for `stead image pull`"
    } else if matches!(status, 400 | 404) || says(&MISSING) {
        "check its name and tag"
    } else {
        return engine::failed(PULLING)(error);
    };
    ProviderError::BadImage {
        reason: format!(
            "image: {name} cannot be pulled by the container engine: {message}; {advice}"
        ),
    }
}

/// The request for an image of a registry. Without a tag, the engine would pull every tag.
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

/// The progress of a pull.
#[derive(Debug, Default)]
struct PullProgress {
    status: String,
    /// The fetched and total bytes of each layer.
    layers: BTreeMap<String, (u64, u64)>,
}

/// Further layers are not counted.
const MAX_LAYERS: usize = 512;

/// Longer status messages of an engine are truncated.
const MAX_STATUS_CHARS: usize = 200;

impl PullProgress {
    fn apply(&mut self, step: &CreateImageInfo) {
        if let Some(status) = &step.status {
            self.status = status.chars().take(MAX_STATUS_CHARS).collect();
        }
        let Some(layer) = &step.id else { return };
        let Some(detail) = &step.progress_detail else { return };
        let bytes = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
        let (Some(done), Some(total)) = (bytes(detail.current), bytes(detail.total)) else {
            return;
        };
        if self.layers.len() < MAX_LAYERS || self.layers.contains_key(layer) {
            let counted = self.layers.entry(layer.clone()).or_default();
            // Unpacking starts again at zero, but fetched bytes stay fetched.
            *counted = (counted.0.max(done), counted.1.max(total));
        }
    }

    fn bytes(&self) -> (u64, u64) {
        self.layers.values().fold((0, 0), |sum, layer| (sum.0 + layer.0, sum.1 + layer.1))
    }
}

/// Archives a directory. Blocking.
fn pack(root: &Path, archive: &Path) -> io::Result<()> {
    let mut builder = tar::Builder::new(io::BufWriter::new(fs::File::create(archive)?));
    builder.follow_symlinks(false);
    builder.append_dir_all(".", root)?;
    builder.into_inner()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    Ok(())
}

/// A hash of the names, modes, links and bytes of a directory. Blocking.
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
    fn a_reference_is_split_at_its_tag() {
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
    fn a_missing_image_differs_from_a_registry_that_is_down() {
        for (status_code, message, is_wrong) in [
            (404, "manifest for a/b:1 not found: manifest unknown", true),
            (500, "initializing source docker://a/b:1: reading manifest 1: manifest unknown", true),
            (500, "error parsing HTTP 404 response body: no error details found", true),
            (500, "reading manifest 1 in a/b: StatusCode: 404, {}", true),
            (404, "pull access denied for a/b, repository does not exist", true),
            (500, "unauthorized: authentication required", true),
            (500, "dial tcp 127.0.0.1:1: connect: connection refused", false),
            (500, "context deadline exceeded", false),
        ] {
            let error = Error::DockerResponseServerError { status_code, message: message.into() };
            let failed = pull_failed("a/b:1", error);
            assert_eq!(matches!(failed, ProviderError::BadImage { .. }), is_wrong, "{failed:?}");
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
        let mut progress = PullProgress::default();
        for step in [step("a", 10, 100), step("b", 5, 50), step("a", 100, 100), step("a", 3, 100)] {
            progress.apply(&step);
        }
        assert_eq!(progress.bytes(), (105, 150));
        assert_eq!(progress.status, "Downloading");
    }

    #[test]
    fn a_fingerprint_depends_on_content_and_modes() {
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
