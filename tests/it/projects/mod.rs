//! Projects, files and memories through the front door.

mod archive;
mod attend;
mod cleanup;
mod kills;
mod life;
mod paths;

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use harness::{Client, Home, Server, run, wait_for};

struct World {
    home: Home,
    server: Server,
    client: Client,
    project: String,
    environment: Vec<(String, String)>,
}

/// A server with a project and a thread `t` in it. No shell is needed, so no sandbox either.
fn world() -> World {
    world_with(&[], &[])
}

fn world_with(arguments: &[&str], environment: &[(&str, &str)]) -> World {
    let home = Home::new();
    let arguments = match arguments.contains(&"--provider") {
        true => arguments.to_vec(),
        false => [&["--provider", "local"], arguments].concat(),
    };
    let server = Server::start_as(&home, &arguments, environment);
    let client = server.client();
    let made = client.post("/api/projects", json!({"prefix": "web", "tags": ["it"]})).expect(201);
    let project = made["project_id"].as_str().unwrap().to_owned();
    let open = client.post(&format!("/api/projects/{project}/sessions"), json!({"thread_id": "t"}));
    open.expect(201);
    let environment = environment.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
    World { home, server, client, project, environment }
}

/// Sets the last use of a project to a number of days ago. The server may be running or not.
fn backdate(home: &std::path::Path, project: &str, days: i64) {
    let db = harness::database(home);
    let by = days * 86_400 * 1_000_000;
    let changed = db
        .execute(
            "UPDATE projects SET last_used_at = last_used_at - ?2, created_at = created_at - ?2,
                    warned_at = warned_at - ?2, reminded_at = reminded_at - ?2
             WHERE project_id = ?1",
            rusqlite::params![project, by],
        )
        .unwrap();
    assert_eq!(changed, 1);
}

impl World {
    /// Kills the server and starts another in its place.
    fn restart(&mut self) {
        let pid = rustix::process::Pid::from_raw(self.server.pid()).unwrap();
        // One that was killed already is as good.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        self.server.wait();
        let environment: Vec<_> =
            self.environment.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        self.server = Server::start_as(&self.home, &["--provider", "local"], &environment);
        self.client = self.server.client();
    }

    /// Returns the value of a metric without labels.
    fn metric(&self, name: &str) -> f64 {
        let text = self.client.get("/metrics").expect_status(200).text();
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        found.unwrap_or_else(|| panic!("no {name} in {text}"))
    }

    fn write(&self, path: &str, content: &[u8]) -> harness::Answer {
        let target = format!("/api/threads/t/fs/write?create_dirs=true&path={path}");
        self.client.request("PUT", &target).body(content).send()
    }

    fn read(&self, path: &str) -> harness::Answer {
        self.client.get(&format!("/api/threads/t/fs/read?path={path}"))
    }

    fn repo(&self) -> std::path::PathBuf {
        self.home.path().join("workspaces").join(&self.project).join("repo")
    }

    /// Runs the command line; returns its standard output.
    fn stead(&self, arguments: &[&str]) -> String {
        self.run_stead(arguments).0
    }

    /// Runs the command line; returns its standard output and standard error.
    fn stead_all(&self, arguments: &[&str]) -> String {
        let (out, err) = self.run_stead(arguments);
        format!("{out}\n{err}")
    }

    fn run_stead(&self, arguments: &[&str]) -> (String, String) {
        let home = self.home.path().to_str().unwrap().to_owned();
        let output = run(arguments, &[("STEAD_HOME", &home), ("HOME", &home)]);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {out}{err}");
        (out, err)
    }
}

