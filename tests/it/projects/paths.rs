//! Paths made to do harm, through every operation of the running product.

use std::{
    os::unix::{fs::symlink, net::UnixListener},
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

use serde_json::{Value, json};

use super::{World, world};
use harness::{Answer, Home, Server, database};

/// The operations on a path.
const OPERATIONS: [&str; 10] =
    ["read", "write", "list", "stat", "mkdir", "move from", "move to", "remove", "search", "watch"];

impl World {
    fn ask(&self, operation: &str, path: &str) -> Answer {
        let get = |verb: &str, more: &str| {
            self.client.get(&format!("/api/threads/t/fs/{verb}?path={path}{more}"))
        };
        let decoded = decode(path);
        match operation {
            "write" => self.write(path, b"evil"),
            "mkdir" => self.client.post("/api/threads/t/fs/mkdir", json!({"path": decoded})),
            "move from" => {
                let body = json!({"from": decoded, "to": "/workspace/stolen"});
                self.client.post("/api/threads/t/fs/move", body)
            }
            "move to" => {
                let body = json!({"from": "/workspace/bait", "to": decoded, "overwrite": true});
                self.client.post("/api/threads/t/fs/move", body)
            }
            "remove" => {
                let target = format!("/api/threads/t/fs/remove?recursive=true&path={path}");
                self.client.delete(&target)
            }
            "search" => get("search", "&pattern=."),
            verb => get(verb, ""),
        }
    }

    fn list(&self, query: &str) -> (Vec<String>, Option<String>) {
        let page = self.client.get(&format!("/api/threads/t/fs/list?{query}")).expect(200);
        let path = |item: &Value| item["path"].as_str().unwrap().to_owned();
        let paths = page["items"].as_array().unwrap().iter().map(path).collect();
        (paths, page["next_cursor"].as_str().map(str::to_owned))
    }
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'%', [high, low, tail @ ..]) => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).unwrap();
                bytes.push(u8::from_str_radix(digits, 16).unwrap());
                rest = tail;
            }
            _ => bytes.push(*first),
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn run(program: &str, arguments: &[&str], at: &Path) {
    let status = Command::new(program).args(arguments).current_dir(at).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

#[test]
fn every_operation_refuses_every_way_out() {
    let world = world();
    let repo = world.repo();
    let outside = world.home.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret"), "secret").unwrap();
    symlink(&outside, repo.join("absolute")).unwrap();
    symlink("../../../outside", repo.join("up")).unwrap();
    symlink("absolute", repo.join("twice")).unwrap();
    symlink("/proc/self/root", repo.join("magic")).unwrap();
    symlink("loop", repo.join("loop")).unwrap();
    std::fs::write(repo.join("file"), "x").unwrap();
    let (long, deep) = ("n".repeat(256), "d/".repeat(2100));
    let cases = [
        ("/workspace/../../outside/secret".to_owned(), 400),
        ("/workspace/%2e%2e/%2e%2e/outside/secret".into(), 400),
        ("/workspace/..%2f..%2foutside%2fsecret".into(), 400),
        ("/workspace/a%00b".into(), 400),
        ("workspace/secret".into(), 400),
        (format!("/workspace/{long}"), 400),
        (format!("/workspace/{deep}"), 400),
        ("/workspace/absolute/secret".into(), 403),
        ("/workspace/up/secret".into(), 403),
        ("/workspace/twice/secret".into(), 403),
        ("/workspace/magic/etc/passwd".into(), 403),
        ("/workspace/loop/x".into(), 403),
        ("/workspace/file/x".into(), 409),
        ("/memories/persistent/../../outside".into(), 400),
        ("/memories/hot/../x".into(), 400),
    ];
    for operation in OPERATIONS {
        for (path, status) in &cases {
            std::fs::write(repo.join("bait"), "bait").unwrap();
            let answer = world.ask(operation, path);
            let shown: String = path.chars().take(60).collect();
            assert_eq!(answer.status, *status, "{operation} {shown}: {}", answer.text());
            answer.problem(*status);
        }
    }
    // A doubly encoded path is an ordinary name.
    assert_eq!(world.ask("read", "/workspace/%252e%252e/secret").problem(404), "not_found");
    assert_eq!(std::fs::read_to_string(outside.join("secret")).unwrap(), "secret");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1, "something came into it");
    assert!(!repo.join("stolen").exists());
    // A link itself can be read, moved and removed; its target stays.
    let stat = world.ask("stat", "/workspace/absolute").expect(200);
    assert_eq!(stat["type"], "link");
    world.ask("remove", "/workspace/absolute").expect(204);
    assert!(outside.join("secret").exists());
}

