//! The executable as it is sent into other people's sandboxes: without what only debuggers read,
//! compressed, and with its checksum.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use sha2::{Digest, Sha256};

/// Makes the packed executable once and keeps it beside the other programs.
#[derive(Debug)]
pub(super) struct Program {
    dir: PathBuf,
    executable: PathBuf,
    packed: Mutex<Option<Packed>>,
}

/// The packed executable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Packed {
    /// Where it lies.
    pub(super) path: PathBuf,
    /// Its checksum when it is unpacked, in hex.
    pub(super) sha256: String,
}

impl Packed {
    /// Its name inside a sandbox, which tells one version from another.
    pub(super) fn name(&self) -> String {
        format!("stead-{}", &self.sha256[..16])
    }

    /// Its bytes.
    pub(super) fn read(&self) -> io::Result<Bytes> {
        fs::read(&self.path).map(Bytes::from)
    }
}

impl Program {
    pub(super) fn new(dir: PathBuf, executable: PathBuf) -> Self {
        Self { dir, executable, packed: Mutex::new(None) }
    }

    /// The packed executable. Takes a second or two the first time.
    pub(super) fn ready(&self) -> io::Result<Packed> {
        let mut packed = self.packed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(packed) = &*packed {
            return Ok(packed.clone());
        }
        // Each vendor has one of these, and all have the same directory.
        static PACKING: Mutex<()> = Mutex::new(());
        let _alone = PACKING.lock().unwrap_or_else(PoisonError::into_inner);
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
        let made = Packed { path, sha256 };
        *packed = Some(made.clone());
        Ok(made)
    }
}

/// Packs an executable; the checksum is written last, so that a file with one is whole. Those of
/// executables before are of no use any more.
fn pack(executable: &Path, path: &Path, sum: &Path) -> io::Result<String> {
    let before = path.parent().and_then(|dir| fs::read_dir(dir).ok());
    for entry in before.into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(b"packed-") {
            let _ = fs::remove_file(entry.path());
        }
    }
    let mut bytes = fs::read(executable)?;
    cut(&mut bytes);
    let sha256: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let beside = path.with_extension("new");
    let mut encoder = GzEncoder::new(File::create(&beside)?, Compression::new(6));
    encoder.write_all(&bytes)?;
    encoder.finish()?.sync_data()?;
    fs::rename(&beside, path)?;
    fs::write(sum, &sha256)?;
    Ok(sha256)
}

/// Cuts off what follows the last part of an executable that is ever loaded: tables for debuggers.
/// Anything else than a 64-bit little-endian executable stays as it is.
fn cut(bytes: &mut Vec<u8>) {
    if let Some(end) = loaded(bytes).filter(|end| *end < bytes.len()) {
        bytes.truncate(end);
        // The table of sections is gone: its place, its count and the index into it.
        bytes[40..48].fill(0);
        bytes[58..64].fill(0);
    }
}

/// Where the last loaded part of an executable ends.
fn loaded(bytes: &[u8]) -> Option<usize> {
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
        let program = Program::new(dir.clone(), PathBuf::from("/bin/true"));
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
        // Asked again by another server, it is not made again.
        let again = Program::new(dir.clone(), PathBuf::from("/bin/true")).ready().unwrap();
        assert_eq!(again, packed);
        let other = Program::new(dir.clone(), PathBuf::from("/bin/false")).ready().unwrap();
        assert!(other.path.exists() && !packed.path.exists());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn what_is_no_executable_stays_as_it_is() {
        for text in ["", "#!/bin/sh\nexit\n", "\u{7f}ELF"] {
            let mut bytes = text.as_bytes().to_vec();
            cut(&mut bytes);
            assert_eq!(bytes, text.as_bytes());
        }
    }
}
