use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::{Command, Stdio};

use super::carry::CARRIED;
use super::*;

const LIMIT: u64 = 64 << 20;

/// A workspace with plain directories; unmounted and removed when dropped.
struct Fixture {
    home: PathBuf,
    workspace: PathBuf,
}

impl Fixture {
    /// `None` where no disk can be mounted.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            eprintln!("skipped: only root can mount disks");
            return None;
        }
        let home = std::env::temp_dir().join(format!("stead-workspace-{}", uuid::Uuid::now_v7()));
        let workspace = home.join("workspaces/p-00000000");
        for carried in &CARRIED {
            fs::create_dir_all(workspace.join(carried.path)).unwrap();
        }
        Some(Self { home, workspace })
    }

    fn repo(&self) -> PathBuf {
        self.workspace.join("repo")
    }

    fn bound(&self, bytes: u64) {
        assert_eq!(bound(&self.workspace, bytes).unwrap(), WorkspaceBound::Disk);
    }

    /// Files of every kind that a workspace may have.
    fn furnish(&self) {
        let repo = self.repo();
        fs::create_dir_all(repo.join("a/b")).unwrap();
        fs::write(repo.join("a/b/file"), "content").unwrap();
        fs::hard_link(repo.join("a/b/file"), repo.join("same")).unwrap();
        symlink("a/b", repo.join("link")).unwrap();
        symlink("/nowhere", repo.join("dangling")).unwrap();
        fs::write(repo.join("program"), "#!/bin/sh").unwrap();
        std::os::unix::fs::chown(repo.join("program"), Some(1000), Some(100)).unwrap();
        let mut sparse = File::create(repo.join("sparse")).unwrap();
        sparse.seek(SeekFrom::Start(1 << 30)).unwrap();
        sparse.write_all(b"end").unwrap();
        fs::write(self.workspace.join("memories/persistent/note"), "remember").unwrap();
    }

    /// Every path with its kind, owner, links, time and content.
    fn content(&self) -> Vec<String> {
        let mut found = Vec::new();
        for carried in &CARRIED {
            let root = fs::canonicalize(self.workspace.join(carried.path)).unwrap();
            let mut open = vec![root.clone()];
            while let Some(directory) = open.pop() {
                for entry in fs::read_dir(directory).unwrap() {
                    let path = entry.unwrap().path();
                    let it = fs::symlink_metadata(&path).unwrap();
                    let content = match it.file_type() {
                        kind if kind.is_symlink() => format!("{:?}", fs::read_link(&path).unwrap()),
                        kind if kind.is_file() && it.len() < 1000 => {
                            fs::read_to_string(&path).unwrap()
                        }
                        _ => String::new(),
                    };
                    let links = if it.is_dir() { 0 } else { it.nlink() };
                    let size = if it.is_dir() { 0 } else { it.len() };
                    let name = path.strip_prefix(&root).unwrap().display();
                    let owner = (it.uid(), it.gid(), it.mode());
                    let times = (it.mtime(), it.mtime_nsec());
                    found.push(format!(
                        "{}/{name} {owner:?} {links} {size} {times:?} {content}",
                        carried.path
                    ));
                    if it.is_dir() {
                        open.push(path);
                    }
                }
            }
        }
        found.sort();
        found
    }

    /// The mounts and loop devices of this home.
    fn left(&self) -> Vec<String> {
        let home = self.home.to_string_lossy();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mut left: Vec<_> =
            mounts.lines().filter(|line| line.contains(&*home)).map(str::to_owned).collect();
        for device in fs::read_dir("/sys/block").unwrap().flatten() {
            let file = fs::read_to_string(device.path().join("loop/backing_file"));
            left.extend(file.ok().filter(|file| file.starts_with(&*home)));
        }
        left
    }

    /// Waits until nothing is left. Another process that lists loop devices delays their end.
    fn wait_until_nothing_is_left(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let left = self.left();
            if left.is_empty() {
                break;
            }
            assert!(Instant::now() < deadline, "{left:?}");
            std::thread::yield_now();
        }
    }

    /// How many bytes of the machine's disk the workspace takes.
    fn blocks(&self) -> u64 {
        image::sync(&self.workspace);
        fs::metadata(self.workspace.join(IMAGE)).unwrap().blocks() * 512
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = detach_all(&self.home);
        let _ = fs::remove_dir_all(&self.home);
    }
}

