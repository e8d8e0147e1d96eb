//! How to reach a cluster: a kubeconfig file, or the service account of the pod that the server runs in.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::yaml;
use crate::http::VendorKey;

/// Where the kubelet puts the files of a service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Where the API server is, and how the server proves who it is. `Debug` shows no secret.
#[derive(Clone)]
pub struct KubernetesAccess {
    /// The URL of the API server, without a slash at the end.
    pub(super) server: String,
    /// The namespace of the context.
    pub(super) namespace: String,
    /// The certificates that are trusted, in PEM; `None` for the well-known ones.
    pub(super) authorities: Option<Vec<u8>>,
    /// The client's certificate and key, in PEM.
    pub(super) identity: Option<(Vec<u8>, Vec<u8>)>,
    pub(super) token: ClusterToken,
}

/// The bearer token of requests.
#[derive(Debug, Clone)]
pub(super) enum ClusterToken {
    None,
    Fixed(VendorKey),
    /// Read again for every request, because the kubelet replaces it.
    File(PathBuf),
}

/// Why a cluster cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is not a kubeconfig: {reason}", path.display())]
    Kubeconfig { path: PathBuf, reason: String },
    #[error("the server does not run in a pod of a cluster: KUBERNETES_SERVICE_HOST is not set")]
    NoCluster,
}

impl fmt::Debug for KubernetesAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubernetesAccess")
            .field("server", &self.server)
            .field("namespace", &self.namespace)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

impl ClusterToken {
    pub(super) fn read(&self) -> Option<VendorKey> {
        match self {
            Self::None => None,
            Self::Fixed(key) => Some(key.clone()),
            Self::File(path) => {
                Some(VendorKey::new(fs::read_to_string(path).ok()?.trim().to_owned()))
            }
        }
    }
}

impl KubernetesAccess {
    /// Reads a kubeconfig file. Without a context, its current one is used.
    ///
    /// # Errors
    /// A file cannot be read, or the file asks for what is not supported.
    pub fn from_kubeconfig(path: &Path, context: Option<&str>) -> Result<Self, AccessError> {
        let text = String::from_utf8_lossy(&read(path)?).into_owned();
        let wrong = |reason: String| AccessError::Kubeconfig { path: path.to_owned(), reason };
        let config = yaml::parse(&text).map_err(|error| wrong(error.to_string()))?;
        let files = Kubeconfig { path, config: &config };
        let context = match context {
            Some(name) => name,
            None => text_of(&config["current-context"])
                .ok_or_else(|| wrong("it has no current context".to_owned()))?,
        };
        let context = files.named("contexts", "context", context)?;
        let name_of = |field: &str| {
            let name = text_of(&context[field]);
            name.ok_or_else(|| wrong(format!("the context has no {field}")))
        };
        let cluster = files.named("clusters", "cluster", name_of("cluster")?)?;
        let user = files.named("users", "user", name_of("user")?)?;
        let server = text_of(&cluster["server"])
            .ok_or_else(|| wrong("the cluster has no server".to_owned()))?;
        let server = server.trim_end_matches('/').to_owned();
        for (of, field) in [
            (cluster, "tls-server-name"),
            (cluster, "proxy-url"),
            (user, "exec"),
            (user, "auth-provider"),
            (user, "username"),
            (user, "as"),
        ] {
            if !of[field].is_null() {
                let instead =
                    "use a token or a client certificate, for example of a service account";
                return Err(wrong(format!("`{field}` is not supported; {instead}")));
            }
        }
        if cluster["insecure-skip-tls-verify"] == true {
            let reason =
                "`insecure-skip-tls-verify` is not supported; name the certificate authority";
            return Err(wrong(reason.to_owned()));
        }
        let certificate = files.data(user, "client-certificate")?;
        let identity = certificate.zip(files.data(user, "client-key")?);
        let token = match (text_of(&user["token"]), text_of(&user["tokenFile"])) {
            (Some(token), _) => ClusterToken::Fixed(VendorKey::new(token)),
            (None, Some(file)) => ClusterToken::File(files.beside(file)),
            (None, None) => ClusterToken::None,
        };
        if !is_confidential(&server) {
            return Err(wrong(format!("{server} is neither HTTPS nor on this machine")));
        }
        let namespace = text_of(&context["namespace"]).unwrap_or("default").to_owned();
        let authorities = files.data(cluster, "certificate-authority")?;
        Ok(Self { server, namespace, authorities, identity, token })
    }

    /// Uses the service account of the pod that this process runs in.
    ///
    /// # Errors
    /// This is no pod, or it has no service account.
    pub fn in_cluster() -> Result<Self, AccessError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let host = variable("KUBERNETES_SERVICE_HOST").ok_or(AccessError::NoCluster)?;
        let port = variable("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".to_owned());
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let dir = Path::new(SERVICE_ACCOUNT);
        let namespace = read(&dir.join("namespace"))?;
        Ok(Self {
            server: format!("https://{host}:{port}"),
            namespace: String::from_utf8_lossy(&namespace).trim().to_owned(),
            authorities: Some(read(&dir.join("ca.crt"))?),
            identity: None,
            token: ClusterToken::File(dir.join("token")),
        })
    }
}

/// Whether a token may be sent to this URL.
fn is_confidential(server: &str) -> bool {
    let local = ["http://127.0.0.1:", "http://localhost:", "http://[::1]:"];
    server.starts_with("https://") || local.iter().any(|prefix| server.starts_with(prefix))
}

