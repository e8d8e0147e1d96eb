//! The base of a build: a template, a snapshot, an image, or the files of a provider.
//!
//! The provider finds an image as it does for any sandbox: one that an operator imported, one that was pulled, or
//! one that it pulls from its registry.

use super::{
    log::{BuildLog, Level},
    new_sandbox,
    plan::Base,
    template::{TemplateBase, image_template, is_of_build, split_tag},
};
use crate::{Adapter, home::PROGRAMS, vendor::VendorApi};
use api::error::{Code, Problem};
use base::event::{Delivery, EventKind};
use files::{FileError, FileKind, Relative};
use machine::is_image_name;
use model::{BuildId, Made};
use provider::ImageShell;
use store::SandboxRecord;

/// The images that clients name by default. The default files of the provider take their place.
const DEFAULT_IMAGES: [&str; 3] = ["e2bdev/base", "e2bdev/code-interpreter", "daytonaio/sandbox"];
/// The shell that runs the steps of a build and the programs of its sandboxes.
const SHELL: &str = "/bin/bash";
/// Variables of the account, which is the same whatever the image.
const ACCOUNT_VARIABLES: [&str; 3] = ["HOME", "USER", "LOGNAME"];

const MIB: u64 = 1 << 20;

/// The files that a build starts from.
enum BaseFiles {
    Template(TemplateBase),
    /// The files of the snapshot or provider with this name.
    Named(String),
    /// The files of an image, by the name under which the provider knows or pulls it.
    Image(String),
    /// The files of the provider, in place of an image.
    Default,
}

impl Adapter {
    /// Whether a build with this base starts from the files of an image.
    pub async fn starts_from_image(
        &self,
        vendor: &'static dyn VendorApi,
        base: &Base,
    ) -> Result<bool, Problem> {
        Ok(matches!(self.base_files(vendor, base).await?, BaseFiles::Image(_)))
    }

    /// Creates the sandbox of a build. Returns it with the settings of its base.
    pub(super) async fn build_sandbox(
        &self,
        vendor: &'static dyn VendorApi,
        build: &BuildId,
        base: &Base,
        log: &mut BuildLog,
    ) -> Result<(SandboxRecord, Made), Problem> {
        let own = self.build_provider()?;
        let (Base::Template(name) | Base::Image(name)) = base;
        log.add(Level::Info, &format!("FROM {name}"));
        let create = |from: String| self.create_sandbox(new_sandbox(vendor, build, from));
        match self.base_files(vendor, base).await? {
            BaseFiles::Template(template) => Ok((create(template.snapshot).await?, template.made)),
            BaseFiles::Named(from) => Ok((create(from).await?, Made::default())),
            BaseFiles::Default => {
                if let Base::Image(image) = base {
                    log.add(Level::Warn, &in_place_of(image, &own));
                }
                Ok((create(own).await?, Made::default()))
            }
            BaseFiles::Image(image) => {
                let created = create(image_template(&own, &image));
                let sandbox = match self.log_pull(created, &image, log).await {
                    // Builds have to work on machines that reach no registry, too.
                    Err(problem) if problem.code() == Code::ProviderUnavailable => {
                        log.add(Level::Warn, problem.detail());
                        log.add(Level::Warn, &in_place_of(name, &own));
                        return Ok((create(own).await?, Made::default()));
                    }
                    created => created?,
                };
                let made = self.image_settings(&sandbox, name).await?;
                Ok((sandbox, made))
            }
        }
    }

    /// Logs how far the pull of an image is while a sandbox is being created from it.
    async fn log_pull<T>(
        &self,
        created: impl Future<Output = T>,
        image: &str,
        log: &mut BuildLog,
    ) -> T {
        let (mut events, mut reported) = (self.events.subscribe(None), PullSteps::default());
        tokio::pin!(created);
        loop {
            tokio::select! {
                created = &mut created => return created,
                Some(delivery) = events.next() => {
                    if let Delivery::Event(event) = delivery
                        && let Some(line) = reported.line(image, &event.kind)
                    {
                        log.add(Level::Info, &line);
                    }
                }
            }
        }
    }

    async fn base_files(
        &self,
        vendor: &'static dyn VendorApi,
        base: &Base,
    ) -> Result<BaseFiles, Problem> {
        let (Base::Template(name) | Base::Image(name)) = base;
        let images_may_be_templates = vendor.images_may_be_templates();
        let template = match base {
            Base::Template(_) => self.template_base(vendor, name).await?,
            Base::Image(_) if images_may_be_templates => {
                self.template_base(vendor, name).await.unwrap_or_default()
            }
            Base::Image(_) => None,
        };
        if let Some(template) = template {
            return Ok(BaseFiles::Template(template));
        }
        let is_known = self.leases.providers().named(name).is_ok()
            || (self.snapshots().await.unwrap_or_default().contains_key(name)
                && !is_of_build(name));
        match base {
            Base::Template(name) if is_known => Ok(BaseFiles::Named(name.clone())),
            Base::Image(name) if is_known && images_may_be_templates => {
                Ok(BaseFiles::Named(name.clone()))
            }
            Base::Template(name) if name == "base" => Ok(BaseFiles::Default),
            Base::Template(name) => {
                let detail = format!("template '{name}' not found");
                Err(Problem::new(Code::NotFound, detail))
            }
            Base::Image(image) => Ok(match self.imported_image(image) {
                Some(found) => BaseFiles::Image(found),
                None if is_default(image) => BaseFiles::Default,
                None => BaseFiles::Image(reference(image)),
            }),
        }
    }

