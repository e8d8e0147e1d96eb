//! Copies files of an uploaded archive to their place in a sandbox, as `COPY` and `ADD` of a Dockerfile do.

use std::fs::{self, File, Permissions};
use std::io::{self, BufReader, Read, Seek};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::user::ImageAccount;
use crate::path_pattern::path_matches;

/// The name of a Dockerfile that is none of the files to copy: it may be from another directory.
pub const DOCKERFILE: &str = ".stead-dockerfile";
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Where the magic of a tar archive is.
const TAR_MAGIC_OFFSET: u64 = 257;
const TAR_MAGIC: [u8; 5] = *b"ustar";

/// What happens to a file that is itself an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArchiveHandling {
    /// The archive is copied as it is.
    Keep,
    /// A tar archive, compressed with gzip or not, is unpacked at the target.
    Extract,
}

/// One instruction. An empty `owner` means root, an empty `mode` that of each file.
#[derive(Debug)]
pub(super) struct FileCopy<'a> {
    pub(super) archive: &'a str,
    /// A relative path or pattern.
    pub(super) source: &'a str,
    /// An absolute path. It is a directory if it ends with a slash.
    pub(super) target: &'a str,
    pub(super) owner: &'a str,
    pub(super) mode: &'a str,
    pub(super) archives: ArchiveHandling,
}

/// The owner and the mode that copies get; without a mode, each keeps its own.
struct CopyRights {
    owner: (u32, u32),
    mode: Option<u32>,
}

impl FileCopy<'_> {
    /// Copies. The content of a directory goes into the target. Files go below the target if there are several, or if
    /// the target is a directory or ends with a slash.
    pub(super) fn run(&self) -> io::Result<()> {
        let rights = self.rights()?;
        let files = self.unpacked()?;
        let found = find(&files, self.source)?;
        if found.is_empty() {
            return Err(io::Error::other(format!(
                "{} is not among the uploaded files",
                self.source
            )));
        }
        let target = Path::new(self.target);
        let is_below = found.len() > 1 || self.target.ends_with('/') || target.is_dir();
        for path in found {
            let kind = path.symlink_metadata()?;
            if kind.is_dir() {
                make_directories(target, &rights)?;
                copy_content(&path, target, &rights)?;
            } else if self.archives == ArchiveHandling::Extract && is_archive(&path)? {
                make_directories(target, &rights)?;
                tar_reader(&path)?.unpack(target)?;
            } else if is_below {
                make_directories(target, &rights)?;
                let name =
                    path.file_name().ok_or_else(|| io::Error::other("a file has no name"))?;
                copy_file(&path, &target.join(name), &rights)?;
            } else {
                make_directories(target.parent().unwrap_or(Path::new("/")), &rights)?;
                copy_file(&path, target, &rights)?;
            }
        }
        Ok(())
    }

    fn rights(&self) -> io::Result<CopyRights> {
        let owner = match self.owner {
            "" => (0, 0),
            owner => {
                let account = ImageAccount::find(Path::new("/"), owner)?;
                // As in Docker, a user id without a group is also that of the group.
                let is_number = owner.bytes().all(|byte| byte.is_ascii_digit());
                (account.user, if is_number { account.user } else { account.group })
            }
        };
        let malformed = |_| io::Error::other(format!("{:?} is not a mode", self.mode));
        let mode = match self.mode {
            "" => None,
            mode => Some(u32::from_str_radix(mode, 8).map_err(malformed)?),
        };
        Ok(CopyRights { owner, mode })
    }

    /// Unpacks the archive beside it, unless an earlier instruction did.
    fn unpacked(&self) -> io::Result<PathBuf> {
        let files = PathBuf::from(format!("{}.d", self.archive));
        if !files.exists() {
            let part = PathBuf::from(format!("{}.part", self.archive));
            fs::create_dir_all(&part)?;
            let mut archive = tar_reader(Path::new(self.archive))?;
            archive.unpack(&part).map_err(|error| {
                io::Error::new(error.kind(), format!("cannot unpack the uploaded files: {error}"))
            })?;
            match fs::remove_file(part.join(DOCKERFILE)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            fs::rename(&part, &files)?;
        }
        Ok(files)
    }
}

