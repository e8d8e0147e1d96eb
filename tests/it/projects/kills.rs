//! `kill -9` at each call that changes the disk, in the middle of everything a project can go through.
//!
//! The real server runs on; `strace` comes to it, and kills it right before the Nth call of one kind.
//! Then another server starts on the same home, and the project is there whole, or in the trash
//! whole, with every write that was acknowledged.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use super::{World, backdate, world_with};
use harness::{Request, wait_for};

/// The calls by which anything comes to the disk.
const CHANGES: &[&str] = &[
    "fsync",
    "fdatasync",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "mkdir",
    "pwrite64",
    "write",
];
/// The calls by which files are read.
const READS: &[&str] = &["openat", "getdents64"];
/// Kills before calls of one kind, in the short form.
const MAX_KILLS_PER_CALL: u32 = 5;

/// A tracer that waits to kill the server.
struct Killer(Child);

impl Killer {
    fn attach(world: &World, call: &str, when: u32) -> Killer {
        let mut child = Command::new("strace")
            .args(["-f", "-o", "/dev/null", "-e", &format!("trace={call}")])
            .args(["-e", &format!("inject={call}:signal=SIGKILL:when={when}")])
            .args(["-p", &world.server.pid().to_string()])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut messages = BufReader::new(child.stderr.take().unwrap());
        messages.read_line(&mut line).unwrap();
        assert!(line.contains("attached"), "strace printed {line:?}");
        std::thread::spawn(move || drop(messages.read_to_string(&mut String::new())));
        Killer(child)
    }
}