#[test]
fn a_special_file_is_neither_opened_nor_waited_for() {
    let world = world();
    let repo = world.repo();
    run("mkfifo", &["fifo"], &repo);
    let _socket = UnixListener::bind(repo.join("socket")).unwrap();
    let mut names = vec!["fifo", "socket"];
    let made = Command::new("mknod").args(["device", "c", "1", "5"]).current_dir(&repo).status();
    match made {
        Ok(status) if status.success() => names.push("device"),
        _ => eprintln!("without devices: only root can make one"),
    }
    std::fs::write(repo.join("text"), "needle").unwrap();
    for name in names {
        let path = format!("/workspace/{name}");
        for operation in ["read", "write"] {
            assert_eq!(
                world.ask(operation, &path).problem(409),
                "not_a_file",
                "{operation} {name}"
            );
        }
        assert_eq!(world.ask("stat", &path).expect(200)["type"], "other");
    }
    let found = world.client.get("/api/threads/t/fs/search?path=/workspace&pattern=needle");
    assert_eq!(found.expect(200)["items"].as_array().unwrap().len(), 1);
    assert_eq!(world.ask("read", "/dev/zero").problem(409), "not_a_file");
    assert_eq!(world.ask("write", "/dev/null").problem(409), "not_a_file");
}

#[test]
fn a_race_of_links_leads_nowhere() {
    let world = world();
    let repo = world.repo();
    let outside = world.home.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("file"), "secret").unwrap();
    std::fs::create_dir(repo.join("real")).unwrap();
    std::fs::write(repo.join("real/file"), "inside").unwrap();
    symlink(&outside, repo.join("evil")).unwrap();
    run("cp", &["-a", "real", "swap"], &repo);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Exchanged in one step, so that the name is always there.
            let swap = |one: &str, other: &str| {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let (one, other) = (repo.join(one), repo.join(other));
                let at = rustix::fs::CWD;
                rustix::fs::renameat_with(at, one, at, other, flags).unwrap();
            };
            while !done.load(Ordering::Relaxed) {
                swap("swap", "evil");
            }
        });
        let (mut inside, mut refused) = (0, 0);
        for _ in 0..400 {
            let answer = world.read("/workspace/swap/file");
            assert_ne!(answer.text(), "secret");
            match answer.status {
                200 => inside += 1,
                _ => refused += 1,
            }
            let written = world.write("/workspace/swap/file", b"inside").status;
            assert!(matches!(written, 200 | 201 | 403 | 409), "{written}");
            let listed = world.ask("list", "/workspace/swap").status;
            assert!(matches!(listed, 200 | 403 | 409), "{listed}");
        }
        done.store(true, Ordering::Relaxed);
        assert!(inside > 0 && refused > 0, "no race: {inside} inside, {refused} refused");
    });
    assert_eq!(std::fs::read_to_string(outside.join("file")).unwrap(), "secret");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
}

#[test]
fn parts_of_files_match_the_requested_range() {
    let world = world();
    symlink("file", world.repo().join("link")).unwrap();
    let paths = ["/workspace/file", "/memories/hot/file", "/memories/persistent/file"];
    for path in paths {
        world.write(path, b"0123456789").expect(201);
    }
    let memory = format!("/api/projects/{}/memories/hot/file", world.project);
    let target = |path: &str| format!("/api/threads/t/fs/read?path={path}");
    let targets = paths.map(target).into_iter().chain([target("/workspace/link"), memory]);
    for target in targets {
        for (range, status, body, content_range) in [
            ("bytes=2-4", 206, "234", Some("bytes 2-4/10")),
            ("bytes=7-", 206, "789", Some("bytes 7-9/10")),
            ("bytes=7-1000", 206, "789", Some("bytes 7-9/10")),
            ("bytes=-3", 206, "789", Some("bytes 7-9/10")),
            ("bytes=-30", 206, "0123456789", Some("bytes 0-9/10")),
            ("bytes=0-1,4-5", 200, "0123456789", None),
            ("bytes=5-2", 200, "0123456789", None),
            ("lines=1-2", 200, "0123456789", None),
            ("bytes=10-", 416, "", Some("bytes */10")),
            ("bytes=-0", 416, "", Some("bytes */10")),
        ] {
            let answer = world.client.request("GET", &target).header("range", range).send();
            assert_eq!(answer.status, status, "{target} {range}");
            assert_eq!(answer.header("content-range"), content_range, "{target} {range}");
            match status {
                416 => assert_eq!(answer.problem(416), "range_not_satisfiable"),
                _ => assert_eq!(answer.text(), body, "{target} {range}"),
            }
        }
    }
    let part = |query: &str| world.read(&format!("/workspace/file&{query}")).text();
    assert_eq!(part("offset=8"), "89");
    assert_eq!(part("offset=10"), "");
    assert_eq!(part("offset=18446744073709551615"), "");
    assert_eq!(part("offset=2&limit=0"), "");
    let text = world.read("/workspace/file&format=json&offset=2&limit=3").expect(200);
    assert_eq!((&text["content"], &text["next_offset"]), (&json!("234"), &json!(5)));
    assert_eq!(text["end"], false);
    assert_eq!(world.read("/workspace/file&limit=-1").problem(400), "invalid_query");
}