/// The files that a source names, in order. Other file systems below `files` are not searched.
pub(super) fn find(files: &Path, source: &str) -> io::Result<Vec<PathBuf>> {
    let plain = Path::new(source);
    let is_inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if plain.components().all(is_inside) && files.join(plain).symlink_metadata().is_ok() {
        return Ok(vec![files.join(plain)]);
    }
    let mut found = Vec::new();
    let device = files.metadata()?.dev();
    let mut open = vec![PathBuf::new()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(files.join(&directory))? {
            let entry = entry?;
            let path = directory.join(entry.file_name());
            if path.to_str().is_some_and(|path| path_matches(source, path)) {
                found.push(files.join(&path));
            } else if entry.file_type()?.is_dir() && entry.metadata()?.dev() == device {
                open.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn tar_reader(path: &Path) -> io::Result<tar::Archive<Box<dyn Read>>> {
    let mut file = File::open(path)?;
    let mut magic = [0; 2];
    let is_compressed = file.read_exact(&mut magic).is_ok() && magic == GZIP_MAGIC;
    file.rewind()?;
    let reader: Box<dyn Read> = match is_compressed {
        true => Box::new(MultiGzDecoder::new(BufReader::new(file))),
        false => Box::new(BufReader::new(file)),
    };
    let mut archive = tar::Archive::new(reader);
    archive.set_preserve_permissions(true);
    Ok(archive)
}

/// Reads a file of an archive, compressed with gzip or not; `None` if it is not in there. Blocking.
///
/// # Errors
/// If the archive cannot be read, or the file is larger than `max_bytes`.
pub fn archived_file(archive: &Path, name: &str, max_bytes: u64) -> io::Result<Option<Vec<u8>>> {
    let plain = |path: &Path| -> PathBuf {
        path.components().filter(|part| matches!(part, Component::Normal(_))).collect()
    };
    let name = plain(Path::new(name));
    // Extended headers are not read: they have no bound, and a path this long is no Dockerfile's.
    for entry in tar_reader(archive)?.entries()?.raw(true) {
        let mut entry = entry?;
        if plain(&entry.path()?) != name || !entry.header().entry_type().is_file() {
            continue;
        }
        if entry.size() > max_bytes {
            return Err(io::Error::other(format!(
                "{} has more than {max_bytes} bytes",
                name.display()
            )));
        }
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        return Ok(Some(content));
    }
    Ok(None)
}

/// Whether a file is a tar archive, compressed with gzip or not.
fn is_archive(path: &Path) -> io::Result<bool> {
    if !path.symlink_metadata()?.is_file() {
        return Ok(false);
    }
    let mut reader = tar_reader(path)?.into_inner();
    let skipped = io::copy(&mut (&mut reader).take(TAR_MAGIC_OFFSET), &mut io::sink());
    let mut magic = [0; 5];
    // What is not valid gzip is no archive.
    Ok(skipped.is_ok() && reader.read_exact(&mut magic).is_ok() && magic == TAR_MAGIC)
}

/// Creates the directories of a path that are missing.
fn make_directories(path: &Path, rights: &CopyRights) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(above) = path.parent() {
        make_directories(above, rights)?;
    }
    fs::create_dir(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o755))?;
    own(path, rights)
}

fn copy_content(from: &Path, to: &Path, rights: &CopyRights) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.metadata()?;
        if kind.is_dir() {
            if !target.is_dir() {
                fs::create_dir(&target)?;
            }
            copy_content(&path, &target, rights)?;
            set_rights(&target, kind.permissions().mode(), rights)?;
        } else {
            copy_file(&path, &target, rights)?;
        }
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path, rights: &CopyRights) -> io::Result<()> {
    let kind = from.symlink_metadata()?;
    // A link is replaced, not followed.
    match to.symlink_metadata() {
        Ok(found) if found.is_dir() => {
            return Err(io::Error::other(format!("{} is a directory", to.display())));
        }
        Ok(_) => fs::remove_file(to)?,
        Err(_) => {}
    }
    if kind.is_symlink() {
        symlink(fs::read_link(from)?, to)?;
        return own(to, rights);
    }
    fs::copy(from, to)?;
    File::options().write(true).open(to)?.set_modified(kind.modified()?)?;
    set_rights(to, kind.permissions().mode(), rights)
}

fn set_rights(path: &Path, mode: u32, rights: &CopyRights) -> io::Result<()> {
    // A change of the owner removes set-id bits, so the mode is set afterwards.
    own(path, rights)?;
    fs::set_permissions(path, Permissions::from_mode(rights.mode.unwrap_or(mode & 0o7777)))
}

fn own(path: &Path, rights: &CopyRights) -> io::Result<()> {
    let (user, group) = rights.owner;
    std::os::unix::fs::lchown(path, Some(user), Some(group))
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};

    use super::*;

    struct CopyFixture(PathBuf);

    impl CopyFixture {
        fn new() -> CopyFixture {
            let dir = tempfile::tempdir().unwrap().keep();
            let files = dir.join("files");
            fs::create_dir_all(files.join("src/deep")).unwrap();
            fs::write(files.join("a.txt"), "a").unwrap();
            fs::write(files.join("b.txt"), "b").unwrap();
            fs::write(files.join("src/deep/run.sh"), "run").unwrap();
            fs::set_permissions(files.join("src/deep/run.sh"), Permissions::from_mode(0o755))
                .unwrap();
            symlink("a.txt", files.join("link")).unwrap();
            let mut inner = tar::Builder::new(File::create(files.join("inner.tar")).unwrap());
            inner.append_path_with_name(files.join("a.txt"), "unpacked.txt").unwrap();
            inner.finish().unwrap();
            let mut archive = tar::Builder::new(File::create(dir.join("archive")).unwrap());
            archive.follow_symlinks(false);
            archive.append_dir_all(".", &files).unwrap();
            archive.finish().unwrap();
            CopyFixture(dir)
        }

        fn copy(
            &self,
            source: &str,
            target: &str,
            archives: ArchiveHandling,
        ) -> Result<(), String> {
            let archive = self.0.join("archive");
            let archive = archive.to_str().unwrap();
            let target = format!("{}/{target}", self.0.display());
            // Only root may give a file to another user.
            let copy = FileCopy { archive, source, target: &target, owner: "", mode: "", archives };
            copy.run().map_err(|error| error.to_string())
        }

        fn read(&self, path: &str) -> String {
            fs::read_to_string(self.0.join(path)).unwrap_or_else(|error| format!("{path}: {error}"))
        }
    }

    impl Drop for CopyFixture {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_is_read_from_an_archive_without_what_is_beside_it() {
        let dir = tempfile::tempdir().unwrap().keep();
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("archive");
        let writer = GzEncoder::new(File::create(&path).unwrap(), Compression::fast());
        let mut archive = tar::Builder::new(writer);
        let mut add = |kind, name: &str, size: u64, content: &mut dyn Read| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_path(name).unwrap();
            header.set_size(size);
            header.set_cksum();
            archive.append(&header, content).unwrap();
        };
        // A name that would be far longer than the archive if it was read.
        let length = 64 << 20;
        add(tar::EntryType::GNULongName, "long", length, &mut io::repeat(b'a').take(length));
        add(tar::EntryType::Regular, "short", 0, &mut io::empty());
        add(tar::EntryType::Regular, "sub/Dockerfile", 6, &mut "FROM b".as_bytes());
        add(tar::EntryType::Regular, "Dockerfile", 6, &mut "FROM a".as_bytes());
        archive.into_inner().unwrap().finish().unwrap();
        let read = |name: &str, max_bytes| archived_file(&path, name, max_bytes);
        assert_eq!(read("./Dockerfile", 10).unwrap().as_deref(), Some(&b"FROM a"[..]));
        assert_eq!(read("sub/Dockerfile", 10).unwrap().as_deref(), Some(&b"FROM b"[..]));
        assert_eq!(read("short/Dockerfile", 10).unwrap(), None);
        assert!(read("Dockerfile", 5).is_err());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn files_directories_and_patterns_are_copied_as_a_dockerfile_says() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root may set the owner of files");
            return;
        }
        let sandbox = CopyFixture::new();
        let keep = ArchiveHandling::Keep;
        sandbox.copy("a.txt", "out/renamed", keep).unwrap();
        assert_eq!(sandbox.read("out/renamed"), "a");
        sandbox.copy("a.txt", "out/", keep).unwrap();
        sandbox.copy("b.txt", "out", keep).unwrap();
        assert_eq!([sandbox.read("out/a.txt"), sandbox.read("out/b.txt")], ["a", "b"]);
        sandbox.copy("*.txt", "all/", keep).unwrap();
        assert_eq!([sandbox.read("all/a.txt"), sandbox.read("all/b.txt")], ["a", "b"]);
        sandbox.copy("src", "code", keep).unwrap();
        assert_eq!(sandbox.read("code/deep/run.sh"), "run");
        let mode = fs::metadata(sandbox.0.join("code/deep/run.sh")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        sandbox.copy(".", "whole", keep).unwrap();
        assert_eq!(sandbox.read("whole/src/deep/run.sh"), "run");
        assert_eq!(fs::read_link(sandbox.0.join("whole/link")).unwrap(), Path::new("a.txt"));
        sandbox.copy("**/run.sh", "found/", keep).unwrap();
        assert_eq!(sandbox.read("found/run.sh"), "run");
        sandbox.copy("inner.tar", "kept/", keep).unwrap();
        assert!(sandbox.0.join("kept/inner.tar").is_file());
        sandbox.copy("inner.tar", "extracted", ArchiveHandling::Extract).unwrap();
        assert_eq!(sandbox.read("extracted/unpacked.txt"), "a");
        sandbox.copy("a.txt", "plain/", ArchiveHandling::Extract).unwrap();
        assert_eq!(sandbox.read("plain/a.txt"), "a");
        let missing = sandbox.copy("absent", "x", keep);
        assert_eq!(missing, Err("absent is not among the uploaded files".to_owned()));
        assert!(sandbox.copy("../archive", "x", keep).is_err());
    }
}