#[test]
fn files_are_read_written_listed_moved_searched_and_removed() {
    let world = world();
    world.write("/workspace/src/a.txt", b"one\ntwo\n").expect(201);
    world.write("/workspace/src/a.txt", b"one\ntwo\nthree\n").expect(200);
    let answer = world.read("/workspace/src/a.txt");
    assert_eq!((answer.status, answer.text().as_str()), (200, "one\ntwo\nthree\n"));
    assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
    assert_eq!(answer.header("x-size"), Some("14"));
    assert_eq!(world.read("/workspace/src/a.txt&offset=4&limit=3").text(), "two");
    let text = world.read("/workspace/src/a.txt&format=json").expect(200);
    assert_eq!(text["content"], "one\ntwo\nthree\n");
    let part = world
        .client
        .request("GET", "/api/threads/t/fs/read?path=/workspace/src/a.txt")
        .header("range", "bytes=-6")
        .send();
    assert_eq!((part.status, part.text().as_str()), (206, "three\n"));
    assert_eq!(part.header("content-range"), Some("bytes 8-13/14"));
    let binary: Vec<u8> = (0..=255).cycle().take(3 << 20).collect();
    world.write("/workspace/binary", &binary).expect(201);
    assert_eq!(world.read("/workspace/binary").body, binary);

    // A write that takes something for granted.
    let conditional = |name: &str, value: &str| {
        let target = "/api/threads/t/fs/write?path=/workspace/src/a.txt";
        world.client.request("PUT", target).header(name, value).body(b"x").send()
    };
    assert_eq!(conditional("if-none-match", "*").problem(409), "already_exists");
    assert_eq!(conditional("if-match", "\"0123456789abcdef\"").problem(409), "version_conflict");
    let etag = answer.header("etag").unwrap();
    conditional("if-match", etag).expect(200);

    let list = |query: &str| {
        let page = world.client.get(&format!("/api/threads/t/fs/list?{query}")).expect(200);
        let path = |item: &Value| item["path"].as_str().unwrap().to_owned();
        let paths: Vec<_> = page["items"].as_array().unwrap().iter().map(path).collect();
        (paths, page["next_cursor"].as_str().map(str::to_owned))
    };
    let (first, cursor) = list("path=/workspace&depth=9&limit=2");
    assert_eq!(first, ["/workspace/binary", "/workspace/src"]);
    let (rest, end) = list(&format!("path=/workspace&depth=9&limit=2&cursor={}", cursor.unwrap()));
    assert_eq!((rest, end), (vec!["/workspace/src/a.txt".to_owned()], None));

    let body = json!({"from": "/workspace/src", "to": "/workspace/lib"});
    world.client.post("/api/threads/t/fs/move", body).expect(200);
    world.write("/workspace/lib/b.txt", b"a fish\n").expect(201);
    let found = world.client.get("/api/threads/t/fs/search?path=/workspace&pattern=f.sh$");
    assert_eq!(found.expect(200)["items"][0]["path"], "/workspace/lib/b.txt");
    let remove = |query: &str| world.client.delete(&format!("/api/threads/t/fs/remove?{query}"));
    assert_eq!(remove("path=/workspace/lib").problem(409), "not_empty");
    remove("path=/workspace/lib&recursive=true").expect(204);
    assert_eq!(world.read("/workspace/lib/b.txt").problem(404), "not_found");
    let made = world.client.post("/api/threads/t/fs/mkdir", json!({"path": "/workspace/d"}));
    assert_eq!(made.expect(201)["type"], "directory");
}

