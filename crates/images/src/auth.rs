//! Authentication at a registry: its challenge, and the operator's credentials.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

/// A larger file of credentials is refused.
const MAX_CREDENTIALS_BYTES: u64 = 1 << 20;

/// The authentication that a registry demands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RegistryChallenge {
    Basic,
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

impl RegistryChallenge {
    /// Parses the values of `WWW-Authenticate`. A token is preferred to a password.
    pub(crate) fn parse<'a>(values: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut basic = None;
        for (scheme, mut parameters) in values.into_iter().flat_map(challenges) {
            match scheme.to_ascii_lowercase().as_str() {
                "bearer" => {
                    if let Some(realm) = parameters.remove("realm") {
                        let service = parameters.remove("service");
                        let scope = parameters.remove("scope");
                        return Some(Self::Bearer { realm, service, scope });
                    }
                }
                "basic" => basic = Some(Self::Basic),
                _ => {}
            }
        }
        basic
    }
}

/// The challenges of one header: each a scheme and its parameters.
fn challenges(header: &str) -> Vec<(String, BTreeMap<String, String>)> {
    let mut found: Vec<(String, BTreeMap<String, String>)> = Vec::new();
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches([' ', ',', '\t']);
        let end = rest.find(['=', ' ', ',']).unwrap_or(rest.len());
        if end == 0 {
            return found;
        }
        let (word, after) = rest.split_at(end);
        let Some(value) = after.strip_prefix('=') else {
            found.push((word.to_owned(), BTreeMap::new()));
            rest = after;
            continue;
        };
        let (value, after) = parameter(value);
        if let Some((_, parameters)) = found.last_mut() {
            parameters.insert(word.to_ascii_lowercase(), value);
        }
        rest = after;
    }
}

/// A parameter's value, and the text after it.
fn parameter(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, rest) = text.split_at(text.find([' ', ',']).unwrap_or(text.len()));
        return (value.to_owned(), rest);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    (value, "")
}

/// The user name and password for one registry. `Debug` does not print them.
#[derive(Clone)]
pub(crate) struct RegistryLogin(String);

impl RegistryLogin {
    /// The value of `Authorization`.
    pub(crate) fn basic(&self) -> String {
        format!("Basic {}", self.0)
    }
}

impl fmt::Debug for RegistryLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RegistryLogin(…)")
    }
}

/// The file in which `docker login` and `podman login` keep credentials.
#[derive(Deserialize)]
struct CredentialsFile {
    #[serde(default)]
    auths: BTreeMap<String, CredentialsEntry>,
}

#[derive(Deserialize)]
struct CredentialsEntry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
}

/// Reads the credentials for a registry. A file that does not exist has none.
pub(crate) fn login(file: &Path, registry: &str) -> io::Result<Option<RegistryLogin>> {
    let found = match fs::metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found?,
    };
    if found.len() > MAX_CREDENTIALS_BYTES {
        return Err(io::Error::other("the file of registry credentials is too large"));
    }
    let parsed: CredentialsFile = serde_json::from_slice(&fs::read(file)?)?;
    let found = parsed.auths.into_iter().find(|(name, _)| registry_of(name) == registry);
    let Some((_, entry)) = found else { return Ok(None) };
    let encoded = match entry {
        CredentialsEntry { auth: Some(auth), .. } if !auth.is_empty() => auth,
        CredentialsEntry { username: Some(user), password: Some(password), .. } => {
            STANDARD.encode(format!("{user}:{password}"))
        }
        CredentialsEntry { .. } => return Ok(None),
    };
    let decodes = STANDARD.decode(&encoded).is_ok_and(|text| text.contains(&b':'));
    if !decodes {
        let message = format!("the credentials for {registry} are not base64 of user:password");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(Some(RegistryLogin(encoded)))
}

/// The registry that an entry is for: Docker writes `https://index.docker.io/v1/` for its own.
fn registry_of(name: &str) -> &str {
    let name = name.trim_start_matches("https://").trim_start_matches("http://");
    match name.split('/').next().unwrap_or(name) {
        "index.docker.io" | "registry-1.docker.io" => "docker.io",
        host => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_parsed() {
        let bearer = |realm: &str, service: Option<&str>, scope: Option<&str>| {
            Some(RegistryChallenge::Bearer {
                realm: realm.to_owned(),
                service: service.map(str::to_owned),
                scope: scope.map(str::to_owned),
            })
        };
        let check = |values: &[&str], expected: Option<RegistryChallenge>| {
            assert_eq!(RegistryChallenge::parse(values.iter().copied()), expected, "{values:?}");
        };
        check(
            &[r#"Bearer realm="https://a.example/t",service="s",scope="repository:a/b:pull,push""#],
            bearer("https://a.example/t", Some("s"), Some("repository:a/b:pull,push")),
        );
        check(&[r#"Basic realm="a", bearer realm=b"#], bearer("b", None, None));
        check(&[r#"Basic realm="a \" Bearer realm=b""#], Some(RegistryChallenge::Basic));
        check(&["Basic", r#"Bearer realm="b""#], bearer("b", None, None));
        check(&["Bearer", "Negotiate"], None);
        check(&["", "=,= =", "Bearer realm=\"", "\"\\"], bearer("", None, None));
    }

    #[test]
    fn credentials_are_found_by_registry() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.json");
        assert!(login(&file, "docker.io").unwrap().is_none());
        let text = r#"{"auths": {"https://index.docker.io/v1/": {"auth": "YTpi"},
            "a.example:5000": {"username": "c", "password": "d"}, "bad.example": {"auth": "!"}}}"#;
        fs::write(&file, text).unwrap();
        let basic = |registry| login(&file, registry).unwrap().map(|login| login.basic());
        assert_eq!(basic("docker.io").as_deref(), Some("Basic YTpi"));
        assert_eq!(basic("a.example:5000").as_deref(), Some("Basic Yzpk"));
        assert_eq!(basic("a.example"), None);
        assert!(login(&file, "bad.example").is_err());
    }
}
