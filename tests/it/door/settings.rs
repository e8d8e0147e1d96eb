//! `stead config`, and settings the server refuses to start with.

use harness::{Home, run};

#[test]
fn config_prints_the_source_of_each_value() {
    let home = Home::new();
    std::fs::write(home.path().join("stead.toml"), "[terminal]\nscrollback = 100\n").unwrap();
    let path = home.path().to_str().unwrap();
    let output = run(
        &["config", "--json", "--home", path, "--listen", "127.0.0.1:9"],
        &[("STEAD_PROVIDER", "local")],
    );
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |key: &str| {
        let shown = shown.as_array().unwrap().iter().find(|one| one["key"] == key).unwrap();
        (shown["value"].clone(), shown["origin"]["from"].clone())
    };
    assert_eq!(of("listen"), ("127.0.0.1:9".into(), "flag".into()));
    assert_eq!(of("provider"), ("local".into(), "environment".into()));
    assert_eq!(of("terminal.scrollback"), ("100".into(), "file".into()));
    assert_eq!(of("limits.requests"), ("1024".into(), "default".into()));
}

#[test]
fn a_server_without_auth_on_a_public_address_does_not_start() {
    let home = Home::new();
    let path = home.path().to_str().unwrap();
    let output = run(&["serve", "--no-auth", "--listen", "0.0.0.0:0", "--home", path], &[]);
    assert!(!output.status.success());
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "stead: no_auth is refused on 0.0.0.0:0: without a token only a loopback address is \
         allowed\n"
    );
}

#[test]
fn a_second_server_does_not_start_in_the_same_home() {
    let home = Home::new();
    let server = harness::Server::start(&home);
    let path = home.path().to_str().unwrap();
    let output = run(&["serve", "--listen", "127.0.0.1:0", "--home", path], &[]);
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains(&format!("pid {}", server.pid())), "{errors}");
}