    /// The image that an operator imported under this name, or under a part of it.
    fn imported_image(&self, name: &str) -> Option<String> {
        let (plain, _) = split_tag(name);
        let last = plain.rsplit('/').next().unwrap_or(plain);
        let names = [name, plain, last].map(|name| name.replace(['/', ':', '@'], "-"));
        let images = self.settings.home.join("images");
        let exists =
            |name: &String| is_image_name(name) && images.join(name).join("rootfs").is_dir();
        names.into_iter().find(exists)
    }

    /// The settings that the image of a sandbox gives to the steps of a build and to its sandboxes.
    async fn image_settings(&self, sandbox: &SandboxRecord, name: &str) -> Result<Made, Problem> {
        let files = self.sandbox_files(sandbox).await?;
        let shell = files.act(|directory| {
            let found = directory.stat_followed(&Relative::parse(SHELL.trim_start_matches('/'))?);
            Ok::<_, FileError>(found.is_ok_and(|found| found.kind == FileKind::File))
        });
        if !shell.await? {
            let detail = format!(
                "image {name} has no {SHELL}, which the sandboxes of this API need; use an image with bash"
            );
            return Err(Problem::new(Code::Unprocessable, detail));
        }
        let running = self.leases.running(&sandbox.thread.lease_id).await?;
        let ImageShell { mut env, directory } = self.leases.image_shell(&running).await?;
        for variable in ACCOUNT_VARIABLES {
            env.remove(variable);
        }
        if let Some(path) = env.get_mut("PATH") {
            *path = format!("{}/{PROGRAMS}:{path}", sandbox.row.home);
        }
        let cwd = directory.map(|path| path.to_string_lossy().into_owned());
        Ok(Made { env, cwd, ..Made::default() })
    }
}

/// The progress of a pull that was logged.
#[derive(Debug, Default)]
struct PullSteps {
    status: String,
    /// In tenths of the image.
    done: Option<u64>,
}

impl PullSteps {
    /// A line for the log, if the pull of the image is in another state than before or a tenth further.
    fn line(&mut self, wanted: &str, kind: &EventKind) -> Option<String> {
        let EventKind::ImageProgress { image, status, done_bytes, total_bytes } = kind else {
            return None;
        };
        let done = (done_bytes * 10).checked_div(*total_bytes);
        if image != wanted || (self.status == *status && self.done >= done) {
            return None;
        }
        (self.status, self.done) = (status.clone(), done);
        Some(format!("{status}: {} of {} MiB", done_bytes / MIB, total_bytes.div_ceil(MIB)))
    }
}

/// The remark that a build does not start from the image that it names.
fn in_place_of(image: &str, provider: &str) -> String {
    format!(
        "using the default files of provider {provider} in place of image {image}; \
         to use your own, import an image of this name with `stead image import`"
    )
}

/// Whether the default files of the provider take the place of an image.
fn is_default(image: &str) -> bool {
    let (name, _) = split_tag(image.strip_prefix("docker.io/").unwrap_or(image));
    DEFAULT_IMAGES.contains(&name)
}

/// The reference of an image. A bare name is one in the default registry: it was looked for among the imported
/// images before.
fn reference(image: &str) -> String {
    if is_image_name(image) { format!("{image}:latest") } else { image.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_of_a_pull_is_logged_in_tenths() {
        let mut steps = PullSteps::default();
        let mut line = |image: &str, status: &str, done_bytes| {
            let (image, status) = (image.to_owned(), status.to_owned());
            let kind =
                EventKind::ImageProgress { image, status, done_bytes, total_bytes: 100 * MIB };
            steps.line("a:1", &kind)
        };
        assert_eq!(line("a:1", "pulling", 0).as_deref(), Some("pulling: 0 of 100 MiB"));
        assert_eq!(line("a:1", "pulling", 9 * MIB), None);
        assert_eq!(line("b:1", "pulling", 50 * MIB), None, "another image");
        assert_eq!(line("a:1", "pulling", 55 * MIB).as_deref(), Some("pulling: 55 of 100 MiB"));
        let unpacking = line("a:1", "unpacking", 100 * MIB);
        assert_eq!(unpacking.as_deref(), Some("unpacking: 100 of 100 MiB"));
    }

    #[test]
    fn default_images_are_not_pulled_and_bare_names_get_a_tag() {
        for (image, expected) in [
            ("e2bdev/base", true),
            ("docker.io/e2bdev/base:latest", true),
            ("daytonaio/sandbox:0.5.0", true),
            ("localhost:5000/e2bdev/base", false),
            ("debian", false),
        ] {
            assert_eq!(is_default(image), expected, "{image}");
        }
        assert_eq!(reference("debian"), "debian:latest");
        assert_eq!(reference("debian:12"), "debian:12");
        assert_eq!(reference("ghcr.io/a/b"), "ghcr.io/a/b");
    }
}