fn read(path: &Path) -> Result<Vec<u8>, AccessError> {
    let size = fs::metadata(path).map(|found| found.len());
    let bytes = size.and_then(|size| match size {
        0..=MAX_FILE_BYTES => fs::read(path),
        _ => Err(io::Error::other("the file is larger than 1 MiB")),
    });
    bytes.map_err(|source| AccessError::Read { path: path.to_owned(), source })
}

fn text_of(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

struct Kubeconfig<'a> {
    path: &'a Path,
    config: &'a Value,
}

impl<'a> Kubeconfig<'a> {
    /// Returns the entry of a list that has this name.
    fn named(&self, list: &str, kind: &str, name: &str) -> Result<&'a Value, AccessError> {
        let entries = self.config[list].as_array().map_or(&[][..], Vec::as_slice);
        let found = entries.iter().find(|entry| entry["name"] == name);
        found.map(|entry| &entry[kind]).ok_or_else(|| AccessError::Kubeconfig {
            path: self.path.to_owned(),
            reason: format!("{list} has no entry {name}"),
        })
    }

    /// The path of a file that is named relative to the kubeconfig.
    fn beside(&self, file: &str) -> PathBuf {
        self.path.parent().unwrap_or(Path::new(".")).join(file)
    }

    /// Returns the content of a field that is inline (`NAME-data`, in base64) or the name of a file.
    fn data(&self, of: &Value, name: &str) -> Result<Option<Vec<u8>>, AccessError> {
        let inline = format!("{name}-data");
        if let Some(data) = text_of(&of[&inline]) {
            return STANDARD.decode(data).map(Some).map_err(|error| AccessError::Kubeconfig {
                path: self.path.to_owned(),
                reason: format!("`{inline}` is not base64: {error}"),
            });
        }
        text_of(&of[name]).map(|file| read(&self.beside(file))).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(text: &str, context: Option<&str>) -> Result<KubernetesAccess, String> {
        let dir = std::env::temp_dir().join(format!("stead-kubeconfig-{}", uuid::Uuid::now_v7()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("ca.crt"), "the authority").unwrap();
        fs::write(dir.join("token"), "from a file\n").unwrap();
        let path = dir.join("config");
        fs::write(&path, text).unwrap();
        let access = KubernetesAccess::from_kubeconfig(&path, context);
        let access =
            access.map_err(|error| error.to_string().replace(&*path.to_string_lossy(), "FILE"));
        if let Ok(KubernetesAccess { token: token @ ClusterToken::File(_), .. }) = &access {
            assert_eq!(token.read().unwrap().reveal(), "from a file");
        }
        fs::remove_dir_all(dir).unwrap();
        access
    }

    const CONFIG: &str = "apiVersion: v1
kind: Config
clusters:
- cluster:
    certificate-authority-data: dGhlIENB
    server: https://10.0.0.1:6443/
  name: one
- cluster:
    certificate-authority: ca.crt
    server: https://two.example.com
  name: two
contexts:
- context:
    cluster: one
    namespace: agents
    user: admin
  name: first
- context: {\"cluster\": \"two\", \"user\": \"robot\"}
  name: second
- context:
    cluster: two
    user: plugin
  name: third
current-context: first
preferences: {}
users:
- name: admin
  user:
    client-certificate-data: Y2VydA==
    client-key-data: a2V5
- name: robot
  user:
    tokenFile: token
- name: plugin
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1beta1
      command: a-plugin
      installHint: Install it
        with a package manager
      args:
      - get-token
";

    #[test]
    fn the_current_or_a_named_context_is_used() {
        let first = access(CONFIG, None).unwrap();
        assert_eq!((&*first.server, &*first.namespace), ("https://10.0.0.1:6443", "agents"));
        assert_eq!(first.authorities.as_deref(), Some(&b"the CA"[..]));
        assert_eq!(first.identity, Some((b"cert".to_vec(), b"key".to_vec())));
        assert!(matches!(first.token, ClusterToken::None));
        let second = access(CONFIG, Some("second")).unwrap();
        assert_eq!((&*second.server, &*second.namespace), ("https://two.example.com", "default"));
        assert_eq!(second.authorities.as_deref(), Some(&b"the authority"[..]));
        assert!(matches!(second.token, ClusterToken::File(_)));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let check = |text: &str, context: Option<&str>, expected: &str| {
            let error = access(text, context).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        check(CONFIG, Some("third"), "`exec` is not supported; use a token");
        check(CONFIG, Some("none"), "contexts has no entry none");
        check(&CONFIG.replace("current-context: first", ""), None, "no current context");
        check(&CONFIG.replace("https://10.0", "http://10.0"), None, "neither HTTPS nor");
        check(&CONFIG.replace("dGhlIENB", "?"), None, "not base64");
        check("a: &b c", None, "FILE is not a kubeconfig: line 1: anchors");
        let insecure = "insecure-skip-tls-verify: true\n    server: https://10";
        check(&CONFIG.replace("server: https://10", insecure), None, "insecure-skip-tls-verify");
        let missing = KubernetesAccess::from_kubeconfig(Path::new("/nothing/here"), None);
        assert!(matches!(missing, Err(AccessError::Read { .. })));
    }

    #[test]
    fn a_token_is_not_shown() {
        let config = CONFIG.replace("client-key-data: a2V5", "token: secret-token");
        let shown = format!("{:?}", access(&config, None).unwrap());
        assert!(shown.contains("10.0.0.1") && !shown.contains("secret-token"), "{shown}");
    }
}
