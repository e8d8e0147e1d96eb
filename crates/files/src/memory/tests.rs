use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use bytes::Bytes;

use crate::memory::*;
use model::Moment;
use tempfile::TempDir;

fn path(text: &str) -> Relative {
    Relative::parse(text).unwrap()
}

fn start(limits: HotLimits) -> HotMemories {
    let now = Moment::wall(Timestamp::from_second(1_800_000_000).unwrap());
    let clock = Clock::from_fn(move || now);
    HotMemories::start(limits, clock).unwrap()
}

async fn open(directory: &Path) -> (HotMemories, Arc<Memory>) {
    let memories = start(HotLimits::default());
    let project = ProjectId::default_project();
    let memory = memories.of(&project, directory.to_owned()).await.unwrap();
    (memories, memory)
}

fn put(at: &str, content: impl AsRef<[u8]>) -> MemoryChange {
    let bytes = Bytes::copy_from_slice(content.as_ref());
    MemoryChange::Put { path: path(at), bytes, expect: Expect::Anything }
}

fn contents(memory: &Memory) -> Vec<(String, String)> {
    let text = |entry: MemoryEntry| String::from_utf8(entry.bytes.to_vec()).unwrap();
    let files = memory.files(&Relative::root());
    files.into_iter().map(|(key, entry)| (key.into(), text(entry))).collect()
}

fn copy_directory(from: &Path) -> TempDir {
    let to = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
    }
    to
}

#[tokio::test]
async fn acknowledged_changes_survive_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let (_memories, memory) = open(directory.path()).await;
    memory.change(put("a", "1")).await.unwrap();
    memory.change(put("d/b", "2")).await.unwrap();
    // Neither a shutdown nor a snapshot: the current files must be sufficient.
    let (_again, read) = open(copy_directory(directory.path()).path()).await;
    assert_eq!(contents(&read), contents(&memory));

    assert!(memory.snapshot().await.unwrap());
    assert!(!memory.snapshot().await.unwrap(), "nothing has changed since");
    let to = MemoryChange::Move { from: path("d"), to: path("e"), expect: Expect::Absent };
    memory.change(to).await.unwrap();
    memory.change(MemoryChange::Remove { path: path("a") }).await.unwrap();
    let (_again, read) = open(copy_directory(directory.path()).path()).await;
    assert_eq!(contents(&read), [("e/b".to_owned(), "2".to_owned())]);
    assert_eq!(read.get(&path("e/b")).unwrap(), memory.get(&path("e/b")).unwrap());
    // Versions continue.
    assert_eq!(read.change(put("c", "3")).await.unwrap(), 3);
}

#[tokio::test]
async fn a_log_truncated_anywhere_keeps_every_complete_record() {
    let directory = tempfile::tempdir().unwrap();
    let (_memories, memory) = open(directory.path()).await;
    let log = directory.path().join("log.0000000000000000");
    let mut ends = vec![0];
    for index in 0..6 {
        memory.change(put(&format!("k{index}"), index.to_string())).await.unwrap();
        ends.push(std::fs::metadata(&log).unwrap().len());
    }
    let complete = std::fs::read(&log).unwrap();
    for cut in 0..=complete.len() {
        let copy = tempfile::tempdir().unwrap();
        let bytes = &complete[..cut];
        std::fs::write(copy.path().join("log.0000000000000000"), bytes).unwrap();
        let (_again, read) = open(copy.path()).await;
        let kept = ends.iter().filter(|&&end| end <= cut as u64).count() - 1;
        assert_eq!(contents(&read).len(), kept, "cut at {cut}");
        // Further changes are appended.
        read.change(put("more", "x")).await.unwrap();
        let (_once_more, read) = open(copy_directory(copy.path()).path()).await;
        assert_eq!(contents(&read).len(), kept + 1, "cut at {cut}");
    }
}

#[tokio::test]
async fn a_damaged_snapshot_is_recovered_up_to_the_damage_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let (_memories, memory) = open(directory.path()).await;
    for index in 0..5 {
        memory.change(put(&format!("k{index}"), "value")).await.unwrap();
    }
    memory.snapshot().await.unwrap();
    memory.change(put("later", "value")).await.unwrap();
    let copy = copy_directory(directory.path());
    let snapshot = copy.path().join("snapshot");
    let mut bytes = std::fs::read(&snapshot).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&snapshot, &bytes).unwrap();
    let (_again, read) = open(copy.path()).await;
    let names: Vec<_> = contents(&read).into_iter().map(|(name, _)| name).collect();
    assert!(names.contains(&"k0".to_owned()) && names.contains(&"later".to_owned()), "{names:?}");
    assert_eq!(std::fs::read(copy.path().join("snapshot.damaged")).unwrap(), bytes);
}