#[test]
fn no_path_leaves_its_route() {
    let world = world();
    let repo = world.repo();
    world.write("/workspace/f", b"x").expect(201);
    std::fs::write(world.home.path().join("workspaces/secret"), "secret").unwrap();
    symlink("/etc/passwd", repo.join("absolute")).unwrap();
    symlink("../../secret", repo.join("up")).unwrap();
    symlink("/proc/self/root", repo.join("magic")).unwrap();
    symlink("loop", repo.join("loop")).unwrap();
    assert!(
        std::process::Command::new("mkfifo").arg(repo.join("fifo")).status().unwrap().success()
    );
    let long = "n".repeat(256);
    let cases = [
        ("/workspace/../secret", 400, "invalid_path"),
        ("/workspace/%2e%2e/secret", 400, "invalid_path"),
        ("/workspace/a%00b", 400, "invalid_path"),
        ("workspace/f", 400, "invalid_path"),
        (&format!("/workspace/{long}"), 400, "invalid_path"),
        ("/workspace/%252e%252e/secret", 404, "not_found"),
        ("/workspace/absolute", 403, "outside_route"),
        ("/workspace/up", 403, "outside_route"),
        ("/workspace/magic/etc/passwd", 403, "outside_route"),
        ("/workspace/loop", 403, "outside_route"),
        ("/workspace/fifo", 409, "not_a_file"),
        ("/workspace", 409, "is_a_directory"),
        ("/workspace/f/x", 409, "not_a_directory"),
        ("/dev/zero", 409, "not_a_file"),
    ];
    for (path, status, code) in cases {
        assert_eq!(world.read(path).problem(status), code, "{path}");
    }
    for (path, status, code) in [
        ("/workspace/absolute", 403, "outside_route"),
        ("/workspace/up", 403, "outside_route"),
        ("/workspace/fifo", 409, "not_a_file"),
        ("/workspace/f/x", 409, "not_a_directory"),
    ] {
        assert_eq!(world.write(path, b"evil").problem(status), code, "{path}");
    }
    for path in ["..%2f..%2fproject.json", "%2e%2e/%2e%2e/project.json", "a/../../../x"] {
        let target = format!("/api/projects/{}/memories/persistent/{path}", world.project);
        assert_eq!(world.client.get(&target).problem(400), "invalid_path", "{path}");
    }
    assert_eq!(world.client.get("/api/threads/none/fs/read?path=/tmp").problem(404), "not_found");
}

#[test]
fn changes_of_files_and_memories_are_watched() {
    let world = world();
    let watch = |path: &str| {
        let target = format!("/api/threads/t/fs/watch?recursive=true&path={path}");
        let mut events = world.client.request("GET", &target).events();
        assert_eq!(events.next().unwrap().name, "ready");
        events
    };
    let (mut files, mut memories) = (watch("/workspace"), watch("/memories/hot"));
    world.write("/workspace/f", b"x").expect(201);
    let event = files.next().unwrap();
    assert_eq!(
        (event.name.as_str(), event.json()["path"].clone()),
        ("created", json!("/workspace/f"))
    );
    world.write("/memories/hot/k", b"x").expect(201);
    let event = memories.next().unwrap();
    assert_eq!(
        (event.name.as_str(), event.json()["path"].clone()),
        ("modified", json!("/memories/hot/k"))
    );
}

#[test]
fn kills_lose_no_acknowledged_memory_and_leave_no_half_file() {
    let mut world = world();
    let mut acknowledged = Vec::new();
    for round in 0..5 {
        let (client, project) = (world.client.clone(), world.project.clone());
        let writer = std::thread::spawn(move || {
            let mut done = Vec::new();
            for number in 0..10_000 {
                let name = format!("k{round}-{number}");
                for store in ["hot", "persistent"] {
                    let target = format!("/api/projects/{project}/memories/{store}/{name}");
                    let request = client.request("PUT", &target).body(name.as_bytes());
                    // The server is killed in the middle of one of them.
                    let sent = std::panic::catch_unwind(|| request.send().status);
                    match sent {
                        Ok(200 | 201) => done.push((store, name.clone())),
                        _ => return done,
                    }
                }
                if number % 7 == 6 {
                    let target = format!("/api/projects/{project}/snapshot");
                    if std::panic::catch_unwind(|| client.post(&target, json!({}))).is_err() {
                        return done;
                    }
                }
            }
            done
        });
        let hot = world.home.path().join("workspaces").join(&world.project).join("memories");
        wait_for("some memories", || {
            let prefix = format!("k{round}-");
            let files = std::fs::read_dir(hot.join("persistent")).unwrap().flatten();
            let count =
                files.filter(|f| f.file_name().to_string_lossy().starts_with(&prefix)).count();
            if count > 8 { Ok(()) } else { Err(count) }
        });
        world.restart();
        acknowledged.extend(writer.join().unwrap());
        for (store, name) in &acknowledged {
            let target = format!("/api/projects/{}/memories/{store}/{name}", world.project);
            assert_eq!(world.client.get(&target).expect_status(200).text(), *name);
        }
        let root = world.home.path().join("workspaces").join(&world.project);
        assert_eq!(std::fs::read_dir(root.join("tmp")).unwrap().count(), 0);
        for file in std::fs::read_dir(root.join("memories/persistent")).unwrap() {
            let file = file.unwrap();
            let content = std::fs::read_to_string(file.path()).unwrap();
            assert_eq!(content, file.file_name().to_string_lossy());
        }
    }
    assert!(acknowledged.len() > 50, "{}", acknowledged.len());
    drop(world.server);
}

