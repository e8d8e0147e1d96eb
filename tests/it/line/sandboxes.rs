//! `stead sandbox`.

use std::{fs, process::Command};

use harness::{Home, Server, run};

#[test]
fn a_sandbox_is_found_by_its_name_and_by_a_prefix_of_its_id() {
    let home = Home::new();
    let _server = Server::start(&home);
    let path = home.path().to_str().unwrap();
    let stead = |args: &[&str]| {
        let output = run(args, &[("STEAD_HOME", path)]);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let create = ["sandbox", "create", "build", "--label", "team=web", "--timeout", "1h", "-q"];
    let (_, id, _) = stead(&create);
    assert!(id.starts_with("sb_"), "{id}");
    assert_eq!(stead(&create).1, id, "the name is taken by the same sandbox");
    assert_eq!(stead(&["exec", "-t", &id, "--", "echo", "inside"]).1, "inside");
    assert_eq!(stead(&["exec", "-t", "build", "--", "echo", "by name"]).1, "by name");
    stead(&["exec", "--thread", "other", "--", "echo by name"]);
    let (_, terminals, _) = stead(&["ls", "-t", "build"]);
    let (_, new, _) = stead(&["new", "-t", "build", "-d"]);
    assert!(!terminals.contains(&new), "{terminals}");
    assert!(stead(&["ls", "-t", "build"]).1.contains(&new), "the terminal is in the sandbox");
    assert!(stead(&["ls", "-t", &new]).1.contains(&new), "a terminal stands for its thread");
    let (_, found, _) = stead(&["search", "BY NAME"]);
    assert!(found.starts_with("other  "), "{found}");
    assert_eq!(found.matches("\n  | by name").count(), 2, "{found}");
    let (_, found, _) = stead(&["search", "-t", "build", "BY NAME", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found.as_array().unwrap().len(), 1, "{found}");
    assert_eq!(found[0]["thread_id"], id.as_str(), "{found}");
    let (matched, _, error) = stead(&["search", "nowhere to be found"]);
    assert!(!matched && error.starts_with("stead: no match in 3 commands"), "{error}");
    let (_, table, _) = stead(&["sandboxes", "ls"]);
    assert!(table.starts_with("SANDBOX") && table.contains("build"), "{table}");
    assert_eq!(stead(&["sandbox", "ls", "-q", "--label", "team=db"]).1, "");
    assert_eq!(stead(&["sandbox", "ls", "-q", "--state", "running"]).1, id);
    stead(&["sandbox", "pause", "build"]);
    let (_, shown, _) = stead(&["sandbox", "show", &id[..20], "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown["state"], &shown["name"]), (&"paused".into(), &"build".into()));
    let (found, _, error) = stead(&["sandbox", "show", "none"]);
    assert!(!found && error.contains("no sandbox \"none\"; `stead sandbox ls`"), "{error}");
    let (created, _, error) = stead(&["sandbox", "create", "--provider", "moon"]);
    assert!(!created && error.contains("/provider: must be one of"), "{error}");
    assert!(stead(&["sandbox", "rm", "build"]).0);
    assert_eq!(stead(&["sandbox", "ls", "-q"]).1, "");
}

#[test]
fn a_new_sandbox_gets_a_repository() {
    let home = Home::new();
    let _server = Server::start(&home);
    let path = home.path().to_str().unwrap();
    let stead = |args: &[&str]| {
        let output = run(args, &[("STEAD_HOME", path)]);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let directory = home.path().join("local app");
    fs::create_dir_all(directory.join("src")).unwrap();
    fs::write(directory.join("src/main.py"), "print('local')\n").unwrap();
    let source = directory.to_str().unwrap();
    let (created, id, error) = stead(&["sandbox", "create", "local", "-q", "--repo", source]);
    assert!(created && id.starts_with("sb_"), "{id} {error}");
    assert_eq!(stead(&["exec", "-t", "local", "--", "cat local*/src/main.py"]).1, "print('local')");

    let git = |arguments: &[&str]| {
        let author = ["-c", "user.name=a", "-c", "user.email=a@a"];
        let mut git = Command::new("git");
        let ran = git.arg("-C").arg(&directory).args(author).args(arguments).output();
        assert!(ran.unwrap().status.success(), "{arguments:?}");
    };
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "first"]);
    fs::rename(&directory, home.path().join("it's.git")).unwrap();
    let url = format!("file://{path}/it's.git");
    let (created, id, error) = stead(&["sandbox", "create", "cloned", "-q", "--repo", &url]);
    assert!(created && id.starts_with("sb_") && error.contains("Cloning into"), "{id} {error}");
    let show = "cd it*s && git log --format=%s && cat src/main.py";
    assert_eq!(stead(&["exec", "-t", "cloned", "--", show]).1, "first\nprint('local')");

    let (created, _, error) = stead(&["sandbox", "create", "none", "--repo", "/absent"]);
    assert!(!created && error.contains("neither a URL nor a directory"), "{error}");
    assert!(!stead(&["sandbox", "show", "none"]).0, "nothing is created");
    let url = format!("file://{path}/absent.git");
    let (created, _, error) = stead(&["sandbox", "create", "half", "--repo", &url]);
    assert!(!created && error.contains("runs, but without its repository"), "{error}");
}
