//! What an image says about the programs that run in it: their environment, user and working directory.
//!
//! Programs of a sandbox run as its root, whatever user an image names. The user decides their `HOME`, `USER` and
//! `LOGNAME`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use serde::{Deserialize, Serialize};

use base::durable::open_directory;

/// The configuration of an image, beside its root.
pub(crate) const CONFIG: &str = "config.json";
/// A longer list of users is not read to its end.
const MAX_USER_LIST_BYTES: u64 = 1 << 20;

/// The settings of an image for programs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ImageSettings {
    pub env: BTreeMap<String, String>,
    /// The working directory, which exists in the image.
    pub directory: Option<PathBuf>,
}

/// The part of an image's configuration that concerns programs.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct ProgramConfig {
    env: Option<Vec<String>>,
    user: Option<String>,
    working_dir: Option<String>,
}

#[derive(Deserialize)]
struct ConfigDocument {
    config: Option<ProgramConfig>,
}

impl ImageSettings {
    /// Reads the settings of an unpacked image. An image without a configuration has none. Blocking.
    ///
    /// # Errors
    /// If its configuration cannot be read.
    pub fn of_root(root: &Path) -> io::Result<Self> {
        let text = match fs::read(root.with_file_name(CONFIG)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            text => text?,
        };
        let config = serde_json::from_slice::<ConfigDocument>(&text)?.config.unwrap_or_default();
        let mut settings = Self::of_config(config.env.unwrap_or_default(), config.working_dir);
        if let Some(user) = config.user.as_deref().filter(|user| !is_root(user)) {
            for (name, value) in account(root, user) {
                settings.env.entry(name).or_insert(value);
            }
        }
        settings.directory = settings.directory.filter(|path| {
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            open_inside(root, path, flags).is_ok()
        });
        Ok(settings)
    }

    /// The settings of an image of a container engine, which has created the working directory.
    #[must_use]
    pub fn of_config(variables: Vec<String>, working_dir: Option<String>) -> Self {
        let mut env = BTreeMap::new();
        for pair in variables.iter().filter(|pair| !pair.contains('\0')) {
            match pair.split_once('=') {
                Some((name, value)) if !name.is_empty() => {
                    env.insert(name.to_owned(), value.to_owned());
                }
                _ => {}
            }
        }
        let directory = working_dir.filter(|path| path.starts_with('/') && path != "/");
        Self { env, directory: directory.map(PathBuf::from) }
    }
}

/// The name or the id before the group.
fn user_name(user: &str) -> &str {
    user.split(':').next().unwrap_or(user)
}

fn is_root(user: &str) -> bool {
    matches!(user_name(user), "" | "root" | "0")
}

/// The variables of a user, from the image's list of users.
fn account(root: &Path, user: &str) -> Vec<(String, String)> {
    let name = user_name(user);
    let mut text = String::new();
    // An image without a list of users has none, and a list that cannot be read lists none.
    if let Ok(file) = open_inside(root, "/etc/passwd", OFlags::RDONLY | OFlags::NONBLOCK) {
        let mut bytes = Vec::new();
        if file.take(MAX_USER_LIST_BYTES).read_to_end(&mut bytes).is_ok() {
            text = String::from_utf8_lossy(&bytes).into_owned();
        }
    }
    let mut users = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = users.find(|fields| {
        fields.len() >= 6 && (fields[0] == name || fields[2] == name) && fields[5].starts_with('/')
    });
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    match found {
        Some(fields) => vec![
            variable("HOME", fields[5]),
            variable("USER", fields[0]),
            variable("LOGNAME", fields[0]),
        ],
        None => vec![variable("HOME", "/")],
    }
}

/// Opens a path of an image. The kernel resolves it with the image as its root.
fn open_inside(root: &Path, path: impl AsRef<Path>, flags: OFlags) -> io::Result<File> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
    let flags = flags | OFlags::CLOEXEC;
    let opened =
        rustix::fs::openat2(open_directory(root)?, path.as_ref(), flags, Mode::empty(), resolve)?;
    Ok(File::from(opened))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(config: &str, prepare: impl FnOnce(&Path)) -> ImageSettings {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("rootfs");
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::write(dir.path().join(CONFIG), config).unwrap();
        prepare(&root);
        ImageSettings::of_root(&root).unwrap()
    }

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn environment_user_and_directory_are_read() {
        let config = r#"{"config": {"Env": ["A=b=c", "E=", "bad", "=x"], "User": "app:staff",
            "WorkingDir": "/srv/app"}}"#;
        let found = settings(config, |root| {
            fs::create_dir_all(root.join("srv/app")).unwrap();
            fs::write(root.join("etc/passwd"), "root:x:0:0::/root:\napp:x:7:7::/home/app:\n")
                .unwrap();
        });
        let app = [("A", "b=c"), ("E", ""), ("HOME", "/home/app"), ("LOGNAME", "app")];
        let app = [&app[..], &[("USER", "app")]].concat();
        assert_eq!(found, ImageSettings { env: env(&app), directory: Some("/srv/app".into()) });
        for (user, home) in [("7", "/home/app"), ("8", "/"), ("other", "/")] {
            let config = format!(r#"{{"config": {{"User": "{user}"}}}}"#);
            let found = settings(&config, |root| {
                fs::write(root.join("etc/passwd"), "app:x:7:7::/home/app:\n").unwrap();
            });
            assert_eq!(found.env["HOME"], home, "{user}");
        }
    }

    #[test]
    fn an_image_without_settings_changes_nothing() {
        for config in [
            "{}",
            r#"{"config": null}"#,
            r#"{"config": {"Env": null, "User": "", "WorkingDir": "/"}}"#,
            r#"{"config": {"User": "0:0", "WorkingDir": "/absent"}}"#,
        ] {
            assert_eq!(settings(config, |_| {}), ImageSettings::default(), "{config}");
        }
    }

    #[test]
    fn nothing_outside_an_image_is_read() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("passwd"), "app:x:7:7::/outside:\n").unwrap();
        let found = settings(r#"{"config": {"User": "app", "WorkingDir": "/link"}}"#, |root| {
            let link = |to: &Path, at| std::os::unix::fs::symlink(to, root.join(at)).unwrap();
            link(&outside.path().join("passwd"), "etc/passwd");
            link(outside.path(), "link");
        });
        assert_eq!(found, ImageSettings { env: env(&[("HOME", "/")]), directory: None });
    }
}
