//! The executable as it is uploaded into sandboxes: without debug information, compressed, with its checksum.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use base::durable::replace;

/// Packs the executable once and caches the file.
#[derive(Debug)]
pub(super) struct Executable {
    dir: PathBuf,
    executable: PathBuf,
    packed: Mutex<Option<PackedExecutable>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PackedExecutable {
    pub(super) path: PathBuf,
    /// The checksum of the unpacked file, in hexadecimal.
    pub(super) sha256: String,
}

impl PackedExecutable {
    /// Its file name inside a sandbox, which differs between versions.
    pub(super) fn name(&self) -> String {
        format!("stead-{}", &self.sha256[..16])
    }

    pub(super) fn read(&self) -> io::Result<Bytes> {
        fs::read(&self.path).map(Bytes::from)
    }
}

impl Executable {
    pub(super) fn new(dir: PathBuf, executable: PathBuf) -> Self {
        Self { dir, executable, packed: Mutex::new(None) }
    }

    /// Returns the packed executable. Packing takes a second or two.
    pub(super) fn ready(&self) -> io::Result<PackedExecutable> {
        let mut packed = self.packed.lock();
        if let Some(packed) = &*packed {
            return Ok(packed.clone());
        }
        // Every vendor has its own `Executable`, but they share the directory.
        static PACKING: Mutex<()> = Mutex::new(());
        let _alone = PACKING.lock();
        fs::create_dir_all(&self.dir)?;
        let found = fs::metadata(&self.executable)?;
        let stem = format!("packed-{:x}-{:x}-{:x}", found.ino(), found.size(), found.mtime_nsec());
        let path = self.dir.join(format!("{stem}.gz"));
        let sum = self.dir.join(format!("{stem}.sha256"));
        let known = fs::read_to_string(&sum).ok().filter(|sum| sum.len() == 64 && path.exists());
        let sha256 = match known {
            Some(sha256) => sha256,
            None => pack(&self.executable, &path, &sum)?,
        };
        let made = PackedExecutable { path, sha256 };
        *packed = Some(made.clone());
        Ok(made)
    }
}

/// Packs an executable. The checksum is written last, so a file with a checksum is complete. Files of older
/// executables are removed.
fn pack(executable: &Path, path: &Path, sum: &Path) -> io::Result<String> {
    let before = path.parent().and_then(|dir| fs::read_dir(dir).ok());
    for entry in before.into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(b"packed-") {
            let _ = fs::remove_file(entry.path());
        }
    }
    let mut bytes = fs::read(executable)?;
    strip(&mut bytes);
    let sha256: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(&bytes)?;
    replace(path, &encoder.finish()?)?;
    replace(sum, sha256.as_bytes())?;
    Ok(sha256)
}

/// Truncates an executable after its last loaded segment, which removes debug information. Any file but a
/// 64-bit little-endian ELF executable stays as it is.
fn strip(bytes: &mut Vec<u8>) {
    if let Some(end) = loaded_end(bytes).filter(|end| *end < bytes.len()) {
        bytes.truncate(end);
        // Clear the offset, count and string index of the section table, which was cut off.
        bytes[40..48].fill(0);
        bytes[58..64].fill(0);
    }
}

/// Returns the end of the last loaded segment.
fn loaded_end(bytes: &[u8]) -> Option<usize> {
    const LOAD: u64 = 1;
    if bytes.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let number = |at: usize, length: usize| -> Option<u64> {
        let field = bytes.get(at..at.checked_add(length)?)?;
        Some(field.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let mut end = table.checked_add(size * count)?.max(64);
    for index in 0..count {
        let at = usize::try_from(table.checked_add(index * size)?).ok()?;
        if number(at, 4)? == LOAD {
            end = end.max(number(at + 8, 8)?.checked_add(number(at + 32, 8)?)?);
        }
    }
    usize::try_from(end).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_packed_executable_runs_and_has_its_checksum() {
        let dir = std::env::temp_dir().join(format!("stead-packed-{}", std::process::id()));
        let program = Executable::new(dir.clone(), PathBuf::from("/bin/true"));
        let packed = program.ready().unwrap();
        let mut bytes = Vec::new();
        let file = packed.read().unwrap();
        flate2::read::GzDecoder::new(&file[..]).read_to_end(&mut bytes).unwrap();
        let sum: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(sum, packed.sha256);
        let copy = dir.join(packed.name());
        fs::write(&copy, &bytes).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(std::process::Command::new(&copy).status().unwrap().success());
        // Another server uses the cached file.
        let again = Executable::new(dir.clone(), PathBuf::from("/bin/true")).ready().unwrap();
        assert_eq!(again, packed);
        let other = Executable::new(dir.clone(), PathBuf::from("/bin/false")).ready().unwrap();
        assert!(other.path.exists() && !packed.path.exists());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn other_files_are_not_changed() {
        for text in ["", "#!/bin/sh\nexit\n", "\u{7f}ELF"] {
            let mut bytes = text.as_bytes().to_vec();
            strip(&mut bytes);
            assert_eq!(bytes, text.as_bytes());
        }
    }
}