fn fill(file: &mut File) -> (u64, io::Error) {
    let mut written = 0;
    loop {
        match file.write(&[7; 1 << 16]) {
            Ok(count) => written += count as u64,
            Err(error) => return (written, error),
        }
        assert!(written < 2 * LIMIT, "nothing bounds the workspace");
    }
}

#[test]
fn a_workspace_holds_no_more_than_its_limit_also_in_files_without_a_name() {
    let Some(fixture) = Fixture::new() else { return };
    fixture.bound(LIMIT);
    for place in ["repo", "memories/persistent"] {
        let path = fixture.workspace.join(place).join("fill");
        let mut file = File::create(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let (written, error) = fill(&mut file);
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(written > LIMIT / 2, "only {written} bytes could be written");
        assert!(fixture.blocks() <= LIMIT, "{} bytes of the machine", fixture.blocks());
    }
    let reserved = File::create(fixture.repo().join("reserved")).unwrap();
    let flags = rustix::fs::FallocateFlags::empty();
    let error = rustix::fs::fallocate(&reserved, flags, 0, 2 * LIMIT).unwrap_err();
    assert_eq!(error, rustix::io::Errno::NOSPC);
}

#[test]
fn a_workspace_holds_no_more_names_than_its_disk_has_inodes() {
    let Some(fixture) = Fixture::new() else { return };
    fixture.bound(LIMIT);
    let mut names = 0;
    let error = loop {
        match File::create(fixture.repo().join(format!("{names}"))) {
            Ok(_) => names += 1,
            Err(error) => break error,
        }
        assert!(names < 100_000, "nothing bounds the names");
    };
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(names > 4000 && fixture.blocks() <= LIMIT, "{names} names");
}

#[test]
fn files_of_a_workspace_are_all_there_wherever_their_move_was_interrupted() {
    let steps = [
        CarryStep::Created,
        CarryStep::Mounted,
        CarryStep::Copied,
        CarryStep::Committed,
        CarryStep::Linked,
        CarryStep::Merged,
    ];
    for step in steps {
        let Some(fixture) = Fixture::new() else { return };
        fixture.furnish();
        let before = fixture.content();
        let killed = |at| if at == step { Err(io::Error::other("killed")) } else { Ok(()) };
        let ended = bound_until(&fixture.workspace, LIMIT, &killed);
        assert_eq!(ended.unwrap_err().to_string(), "killed", "{step:?}");
        let server = WorkspaceImages::new(&fixture.home);
        server.attach(&fixture.workspace).unwrap();
        assert_eq!(fixture.content(), before, "{step:?}");
        fixture.bound(LIMIT);
        assert_eq!(fixture.content(), before, "{step:?}");
        // After a power cut, nothing is mounted.
        detach(&fixture.workspace).unwrap();
        fixture.wait_until_nothing_is_left();
        server.attach(&fixture.workspace).unwrap();
        assert_eq!(fixture.content(), before, "{step:?}");
        let mut names: Vec<_> = fs::read_dir(&fixture.workspace)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["disk", "disk.img", "memories", "repo"], "{step:?}");
    }
}

#[test]
fn a_write_during_the_move_is_not_lost() {
    let Some(fixture) = Fixture::new() else { return };
    fixture.furnish();
    let late = |at| {
        if at == CarryStep::Committed {
            fs::write(fixture.repo().join("late"), "late")?;
        }
        Ok(())
    };
    bound_until(&fixture.workspace, LIMIT, &late).unwrap();
    assert_eq!(fs::read_to_string(fixture.repo().join("late")).unwrap(), "late");
    assert_eq!(fs::read_to_string(fixture.repo().join("a/b/file")).unwrap(), "content");
}

