//! Moves a terminal's directory into an instance, and back.
//!
//! A terminal's directory outlives instances, and the server reads it under one path; but only the host of
//! its own sandbox may see it. So the directory is moved into the instance's directory and replaced by a
//! link; when the instance ends it is moved back. Each move exchanges two names atomically, so the path is
//! always valid. The link is relative, so a home directory can be copied to another path.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};

/// Moves a terminal's directory into `area`, the directory of an instance's terminals.
pub(crate) fn move_in(area: &Path, terminal: &str, outside: &Path) -> io::Result<()> {
    let inside = area.join(terminal);
    match fs::symlink_metadata(outside) {
        Ok(kind) if kind.is_symlink() => {
            let at = linked(outside)?;
            if at.as_deref() == Some(&*inside) {
                return Ok(());
            }
            // The previous instance crashed: take the directory from there.
            match at {
                Some(at) => move_out(&at, outside)?,
                None => {
                    fs::remove_file(outside)?;
                    fs::create_dir_all(outside)?;
                }
            }
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::create_dir_all(outside)?,
        Err(error) => return Err(error),
    }
    // The directory is outside, so an entry with its name inside is stale: the link of an interrupted
    // exchange, or the directory of a deleted terminal.
    match fs::symlink_metadata(&inside) {
        Ok(stale) if stale.is_dir() => fs::remove_dir_all(&inside)?,
        Ok(_) => fs::remove_file(&inside)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    symlink(relative(outside, &inside), &inside)?;
    exchange(&inside, outside)
}

/// The directory that the link at `outside` leads to, if it exists.
fn linked(outside: &Path) -> io::Result<Option<PathBuf>> {
    let target = fs::read_link(outside)?;
    let home = outside.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    if let Ok(below) = target.strip_prefix("..") {
        return Ok(Some(home.join(below)).filter(|at| at.is_dir()));
    }
    // Links of earlier versions are absolute, and the home directory may have been copied since.
    let mut below = target.components();
    while below.next().is_some() {
        let at = home.join(&below);
        if at != home && at.is_dir() {
            return Ok(Some(at));
        }
    }
    Ok(Some(target).filter(|at| at.is_dir()))
}

/// What a link at `outside`, in a directory of the home directory, contains to lead to `inside`.
fn relative(outside: &Path, inside: &Path) -> PathBuf {
    let home = outside.parent().and_then(Path::parent);
    match home.and_then(|home| inside.strip_prefix(home).ok()) {
        Some(below) => Path::new("..").join(below),
        None => inside.to_owned(),
    }
}

/// Moves a terminal's directory back to the path that the server reads.
fn move_out(inside: &Path, outside: &Path) -> io::Result<()> {
    exchange(inside, outside)?;
    fs::remove_file(inside)
}

/// Moves every terminal's directory back. Directories without a link outside stay, and are removed with
/// the instance.
pub(crate) fn move_all_out(area: &Path, terminals: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(area) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries.flatten() {
        let (inside, outside) = (entry.path(), terminals.join(entry.file_name()));
        let ours = matches!(linked(&outside), Ok(Some(at)) if at == inside);
        if ours && entry.file_type()?.is_dir() {
            move_out(&inside, &outside)?;
        }
    }
    Ok(())
}

fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    Ok(rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir =
            std::env::temp_dir().join(format!("stead-terminal-dir-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("terminals")).unwrap();
        dir
    }

    #[test]
    fn a_terminals_directory_has_the_same_path_inside_and_outside() {
        let home = scratch("moves");
        let (one, two) = (home.join("one/t"), home.join("two/t"));
        fs::create_dir_all(&one).unwrap();
        fs::create_dir_all(&two).unwrap();
        let outside = home.join("terminals/term_1");
        move_in(&one, "term_1", &outside).unwrap();
        fs::write(outside.join("log"), "kept").unwrap();
        assert!(one.join("term_1/log").is_file());
        move_in(&one, "term_1", &outside).unwrap();
        // The first instance is lost without a clean end; the second takes over.
        move_in(&two, "term_1", &outside).unwrap();
        assert!(two.join("term_1/log").is_file());
        assert!(!one.join("term_1").exists());
        move_all_out(&two, &home.join("terminals")).unwrap();
        assert!(fs::symlink_metadata(&outside).unwrap().is_dir());
        assert_eq!(fs::read_to_string(outside.join("log")).unwrap(), "kept");
        // If the instance's files were deleted, the terminal can still be used.
        move_in(&one, "term_1", &outside).unwrap();
        fs::remove_dir_all(&one).unwrap();
        fs::create_dir_all(&one).unwrap();
        move_in(&one, "term_1", &outside).unwrap();
        assert!(outside.is_dir());
        fs::remove_dir_all(&home).unwrap();
    }

    #[test]
    fn a_home_directory_can_be_moved_with_its_terminals() {
        let old = scratch("old-path");
        let new = old.with_file_name(format!("stead-new-path-{}", std::process::id()));
        let _ = fs::remove_dir_all(&new);
        let (absolute, link) = (old.join("sandboxes/one/t/term_2"), old.join("terminals/term_2"));
        fs::create_dir_all(&absolute).unwrap();
        fs::write(absolute.join("log"), "kept").unwrap();
        symlink(&absolute, &link).unwrap();
        move_in(&old.join("sandboxes/one/t"), "term_1", &old.join("terminals/term_1")).unwrap();
        fs::write(old.join("terminals/term_1/log"), "kept").unwrap();
        fs::rename(&old, &new).unwrap();
        fs::create_dir_all(new.join("sandboxes/two/t")).unwrap();
        for terminal in ["term_1", "term_2"] {
            let outside = new.join("terminals").join(terminal);
            move_in(&new.join("sandboxes/two/t"), terminal, &outside).unwrap();
            assert_eq!(fs::read_to_string(outside.join("log")).unwrap(), "kept");
        }
        fs::remove_dir_all(&new).unwrap();
    }

    #[test]
    fn a_deleted_terminal_is_moved_in_again_without_its_old_files() {
        let home = scratch("deleted");
        let area = home.join("one/t");
        fs::create_dir_all(&area).unwrap();
        let (inside, outside) = (area.join("term_1"), home.join("terminals/term_1"));
        let delete = |name: &Path| shell::run_dir::remove_terminal(name).unwrap();
        // As the server deletes it, and as an earlier version did, which removed only the link.
        for remove in [delete as fn(&Path), |name: &Path| fs::remove_file(name).unwrap()] {
            move_in(&area, "term_1", &outside).unwrap();
            fs::write(outside.join("log"), "old").unwrap();
            remove(&outside);
            move_in(&area, "term_1", &outside).unwrap();
            assert!(inside.is_dir() && linked(&outside).unwrap().unwrap() == inside);
            assert!(!inside.join("log").exists());
        }
        // A crash between the link and the exchange leaves a link to itself inside.
        delete(&outside);
        fs::create_dir(&outside).unwrap();
        symlink(&inside, &inside).unwrap();
        move_in(&area, "term_1", &outside).unwrap();
        assert!(inside.is_dir());
        fs::remove_dir_all(&home).unwrap();
    }
}
