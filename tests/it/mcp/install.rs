//! `stead mcp install`.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use serde_json::{Value, json};

use harness::{Home, run};

fn install(home: &Path, arguments: &[&str]) -> (bool, String) {
    let arguments = [&["mcp", "install"], arguments].concat();
    let output = run(&arguments, &[("HOME", home.to_str().unwrap())]);
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn each_client_gets_an_entry_in_its_own_file() {
    let home = Home::new();
    let stead = harness::program();
    for (client, file, section) in [
        ("claude", ".claude.json", "mcpServers"),
        ("cursor", ".cursor/mcp.json", "mcpServers"),
        ("vscode", ".config/Code/User/mcp.json", "servers"),
    ] {
        let path = home.path().join(file);
        let (_, printed) = install(home.path(), &[client, "--print"]);
        assert!(printed.contains(file) && printed.contains(section), "{printed}");
        assert!(!path.exists(), "--print changes nothing");
        let (installed, text) = install(home.path(), &[client, "--thread", "build"]);
        assert!(installed && text.contains(path.to_str().unwrap()), "{text}");
        let entry = &read(&path)[section]["stead"];
        assert_eq!(entry["command"], stead);
        assert_eq!(entry["args"], json!(["mcp", "--thread", "build"]));
    }
    let (installed, _) = install(home.path(), &["codex"]);
    assert!(installed);
    let text = fs::read_to_string(home.path().join(".codex/config.toml")).unwrap();
    let table: toml::Table = text.parse().unwrap();
    assert_eq!(table["mcp_servers"]["stead"]["command"].as_str(), Some(stead));
    assert_eq!(table["mcp_servers"]["stead"]["args"][0].as_str(), Some("mcp"));
}

#[test]
fn other_entries_and_permissions_are_kept() {
    let home = Home::new();
    let path = home.path().join(".claude.json");
    let before = r#"{"numStartups": 12, "mcpServers": {"other": {"command": "x"}}, "z": 1.50}"#;
    fs::write(&path, before).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(install(home.path(), &["claude"]).0);
    let after = fs::read_to_string(&path).unwrap();
    assert!(after.contains("1.50"), "{after}");
    let json = read(&path);
    assert_eq!(json["mcpServers"]["other"], json!({"command": "x"}));
    assert_eq!(json["numStartups"], 12);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    let (_, text) = install(home.path(), &["claude"]);
    assert!(text.contains("already"), "{text}");
    assert_eq!(fs::read_to_string(&path).unwrap(), after);
}

#[test]
fn a_file_with_comments_is_refused_and_unchanged() {
    let home = Home::new();
    let path = home.path().join(".cursor/mcp.json");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "{ // mine\n}").unwrap();
    let (installed, text) = install(home.path(), &["cursor"]);
    assert!(!installed && text.contains("--print"), "{text}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "{ // mine\n}");
}
