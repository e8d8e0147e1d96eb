//! The files of instances, as clients use them: the same cases for every provider, and threads at vendors.

use std::{path::Path, sync::Arc};

use files::{
    Above, Backend, Directory, FileError, FileKind, Reach, Relative, RemoteDirectory, Route,
    SearchLimits, Tree, TreePath, memory::Expect,
};
use machine::with_identity_of;
use model::{Instance, InstanceId, Timestamp};
use provider::Provider;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use super::{
    cloud::{end, stdout},
    vendor::{COMMANDERS, KINDS, Kind, Vendor},
};
use harness::{Client, Home, Server, run, terminal::exec};

/// Returns the files of an instance, as the server finds them.
pub async fn tree(provider: &Arc<dyn Provider>, instance: &Instance) -> Tree {
    let backend = match (provider.scripts(), provider.mounts()) {
        (Some(_), _) => {
            let remote = RemoteDirectory::new(provider.clone(), instance.clone());
            Backend::Remote(remote.unwrap())
        }
        (None, Some(mounts)) => {
            let root = mounts.root(instance).await.unwrap().unwrap();
            let root = Directory::open(&root, None, Reach::InRoot).unwrap();
            Backend::Directory(root.as_its_owner(with_identity_of).unwrap())
        }
        (None, None) => {
            Backend::Directory(Directory::open(Path::new("/"), None, Reach::InRoot).unwrap())
        }
    };
    Tree::new(vec![Route { prefix: Relative::root(), backend }], Timestamp::now())
}