impl Killer {
    /// Detaches from a live server; the tracer leaves it unchanged.
    fn detach(mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

impl Drop for Killer {
    fn drop(&mut self) {
        // The tracer may wait indefinitely for the last thread of the killed process.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The status of an answer, if there was one.
fn status(request: &Request) -> Option<u16> {
    let mut stream = request.clone().header("connection", "close").start();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).split(' ').nth(1)?.parse().ok()
}

fn can_trace() -> bool {
    let found = Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_ok();
    if !found {
        eprintln!("skipped: strace is not installed");
    }
    found
}

/// Kills the server at each point of an action. `prepare` sets the action up; `check` gets the response after
/// the restart.
fn kill_at_each_point(
    world: &mut World,
    calls: &[&str],
    mut prepare: impl FnMut(&World),
    act: impl Fn(&World) -> Request,
    mut check: impl FnMut(&World, Option<u16>),
) {
    let most = if std::env::var_os("STEAD_SOAK").is_some() { u32::MAX } else { MAX_KILLS_PER_CALL };
    let mut kills = 0;
    for call in calls {
        for when in 1..=most {
            prepare(world);
            let killer = Killer::attach(world, call, when);
            let answered = status(&act(world));
            let survived = answered.is_some();
            if survived {
                killer.detach();
            } else {
                drop(killer);
                kills += 1;
                world.restart();
            }
            check(world, answered);
            world.check_leftovers(&format!("{call} {when}"));
            if survived {
                break;
            }
        }
    }
    assert!(kills >= 2, "the server was killed {kills} times only");
}

impl World {
    fn ids(&self, path: &str) -> BTreeSet<String> {
        let listed = self.client.get(path).expect(200);
        let id = |item: &Value| item["project_id"].as_str().unwrap().to_owned();
        listed["items"].as_array().unwrap().iter().map(id).collect()
    }

    /// Waits until nothing is on disk without a row, and nothing is incomplete; a server that has just started may
    /// still be cleaning up.
    fn check_leftovers(&self, at: &str) {
        wait_for("nothing to be left over", || {
            let (live, trashed) = (self.ids("/api/projects"), self.ids("/api/projects/trash"));
            assert!(live.is_disjoint(&trashed), "{at}: both there and deleted");
            for (folder, known) in [("workspaces", &live), ("trash", &trashed)] {
                let Ok(entries) = std::fs::read_dir(self.home.path().join(folder)) else {
                    continue;
                };
                for entry in entries.flatten() {
                    let name = entry.file_name().into_string().unwrap();
                    if !known.contains(&name) {
                        return Err(format!("{at}: {folder}/{name} belongs to no row"));
                    }
                    let parts = std::fs::read_dir(entry.path().join("tmp"));
                    if parts.map_or(0, Iterator::count) > 0 {
                        return Err(format!("{at}: half a file in {folder}/{name}/tmp"));
                    }
                }
            }
            Ok(())
        });
    }

    fn put(&self, path: &str, content: &str) {
        self.write(path, content.as_bytes()).expect_success();
    }

    fn fill(&self) {
        for path in ["/workspace/d/f", "/memories/hot/d/f", "/memories/persistent/d/f"] {
            self.put(path, path);
        }
    }

    /// The project is there with all that was in it.
    fn check_whole(&self, project: &str) {
        self.client.get(&format!("/api/projects/{project}")).expect(200);
        for store in ["hot", "persistent"] {
            let target = format!("/api/projects/{project}/memories/{store}/d/f");
            let text = self.client.get(&target).expect_status(200).text();
            assert_eq!(text, format!("/memories/{store}/d/f"));
        }
        let file = self.home.path().join("workspaces").join(project).join("repo/d/f");
        assert_eq!(std::fs::read_to_string(file).unwrap(), "/workspace/d/f");
    }

    fn is_live(&self) -> bool {
        self.ids("/api/projects").contains(&self.project)
    }

    fn restore(&self) {
        let path = format!("/api/projects/{}/restore", self.project);
        self.client.post(&path, json!({})).expect(200);
    }
}

#[test]
fn a_write_is_there_whole_or_not_at_all() {
    if !can_trace() {
        return;
    }
    for route in ["/workspace", "/memories/persistent", "/memories/hot"] {
        let mut world = world_with(&[], &[]);
        let path = format!("{route}/f");
        let (old, new) = ("o".repeat(100_000), "n".repeat(200_000));
        kill_at_each_point(
            &mut world,
            CHANGES,
            |world| world.put(&path, &old),
            |world| {
                let target = format!("/api/threads/t/fs/write?path={path}");
                world.client.request("PUT", &target).body(new.as_bytes())
            },
            |world, answered| {
                let found = world.read(&path).expect_status(200).text();
                assert!(found == old || found == new, "{path}: {} bytes", found.len());
                assert!(answered.is_none() || found == new, "an acknowledged write is lost");
            },
        );
    }
}

#[test]
fn a_snapshot_loses_nothing() {
    if !can_trace() {
        return;
    }
    let mut world = world_with(&[], &[]);
    let mut written = 0;
    let count = std::cell::Cell::new(0);
    kill_at_each_point(
        &mut world,
        CHANGES,
        |world| {
            written += 1;
            count.set(written);
            world.put(&format!("/memories/hot/k{written}"), &written.to_string());
        },
        |world| {
            let path = format!("/api/projects/{}/snapshot", world.project);
            world.client.request("POST", &path).json(&json!({}))
        },
        |world, _| {
            for number in 1..=count.get() {
                let found = world.read(&format!("/memories/hot/k{number}"));
                assert_eq!(found.expect_status(200).text(), number.to_string());
            }
        },
    );
}

#[test]
fn a_moved_file_is_at_its_source_or_at_its_destination() {
    if !can_trace() {
        return;
    }
    let pairs = [("/workspace/a", "/workspace/b"), ("/memories/hot/a", "/memories/hot/b")];
    let across = [("/workspace/a", "/memories/hot/b"), ("/memories/hot/a", "/workspace/b")];
    for (from, to) in pairs.into_iter().chain(across) {
        let mut world = world_with(&[], &[]);
        kill_at_each_point(
            &mut world,
            CHANGES,
            |world| {
                world.put(from, "content");
                let _ = world.client.delete(&format!("/api/threads/t/fs/remove?path={to}"));
            },
            |world| {
                let body = json!({"from": from, "to": to});
                world.client.request("POST", "/api/threads/t/fs/move").json(&body)
            },
            |world, answered| {
                let (here, there) = (world.read(from), world.read(to));
                let whole =
                    |answer: &harness::Answer| answer.status == 200 && answer.text() == "content";
                assert!(whole(&here) || whole(&there), "{from} to {to}: lost");
                for answer in [&here, &there] {
                    assert!(whole(answer) || answer.status == 404, "{}", answer.text());
                }
                let moved = there.status == 200 && here.status == 404;
                assert!(answered.is_none() || moved, "an acknowledged move is undone");
            },
        );
    }
}

#[test]
fn a_project_is_never_half_deleted_nor_half_restored() {
    if !can_trace() {
        return;
    }
    let mut world = world_with(&[], &[]);
    world.fill();
    let whole = |world: &World| {
        if !world.is_live() {
            world.restore();
        }
        world.check_whole(&world.project);
    };
    kill_at_each_point(
        &mut world,
        CHANGES,
        |_| {},
        |world| world.client.request("DELETE", &format!("/api/projects/{}", world.project)),
        |world, answered| {
            assert!(answered.is_none() || !world.is_live());
            whole(world);
        },
    );
    kill_at_each_point(
        &mut world,
        CHANGES,
        |world| {
            world.client.delete(&format!("/api/projects/{}", world.project)).expect(204);
        },
        |world| {
            let path = format!("/api/projects/{}/restore", world.project);
            world.client.request("POST", &path).json(&json!({}))
        },
        |world, answered| {
            assert!(answered.is_none() || world.is_live());
            whole(world);
        },
    );
}

#[test]
fn clean_up_deletes_and_purges_whole_projects() {
    if !can_trace() {
        return;
    }
    let environment = [("STEAD_PROJECT_CLEANUP_WARNING_DAYS", "0")];
    let mut world = world_with(&[], &environment);
    world.fill();
    let (home, project) = (world.home.path().to_owned(), world.project.clone());
    kill_at_each_point(
        &mut world,
        CHANGES,
        |_| backdate(&home, &project, 40),
        |world| world.client.request("POST", "/api/projects/cleanup").json(&json!({})),
        |world, answered| {
            // A starting server cleans up by itself, so the project is in the trash either way.
            assert!(answered.is_none() || !world.is_live());
            wait_for("the deletion", || if world.is_live() { Err("it is there") } else { Ok(()) });
            world.restore();
            world.check_whole(&world.project);
        },
    );
    let mut world = world_with(&[], &[("STEAD_PROJECT_TRASH_TIME", "0s")]);
    kill_at_each_point(
        &mut world,
        CHANGES,
        |world| {
            let made = world.client.post("/api/projects", json!({"prefix": "old"})).expect(201);
            let path = format!("/api/projects/{}", made["project_id"].as_str().unwrap());
            let memory = format!("{path}/memories/persistent/f");
            world.client.request("PUT", &memory).body(b"x").send().expect_success();
            world.client.delete(&path).expect(204);
        },
        |world| world.client.request("POST", "/api/projects/cleanup").json(&json!({})),
        |world, answered| {
            let trashed = world.ids("/api/projects/trash");
            assert!(answered.is_none() || trashed.is_empty(), "{trashed:?}");
        },
    );
}

#[test]
fn an_export_changes_nothing_and_an_import_is_whole_or_nothing() {
    if !can_trace() {
        return;
    }
    let mut world = world_with(&[], &[]);
    world.fill();
    kill_at_each_point(
        &mut world,
        READS,
        |_| {},
        |world| world.client.request("GET", &format!("/api/projects/{}/export", world.project)),
        |world, _| world.check_whole(&world.project),
    );
    let target = format!("/api/projects/{}/export", world.project);
    let archive = world.client.get(&target).expect_status(200).body.clone();
    let original = world.project.clone();
    kill_at_each_point(
        &mut world,
        CHANGES,
        |_| {},
        |world| world.client.request("POST", "/api/projects/import").body(&archive),
        |world, answered| {
            let mut copies = world.ids("/api/projects");
            copies.retain(|id| id.starts_with("web-") && *id != original);
            assert!(answered.is_none() || copies.len() == 1, "{copies:?}");
            for copy in copies {
                world.check_whole(&copy);
                world.client.delete(&format!("/api/projects/{copy}")).expect(204);
            }
            world.check_whole(&original);
        },
    );
}
