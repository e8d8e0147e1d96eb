//! Manifests, indexes and configurations of images, as far as pulling needs them.

use serde::{Deserialize, Serialize};

use crate::digest::ContentDigest;

/// The media types of manifests and indexes that we understand.
pub(crate) const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, \
     application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, \
     application/vnd.docker.distribution.manifest.v2+json";

/// An image with more layers is refused. Container engines stop at 127.
const MAX_LAYERS: usize = 256;

/// A part of an image: its digest and its exact size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BlobDescriptor {
    pub(crate) digest: ContentDigest,
    pub(crate) size: u64,
}

/// What a manifest's address leads to.
#[derive(Debug)]
pub(crate) enum ManifestDocument {
    Image(ImageManifest),
    /// The manifest for this machine's platform, in a list for several.
    Elsewhere(ContentDigest),
}

#[derive(Debug, Deserialize)]
pub(crate) struct ImageManifest {
    pub(crate) config: BlobDescriptor,
    pub(crate) layers: Vec<BlobDescriptor>,
}

#[derive(Deserialize)]
struct ImageIndex {
    manifests: Vec<IndexEntry>,
}

#[derive(Deserialize)]
struct IndexEntry {
    digest: ContentDigest,
    platform: Option<ImagePlatform>,
}

#[derive(Deserialize)]
struct ImagePlatform {
    os: String,
    architecture: String,
}

/// The architecture of this machine, as registries call it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

impl ManifestDocument {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let malformed = |error: serde_json::Error| format!("its manifest is malformed: {error}");
        let value: serde_json::Value = serde_json::from_slice(bytes).map_err(malformed)?;
        if value.get("manifests").is_some() {
            let index: ImageIndex = serde_json::from_value(value).map_err(malformed)?;
            let ours = |entry: &&IndexEntry| {
                entry.platform.as_ref().is_some_and(|platform| {
                    platform.os == "linux" && platform.architecture == architecture()
                })
            };
            let only = match index.manifests.as_slice() {
                [only] if only.platform.is_none() => Some(only),
                _ => None,
            };
            let found = index.manifests.iter().find(ours).or(only);
            let missing = || format!("it has no variant for linux/{}", architecture());
            return Ok(Self::Elsewhere(found.ok_or_else(missing)?.digest.clone()));
        }
        if value["schemaVersion"] != 2 {
            return Err("its manifest has another schema version than 2".to_owned());
        }
        let manifest: ImageManifest = serde_json::from_value(value).map_err(malformed)?;
        if manifest.layers.len() > MAX_LAYERS {
            return Err(format!("it has more than {MAX_LAYERS} layers"));
        }
        Ok(Self::Image(manifest))
    }
}

/// The configuration of an image.
#[derive(Debug, Deserialize)]
pub(crate) struct ImageConfig {
    os: Option<String>,
    architecture: Option<String>,
    rootfs: LayerList,
}

#[derive(Debug, Deserialize)]
struct LayerList {
    diff_ids: Vec<ContentDigest>,
}

impl ImageConfig {
    /// Returns the digests of the uncompressed layers.
    pub(crate) fn diff_ids(
        bytes: &[u8],
        manifest: &ImageManifest,
    ) -> Result<Vec<ContentDigest>, String> {
        let malformed = |error| format!("its configuration is malformed: {error}");
        let config: Self = serde_json::from_slice(bytes).map_err(malformed)?;
        for (name, found, ours) in [
            ("operating system", &config.os, "linux"),
            ("architecture", &config.architecture, architecture()),
        ] {
            if let Some(found) =
                found.as_deref().filter(|found| !found.is_empty() && *found != ours)
            {
                return Err(format!("its {name} is {found}, and this machine's is {ours}"));
            }
        }
        let diff_ids = config.rootfs.diff_ids;
        if diff_ids.len() != manifest.layers.len() {
            return Err("its manifest and its configuration list different layers".to_owned());
        }
        Ok(diff_ids)
    }
}

/// An image of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PulledImage {
    /// The canonical reference.
    pub reference: String,
    /// The digest of the manifest that the reference stood for.
    pub manifest: ContentDigest,
    /// The digest of the configuration, which identifies the unpacked root.
    pub id: ContentDigest,
    pub(crate) layers: Vec<BlobDescriptor>,
}

impl PulledImage {
    /// Whether it was built here. It has no layers, and no registry has it.
    #[must_use]
    pub fn is_built(&self) -> bool {
        self.layers.is_empty()
    }

    /// The size of its compressed layers.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.size).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_variant_for_this_machine_is_chosen() {
        let digest = |text: &str| ContentDigest::of(text.as_bytes()).to_string();
        let entry = |name: &str, os: &str, architecture: &str| {
            json!({"digest": digest(name), "size": 1,
                "platform": {"os": os, "architecture": architecture}})
        };
        let others = [
            json!({"digest": digest("none"), "size": 1}),
            entry("attestation", "unknown", "unknown"),
            entry("windows", "windows", architecture()),
            entry("other", "linux", "mips64le"),
        ];
        let mut all = others.to_vec();
        all.push(entry("ours", "linux", architecture()));
        let parse = |manifests: &[serde_json::Value]| {
            let index = json!({"schemaVersion": 2, "manifests": manifests});
            ManifestDocument::parse(index.to_string().as_bytes())
        };
        let Ok(ManifestDocument::Elsewhere(found)) = parse(&all) else { panic!("no variant") };
        assert_eq!(found, ContentDigest::of(b"ours"));
        let Ok(ManifestDocument::Elsewhere(only)) = parse(&others[..1]) else { panic!("no image") };
        assert_eq!(only, ContentDigest::of(b"none"));
        assert!(parse(&others).unwrap_err().contains("no variant"));
    }

    #[test]
    fn malformed_manifests_are_refused() {
        let digest = ContentDigest::of(b"").to_string();
        let blob = json!({"digest": digest, "size": 1});
        for bad in [
            json!([]),
            json!({"schemaVersion": 1, "config": blob, "layers": []}),
            json!({"schemaVersion": 2, "config": blob}),
            json!({"schemaVersion": 2, "config": blob, "layers": [{"digest": "sha256:x", "size": 1}]}),
            json!({"schemaVersion": 2, "config": blob, "layers": [{"digest": digest, "size": -1}]}),
            json!({"schemaVersion": 2, "config": blob, "layers": vec![blob.clone(); 257]}),
            json!({"manifests": 1}),
        ] {
            assert!(ManifestDocument::parse(bad.to_string().as_bytes()).is_err(), "{bad}");
        }
        let manifest = ImageManifest {
            config: serde_json::from_value(blob.clone()).unwrap(),
            layers: vec![serde_json::from_value(blob).unwrap()],
        };
        for (config, fine) in [
            (json!({"rootfs": {"diff_ids": [digest]}}), true),
            (json!({"rootfs": {"diff_ids": []}}), false),
            (json!({"rootfs": {"diff_ids": [digest]}, "os": "windows"}), false),
            (json!({"rootfs": {"diff_ids": [digest]}, "architecture": "mips64le"}), false),
        ] {
            let parsed = ImageConfig::diff_ids(config.to_string().as_bytes(), &manifest);
            assert_eq!(parsed.is_ok(), fine, "{config}");
        }
    }
}
