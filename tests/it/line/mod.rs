//! The command line.

mod attach;
mod exec;
mod lists;
mod sandboxes;
mod screen;
mod scripts;
mod top;
mod waiting;

use harness::{Home, Server, run};

#[test]
fn the_command_line_finds_the_server_by_its_home() {
    let home = Home::new();
    let server = Server::start(&home);
    let path = home.path().to_str().unwrap();
    let output = run(&["status", "--json"], &[("STEAD_HOME", path)]);
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["ready"], "yes", "{output:?}");
    assert_eq!(status["server"], server.address.to_string());
    let link = run(&["login", "--home", path], &[]);
    let link = String::from_utf8(link.stdout).unwrap();
    let target = link.trim().strip_prefix(&format!("http://{}", server.address)).unwrap();
    server.stranger().get(target).expect_status(303);
}

#[test]
fn the_token_of_a_home_is_not_sent_to_other_machines() {
    let home = Home::new();
    let _server = Server::start(&home);
    let path = home.path().to_str().unwrap();
    let entry = |url| run(&["env", "mcp", "--url", url], &[("STEAD_HOME", path)]);
    let own = entry("http://localhost:7832");
    assert!(own.status.success() && !own.stdout.is_empty(), "{own:?}");
    let other = entry("https://stead.example.com");
    assert_eq!((other.status.code(), other.stdout.is_empty()), (Some(1), true), "{other:?}");
    let stderr = String::from_utf8_lossy(&other.stderr);
    assert!(stderr.contains("no token found; set STEAD_TOKEN"), "{stderr}");
}