#[tokio::test]
async fn many_writers_share_syncs_and_each_gets_a_reply() {
    let directory = tempfile::tempdir().unwrap();
    let (_memories, memory) = open(directory.path()).await;
    let mut writers = tokio::task::JoinSet::new();
    for index in 0..500 {
        let memory = memory.clone();
        writers.spawn(async move { memory.change(put(&format!("k{index}"), "v")).await.unwrap() });
    }
    let mut versions = writers.join_all().await;
    versions.sort_unstable();
    assert_eq!(versions, (1..=500).collect::<Vec<_>>());
    let (_again, read) = open(copy_directory(directory.path()).path()).await;
    assert_eq!(contents(&read), contents(&memory));
}

#[tokio::test]
async fn a_failing_log_acknowledges_nothing_and_writes_recover() {
    let directory = tempfile::tempdir().unwrap();
    let (_memories, memory) = open(directory.path()).await;
    memory.change(put("before", "1")).await.unwrap();
    // A read-only descriptor simulates a disk that refuses every write.
    let read_only = std::fs::File::open("/dev/null").unwrap();
    memory.disk.lock().log.replace_file(read_only);
    memory.change(put("lost", "1")).await.unwrap_err();
    assert!(memory.get(&path("lost")).is_err(), "a failed change is not visible");
    memory.change(put("after", "1")).await.unwrap();
    let (_again, read) = open(copy_directory(directory.path()).path()).await;
    let names: Vec<_> = contents(&read).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["after", "before"]);
}

#[tokio::test]
async fn a_long_log_is_compacted_into_a_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let limits = HotLimits { entries: 4, bytes: 1 << 20, entry_bytes: 300 << 10 };
    let memories = start(limits);
    let project = ProjectId::default_project();
    let memory = memories.of(&project, directory.path().to_owned()).await.unwrap();
    for _ in 0..20 {
        memory.change(put("k", vec![b'x'; 300 << 10])).await.unwrap();
    }
    let size: u64 = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(size < 3 << 20, "{size}");
}

#[tokio::test]
async fn unused_memories_are_unloaded_and_loaded_again() {
    let directory = tempfile::tempdir().unwrap();
    let (memories, memory) = open(directory.path()).await;
    memory.change(put("k", "v")).await.unwrap();
    memories.unload_unused(Timestamp::MAX).await.unwrap();
    assert_eq!(memories.loaded().len(), 1, "it is in use");
    drop(memory);
    memories.unload_unused(Timestamp::MAX).await.unwrap();
    assert_eq!(memories.loaded().len(), 0);
    let project = ProjectId::default_project();
    let memory = memories.of(&project, directory.path().to_owned()).await.unwrap();
    assert_eq!(contents(&memory), [("k".to_owned(), "v".to_owned())]);
    memories.close(&project).await;
    memory.change(put("k", "w")).await.unwrap_err();
}

/// The child process of the next test: makes changes and snapshots, and prints each acknowledgement.
#[test]
fn child_that_is_killed() {
    let Ok(directory) = std::env::var("STEAD_TEST_KILLED_IN") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (_memories, memory) = open(Path::new(&directory)).await;
        let base = memory.usage().0;
        for index in 0..12 {
            memory.change(put(&format!("k{}", base + index), "v")).await.unwrap();
            println!("acknowledged {}", base + index);
            if index % 4 == 3 {
                memory.snapshot().await.unwrap();
            }
        }
    });
}

/// Kills the child at each of its writes, syncs, creations, renames and removals in turn.
#[test]
fn a_kill_at_any_system_call_loses_no_acknowledged_change() {
    if Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: strace is not installed");
        return;
    }
    let calls = ["write", "fdatasync", "fsync", "openat", "rename", "unlink"];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut points = 0;
    for call in calls {
        for when in 1.. {
            let directory = tempfile::tempdir().unwrap();
            let (acknowledged, ended) = run_killed(directory.path(), call, when);
            let kept = runtime.block_on(async { contents(&open(directory.path()).await.1) });
            for index in &acknowledged {
                let key = format!("k{index}");
                assert!(kept.iter().any(|(name, _)| *name == key), "{key} lost: {call} {when}");
            }
            assert!(kept.len() <= acknowledged.len() + 1, "{call} {when}: {kept:?}");
            points += 1;
            if ended {
                break;
            }
        }
    }
    assert!(points > 60, "only {points} points were tested");
}

/// Runs the child with a kill at the `when`th such call. Returns the acknowledged changes, and whether the
/// child ran to its end.
fn run_killed(directory: &Path, call: &str, when: u32) -> (Vec<u64>, bool) {
    let mut child = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null"])
        .args(["-e", &format!("inject={call}:signal=SIGKILL:when={when}")])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "memory::tests::child_that_is_killed"])
        .env("STEAD_TEST_KILLED_IN", directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let acknowledged = lines
        .filter_map(|line| Some(line.ok()?.strip_prefix("acknowledged ")?.parse().unwrap()))
        .collect();
    (acknowledged, child.wait().unwrap().success())
}
