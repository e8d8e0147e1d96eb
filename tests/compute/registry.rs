//! A registry with one small image, on a free port, and an empty one that wants a password.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
};

use serde_json::{Value, json};

use harness::wait_long;

const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// Content type and body by path.
type Content = BTreeMap<String, (&'static str, Vec<u8>)>;

/// Serves an image `small:1` with the files of a directory, and with these settings for programs, until the
/// process ends; returns the address.
pub fn serve_configured(root: &Path, settings: &Value) -> SocketAddr {
    let mut builder = tar::Builder::new(Vec::new());
    builder.follow_symlinks(false);
    builder.append_dir_all(".", root).unwrap();
    let tar = builder.into_inner().unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&tar).unwrap();
    let layer = gzip.finish().unwrap();
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let config = json!({
        "architecture": architecture, "os": "linux", "config": settings,
        "rootfs": {"type": "layers", "diff_ids": [digest(&tar)]},
    });
    let config = config.to_string().into_bytes();
    let described = |kind: &str, bytes: &[u8]| json!({"mediaType": kind, "size": bytes.len(), "digest": digest(bytes)});
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": described("application/vnd.docker.container.image.v1+json", &config),
        "layers": [described("application/vnd.docker.image.rootfs.diff.tar.gzip", &layer)],
    });
    let manifest = manifest.to_string().into_bytes();
    let mut content = Content::from([("/v2/".to_owned(), ("application/json", b"{}".to_vec()))]);
    for name in ["1".to_owned(), digest(&manifest)] {
        content.insert(format!("/v2/small/manifests/{name}"), (MANIFEST, manifest.clone()));
    }
    for blob in [config, layer] {
        let path = format!("/v2/small/blobs/{}", digest(&blob));
        content.insert(path, ("application/octet-stream", blob));
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let content = Arc::new(content);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let content = content.clone();
            thread::spawn(move || answer(stream, &content));
        }
    });
    address
}

/// Debian's `docker-registry`, without images. It lets `reader` in with the password `secret`.
pub struct PrivateRegistry {
    process: Child,
    pub address: SocketAddr,
}

impl PrivateRegistry {
    /// Starts it with its files in a directory; `None` where the program is not installed.
    pub fn start(dir: &Path) -> Option<Self> {
        // Released right before the registry takes it.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let passwords = dir.join("passwords");
        let line = "reader:$2b$04$f8J5QNee6whJqflEScVKSeypP0KiMSm6s/7ZKQkNFz2mTZkh/oBTe\n";
        fs::write(&passwords, line).unwrap();
        let config = json!({
            "version": 0.1, "log": {"level": "error"}, "http": {"addr": address},
            "storage": {"filesystem": {"rootdirectory": dir.join("storage")}},
            "auth": {"htpasswd": {"realm": "test", "path": passwords}},
        });
        let file = dir.join("registry.yml");
        fs::write(&file, config.to_string()).unwrap();
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        let process = match command.spawn() {
            Ok(process) => process,
            Err(error) => {
                eprintln!("skipped: docker-registry does not start: {error}");
                return None;
            }
        };
        let registry = Self { process, address };
        wait_long("the registry", || TcpStream::connect(registry.address).map(drop));
        Some(registry)
    }
}

impl Drop for PrivateRegistry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Answers one request.
fn answer(mut stream: TcpStream, content: &Content) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    let request = lines.next()?.ok()?;
    // Read the whole request head, or the engine's connection is reset.
    while lines.next()?.ok()?.trim() != "" {}
    let mut words = request.split(' ');
    let (method, path) = (words.next()?, words.next()?);
    let (status, kind, body) = match content.get(path) {
        Some((kind, bytes)) => ("200 OK", *kind, bytes.as_slice()),
        None => ("404 Not Found", "application/json", &b"{\"errors\":[]}"[..]),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\
         docker-distribution-api-version: registry/2.0\r\ndocker-content-digest: {}\r\n\
         connection: close\r\n\r\n",
        body.len(),
        digest(body)
    );
    stream.write_all(head.as_bytes()).ok()?;
    if method == "GET" {
        stream.write_all(body).ok()?;
    }
    Some(())
}

fn digest(bytes: &[u8]) -> String {
    let mut child =
        Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let sum = child.wait_with_output().unwrap().stdout;
    format!("sha256:{}", String::from_utf8_lossy(&sum).split(' ').next().unwrap())
}
