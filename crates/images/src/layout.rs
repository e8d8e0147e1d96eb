//! An OCI image layout: the files in which tools such as `podman save` and `skopeo copy` put an image.
//!
//! ```text
//! oci-layout             marks the directory
//! index.json             leads to manifests
//! blobs/sha256/<hex>     manifests, configurations and layers
//! ```

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::digest::ContentDigest;
use crate::manifest::{ImageConfig, ImageManifest, ManifestDocument};
use crate::settings::CONFIG;
use crate::unpack::{StoredLayer, unpack};

/// Larger manifests and configurations are refused.
const MAX_DOCUMENT_BYTES: u64 = 4 << 20;
/// How many indexes may lead to each other.
const MAX_INDEXES: usize = 3;

/// Whether a directory is an image layout.
pub(crate) fn is_layout(dir: &Path) -> bool {
    ["oci-layout", "index.json"].iter().all(|name| dir.join(name).is_file())
}

/// Unpacks the image of a layout to a directory that does not exist, and puts its configuration beside it.
/// Everything is compared with its digest. Blocking.
pub(crate) fn unpack_layout(layout: &Path, root: &Path, max_bytes: u64) -> io::Result<()> {
    let manifest = manifest(layout)?;
    let config = blob(layout, &manifest.config.digest)?;
    let diff_ids = ImageConfig::diff_ids(&config, &manifest).map_err(refused)?;
    let files = manifest.layers.iter().map(|layer| regular(layout, &layer.digest));
    let files: Vec<PathBuf> = files.collect::<io::Result<_>>()?;
    let layers = files.into_iter().zip(diff_ids);
    let layers: Vec<_> = layers.map(|(file, diff_id)| StoredLayer { file, diff_id }).collect();
    fs::write(root.with_file_name(CONFIG), config)?;
    DirBuilder::new().mode(0o755).create(root)?;
    unpack(&layers, root, max_bytes).map(drop)
}

fn manifest(layout: &Path) -> io::Result<ImageManifest> {
    let mut bytes = read(&layout.join("index.json"))?;
    for _ in 0..=MAX_INDEXES {
        match ManifestDocument::parse(&bytes).map_err(refused)? {
            ManifestDocument::Image(manifest) => return Ok(manifest),
            ManifestDocument::Elsewhere(digest) => bytes = blob(layout, &digest)?,
        }
    }
    Err(refused("its indexes lead to each other".to_owned()))
}

/// Reads a small blob, and verifies it.
fn blob(layout: &Path, digest: &ContentDigest) -> io::Result<Vec<u8>> {
    let bytes = read(&regular(layout, digest)?)?;
    let found = ContentDigest::of(&bytes);
    if found != *digest {
        return Err(refused(format!("it contains {found} instead of {digest}")));
    }
    Ok(bytes)
}

/// The path of a blob, which is no link, device or pipe.
fn regular(layout: &Path, digest: &ContentDigest) -> io::Result<PathBuf> {
    let path = layout.join("blobs/sha256").join(digest.hex());
    match path.symlink_metadata() {
        Ok(found) if found.is_file() => Ok(path),
        Ok(_) | Err(_) => Err(refused(format!("it does not contain {digest}"))),
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_DOCUMENT_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
        return Err(refused("a document of it is too large".to_owned()));
    }
    Ok(bytes)
}

fn refused(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the image layout is refused: {reason}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn put(layout: &Path, bytes: &[u8]) -> Value {
        let digest = ContentDigest::of(bytes);
        fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
        fs::write(layout.join("blobs/sha256").join(digest.hex()), bytes).unwrap();
        json!({"digest": digest, "size": bytes.len()})
    }

    /// Writes a layout whose index leads to the manifest by way of another index. Returns the layer.
    fn write(layout: &Path) -> Value {
        let mut archive = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(2);
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        archive.append_data(&mut header, "bin/sh", &b"sh"[..]).unwrap();
        let archive = archive.into_inner().unwrap();
        let layer = put(layout, &archive);
        let config = json!({"config": {"Env": ["A=b"]},
            "rootfs": {"diff_ids": [layer["digest"]]}});
        let config = put(layout, config.to_string().as_bytes());
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": [layer]});
        let manifest = put(layout, manifest.to_string().as_bytes());
        let inner = put(layout, json!({"manifests": [manifest]}).to_string().as_bytes());
        fs::write(layout.join("index.json"), json!({"manifests": [inner]}).to_string()).unwrap();
        fs::write(layout.join("oci-layout"), "{}").unwrap();
        layer
    }

    #[test]
    fn a_layout_is_unpacked_with_its_settings() {
        let dir = tempfile::tempdir().unwrap();
        let (layout, root) = (dir.path().join("layout"), dir.path().join("rootfs"));
        write(&layout);
        assert!(is_layout(&layout) && !is_layout(dir.path()));
        unpack_layout(&layout, &root, 1 << 20).unwrap();
        assert_eq!(fs::read(root.join("bin/sh")).unwrap(), b"sh");
        let settings = crate::ImageSettings::of_root(&root).unwrap();
        assert_eq!(settings.env["A"], "b");
    }

    #[test]
    fn a_layout_with_other_content_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let layout = dir.path().join("layout");
        let layer = write(&layout);
        let layer: ContentDigest = serde_json::from_value(layer["digest"].clone()).unwrap();
        let layer = layout.join("blobs/sha256").join(layer.hex());
        let unpacked = |name: &str| unpack_layout(&layout, &dir.path().join(name), 1 << 20);
        let good = fs::read(&layer).unwrap();
        fs::write(&layer, [&good[..512], &b"SH"[..], &good[514..]].concat()).unwrap();
        assert!(unpacked("changed").unwrap_err().to_string().contains("instead of"));
        fs::remove_file(&layer).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &layer).unwrap();
        assert!(unpacked("linked").unwrap_err().to_string().contains("does not contain"));
        fs::write(layout.join("index.json"), r#"{"manifests": []}"#).unwrap();
        assert!(unpacked("empty").is_err());
    }
}
