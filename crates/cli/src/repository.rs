//! `stead sandbox create --repo`: brings a repository or a directory into the workspace of a new sandbox.

use std::path::Path;

use anyhow::bail;
use serde_json::{Value, json};

use super::{
    client::{ApiClient, escape},
    copy,
    env::quoted,
    exec, names,
};

/// Answers Git's question for a password with the variable GIT_TOKEN of the sandbox, so that the token is in no
/// argument and in no file of the repository.
const CREDENTIAL_HELPER: &str = r#"!f() { [ "$1" != get ] || [ -z "$GIT_TOKEN" ] || printf "username=x-access-token\npassword=%s\n" "$GIT_TOKEN"; }; f"#;

/// Where a repository comes from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RepositorySource<'a> {
    /// A repository that `git clone` inside the sandbox can reach.
    Remote(&'a str),
    /// A directory of this machine.
    Directory(&'a Path),
}

impl<'a> RepositorySource<'a> {
    /// Parses a URL, `HOST:PATH` as `scp` writes it, or the path of a directory.
    pub(super) fn parse(text: &'a str) -> anyhow::Result<Self> {
        let path = Path::new(text);
        if text.contains("://") {
            return Ok(Self::Remote(text));
        }
        if path.is_dir() {
            return Ok(Self::Directory(path));
        }
        match text.split_once(':') {
            Some((host, path)) if !host.is_empty() && !host.contains('/') && !path.is_empty() => {
                Ok(Self::Remote(text))
            }
            Some(_) | None => bail!("--repo {text}: neither a URL nor a directory"),
        }
    }
}

/// Brings the repository into the workspace of a sandbox, below the name that `git clone` or `cp` would choose.
/// Progress is shown on standard error.
pub(super) async fn bring(
    client: &ApiClient,
    sandbox: &Value,
    source: &RepositorySource<'_>,
) -> anyhow::Result<()> {
    let thread = names::id(sandbox, "thread_id")?;
    match source {
        RepositorySource::Directory(path) => copy::into_workspace(client, thread, path).await,
        RepositorySource::Remote(url) => clone(client, &thread, sandbox, url).await,
    }
}

/// Returns the `git clone` of a repository. The token is for the server of an `https` URL alone: it would be readable
/// on the way over `http`, and another server may be the target of a redirection.
fn clone_command(url: &str) -> String {
    let mut command = "git ".to_owned();
    let authority = url.strip_prefix("https://").and_then(|rest| rest.split('/').next());
    if let Some(host) = authority.and_then(|authority| authority.rsplit('@').next()) {
        let setting = format!("credential.https://{host}.helper={CREDENTIAL_HELPER}");
        command += &format!("-c {} ", quoted(&setting));
    }
    command + "clone --progress -- " + &quoted(url)
}

async fn clone(client: &ApiClient, thread: &str, sandbox: &Value, url: &str) -> anyhow::Result<()> {
    let command = clone_command(url);
    // A question would have no answer.
    let env = json!({"GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": "ssh -o BatchMode=yes"});
    let mut body = json!({"command": command, "env": env});
    // An image may start shells in another directory. Elsewhere the workspace has no path of this name.
    if matches!(sandbox["provider"].as_str(), Some("namespace" | "docker")) {
        body["cwd"] = json!("/workspace");
    }
    let receipt =
        exec::stream(client, &format!("/api/threads/{}/exec", escape(thread)), &body).await?;
    match receipt["exit_code"].as_i64() {
        Some(0) => Ok(()),
        Some(code) => bail!("git clone failed with exit code {code}"),
        None => bail!("git clone has no result"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the password that Git would send to `url` while it clones `repository`, if any.
    fn password(repository: &str, url: &str) -> Option<String> {
        let clone = clone_command(repository);
        let settings = clone.split("clone --progress").next().unwrap();
        let script = format!("echo url={url} | GIT_TERMINAL_PROMPT=0 {settings} credential fill");
        let mut git = std::process::Command::new("sh");
        git.args(["-c", &script]).env("GIT_TOKEN", "secret").env("GIT_CONFIG_GLOBAL", "/dev/null");
        git.env("GIT_CONFIG_NOSYSTEM", "1").env_remove("GIT_ASKPASS").env_remove("SSH_ASKPASS");
        let output = String::from_utf8(git.output().unwrap().stdout).unwrap();
        output.lines().find_map(|line| line.strip_prefix("password=")).map(str::to_owned)
    }

    #[test]
    fn the_token_is_sent_to_the_server_of_an_https_url_alone() {
        let own = "https://example.com:8443/team/app.git";
        assert_eq!(password(own, own).as_deref(), Some("secret"));
        let with_user = "https://me@example.com:8443/team/app.git";
        assert_eq!(password(with_user, own).as_deref(), Some("secret"));
        for other in ["https://example.com/a", "https://example.org/a", "http://example.com:8443/a"]
        {
            assert_eq!(password(own, other), None, "{other}");
        }
        let plain = "http://example.com/team/app.git";
        assert_eq!(password(plain, plain), None);
    }

    #[test]
    fn a_source_is_a_url_or_a_directory() {
        let remote = |text: &'static str| {
            assert_eq!(RepositorySource::parse(text).unwrap(), RepositorySource::Remote(text));
        };
        remote("https://example.com/team/app.git");
        remote("file:///srv/app");
        remote("git@example.com:team/app.git");
        let here = RepositorySource::parse("src").unwrap();
        assert_eq!(here, RepositorySource::Directory(Path::new("src")));
        for wrong in ["absent", "./absent:x", ":x", "host:", ""] {
            assert!(RepositorySource::parse(wrong).is_err(), "{wrong}");
        }
    }
}