#[test]
fn moves_work_within_and_across_routes_or_name_the_reason() {
    let world = world();
    let path = format!("/api/projects/{}", world.project);
    let routes = json!({"/notes": "store", "/scratch": "filesystem", "/workspace/cache": "state"});
    world.client.patch(&path, json!({"config": {"routes": routes}})).expect(200);
    let rename = |from: &str, to: &str, overwrite: bool| {
        let body = json!({"from": from, "to": to, "overwrite": overwrite});
        world.client.post("/api/threads/t/fs/move", body)
    };
    world.write("/workspace/f", b"content").expect(201);
    let stops = [
        "/workspace/f",
        "/notes/f",
        "/memories/hot/f",
        "/scratch/f",
        "/memories/persistent/f",
        "/workspace/cache/f",
        "/workspace/g",
    ];
    for pair in stops.windows(2) {
        rename(pair[0], pair[1], false).expect(200);
        assert_eq!(world.read(pair[1]).expect_status(200).text(), "content", "{}", pair[1]);
        assert_eq!(world.read(pair[0]).problem(404), "not_found");
    }
    // The longest prefix wins: what is in the cache is not in the workspace's directory.
    world.write("/workspace/cache/k", b"x").expect(201);
    assert!(!world.repo().join("cache").exists());

    world.write("/workspace/h", b"other").expect(201);
    assert_eq!(rename("/workspace/g", "/workspace/h", false).problem(409), "already_exists");
    rename("/workspace/g", "/workspace/h", true).expect(200);
    assert_eq!(world.read("/workspace/h").text(), "content");
    world.write("/workspace/d/f", b"x").expect(201);
    assert_eq!(rename("/workspace/d", "/workspace/d/e", false).problem(400), "invalid_path");
    assert_eq!(rename("/workspace/h", "/workspace/d", true).problem(409), "is_a_directory");
    assert_eq!(rename("/workspace/h", "/workspace/none/h", false).problem(404), "not_found");
    let across = rename("/workspace/d", "/memories/hot/d", false);
    assert_eq!(across.problem(409), "not_supported");
    for root in ["/workspace", "/memories/hot", "/notes"] {
        assert_eq!(rename(root, "/scratch/x", false).problem(409), "not_supported", "{root}");
        assert_eq!(world.ask("remove", root).problem(409), "not_supported", "{root}");
    }
    // A file's parents must be there, or be asked for.
    for route in ["/workspace", "/memories/persistent", "/scratch"] {
        let target = format!("/api/threads/t/fs/write?path={route}/missing/f");
        let put =
            |more: &str| world.client.request("PUT", &format!("{target}{more}")).body(b"x").send();
        assert_eq!(put("").problem(404), "not_found", "{route}");
        put("&create_dirs=true").expect(201);
    }
}

#[test]
fn lists_have_pages_depth_and_hidden_names() {
    let world = world();
    let repo = world.repo();
    let mut all = Vec::new();
    for folder in 0..30 {
        all.push(format!("/workspace/d{folder:02}"));
        let path = repo.join(format!("d{folder:02}"));
        std::fs::create_dir(&path).unwrap();
        for file in 0..40 {
            std::fs::write(path.join(format!(".f{file:02}")), b"").unwrap();
            all.push(format!("/workspace/d{folder:02}/.f{file:02}"));
        }
    }
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let more = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let (page, next) = world.list(&format!("path=/workspace&depth=2&limit=37{more}"));
        assert!(page.len() <= 37);
        found.extend(page);
        cursor = next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, all);
    assert_eq!(world.list("path=/workspace&limit=1000").0.len(), 30);
    for query in ["depth=0", "depth=65", "depth=x", "limit=0", "limit=1001", "cursor=!"] {
        let target = format!("/api/threads/t/fs/list?path=/workspace&{query}");
        assert_eq!(world.client.get(&target).problem(400), "invalid_query", "{query}");
    }
    assert_eq!(world.ask("list", "/workspace/d00/.f00").problem(409), "not_a_directory");
}

