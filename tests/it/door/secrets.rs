//! Secrets in the environment of a shell, and permissions of the files in the home.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};

use serde_json::json;

use harness::{Home, Server};

#[test]
fn secrets_in_the_environment_are_masked_unless_the_owner_asks_for_them() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    // The value is in no command text: only the shell knows it.
    let command = "export API_TOKEN=$(printf 'hun%s' ter2) COLOUR=blue; DB_PASSWORD=$API_TOKEN";
    let target = "/api/threads/t/exec";
    let ran = client.post(target, json!({"command": command})).expect(200);
    let expected = json!({"API_TOKEN": "***", "COLOUR": "blue"});
    assert_eq!(ran["changes"]["env"]["set"], expected, "{ran}");
    let id = ran["command_id"].as_str().unwrap();
    let terminal = ran["terminal_id"].as_str().unwrap();
    let streamed = client.request("POST", target).header("accept", "text/event-stream");
    let command = "export SECOND_TOKEN=$API_TOKEN";
    let exit = streamed.json(&json!({"command": command})).events().until("exit").json();
    assert_eq!(exit["changes"]["env"]["set"], json!({"SECOND_TOKEN": "***"}), "{exit}");
    let version = exit["version"].as_u64().unwrap();

    let revealing = [
        "/api/threads/t/terminal".to_owned(),
        format!("/api/terminals/{terminal}"),
        format!("/api/commands/{id}"),
        format!("/api/terminals/{terminal}/versions/{version}"),
    ];
    let others = [
        "/api/terminals".to_owned(),
        "/api/threads".to_owned(),
        "/api/threads/t/terminals".to_owned(),
        format!("/api/terminals/{terminal}/commands"),
        format!("/api/terminals/{terminal}/versions"),
        format!("/session/t/pty/{terminal}"),
        format!("/api/terminals/{terminal}/versions/{version}?since=1"),
    ];
    for target in revealing.iter().chain(&others) {
        let shown = client.get(target).expect_status(200).text();
        assert!(!shown.contains("hunter2"), "{target}: {shown}");
    }
    for target in &revealing {
        let shown = client.get(&format!("{target}?reveal=true")).expect_status(200).text();
        assert!(shown.contains("hunter2"), "{target}: {shown}");
    }
    let patched = client.patch(
        &format!("/api/terminals/{terminal}/env"),
        json!({"set": {"THIRD_KEY": "hunter2", "SHAPE": "round"}}),
    );
    let patched = patched.expect(200);
    assert_eq!(patched["env_delta"]["THIRD_KEY"], "***", "{patched}");
    assert_eq!(patched["env_delta"]["SHAPE"], "round", "{patched}");

    let command = "echo $API_TOKEN $DB_PASSWORD $THIRD_KEY";
    let ran = client.post(target, json!({"command": command})).expect(200);
    assert_eq!(ran["stdout"], "hunter2 hunter2 hunter2\n");
}

#[test]
fn others_cannot_write_the_files_of_a_server_that_started_without_a_umask() {
    let home = Home::new();
    let arguments = ["sh", "-c", "umask 000; exec \"$@\"", "sh"];
    let server = Server::start_beneath(&home, &arguments).unwrap();
    let client = server.client();
    let command = json!({"command": "umask; touch by-the-shell"});
    let ran = client.post("/api/threads/t/exec", command).expect(200);
    assert_eq!(ran["stdout"], "0022\n");
    for path in ["/workspace/a/b", "/memories/hot/c", "/memories/persistent/d/e"] {
        let target = format!("/api/threads/t/fs/write?path={path}&create_dirs=true");
        client.request("PUT", &target).body(b"x").send().expect(201);
    }
    let mut left = vec![home.path().to_owned()];
    let mut found = Vec::new();
    while let Some(path) = left.pop() {
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        let kind = metadata.file_type();
        // Connecting to a socket needs the right to search its directory, which only the owner has.
        if kind.is_symlink() || kind.is_socket() {
            continue;
        }
        if metadata.permissions().mode() & 0o022 != 0 {
            found.push((path.clone(), metadata.permissions().mode() & 0o777));
        }
        if metadata.is_dir() && path.file_name().is_none_or(|name| name != "person") {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    assert!(found.is_empty(), "{found:?}");
}