#[test]
fn the_command_line_knows_projects_and_memories() {
    let world = world();
    let made = world.stead(&["project", "create", "cli", "--description", "made here"]);
    assert!(made.starts_with("cli-"), "{made}");
    let shown: Value =
        serde_json::from_str(&world.stead(&["project", "show", &made, "--json"])).unwrap();
    assert_eq!(shown["description"], "made here");
    world.stead(&["project", "set", &made, "--tag", "red"]);
    let listed = world.stead(&["project", "ls", "--tag", "red"]);
    assert_eq!(listed.lines().count(), 2, "{listed}");
    world.stead(&["project", "pin", &made]);
    let pinned: Value =
        serde_json::from_str(&world.stead(&["project", "show", &made, "--json"])).unwrap();
    assert_eq!((&pinned["pinned"], &pinned["deletes_at"]), (&json!(true), &Value::Null));
    world.stead(&["project", "unpin", &made]);
    world.stead(&["project", "extend", &made, "--days", "5"]);
    for store in ["hot", "persistent"] {
        world.stead(&["memory", "put", "-p", &made, "-s", store, "a/b", "remember"]);
        assert_eq!(world.stead(&["memory", "get", "-p", &made, "-s", store, "a/b"]), "remember");
        let listed = world.stead(&["memory", "ls", "-p", &made, "-s", store, "-r"]);
        assert_eq!(listed.lines().count(), 3, "{listed}");
    }
    let file = world.home.path().join("cli.tar.zst");
    let file = file.to_str().unwrap();
    world.stead(&["project", "export", &made, file]);
    world.stead(&["project", "rm", &made]);
    assert!(world.stead(&["project", "ls", "--deleted"]).contains(&made));
    world.stead(&["project", "restore", &made]);
    assert_eq!(world.stead(&["memory", "get", "-p", &made, "-s", "hot", "a/b"]), "remember");
    let copy = world.stead(&["project", "import", file]);
    assert!(copy.starts_with("cli-") && copy != made, "{copy}");
    assert_eq!(world.stead(&["memory", "get", "-p", &copy, "a/b"]), "remember");
    world.stead(&["memory", "rm", "-p", &copy, "a", "-r"]);
    assert_eq!(world.stead(&["project", "cleanup"]).lines().count(), 1);
}

#[test]
fn projects_are_limited_and_records_outlive_threads() {
    let home = Home::new();
    let environment = [("STEAD_MAX_PROJECTS", "2"), ("STEAD_PROJECT_CLEANUP_AFTER_DAYS", "5")];
    let server = Server::start_as(&home, &["--provider", "local"], &environment);
    let client = server.client();
    let made = client.post("/api/projects", json!({"prefix": "one"})).expect(201);
    let id = made["project_id"].as_str().unwrap();
    assert!(made["deletes_at"].is_string());
    let refused = client.post("/api/projects", json!({"prefix": "two"}));
    assert_eq!(refused.problem(409), "quota_exceeded");
    let bad = client.post("/api/projects", json!({"prefix": "Two"}));
    assert_eq!(bad.expect_status(400).json()["errors"][0]["pointer"], "/prefix");
    let sessions = format!("/api/projects/{id}/sessions");
    client.post(&sessions, json!({"thread_id": "a"})).expect(201);
    client.post(&sessions, json!({"thread_id": "b"})).expect(201);
    client.delete("/api/threads/a").expect_success();
    let records = client.get(&sessions).expect(200);
    assert_eq!(records["items"].as_array().unwrap().len(), 2);
    let default = client.delete("/api/projects/default-00000000");
    assert_eq!(default.problem(409), "conflict");
    let plan = client.get("/api/projects/cleanup?dry_run=true").expect(200);
    assert_eq!(plan["items"], json!([]));
}