#[test]
fn a_search_is_linear_limited_and_skips_what_is_no_text() {
    let world = world();
    let repo = world.repo();
    std::fs::write(repo.join("bad"), format!("{}b\n", "a".repeat(4000)).repeat(200)).unwrap();
    std::fs::write(repo.join(".hidden"), "needle\nneedle\n").unwrap();
    std::fs::write(repo.join("binary"), b"\0needle\n").unwrap();
    symlink("/etc", repo.join("etc")).unwrap();
    let search = |pattern: &str, more: &str| {
        let target = format!("/api/threads/t/fs/search?path=/workspace&pattern={pattern}{more}");
        world.client.get(&target)
    };
    let started = std::time::Instant::now();
    let found = search("(a%2Ba%2B)%2B%24", "").expect(200);
    assert!(started.elapsed().as_secs() < 15, "{:?}", started.elapsed());
    assert_eq!(found["items"], json!([]));
    let found = search("needle", "").expect(200);
    assert_eq!(found["items"].as_array().unwrap().len(), 2);
    assert_eq!(found["items"][0]["path"], "/workspace/.hidden");
    assert_eq!(found["truncated"], false);
    let found = search("needle", "&limit=1").expect(200);
    assert_eq!((found["items"].as_array().unwrap().len(), &found["truncated"]), (1, &json!(true)));
    assert!(found["reason"].is_string());
    for pattern in ["(", "((x%7B1000%7D)%7B1000%7D)%7B1000%7D", "%5B"] {
        assert_eq!(search(pattern, "").problem(400), "invalid_query", "{pattern}");
    }
    assert_eq!(search("x", "&limit=0").problem(400), "invalid_query");
}

#[test]
fn a_huge_or_deep_tree_is_watched_in_part() {
    let world = world();
    let repo = world.repo();
    for number in 0..4500 {
        std::fs::create_dir(repo.join(format!("d{number}"))).unwrap();
    }
    let target = "/api/threads/t/fs/watch?recursive=true&path=/workspace";
    let mut events = world.client.request("GET", target).events();
    assert_eq!(events.next().unwrap().name, "ready");
    assert_eq!(events.next().unwrap().name, "partial");
    std::fs::write(repo.join("f"), b"x").unwrap();
    let event = events.next().unwrap();
    assert_eq!((event.name.as_str(), &event.json()["path"]), ("created", &json!("/workspace/f")));
    drop(events);
    std::fs::remove_dir_all(&repo).unwrap();
    std::fs::create_dir(&repo).unwrap();

    // A thousand levels, made while it is watched.
    let mut events = world.client.request("GET", target).events();
    assert_eq!(events.next().unwrap().name, "ready");
    let deep = vec!["d"; 1000].join("/");
    std::fs::create_dir_all(repo.join(&deep)).unwrap();
    std::fs::write(repo.join(&deep).join("f"), b"x").unwrap();
    let last = format!("/workspace/{deep}/f");
    loop {
        let event = events.next().expect("the events ended");
        assert!(matches!(event.name.as_str(), "created" | "modified"), "{event:?}");
        if event.json()["path"] == last.as_str() {
            break;
        }
    }
    assert_eq!(world.read(&last).text(), "x");
    world.ask("remove", "/workspace/d").expect(204);
    assert!(!repo.join("d").exists());
}

#[test]
fn the_server_chooses_the_backends_of_routes_and_a_project_may_choose_others() {
    let home = Home::new();
    let routes = "/memories/hot=store,/notes=filesystem";
    let server = Server::start_as(&home, &[], &[("STEAD_PROJECT_ROUTES", routes)]);
    let client = server.client();
    let create = |prefix: &str, config: Value| {
        client.post("/api/projects", json!({"prefix": prefix, "config": config})).expect(201)
    };
    let usual = create("usual", json!({}));
    assert_eq!(
        usual["routes"],
        json!({"/memories/hot": "store", "/memories/persistent": "filesystem",
            "/notes": "filesystem", "/workspace": "filesystem"})
    );
    let own = create("own", json!({"routes": {"/memories/hot/": "state", "/notes": "store"}}));
    let target = format!("/api/projects/{}", own["project_id"].as_str().unwrap());
    let shown = client.get(&target).expect(200);
    assert_eq!(
        (&shown["routes"]["/memories/hot"], &shown["routes"]["/notes"]),
        (&json!("state"), &json!("store"))
    );
    for project in [&usual, &own] {
        let id = project["project_id"].as_str().unwrap();
        let target = format!("/api/projects/{id}/memories/hot/plan");
        client.request("PUT", &target).body(id.as_bytes()).send().expect(201);
        assert_eq!(client.get(&target).expect_status(200).text(), id);
    }
    let database = database(home.path());
    let mut rows = database.prepare("SELECT project_id FROM project_entries").unwrap();
    let rows = rows.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let rows: Vec<String> = rows.map(Result::unwrap).collect();
    assert_eq!(rows, [usual["project_id"].as_str().unwrap()]);
}
