//! Templates as the bases of sandboxes: their names, and the settings that a build gives to a sandbox.

use std::{collections::BTreeMap, time::Duration};

use super::{plan::StepSettings, run};
use crate::{Adapter, vendor::VendorApi};
use api::error::{Code, Problem};
use model::{BuildId, Env, Made, TemplateId, USUAL_TAG};
use store::SandboxRecord;

/// How long a new sandbox waits for the start command of its template to be ready.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// The prefix of the snapshot of a build.
pub(super) const SNAPSHOT_PREFIX: &str = "build-";
/// The prefix of the template name of a provider's image. Clients cannot name their templates so.
const IMAGE_PREFIX: &str = "image ";
/// The key under which a sandbox records the directory that its programs start in.
pub const CWD: &str = "cwd";
/// The key under which a sandbox records the name of its template.
pub const ALIAS: &str = "alias";

/// The template name of a provider's image.
pub(super) fn image_template(provider: &str, image: &str) -> String {
    format!("{IMAGE_PREFIX}{provider} {image}")
}

/// The provider and the image of a template name that [`image_template`] returned.
pub fn image_of(template: &str) -> Option<(&str, &str)> {
    template.strip_prefix(IMAGE_PREFIX)?.split_once(' ')
}

/// The ready build of a template that a sandbox is created from.
#[derive(Debug, Clone)]
pub struct TemplateBase {
    pub template: TemplateId,
    pub name: String,
    pub snapshot: String,
    /// The settings that the build gives to sandboxes.
    pub made: Made,
}

impl TemplateBase {
    /// Applies the template's id, environment, records and directory to those of a new sandbox.
    pub fn apply(
        &self,
        template: &mut String,
        env: &mut Env,
        extra: &mut BTreeMap<String, String>,
        cwd: &mut String,
    ) {
        if self.made.user.as_deref() == Some("root") {
            let account = [("HOME", "/root"), ("USER", "root"), ("LOGNAME", "root")];
            env.extend(account.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        env.extend(self.made.env.clone());
        if let Some(directory) = &self.made.cwd {
            *cwd = directory.clone();
            extra.insert(CWD.to_owned(), directory.clone());
        }
        extra.insert(ALIAS.to_owned(), self.name.clone());
        *template = self.template.to_string();
    }
}

/// Splits `name:tag` into the name and the tag, if it has one.
pub fn split_tag(name: &str) -> (&str, Option<&str>) {
    match name.rsplit_once(':') {
        Some((name, tag)) => (name, Some(tag)),
        None => (name, None),
    }
}

/// Whether a snapshot is the result of a build.
pub fn is_of_build(snapshot: &str) -> bool {
    snapshot.strip_prefix(SNAPSHOT_PREFIX).is_some_and(|id| uuid::Uuid::try_parse(id).is_ok())
}

pub(super) fn snapshot_of(build: &BuildId) -> String {
    format!("{SNAPSHOT_PREFIX}{build}")
}

impl Adapter {
    /// The template with this name or id, as the base of a sandbox; `None` if it does not exist.
    pub async fn template_base(
        &self,
        vendor: &dyn VendorApi,
        name: &str,
    ) -> Result<Option<TemplateBase>, Problem> {
        let (plain, tag) = match vendor.names_have_tags() {
            true => split_tag(name),
            false => (name, None),
        };
        let owner = vendor.origin();
        let (template, tag) = match self.store.template(owner, name).await? {
            Some(template) => (Some(template), USUAL_TAG),
            None => (self.store.template(owner, plain).await?, tag.unwrap_or(USUAL_TAG)),
        };
        let Some(template) = template else { return Ok(None) };
        let build = template.tagged(tag).and_then(|build| Some((build, build.made()?)));
        let Some((build, made)) = build else {
            let detail = format!("template '{}' has no build with the tag '{tag}'", template.name);
            return Err(Problem::new(Code::NotFound, detail));
        };
        Ok(Some(TemplateBase {
            snapshot: snapshot_of(&build.build_id),
            made: made.clone(),
            template: template.template_id,
            name: template.name,
        }))
    }

    /// Starts the start command of a new sandbox's template, and waits up to 20 seconds until it is ready.
    pub async fn start_template(
        &self,
        sandbox: &SandboxRecord,
        base: Option<&TemplateBase>,
    ) -> Result<(), Problem> {
        let Some(made) = base.map(|base| &base.made) else { return Ok(()) };
        let Some(command) = &made.start else { return Ok(()) };
        let settings = StepSettings {
            env: made.env.clone(),
            args: Env::new(),
            cwd: made.cwd.clone().unwrap_or_else(|| sandbox.row.home.clone()),
            user: made.user.clone().unwrap_or_else(|| sandbox.row.user.clone()),
        };
        let mut start = run::program(sandbox, &settings, &settings.user, command);
        start.timeout = None;
        self.start_process(sandbox, start).await?;
        // A ready command that only sleeps has no condition; it ran during the build.
        if let Some(ready) = made.ready.as_ref().filter(|ready| !ready.starts_with("sleep ")) {
            let until = run::until_ready(self, sandbox, &settings, ready);
            match tokio::time::timeout(READY_TIMEOUT, until).await {
                Ok(ready) => ready?,
                Err(_) => {
                    tracing::warn!(sandbox = %sandbox.id(), "the start command is not ready yet")
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_templates_images_and_snapshots_are_parsed() {
        assert_eq!(split_tag("team/name:v1"), ("team/name", Some("v1")));
        assert_eq!(split_tag("name"), ("name", None));
        assert_eq!(image_of(&image_template("docker", "python:3")), Some(("docker", "python:3")));
        assert_eq!(image_of("image:v1"), None);
        let build: BuildId = uuid::Uuid::nil().to_string().parse().unwrap();
        assert!(is_of_build(&snapshot_of(&build)));
        assert!(!is_of_build("build-tools"), "the snapshot of a client");
    }

    #[test]
    fn a_template_overrides_only_the_settings_it_has() {
        let mut made = Made { env: Env::from([("A".into(), "1".into())]), ..Made::default() };
        let applied = |made: &Made| {
            let base = TemplateBase {
                template: "id".parse().unwrap(),
                name: "name".to_owned(),
                snapshot: String::new(),
                made: made.clone(),
            };
            let mut cwd = "/home/user".to_owned();
            let (mut template, mut env) = (String::new(), Env::from([("A".into(), "0".into())]));
            let mut extra = BTreeMap::new();
            base.apply(&mut template, &mut env, &mut extra, &mut cwd);
            assert_eq!((template.as_str(), env["A"].as_str()), ("id", "1"));
            assert_eq!(extra[ALIAS], "name");
            (cwd, env.remove("HOME"), extra.remove(CWD))
        };
        assert_eq!(applied(&made), ("/home/user".to_owned(), None, None));
        made.user = Some("root".to_owned());
        made.cwd = Some("/srv".to_owned());
        let expected = ("/srv".to_owned(), Some("/root".to_owned()), Some("/srv".to_owned()));
        assert_eq!(applied(&made), expected);
    }
}
