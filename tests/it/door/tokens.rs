//! The forms of a token, and `stead env`, which prints them for other people's clients.

use std::{fs, process::Command};

use serde_json::{Value, json};

use harness::{Answer, Home, Server, run};

/// A token as the first versions wrote it.
const EARLIER: &str = "c29tZSBlYXJsaWVyIHRva2VuIG9mIHRoaXMgaG9tZSE";

/// Evaluates what `stead env` prints, as a person's shell does, and prints these variables.
fn evaluated(home: &Home, kind: &str, names: &[&str]) -> Vec<String> {
    let program = harness::program();
    let print: String = names.iter().map(|name| format!("echo \"${name}\"; ")).collect();
    let output = Command::new("sh")
        .args(["-c", &format!("eval \"$('{program}' env {kind})\"; {print}")])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("STEAD_HOME", home.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Asks with this token wherever one is taken: as ours, as E2B's key, as Daytona's.
fn opens(server: &Server, token: &str) -> [u16; 3] {
    let stranger = server.stranger();
    let bearer = format!("Bearer {token}");
    let status = |answer: Answer| answer.status;
    [
        status(stranger.request("GET", "/api/threads").header("authorization", &bearer).send()),
        status(stranger.request("GET", "/v2/sandboxes").header("x-api-key", token).send()),
        status(stranger.request("GET", "/daytona/sandbox").header("authorization", &bearer).send()),
    ]
}

#[test]
fn a_token_authorizes_every_api_with_either_prefix() {
    let home = Home::new();
    let server = Server::start(&home);
    let digits = server.token.strip_prefix("stead_").expect("the file has our form");
    assert!(digits.len() == 40 && digits.bytes().all(|it| it.is_ascii_hexdigit()), "{digits}");
    for prefix in ["stead_", "e2b_"] {
        assert_eq!(opens(&server, &format!("{prefix}{digits}")), [200; 3], "{prefix}");
    }
    assert_eq!(opens(&server, digits), [401; 3]);
}

#[test]
fn env_prints_what_each_kind_of_client_needs() {
    let home = Home::new();
    let server = Server::start(&home);
    let url = format!("http://{}", server.address);
    let digits = server.token.strip_prefix("stead_").unwrap();
    let names = ["E2B_API_KEY", "E2B_API_URL", "E2B_SANDBOX_URL", "E2B_VOLUME_API_URL"];
    let expected = [&format!("e2b_{digits}"), &url, &url, &url];
    assert_eq!(evaluated(&home, "e2b", &names), expected.map(String::as_str));
    let daytona = evaluated(&home, "daytona", &["DAYTONA_API_KEY", "DAYTONA_API_URL"]);
    assert_eq!(daytona, [server.token.clone(), format!("{url}/daytona")]);

    let printed = run(&["env", "mcp"], &[("STEAD_HOME", home.path().to_str().unwrap())]);
    let printed: Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!(
        printed["mcpServers"]["stead"],
        json!({
            "type": "http",
            "url": format!("{url}/mcp"),
            "headers": {"Authorization": format!("Bearer {}", server.token)},
        })
    );
}

#[test]
fn a_home_of_an_earlier_version_keeps_its_token_and_gets_the_form_that_clients_accept() {
    let home = Home::new();
    fs::write(home.path().join("token"), format!("{EARLIER}\n")).unwrap();
    let server = Server::start(&home);
    assert_eq!(opens(&server, EARLIER), [200; 3]);
    let key = &evaluated(&home, "e2b", &["E2B_API_KEY"])[0];
    assert!(key.starts_with("e2b_") && key.len() == 44, "{key}");
    assert_eq!(opens(&server, key), [200; 3]);
    assert_eq!(home.token(), EARLIER);
}