#[test]
fn a_refusal_and_a_missing_server_are_reported_in_one_line() {
    let home = Home::new();
    let path = home.path().to_str().unwrap();
    let no_server = ["status", "--home", path, "--url", "http://127.0.0.1:1"];
    let output = run(&no_server, &[]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let start = "stead: no server at 127.0.0.1:1; start one with `stead serve`: ";
    assert!(stderr.starts_with(start) && stderr.lines().count() == 1, "{stderr}");
    assert_eq!(output.status.code(), Some(1));

    let server = Server::start(&home);
    let url = format!("http://{}", server.address);
    let environment = [("STEAD_HOME", path), ("STEAD_TOKEN", "wrong"), ("STEAD_URL", &*url)];
    let output = run(&["leases", "ls"], &environment);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(stderr, "stead: the token is invalid (unauthorized, 401)\n");
}

/// The help of a command, and its subcommands.
fn help(command: &[&str]) -> (String, Vec<String>) {
    let output = run(&[command, &["--help"]].concat(), &[]);
    assert!(output.status.success(), "{command:?}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !name.is_empty() && *name != "help")
        .map(str::to_owned)
        .collect();
    (text, names)
}

/// Commands that print a list.
const LISTS: [&str; 10] = [
    "ls",
    "search",
    "history",
    "providers",
    "ports",
    "versions",
    "messages",
    "sessions",
    "snapshots",
    "egress",
];

#[test]
fn every_command_has_an_example_and_every_list_its_options() {
    let (text, commands) = help(&[]);
    for expected in ["serve", "new", "attach", "ls", "send", "snapshot", "logs", "resize", "kill"] {
        assert!(commands.iter().any(|name| name == expected), "{expected} is not in {text}");
    }
    assert!(text.contains("Exit status: 0 success, 1 failure, 2 wrong usage."), "{text}");
    let check = |command: &[&str], text: &str| {
        let example = format!("stead {}", command.join(" "));
        assert!(text.contains("Example") && text.contains(&example), "{command:?}: {text}");
        let is_list = LISTS.contains(command.last().unwrap());
        let options = ["--json", "--quiet", "--watch"];
        let has_all = options.iter().all(|option| text.contains(option));
        assert!(!is_list || has_all, "{command:?}: {text}");
    };
    for command in &commands {
        let (text, verbs) = help(&[command]);
        if verbs.is_empty() {
            check(&[command], &text);
        }
        for verb in &verbs {
            check(&[command, verb], &help(&[command, verb]).0);
        }
    }
    for noun in
        ["threads", "sessions", "terminals", "leases", "projects", "memories", "shares", "images"]
    {
        assert!(!help(&[noun]).1.is_empty(), "{noun}");
    }
}

#[test]
fn an_id_may_be_given_by_a_unique_prefix() {
    let home = Home::new();
    let _server = Server::start(&home);
    let path = home.path().to_str().unwrap();
    let stead = |arguments: &[&str]| {
        let output = run(arguments, &[("STEAD_HOME", path)]);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        (text(&output.stdout), text(&output.stderr))
    };
    let project = stead(&["project", "create", "demo"]).0;
    assert!(stead(&["project", "show", "demo"]).0.contains(&project));
    let terminal = stead(&["new", "-t", "main", "-d"]).0;
    let (table, stderr) = stead(&["terminal", "show", &terminal[..terminal.len() - 4]]);
    assert!(table.contains(&terminal), "{table}{stderr}");
    // Times are relative.
    assert!(!table.lines().any(|line| line.ends_with('Z')), "{table}");
    let missing = "stead: no terminal \"term_f\"; `stead terminal ls` lists them";
    assert_eq!(stead(&["snapshot", "term_f"]).1, missing);

    stead(&["exec", "--thread", "builder", "--", "echo built"]);
    let command = stead(&["history", "-t", "build", "--quiet"]).0;
    assert!(command.starts_with("cmd_"), "{command}");
    let prefix = &command[..command.len() - 4];
    assert_eq!(stead(&["output", prefix]).0, "built");
    assert_eq!(stead(&["wait", prefix]), Default::default());
    assert_eq!(
        stead(&["output", "cmd_f"]).1,
        "stead: no command \"cmd_f\"; `stead history` lists them"
    );
    assert!(stead(&["thread", "show", "build"]).0.contains("builder"));
    // What changes something takes no prefix of a thread, because the thread that was meant may be gone.
    for change in [&["thread", "rm", "build"][..], &["kill", "build"], &["rollback", "build", "1"]]
    {
        assert!(stead(change).1.contains("not_found"), "{change:?}");
    }
    let share = stead(&["share", "create", "builder", "--json"]).0;
    let share: serde_json::Value = serde_json::from_str(&share).unwrap();
    let share = share["share_id"].as_str().unwrap();
    assert_eq!(stead(&["share", "revoke", &share[..share.len() - 4]]), Default::default());
    let ask =
        ["handoff", "ask", "builder", "--kind", "approval", "--reason", "Deploy?", "--detached"];
    let (handoff, refusal) = stead(&ask);
    assert!(handoff.starts_with("handoff_"), "{refusal}");
    let decline = ["handoff", "decline", &handoff[..handoff.len() - 4]];
    assert_eq!(stead(&decline), Default::default());
    // It is settled, and still found.
    assert!(stead(&decline).1.contains("declined"), "{:?}", stead(&decline));
}

#[test]
fn a_terminal_is_named_by_an_option_or_first() {
    let home = Home::new();
    let server = Server::start(&home);
    let path = home.path().to_str().unwrap();
    let stead = |arguments: &[&str]| {
        let output = run(arguments, &[("STEAD_HOME", path)]);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    stead(&["exec", "--thread", "build", "--", "cd /usr; echo one"]);
    for named in
        [&["build"][..], &["-t", "build"], &["--terminal", "build"], &["--thread", "build"]]
    {
        let ask = |verb: &[&str], rest: &[&str]| stead(&[verb, named, rest].concat());
        let commands =
            ["snapshot", "logs", "record", "versions", "history", "wait", "ports", "fork"];
        for verb in commands {
            ask(&[verb], &[]);
        }
        ask(&["resize"], &["101x31"]);
        ask(&["rollback"], &["1", "--json"]);
        ask(&["kill"], &["--signal", "CONT"]);
        ask(&["terminal", "show"], &[]);
    }
    let terminal = server.client().get("/api/threads/build/terminals").expect(200);
    assert_eq!(
        (&terminal["items"][0]["cols"], &terminal["items"][0]["rows"]),
        (&101.into(), &31.into())
    );
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell], &[]);
        assert!(output.status.success() && output.stdout.len() > 1000, "{shell}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let home = Home::new();
    let output = run(&["man", home.path().to_str().unwrap()], &[]);
    assert!(output.status.success(), "{output:?}");
    let help = run(&["--help"], &[]);
    let help = String::from_utf8(help.stdout).unwrap();
    let commands = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let commands = commands.take_while(|line| line.starts_with("  "));
    let names: Vec<&str> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() > 20, "{help}");
    let pages = names.iter().filter(|name| **name != "help").map(|name| format!("stead-{name}.1"));
    for page in pages.chain(["stead.1".to_owned(), "stead-thread-create.1".to_owned()]) {
        let text = std::fs::read_to_string(home.path().join(&page)).expect(&page);
        assert!(text.contains(".SH NAME"), "{page}: {text}");
    }
}
