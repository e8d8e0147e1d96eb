//! A real registry on a free port, images that tests push to it, and stores.

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use http::{StatusCode, header};
use images::{ContentDigest, ImageReference, ImageStore, ImageStoreOptions};
use serde_json::{Value, json};

const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
/// The credentials of the registry with a password.
pub const LOGIN: &str = "Basic cmVhZGVyOnNlY3JldA==";
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// Waits for a condition. Fails with what was seen last.
pub fn wait_for<T>(what: &str, mut poll: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + WAIT_LIMIT;
    loop {
        match poll() {
            Ok(found) => return found,
            Err(seen) => assert!(Instant::now() < deadline, "no {what}; last seen: {seen}"),
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Debian's `docker-registry`, with its files in a directory of its own.
pub struct Registry {
    process: Child,
    pub address: String,
    pub dir: tempfile::TempDir,
    http: reqwest::Client,
    login: Option<&'static str>,
}

impl Registry {
    /// Starts a registry; `None` where the program is not installed.
    pub fn start() -> Option<Self> {
        Self::start_with("", "", None)
    }

    /// Starts a registry that wants a user name and a password.
    pub fn with_password() -> Option<Self> {
        // The password is `secret`.
        let line = "reader:$2b$04$f8J5QNee6whJqflEScVKSeypP0KiMSm6s/7ZKQkNFz2mTZkh/oBTe\n";
        let auth = "htpasswd: {realm: test, path: PASSWORDS}";
        Self::start_with(line, auth, Some(LOGIN))
    }

    /// Starts a registry that wants a token from this server, and accepts any.
    pub fn with_tokens_of(realm: &str) -> Option<Self> {
        let auth = format!("silly: {{realm: {realm:?}, service: test-service}}");
        Self::start_with("", &auth, Some("Bearer pushing"))
    }

    fn start_with(passwords: &str, auth: &str, login: Option<&'static str>) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        // Released right before the registry takes it.
        let port =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let storage = dir.path().join("storage");
        let mut config = format!(
            "version: 0.1\nlog: {{level: error}}\nhttp: {{addr: {address}}}\n\
             storage: {{filesystem: {{rootdirectory: {}}}}}\n",
            storage.display()
        );
        if !auth.is_empty() {
            let file = dir.path().join("passwords");
            fs::write(&file, passwords).unwrap();
            let auth = auth.replace("PASSWORDS", &file.display().to_string());
            config += &format!("auth: {{{auth}}}\n");
        }
        let file = dir.path().join("config.yml");
        fs::write(&file, config).unwrap();
        let started = Command::new("docker-registry")
            .arg("serve")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let process = match started {
            Ok(process) => process,
            Err(error) => {
                eprintln!("skipped: docker-registry does not start: {error}");
                return None;
            }
        };
        // Another test of this process may have installed it.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let registry = Self { process, address, dir, http, login };
        wait_for("registry", || {
            TcpStream::connect(&registry.address).map_err(|error| error.to_string())
        });
        Some(registry)
    }

    pub fn reference(&self, name: &str) -> ImageReference {
        format!("{}/{name}", self.address).parse().unwrap()
    }

    async fn request(
        &self,
        method: http::Method,
        url: &str,
        kind: &str,
        body: Vec<u8>,
    ) -> reqwest::Response {
        let mut request =
            self.http.request(method, url).header(header::CONTENT_TYPE, kind).body(body);
        if let Some(login) = self.login {
            request = request.header(header::AUTHORIZATION, login);
        }
        request.send().await.unwrap()
    }

    pub async fn push_blob(&self, repository: &str, bytes: &[u8]) -> Value {
        let digest = ContentDigest::of(bytes).to_string();
        let url = format!("http://{}/v2/{repository}/blobs/uploads/", self.address);
        let begun = self.request(http::Method::POST, &url, "text/plain", vec![]).await;
        assert_eq!(begun.status(), StatusCode::ACCEPTED);
        let location = begun.headers()[header::LOCATION].to_str().unwrap();
        let url = format!("{location}&digest={digest}");
        let kind = "application/octet-stream";
        let done = self.request(http::Method::PUT, &url, kind, bytes.to_vec()).await;
        assert_eq!(done.status(), StatusCode::CREATED);
        json!({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
            "digest": digest, "size": bytes.len()})
    }

    pub async fn push_manifest(
        &self,
        repository: &str,
        tag: &str,
        manifest: &Value,
    ) -> ContentDigest {
        let url = format!("http://{}/v2/{repository}/manifests/{tag}", self.address);
        let kind = manifest["mediaType"].as_str().unwrap();
        let bytes = manifest.to_string().into_bytes();
        let digest = ContentDigest::of(&bytes);
        let done = self.request(http::Method::PUT, &url, kind, bytes).await;
        let status = done.status();
        assert_eq!(status, StatusCode::CREATED, "{}", done.text().await.unwrap());
        digest
    }

    /// Pushes an image with these uncompressed layers, which are compressed with gzip.
    pub async fn push(&self, repository: &str, tag: &str, layers: &[Vec<u8>]) -> ContentDigest {
        let packed: Vec<_> =
            layers.iter().map(|layer| (ContentDigest::of(layer), gzip(layer))).collect();
        self.push_packed(repository, tag, &packed).await
    }

    /// Pushes an image with layers as they are, each with the digest of its archive.
    pub async fn push_packed(
        &self,
        repository: &str,
        tag: &str,
        layers: &[(ContentDigest, Vec<u8>)],
    ) -> ContentDigest {
        let mut descriptors = Vec::new();
        for (_, bytes) in layers {
            descriptors.push(self.push_blob(repository, bytes).await);
        }
        let diff_ids: Vec<_> = layers.iter().map(|(diff_id, _)| diff_id.to_string()).collect();
        let config = json!({"os": "linux", "architecture": architecture(), "config": {},
            "rootfs": {"type": "layers", "diff_ids": diff_ids}});
        let mut config = self.push_blob(repository, config.to_string().as_bytes()).await;
        config["mediaType"] = "application/vnd.oci.image.config.v1+json".into();
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config,
            "layers": descriptors});
        self.push_manifest(repository, tag, &manifest).await
    }

    /// Pushes a list with variants for several platforms.
    pub async fn push_index(
        &self,
        repository: &str,
        tag: &str,
        variants: &[(&str, &ContentDigest, usize)],
    ) {
        let manifests: Vec<_> = variants
            .iter()
            .map(|(architecture, digest, size)| {
                json!({"mediaType": MANIFEST_TYPE, "digest": digest.to_string(), "size": size,
                    "platform": {"os": "linux", "architecture": architecture}})
            })
            .collect();
        let index = json!({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": manifests});
        self.push_manifest(repository, tag, &index).await;
    }

    /// The file in which the registry keeps a blob.
    pub fn blob_file(&self, digest: &ContentDigest) -> PathBuf {
        let blobs = self.dir.path().join("storage/docker/registry/v2/blobs/sha256");
        blobs.join(&digest.hex()[..2]).join(digest.hex()).join("data")
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

/// An archive of files, each given by its path and content.
pub fn layer(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        archive.append_data(&mut header, path, *content).unwrap();
    }
    archive.into_inner().unwrap()
}

/// Bytes that no compression makes smaller.
pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = 2 * seed + 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..length.div_ceil(8)).flat_map(|_| next().to_le_bytes()).take(length).collect()
}

pub fn options(dir: &Path) -> ImageStoreOptions {
    ImageStoreOptions {
        directory: dir.join("pulled-images"),
        credentials: dir.join("credentials.json"),
        plain_http: vec![],
        max_image_bytes: 1 << 30,
        max_unreferenced_bytes: 0,
        max_store_bytes: 1 << 30,
    }
}

pub fn store(dir: &Path) -> ImageStore {
    ImageStore::new(options(dir), Arc::new(|| Ok(BTreeSet::new())))
}

/// The names in a directory of a store.
pub fn names(dir: &Path, kind: &str) -> Vec<String> {
    let listed = fs::read_dir(dir.join("pulled-images").join(kind)).into_iter().flatten().flatten();
    let mut names: Vec<_> = listed.map(|it| it.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