#[test]
fn a_workspace_grows_with_the_limit_of_its_sandboxes_and_never_shrinks() {
    let Some(fixture) = Fixture::new() else { return };
    fixture.bound(LIMIT);
    let mut file = File::create(fixture.repo().join("fill")).unwrap();
    let (small, _) = fill(&mut file);
    // Where the kernel does not let it grow while a file is open, it grows at the next use.
    fixture.bound(2 * LIMIT);
    drop(file);
    fixture.bound(2 * LIMIT);
    let mut file = fs::OpenOptions::new().append(true).open(fixture.repo().join("fill")).unwrap();
    let (more, error) = fill(&mut file);
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(more > LIMIT / 2, "{more} bytes more than {small}");
    fixture.bound(LIMIT);
    assert_eq!(image::bytes(&fixture.workspace).unwrap(), 2 * LIMIT);
}

#[test]
fn files_that_a_program_of_the_machine_uses_stay_where_they_are() {
    let Some(fixture) = Fixture::new() else { return };
    fixture.furnish();
    let before = fixture.content();
    let mut shell = Command::new("cat")
        .current_dir(fixture.repo().join("a"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let bounded = bound(&fixture.workspace, LIMIT).unwrap();
    drop(shell.stdin.take());
    shell.wait().unwrap();
    assert!(matches!(bounded, WorkspaceBound::None(_)), "{bounded:?}");
    assert_eq!(fixture.content(), before);
    fixture.wait_until_nothing_is_left();
    fixture.bound(LIMIT);
}

#[test]
fn a_disk_that_nothing_uses_is_unmounted_and_found_again_elsewhere() {
    let Some(fixture) = Fixture::new() else { return };
    fixture.furnish();
    let before = fixture.content();
    fixture.bound(LIMIT);
    let server = WorkspaceImages::new(&fixture.home);
    let open = File::open(fixture.repo().join("same")).unwrap();
    server.unmount_idle(Duration::ZERO);
    assert!(is_mounted(&fixture.workspace), "a file is open");
    drop(open);
    server.unmount_idle(Duration::from_secs(3600));
    assert!(is_mounted(&fixture.workspace), "it was used a moment ago");
    fs::create_dir_all(fixture.home.join("run/inst_local")).unwrap();
    server.unmount_idle(Duration::ZERO);
    assert!(is_mounted(&fixture.workspace), "local shells run");
    fs::remove_dir(fixture.home.join("run/inst_local")).unwrap();
    server.unmount_idle(Duration::ZERO);
    fixture.wait_until_nothing_is_left();
    // As by a backup that is restored to another directory.
    let elsewhere = fixture.home.join("trash/p-00000000");
    fs::create_dir(fixture.home.join("trash")).unwrap();
    fs::rename(&fixture.workspace, &elsewhere).unwrap();
    server.attach(&elsewhere).unwrap();
    assert!(elsewhere.join("repo/a/b/file").exists());
    fs::rename(&elsewhere, &fixture.workspace).unwrap();
    assert_eq!(fixture.content(), before);
    server.detach(&fixture.workspace).unwrap();
    fixture.wait_until_nothing_is_left();
}

#[test]
fn a_disk_that_a_sandbox_still_uses_is_mounted_again() {
    let Some(fixture) = Fixture::new() else { return };
    fixture.furnish();
    fixture.bound(LIMIT);
    let access = crate::sys::MountAccess { write: true, execute: true };
    let sandbox = crate::sys::clone_tree(&fixture.repo(), access, None).unwrap();
    let server = WorkspaceImages::new(&fixture.home);
    server.unmount_idle(Duration::ZERO);
    assert!(!is_mounted(&fixture.workspace));
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CREATE;
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let file = rustix::fs::openat(&sandbox, "from-inside", flags, mode).unwrap();
    File::from(file).write_all(b"written").unwrap();
    server.attach(&fixture.workspace).unwrap();
    assert_eq!(fs::read_to_string(fixture.repo().join("from-inside")).unwrap(), "written");
    fs::write(fixture.repo().join("from-outside"), "").unwrap();
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::statat(&sandbox, "from-outside", flags).unwrap();
    server.detach(&fixture.workspace).unwrap();
    drop(sandbox);
    fixture.wait_until_nothing_is_left();
}