/// The file cases of the contract of providers.
pub async fn check_contract(tree: &Tree) {
    let top = format!("/tmp/stead-files-{}", InstanceId::fresh());
    let path = |below: &str| TreePath::parse(&format!("{top}/{below}")).unwrap();
    let put = async |below: &str, bytes: &[u8], expect: Expect| {
        let mut writing = tree.write(&path(below), Above::Make, expect).await?;
        writing.write(bytes.to_vec().into()).await?;
        writing.finish().await
    };
    let get = async |below: &str, offset: u64, limit: Option<u64>| {
        let mut content = tree.read(&path(below), offset, limit).await.unwrap();
        let mut bytes = Vec::new();
        content.bytes.read_to_end(&mut bytes).await.unwrap();
        bytes
    };
    let large: Vec<u8> = (0..700_000_u32).map(|n| (n % 251) as u8).collect();
    let version = put("src/a name é", b"fn one() {}\n", Expect::Absent).await.unwrap();
    put("src/large", &large, Expect::Anything).await.unwrap();
    assert_eq!(get("src/a name é", 3, Some(3)).await, b"one");
    assert!(get("src/large", 0, None).await == large);
    assert!(get("src/large", 300_000, Some(50)).await == large[300_000..300_050]);
    let stat = tree.stat(&path("src/a name é")).await.unwrap();
    assert_eq!((stat.kind, stat.size, stat.mode), (FileKind::File, 12, Some(0o644)));
    assert_eq!((stat.version, stat.path), (version, path("src/a name é").to_string()));
    // Preconditions are checked.
    let again = put("src/a name é", b"x", Expect::Absent).await;
    assert!(matches!(again, Err(FileError::Exists { .. })), "{again:?}");
    put("src/a name é", b"fn two() {}\n", Expect::Version(version.unwrap())).await.unwrap();
    let late = put("src/a name é", b"x", Expect::Version(version.unwrap())).await;
    assert!(matches!(late, Err(FileError::Changed { .. })), "{late:?}");
    // Directories are created, listed and searched.
    tree.make_directory(&path("src/deep"), Above::MustExist).await.unwrap();
    let made = tree.make_directory(&path("src/deep"), Above::MustExist).await;
    assert!(matches!(made, Err(FileError::Exists { .. })), "{made:?}");
    let names = async |below: &str| {
        let found = tree.list(&path(below), 9, None, 100).await.unwrap();
        let below = format!("{top}/");
        found.iter().map(|it| it.path.strip_prefix(&below).unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("").await, ["src", "src/a name é", "src/deep", "src/large"]);
    let found = tree.search(&path(""), r"^fn (\w+)", SearchLimits::default()).await.unwrap();
    assert_eq!((found.matches.len(), found.stopped), (1, None));
    assert_eq!((found.matches[0].line, &*found.matches[0].text), (1, "fn two() {}"));
    assert_eq!(found.matches[0].path, path("src/a name é").to_string());
    // Files and directories are moved and removed.
    tree.rename(&path("src/large"), &path("src/deep/moved"), Expect::Absent).await.unwrap();
    tree.rename(&path("src/deep"), &path("other"), Expect::Absent).await.unwrap();
    let onto = tree.rename(&path("other/moved"), &path("src/a name é"), Expect::Absent).await;
    assert!(matches!(onto, Err(FileError::Exists { .. })), "{onto:?}");
    assert_eq!(names("").await, ["other", "other/moved", "src", "src/a name é"]);
    let full = tree.remove(&path("other")).await;
    assert!(matches!(full, Err(FileError::NotEmpty { .. })), "{full:?}");
    tree.remove(&path("other/moved")).await.unwrap();
    tree.remove_tree(&path("src")).await.unwrap();
    for missing in [path("src"), path("other/moved/x")] {
        let missing = tree.stat(&missing).await;
        assert!(matches!(missing, Err(FileError::Missing { .. })), "{missing:?}");
    }
    assert_eq!(names("").await, ["other"]);
    tree.remove_tree(&TreePath::parse(&top).unwrap()).await.unwrap();
}

/// Servers that use each vendor: with a host inside, and with commands only.
fn servers() -> impl Iterator<Item = (Kind, Vendor, Home, Server)> {
    let hosted = KINDS.into_iter().filter_map(|kind| {
        let (vendor, home) = (Vendor::of(kind)?, Home::new());
        let server = vendor.user(kind, &home);
        Some((kind, vendor, home, server))
    });
    let commands = COMMANDERS.into_iter().filter_map(|kind| {
        let (vendor, home) = (Vendor::of(kind)?, Home::new());
        let server = vendor.commander(kind, vendor.address(), &home);
        Some((kind, vendor, home, server))
    });
    hosted.chain(commands)
}

fn fs(verb: &str, path: &str) -> String {
    format!("/api/threads/t/fs/{verb}?path={path}")
}

fn write(client: &Client, path: &str, bytes: &[u8]) -> harness::Answer {
    let target = format!("{}&create_dirs=true", fs("write", path));
    client.request("PUT", &target).body(bytes).send()
}

fn detail(answer: &harness::Answer) -> String {
    assert_eq!(answer.problem(409), "not_supported");
    answer.json()["detail"].as_str().unwrap().to_owned()
}

#[test]
fn what_a_shell_at_a_vendor_does_not_see_is_refused() {
    for (kind, vendor, home, server) in servers() {
        let client = server.client();
        client.put("/api/threads/t", json!({})).expect_success();
        let check = || {
            for path in ["/workspace/x", "/memories/persistent/x"] {
                let answer = write(&client, path, b"x");
                let reason = detail(&answer);
                assert!(reason.contains("run at a vendor and do not see"), "{reason}");
            }
            for verb in ["list", "stat", "read"] {
                detail(&client.get(&fs(verb, "/workspace")));
            }
            let body = json!({"path": "/workspace/x"});
            detail(&client.post("/api/threads/t/fs/mkdir", body));
        };
        check();
        // A file of the sandbox itself starts it, as a command does.
        let first = home.path().join("first").display().to_string();
        write(&client, &first, b"up").expect(201);
        assert_eq!(stdout(&client, "t", &format!("cat {first}")), "up");
        check();
        // Hot memories are files of no shell, and belong to the project.
        write(&client, "/memories/hot/x", b"kept").expect(201);
        let project = client.get("/api/threads/t").expect(200)["project_id"].clone();
        let memory = format!("/api/projects/{}/memories/hot/x", project.as_str().unwrap());
        assert_eq!(client.get(&memory).text(), "kept");
        end(&vendor, kind, &server, &["t"]);
    }
}

#[test]
fn shells_and_clients_share_the_files_of_a_sandbox_at_a_vendor() {
    for (kind, vendor, home, server) in servers() {
        let client = server.client();
        let dir = home.path().join("shared").display().to_string();
        assert_eq!(stdout(&client, "t", &format!("mkdir -p {dir}; printf shell >{dir}/a")), "");
        assert_eq!(client.get(&fs("read", &format!("{dir}/a"))).text(), "shell");
        let file = format!("{dir}/new/b");
        let written = write(&client, &file, b"client").expect(201);
        assert_eq!((&written["size"], &written["path"]), (&json!(6), &json!(file)));
        assert_eq!(stdout(&client, "t", &format!("cat {file}")), "client");
        // The owner is the user of the shell.
        let owners = stdout(&client, "t", &format!("stat -c %u {file}; id -u"));
        let owners: Vec<&str> = owners.lines().collect();
        assert_eq!(owners[0], owners[1]);
        let read = client.request("GET", &fs("read", &file)).header("range", "bytes=1-3").send();
        assert_eq!((read.status, read.text()), (206, "lie".to_owned()));
        let tag = read.header("etag").unwrap().to_owned();
        let json = client.get(&format!("{}&format=json&offset=2", fs("read", &file))).expect(200);
        assert_eq!((&json["content"], &json["etag"]), (&json!("ient"), &json!(tag)));
        // A write with a precondition sees what the shell did.
        stdout(&client, "t", &format!("printf shell >{file}"));
        let late = client.request("PUT", &fs("write", &file)).header("if-match", &tag).body(b"x");
        assert_eq!(late.send().problem(409), "version_conflict");
        write(&client, &file, b"again").expect(200);
        let list = client.get(&format!("{}&depth=5", fs("list", &dir))).expect(200);
        let paths: Vec<&str> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["path"].as_str().unwrap())
            .collect();
        assert_eq!(paths, [&format!("{dir}/a"), &format!("{dir}/new"), &file]);
        let pattern = format!("{}&pattern=%5Eag", fs("search", &dir));
        let found = client.get(&pattern).expect(200);
        assert_eq!(
            (&found["items"][0]["path"], &found["items"][0]["text"]),
            (&json!(file), &json!("again"))
        );
        let moved = json!({"from": file, "to": format!("{dir}/c")});
        assert_eq!(client.post("/api/threads/t/fs/move", moved).expect(200)["size"], 5);
        client.delete(&fs("remove", &format!("{dir}/new"))).expect_status(204);
        assert_eq!(stdout(&client, "t", &format!("ls {dir}")), "a\nc\n");
        let missing = client.get(&fs("stat", &file));
        assert_eq!(missing.problem(404), "not_found");
        watch_changes(&client, &dir);
        client.delete(&fs("remove", &format!("{dir}&recursive=true"))).expect_status(204);
        end(&vendor, kind, &server, &["t"]);
    }
}

