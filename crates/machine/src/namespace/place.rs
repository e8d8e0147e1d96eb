//! Bringing a terminal's directory and a project's files into a sandbox that runs.
//!
//! A terminal's directory outlives instances and is read by the server under one name, but only the
//! host of its own sandbox may see it. So it is moved into the instance's own directory and a link is
//! left in its place; when the instance is ended it is moved back. Both are one exchange of names, so
//! that there is no moment at which the name leads nowhere.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use super::sys::{self, Allows};

/// Moves a terminal's directory into an instance's own.
pub(crate) fn take_in(area: &Path, terminal: &str, outside: &Path) -> io::Result<()> {
    let inside = area.join(terminal);
    match fs::symlink_metadata(outside) {
        Ok(kind) if kind.is_symlink() => {
            let at = fs::read_link(outside)?;
            if at == inside && inside.is_dir() {
                return Ok(());
            }
            // An instance that was ended by a crash: it is taken from where it was left.
            if at.is_dir() {
                give_back(&at, outside)?;
            } else {
                fs::remove_file(outside)?;
                fs::create_dir_all(outside)?;
            }
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::create_dir_all(outside)?,
        Err(error) => return Err(error),
    }
    // The directory is outside, so whatever has its name inside is left over: the link of an exchange
    // that was interrupted, or the directory of a terminal that was deleted.
    match fs::symlink_metadata(&inside) {
        Ok(left) if left.is_dir() => fs::remove_dir_all(&inside)?,
        Ok(_) => fs::remove_file(&inside)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    symlink(&inside, &inside)?;
    exchange(&inside, outside)
}

/// Moves a terminal's directory back to where the server looks for it.
pub(super) fn give_back(inside: &Path, outside: &Path) -> io::Result<()> {
    exchange(inside, outside)?;
    fs::remove_file(inside)
}

/// Moves every terminal's directory back; those whose name the server no longer has are removed.
pub(crate) fn give_all_back(area: &Path, terminals: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(area) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries.flatten() {
        let (inside, outside) = (entry.path(), terminals.join(entry.file_name()));
        let ours = fs::read_link(&outside).is_ok_and(|at| at == inside);
        if ours && entry.file_type()?.is_dir() {
            give_back(&inside, &outside)?;
        }
    }
    Ok(())
}

fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    Ok(rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}

/// The machine's user that is user 0 where a process is.
pub(super) fn first_user(pid: i32) -> io::Result<u32> {
    let map = fs::read_to_string(format!("/proc/{pid}/uid_map"))?;
    let first = map.split_ascii_whitespace().nth(1).and_then(|first| first.parse().ok());
    first.ok_or_else(|| io::Error::other("that process has no users"))
}

/// Shows directories of the machine, each at an absolute path inside, in the sandbox that a process is
/// in. For a process of one thread, which is in the sandbox's view of files afterwards and should end.
pub(super) fn mount(pid: i32, directories: &[(&Path, &Path)]) -> io::Result<()> {
    let of = |name: &str| fs::File::open(format!("/proc/{pid}/ns/{name}"));
    let (users, mounts) = (of("user")?, of("mnt")?);
    let view = |of: &str| fs::read_link(format!("/proc/{of}/ns/mnt"));
    if view(&pid.to_string())? == view("self")? {
        return Err(io::Error::other("that process has no view of its own"));
    }
    let first_user = first_user(pid)?;
    let allows = Allows { writing: true, running: true };
    // An engine's container may have the machine's own users, and a user's own sandbox has that user.
    let root = rustix::process::geteuid().is_root();
    let mapped = (root && first_user != 0).then(|| users.as_fd());
    if !root {
        // With the rights that whoever made a namespace has in it; what is mounted is copied from there.
        sys::enter(users.as_fd(), LinkNameSpaceType::User)?;
        sys::leave(UnshareFlags::NEWNS)?;
    }
    let trees = directories
        .iter()
        .map(|(source, _)| sys::tree(source, allows, mapped))
        .collect::<io::Result<Vec<_>>>()?;
    sys::leave(UnshareFlags::FS)?;
    sys::enter(mounts.as_fd(), LinkNameSpaceType::Mount)?;
    // From here on a path is the sandbox's own: wherever its links lead, it is inside.
    for ((_, target), tree) in directories.iter().zip(&trees) {
        if root {
            sys::as_user(first_user, || fs::create_dir_all(target))?;
        } else {
            fs::create_dir_all(target)?;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let at = rustix::fs::open(*target, flags, Mode::empty())?;
        sys::attach(tree.as_fd(), at.as_fd())?;
    }
    Ok(())
}

/// What is at a path inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The directory itself.
    Already,
    /// Something else that was brought in.
    Another,
    /// Nothing of the machine.
    Nothing,
}

/// What a sandbox sees at a path, compared with a directory of the machine.
pub(crate) fn seen(pid: i32, source: &Path, target: &Path) -> io::Result<Seen> {
    use std::os::unix::fs::MetadataExt;
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo"))?;
    let name = target.to_string_lossy();
    if !mounts.lines().any(|line| line.split(' ').nth(4) == Some(&*name)) {
        return Ok(Seen::Nothing);
    }
    let outside = fs::metadata(source)?;
    let below = target.strip_prefix("/").unwrap_or(target);
    let inside = fs::symlink_metadata(Path::new(&format!("/proc/{pid}/root")).join(below))?;
    let same = (inside.dev(), inside.ino()) == (outside.dev(), outside.ino());
    Ok(if same { Seen::Already } else { Seen::Another })
}

/// Another name for a directory whose first choice is taken: with the name of what it is in.
pub(super) fn longer(source: &Path, target: &Path) -> PathBuf {
    let above = source.parent().and_then(Path::file_name).unwrap_or_default();
    let mut name = target.as_os_str().to_owned();
    name.push("-");
    name.push(above);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("stead-place-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("terminals")).unwrap();
        dir
    }

    #[test]
    fn a_terminals_directory_is_found_under_one_name_wherever_it_is() {
        let home = scratch("moves");
        let (one, two) = (home.join("one/t"), home.join("two/t"));
        fs::create_dir_all(&one).unwrap();
        fs::create_dir_all(&two).unwrap();
        let outside = home.join("terminals/term_1");
        take_in(&one, "term_1", &outside).unwrap();
        fs::write(outside.join("log"), "kept").unwrap();
        assert!(one.join("term_1/log").is_file());
        take_in(&one, "term_1", &outside).unwrap();
        // The first instance is lost without being ended; the second takes over.
        take_in(&two, "term_1", &outside).unwrap();
        assert!(two.join("term_1/log").is_file());
        assert!(!one.join("term_1").exists());
        give_all_back(&two, &home.join("terminals")).unwrap();
        assert!(fs::symlink_metadata(&outside).unwrap().is_dir());
        assert_eq!(fs::read_to_string(outside.join("log")).unwrap(), "kept");
        // An instance whose files are gone altogether leaves a terminal that can still be used.
        take_in(&one, "term_1", &outside).unwrap();
        fs::remove_dir_all(&one).unwrap();
        fs::create_dir_all(&one).unwrap();
        take_in(&one, "term_1", &outside).unwrap();
        assert!(outside.is_dir());
        fs::remove_dir_all(&home).unwrap();
    }

    #[test]
    fn a_terminal_that_was_deleted_is_taken_in_again_without_what_it_had() {
        let home = scratch("deleted");
        let area = home.join("one/t");
        fs::create_dir_all(&area).unwrap();
        let (inside, outside) = (area.join("term_1"), home.join("terminals/term_1"));
        let delete = |name: &Path| host::shell::place::remove(name).unwrap();
        // As the server deletes it, and as it did when only the link went.
        for gone in [delete as fn(&Path), |name: &Path| fs::remove_file(name).unwrap()] {
            take_in(&area, "term_1", &outside).unwrap();
            fs::write(outside.join("log"), "old").unwrap();
            gone(&outside);
            take_in(&area, "term_1", &outside).unwrap();
            assert!(inside.is_dir() && fs::read_link(&outside).unwrap() == inside);
            assert!(!inside.join("log").exists());
        }
        // A crash between the link and the exchange leaves a link to itself inside.
        delete(&outside);
        fs::create_dir(&outside).unwrap();
        symlink(&inside, &inside).unwrap();
        take_in(&area, "term_1", &outside).unwrap();
        assert!(inside.is_dir());
        fs::remove_dir_all(&home).unwrap();
    }
}
