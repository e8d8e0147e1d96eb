//! Packs files of one stage of a Dockerfile into an archive, from which another stage copies them.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::copy::find;

/// Packs what a relative path or pattern names below the root directory.
pub(super) fn pack(source: &str, archive: &Path) -> io::Result<()> {
    pack_below(Path::new("/"), source, archive)
}

fn pack_below(root: &Path, source: &str, archive: &Path) -> io::Result<()> {
    let found = find(root, source)?;
    if found.is_empty() {
        return Err(io::Error::other(format!("{source} is not in the stage")));
    }
    let directory = archive.parent().unwrap_or(root);
    fs::create_dir_all(directory)?;
    let mut builder = tar::Builder::new(BufWriter::new(File::create(archive)?));
    builder.follow_symlinks(false);
    let mut pack = Pack { builder, device: root.metadata()?.dev(), hidden: directory.to_owned() };
    for path in found {
        let name = path.strip_prefix(root).map_err(io::Error::other)?;
        // As in Docker, a link that is named itself stands for its target.
        pack.add(&fs::canonicalize(&path)?, name)?;
    }
    pack.builder.into_inner()?.flush()
}

struct Pack {
    builder: tar::Builder<BufWriter<File>>,
    device: u64,
    /// The directory of the archive.
    hidden: PathBuf,
}

impl Pack {
    /// Adds a file or a directory with all that is below it on the same file system. Sockets are left out.
    fn add(&mut self, path: &Path, name: &Path) -> io::Result<()> {
        let found = path.symlink_metadata()?;
        if !found.is_dir() {
            let packs = found.is_file() || found.is_symlink();
            return if packs { self.builder.append_path_with_name(path, name) } else { Ok(()) };
        }
        if !name.as_os_str().is_empty() {
            self.builder.append_dir(name, path)?;
        }
        if found.dev() != self.device {
            return Ok(());
        }
        let mut entries = fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            if entry.path() != self.hidden {
                self.add(&entry.path(), &name.join(entry.file_name()))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn packed(root: &Path, source: &str) -> Result<Vec<String>, String> {
        let path = root.join("tmp/build/archive");
        pack_below(root, source, &path).map_err(|error| error.to_string())?;
        let mut archive = tar::Archive::new(File::open(path).unwrap());
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let link = entry.link_name().unwrap().map(|link| format!(" -> {}", link.display()));
            let text = io::read_to_string(&mut entry).unwrap();
            format!("{name}{}={text}", link.unwrap_or_default())
        });
        Ok(entries.collect())
    }

    #[test]
    fn a_directory_a_pattern_and_the_target_of_a_link_are_packed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("out/deep")).unwrap();
        fs::create_dir_all(root.join("real")).unwrap();
        fs::write(root.join("out/deep/app"), "binary").unwrap();
        fs::write(root.join("real/tool-1"), "tool").unwrap();
        symlink("real", root.join("bin")).unwrap();
        symlink("tool-1", root.join("real/tool")).unwrap();
        symlink("deep/app", root.join("out/link")).unwrap();
        std::os::unix::net::UnixListener::bind(root.join("out/socket")).unwrap();
        let all = ["out=", "out/deep=", "out/deep/app=binary", "out/link -> deep/app="];
        assert_eq!(packed(&root, "out").unwrap(), all);
        assert_eq!(packed(&root, "bin/tool").unwrap(), ["bin/tool=tool"]);
        assert_eq!(packed(&root, "*/tool-?").unwrap(), ["real/tool-1=tool"]);
        let whole = packed(&root, ".").unwrap();
        assert!(whole.contains(&"out/deep/app=binary".to_owned()), "{whole:?}");
        assert!(!whole.iter().any(|name| name.starts_with("tmp/build")), "{whole:?}");
        assert_eq!(packed(&root, "absent").unwrap_err(), "absent is not in the stage");
    }
}