/// Checks that a client hears of what the shell does to the files of a directory.
fn watch_changes(client: &Client, dir: &str) {
    let watch = |more: &str| {
        let target = format!("/api/threads/t/fs/watch?path={dir}{more}");
        let mut events = client.request("GET", &target).events();
        assert_eq!(events.next().unwrap().name, "ready");
        events
    };
    let (mut below, mut file) = (watch("&recursive=true"), watch("/c"));
    stdout(client, "t", &format!("cd {dir} && mkdir made && echo x >made/x && printf longer >>c"));
    let mut seen = Vec::new();
    // A list may be made between two of the changes.
    while seen.len() < 3 {
        let event = below.next().unwrap();
        let event = (event.name.clone(), event.json()["path"].as_str().unwrap().to_owned());
        if !seen.contains(&event) && event != ("modified".to_owned(), format!("{dir}/made/x")) {
            seen.push(event);
        }
    }
    seen.sort();
    let expected = [("created", "made"), ("created", "made/x"), ("modified", "c")];
    assert_eq!(seen, expected.map(|(name, path)| (name.to_owned(), format!("{dir}/{path}"))));
    let event = file.next().unwrap();
    assert_eq!((&*event.name, &event.json()["path"]), ("modified", &json!(format!("{dir}/c"))));
    stdout(client, "t", &format!("rm -r {dir}/made"));
    let mut removed = [below.next().unwrap(), below.next().unwrap()].map(|event| event.name);
    removed.sort();
    assert_eq!(removed, ["removed", "removed"]);
    let missing = client.get(&format!("/api/threads/t/fs/watch?path={dir}/none"));
    assert_eq!(missing.problem(404), "not_found");
}

#[test]
fn a_directory_is_copied_to_a_vendor_and_back() {
    for (kind, vendor, home, server) in servers() {
        let client = server.client();
        let dir = home.path().join("copied").display().to_string();
        assert_eq!(exec(&client, "t", &format!("mkdir {dir}"))["exit_code"], 0);
        let source = home.path().join("source");
        std::fs::create_dir_all(source.join("deep/empty")).unwrap();
        let large: Vec<u8> = (0..900_000_u32).map(|n| (n % 251) as u8).collect();
        std::fs::write(source.join("deep/large.bin"), &large).unwrap();
        std::fs::write(source.join("a name é.txt"), "text").unwrap();
        let cp = |source: &str, target: &str| {
            let state = home.path().display().to_string();
            run(&["cp", "--json", source, target], &[("STEAD_HOME", &state)])
        };
        let text = |path: &Path| path.display().to_string();
        let copied = cp(&text(&source), &format!("t:{dir}/there"));
        assert!(copied.status.success(), "{copied:?}");
        let copied: Value = serde_json::from_slice(&copied.stdout).unwrap();
        assert_eq!(copied, json!({"files": 2, "bytes": 900_004}));
        let sums =
            stdout(&client, "t", &format!("cd {dir}/there && cat 'a name é.txt' && ls deep"));
        assert_eq!(sums, "textempty\nlarge.bin\n");
        let back = home.path().join("back");
        let copied = cp(&format!("t:{dir}/there"), &text(&back));
        assert!(copied.status.success(), "{copied:?}");
        assert_eq!(std::fs::read(back.join("deep/large.bin")).unwrap(), large);
        assert_eq!(std::fs::read_to_string(back.join("a name é.txt")).unwrap(), "text");
        assert!(back.join("deep/empty").is_dir());
        // A relative path is one of the workspace.
        let refused = cp("t:src", &text(&back));
        let reason = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && reason.contains("workspace of the project"),
            "{reason}"
        );
        end(&vendor, kind, &server, &["t"]);
    }
}
