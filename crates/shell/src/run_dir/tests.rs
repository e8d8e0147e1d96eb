//! Run directories in a scratch directory of the shared memory.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A private directory in memory and a terminal's directory, removed at the end.
struct Fixture {
    run_dirs: RunDirs,
    terminal: PathBuf,
    base: PathBuf,
}

impl Fixture {
    /// Returns `None` if the machine has no files in memory.
    fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("stead-run-dir-test-{}-{nth}", std::process::id());
        let base = Path::new(SHARED_MEMORY).join(&name);
        let terminal = std::env::temp_dir().join(name);
        let made = fs::DirBuilder::new().mode(0o700).create(&base).is_ok();
        let fixture = Self { run_dirs: RunDirs::at(&base), terminal, base };
        if !made || fixture.run_dirs.create().is_none() {
            eprintln!("skipped: {SHARED_MEMORY} cannot be used here");
            return None;
        }
        fs::remove_dir_all(&fixture.run_dirs.root).unwrap();
        Some(fixture)
    }

    fn count(&self) -> usize {
        fs::read_dir(&self.run_dirs.root).map_or(0, Iterator::count)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.base);
        let _ = fs::remove_dir_all(&self.terminal);
    }
}

#[test]
fn a_terminal_keeps_its_run_directory_until_it_is_removed() {
    let Some(fixture) = Fixture::new() else { return };
    let directory = fixture.run_dirs.open_or_create(&fixture.terminal).unwrap();
    assert!(directory.starts_with(&fixture.run_dirs.root));
    assert_eq!(fs::read_link(fixture.terminal.join(RUN)).unwrap(), directory);
    assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fixture.run_dirs.open_or_create(&fixture.terminal).unwrap(), directory);
    fs::write(directory.join("file"), "x").unwrap();
    fixture.run_dirs.remove(&fixture.terminal);
    assert_eq!(fixture.count(), 0);
    assert!(fs::symlink_metadata(fixture.terminal.join(RUN)).is_err());
    fixture.run_dirs.remove(&fixture.terminal);
}

#[test]
fn a_run_directory_that_was_deleted_is_created_again() {
    let Some(fixture) = Fixture::new() else { return };
    let directory = fixture.run_dirs.open_or_create(&fixture.terminal).unwrap();
    fs::remove_dir_all(&fixture.run_dirs.root).unwrap();
    let again = fixture.run_dirs.open_or_create(&fixture.terminal).unwrap();
    assert!(again != directory && again.is_dir());
    assert_eq!(fs::read_link(fixture.terminal.join(RUN)).unwrap(), again);
}

#[test]
fn only_run_directories_of_dead_hosts_are_removed_as_orphans() {
    let Some(fixture) = Fixture::new() else { return };
    let directory = fixture.run_dirs.open_or_create(&fixture.terminal).unwrap();
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let start = Process::read(child.id() as i32).unwrap().start;
    let of = |pid: u32, start: u64| format!("{}.{pid}.{start}.0", pid_namespace().unwrap());
    let elsewhere = format!("1.{}.{start}.0", child.id());
    let kept = [of(child.id(), start), elsewhere, "other".to_owned()];
    let own = std::process::id();
    let left = of(own, Process::read(own as i32).unwrap().start + 1);
    for name in kept.iter().chain([&left]) {
        fs::create_dir(fixture.run_dirs.root.join(name)).unwrap();
    }
    fixture.run_dirs.remove_orphans();
    assert!(directory.is_dir());
    assert!(kept.iter().all(|name| fixture.run_dirs.root.join(name).is_dir()));
    assert!(!fixture.run_dirs.root.join(&left).exists(), "the process id was reused");
    child.kill().unwrap();
    child.wait().unwrap();
    fixture.run_dirs.remove_orphans();
    assert!(!fixture.run_dirs.root.join(&kept[0]).exists(), "its host has exited");
    assert_eq!(fixture.count(), 3);
}

