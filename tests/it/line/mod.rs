//! The command line.

mod attach;
mod exec;
mod screen;
mod waiting;

use crate::harness::{Home, Server, run};

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
fn a_refusal_and_a_missing_server_are_said_in_one_line() {
    let home = Home::new();
    let path = home.path().to_str().unwrap();
    let nobody = ["status", "--home", path, "--url", "http://127.0.0.1:1"];
    let output = run(&nobody, &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let start = "stead: no server at 127.0.0.1:1; start one with `stead serve`: ";
    assert!(said.starts_with(start) && said.lines().count() == 1, "{said}");
    assert_eq!(output.status.code(), Some(1));

    let server = Server::start(&home);
    let url = format!("http://{}", server.address);
    let environment = [("STEAD_HOME", path), ("STEAD_TOKEN", "wrong"), ("STEAD_URL", &*url)];
    let output = run(&["leases", "ls"], &environment);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said, "stead: the token is invalid (unauthorized, 401)\n");
}

#[test]
fn every_verb_has_help_and_every_shell_its_completions() {
    let help = String::from_utf8(run(&["--help"], &[]).stdout).unwrap();
    let verbs = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let verbs: Vec<&str> = verbs
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|verb| !verb.is_empty() && *verb != "help")
        .collect();
    for verb in ["serve", "new", "attach", "ls", "send", "snapshot", "logs", "resize", "kill"] {
        assert!(verbs.contains(&verb), "{verb} is not in {help}");
    }
    for verb in verbs {
        let output = run(&[verb, "--help"], &[]);
        assert!(output.status.success() && output.stdout.len() > 100, "{verb}: {output:?}");
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell], &[]);
        assert!(output.status.success() && output.stdout.len() > 1000, "{shell}");
    }
}