#[test]
fn the_next_host_of_a_terminal_removes_the_previous_run_directory() {
    let Some(fixture) = Fixture::new() else { return };
    fs::create_dir_all(&fixture.run_dirs.root).unwrap();
    fs::set_permissions(&fixture.run_dirs.root, fs::Permissions::from_mode(0o700)).unwrap();
    let left = fixture.run_dirs.root.join("1.1.1.0");
    fs::create_dir_all(left.join("run")).unwrap();
    fs::create_dir_all(&fixture.terminal).unwrap();
    symlink(&left, fixture.terminal.join(RUN)).unwrap();
    let directory = fixture.run_dirs.open_or_create(&fixture.terminal).unwrap();
    assert!(directory != left && !left.exists());
    assert_eq!(fixture.count(), 1);
}

#[test]
fn without_private_memory_the_run_directory_is_on_disk() {
    let Some(fixture) = Fixture::new() else { return };
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let elsewhere = fixture.base.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    mode(&elsewhere, 0o700);
    let on_disk = fixture.terminal.join(RUN);
    let check = |run_dirs: &RunDirs, why: &str| {
        assert_eq!(run_dirs.open_or_create(&fixture.terminal).unwrap(), on_disk, "{why}");
        assert!(fs::symlink_metadata(&on_disk).unwrap().is_dir(), "{why}");
        run_dirs.remove(&fixture.terminal);
        assert!(fs::symlink_metadata(&on_disk).is_err(), "{why}");
    };
    check(&RunDirs::at(&fixture.base.join("missing")), "the directory does not exist");
    check(&RunDirs::at(Path::new("/proc")), "the directory cannot be created");
    symlink(&elsewhere, &fixture.run_dirs.root).unwrap();
    check(&fixture.run_dirs, "the directory is a link");
    fs::remove_file(&fixture.run_dirs.root).unwrap();
    fs::create_dir(&fixture.run_dirs.root).unwrap();
    mode(&fixture.run_dirs.root, 0o750);
    check(&fixture.run_dirs, "other users can read the directory");
    fs::remove_dir(&fixture.run_dirs.root).unwrap();
    mode(&fixture.base, 0o777);
    check(&fixture.run_dirs, "other users can replace the directory");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn a_terminal_in_a_sandbox_is_removed_with_the_directory_it_links_to() {
    let Some(fixture) = Fixture::new() else { return };
    let inside = fixture.base.join("inside");
    fs::create_dir_all(inside.join("log")).unwrap();
    fs::write(inside.join("log/0"), "secret").unwrap();
    symlink(&inside, &fixture.terminal).unwrap();
    remove_terminal(&fixture.terminal).unwrap();
    assert!(fs::symlink_metadata(&fixture.terminal).is_err());
    assert!(!inside.exists(), "the output of a deleted terminal is left");
    remove_terminal(&fixture.terminal).unwrap();
}

#[test]
fn logind_removes_the_files_of_login_users_alone() {
    let (with_logind, without) = (Path::new("/"), Path::new("/nosuch"));
    assert!(is_removed_at_logout(1000, with_logind) && is_removed_at_logout(65_000, with_logind));
    assert!(!is_removed_at_logout(0, with_logind) && !is_removed_at_logout(999, with_logind));
    assert!(!is_removed_at_logout(1000, without));
}

#[test]
fn a_link_to_another_directory_is_not_followed() {
    let Some(fixture) = Fixture::new() else { return };
    let precious = fixture.base.join("precious");
    fs::create_dir(&precious).unwrap();
    fs::create_dir_all(&fixture.terminal).unwrap();
    for target in [precious.clone(), fixture.run_dirs.root.join("../precious")] {
        symlink(&target, fixture.terminal.join(RUN)).unwrap();
        fixture.run_dirs.remove(&fixture.terminal);
        assert!(precious.is_dir(), "{target:?}");
        assert!(fs::symlink_metadata(fixture.terminal.join(RUN)).is_err());
    }
    let directory = fixture.run_dirs.open_or_create(&fixture.terminal).unwrap();
    assert!(directory.starts_with(&fixture.run_dirs.root) && precious.is_dir());
}
