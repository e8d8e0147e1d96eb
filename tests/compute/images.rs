//! Sandboxes and containers from images that we pull ourselves.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::Output,
};

use machine::namespace::Check;
use serde_json::{Value, json};

use super::{
    containers::{add_program, small_root},
    namespace, registry,
};
use harness::{Client, Home, Server, engines, run, wait_long};

fn stead(home: &Home, arguments: &[&str]) -> Output {
    run(arguments, &[("STEAD_HOME", home.path().to_str().unwrap())])
}

/// Runs a command that must succeed; returns its standard output.
fn succeed(home: &Home, arguments: &[&str]) -> String {
    let output = stead(home, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn exec(client: &Client, terminal: &Value, command: &str) -> String {
    let target = format!("/api/terminals/{}/exec", terminal["terminal_id"].as_str().unwrap());
    let ran = client.post(&target, json!({"command": command})).expect(200);
    ran["stdout"].as_str().unwrap_or_else(|| panic!("{ran}")).to_owned()
}

fn open(client: &Client, thread: &str) -> Value {
    client.post(&format!("/api/threads/{thread}/terminals"), json!({"shell": "sh"})).expect(201)
}

/// Serves an image that has a user, a variable and a working directory. Returns its reference.
fn serve(home: &Home) -> String {
    let source = home.path().join("source");
    small_root(&source);
    fs::write(source.join("etc/passwd"), "app:x:7:7::/tmp:/bin/sh\n").unwrap();
    let settings = json!({"Env": ["GREETING=hello image"], "User": "app", "WorkingDir": "/etc"});
    format!("{}/small:1", registry::serve_configured(&source, &settings))
}

/// Checks that a shell has the settings that [`serve`] gave to its image.
fn check_settings(client: &Client, terminal: &Value) {
    let printed = exec(client, terminal, "echo $GREETING, $USER in $HOME; pwd");
    assert_eq!(printed, "hello image, app in /tmp\n/etc\n");
}

/// An address of this machine at which nothing listens.
fn closed_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The names of the unpacked images.
fn roots(home: &Home) -> Vec<String> {
    let listed = fs::read_dir(home.path().join("pulled-images/roots")).into_iter().flatten();
    listed.flatten().map(|entry| entry.file_name().into_string().unwrap()).collect()
}

#[test]
fn a_sandbox_starts_from_an_image_of_a_registry_and_keeps_it() {
    let home = Home::new();
    let missing = Check::inspect(&namespace(home.path())).missing();
    if !missing.is_empty() {
        eprintln!("skipped: no namespace sandboxes on this machine: {}", missing.join("; "));
        return;
    }
    let image = serve(&home);
    let arguments = ["--provider", "namespace", "--set", "sandbox.warm=0"];
    let more =
        ["--set", "sandbox.egress=none", "--set", "sandbox.disk=64m", "--set", "image.cache=0"];
    let arguments = [&arguments[..], &more].concat();
    let server = Server::start_with(&home, &arguments);
    let client = server.client();
    let mut events = client.request("GET", "/api/events").events();
    client.put("/api/threads/pull", json!({"sandbox": {"image": image}})).expect_success();
    let terminal = open(&client, "pull");
    assert_eq!(exec(&client, &terminal, "cat /etc/mark; ls /workspace"), "of the image\n");
    exec(&client, &terminal, "echo changed > /etc/own");
    check_settings(&client, &terminal);
    let progress = loop {
        let event = events.next().expect("an event").json();
        if event["type"] == "image_progress" {
            break event;
        }
    };
    assert_eq!(progress["image"], json!(image), "{progress}");
    let listed: Value = serde_json::from_str(&succeed(&home, &["image", "ls", "--json"])).unwrap();
    assert_eq!(listed[0]["name"], json!(image), "{listed}");

    let refused = stead(&home, &["image", "rm", &image]);
    let reason = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && reason.contains("in use by lease_"), "{reason}");
    // The name is removed, but not the files below the sandbox's disk.
    succeed(&home, &["image", "rm", "--force", &image, "--set", "image.cache=0"]);
    assert_eq!(succeed(&home, &["image", "ls", "--json"]).trim(), "[]");
    assert_eq!(roots(&home).len(), 1);
    server.kill();
    let server = Server::start_with(&home, &arguments);
    let client = server.client();
    let lease = client.get("/api/threads/pull/lease").expect(200)["lease_id"].clone();
    let lease = lease.as_str().unwrap();
    client.post(&format!("/api/leases/{lease}/suspend"), json!({})).expect_success();
    let terminal = open(&client, "pull");
    assert_eq!(exec(&client, &terminal, "cat /etc/mark /etc/own"), "of the image\nchanged\n");
    check_settings(&client, &terminal);

    // A missing image is refused by its name; a bare name is not looked for elsewhere.
    let absent = image.replace("small:1", "absent:1");
    client.put("/api/threads/absent", json!({"sandbox": {"image": absent}})).expect_success();
    let refused = client.post("/api/threads/absent/exec", json!({"command": "true"}));
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(refused.text().contains("absent:1 does not exist in registry"), "{}", refused.text());
    let refused = client.post("/api/sandboxes", json!({"image": absent}));
    assert_eq!(refused.status, 422, "{}", refused.text());
    for (malformed, word) in [("no/such image", "REGISTRY/"), ("small", "stead image pull")] {
        let refused = client.post("/api/sandboxes", json!({"image": malformed}));
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert!(refused.text().contains(word), "{}", refused.text());
    }
    let down = format!("{}/small:1", closed_address());
    let failed = client.post("/api/sandboxes", json!({"image": down}));
    assert_eq!(failed.status, 503, "{}", failed.text());
    let bare = client.put("/api/threads/bare", json!({"sandbox": {"image": "small"}}));
    assert!((400..500).contains(&bare.status), "{}", bare.text());

    for thread in ["pull", "absent"] {
        client.delete(&format!("/api/threads/{thread}")).expect_success();
    }
    wait_long("the disk to be removed", || {
        let disks = fs::read_dir(home.path().join("disks")).unwrap().count();
        if disks == 0 { Ok(()) } else { Err(disks) }
    });
    drop(server);
    let _server = Server::start_with(&home, &arguments);
    assert_eq!(roots(&home), [""; 0]);
}

#[test]
fn a_refusal_by_a_registry_and_a_timeout_are_different_errors() {
    let home = Home::new();
    let missing = Check::inspect(&namespace(home.path())).missing();
    if !missing.is_empty() {
        eprintln!("skipped: no namespace sandboxes on this machine: {}", missing.join("; "));
        return;
    }
    let Some(registry) = registry::PrivateRegistry::start(home.path()) else { return };
    let image = format!("{}/team/app:1", registry.address);
    let arguments = ["--provider", "namespace", "--set", "sandbox.warm=0"];
    let server = Server::start_with(&home, &arguments);
    let client = server.client();
    let check = |status: u16, code: &str, words: &str| {
        let refused = client.post("/api/sandboxes", json!({"image": image})).expect(status);
        let detail = refused["detail"].as_str().unwrap();
        assert!(refused["code"] == code && detail.contains(words), "{refused}");
    };
    let log_in = |auth: &str| {
        let logins = json!({"auths": {registry.address.to_string(): {"auth": auth}}});
        fs::write(home.path().join("registries.json"), logins.to_string()).unwrap();
    };
    check(
        422,
        "unprocessable",
        "or add credentials to the file that the setting image.credentials",
    );
    log_in("cmVhZGVyOndyb25n");
    check(422, "unprocessable", "check those for 127.0.0.1:");
    log_in("cmVhZGVyOnNlY3JldA==");
    check(422, "unprocessable", "team/app:1 does not exist in registry");
    drop(registry);
    check(503, "provider_unavailable", "is not available");
    assert_eq!(client.get("/api/sandboxes").expect(200)["items"], json!([]));
}

#[test]
fn a_container_uses_an_image_that_we_pulled() {
    for (name, engine) in engines() {
        let home = Home::new();
        let image = serve(&home);
        succeed(&home, &["image", "pull", &image]);
        let host = format!("docker.host={}", engine.address());
        let arguments = ["--provider", "docker", "--set", &host, "--set", "sandbox.warm=0"];
        let more = ["--set", "sandbox.egress=none", "--set", "sandbox.disk=64m"];
        let server = Server::start_with(&home, &[&arguments[..], &more].concat());
        let client = server.client();
        client.put("/api/threads/pulled", json!({"sandbox": {"image": image}})).expect_success();
        let terminal = open(&client, "pulled");
        assert_eq!(exec(&client, &terminal, "cat /etc/mark"), "of the image\n", "{name}");
        check_settings(&client, &terminal);
        client.delete("/api/threads/pulled").expect_success();
        wait_long("the container to be removed", || {
            let left = engine.containers(home.path());
            if left.is_empty() { Ok(()) } else { Err(left) }
        });
    }
}

/// Serves an image with bash, a program in a directory of its own, and settings that lead there.
fn serve_with_bash(home: &Home) -> String {
    let source = home.path().join("source");
    small_root(&source);
    add_program(&source, Path::new("/bin/bash"), "bin/bash");
    for name in ["rm", "cp", "tar", "chmod", "dirname"] {
        symlink("busybox", source.join("bin").join(name)).unwrap();
    }
    fs::create_dir_all(source.join("opt/bin")).unwrap();
    let program = source.join("opt/bin/greet");
    fs::write(&program, "#!/bin/sh\necho $GREETING in $PWD\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let env = ["GREETING=hello image", "PATH=/opt/bin:/usr/bin:/bin"];
    let settings = json!({"Env": env, "WorkingDir": "/etc"});
    format!("{}/small:1", registry::serve_configured(&source, &settings))
}

/// Builds a template of E2B from an image; returns its status.
fn build_template(client: &Client, name: &str, image: &str, steps: Value) -> Value {
    let made = client.post("/v3/templates", json!({"name": name})).expect(202);
    let text = |field: &str| made[field].as_str().unwrap().to_owned();
    let (template, build) = (text("templateID"), text("buildID"));
    client
        .post(
            &format!("/v2/templates/{template}/builds/{build}"),
            json!({"fromImage": image, "steps": steps}),
        )
        .expect_success();
    wait_long("the build to end", || {
        let status =
            client.get(&format!("/templates/{template}/builds/{build}/status")).expect(200);
        match status["status"].as_str() {
            Some("ready" | "error") => Ok(status),
            _ => Err(status),
        }
    })
}

/// Creates a sandbox of Daytona from a Dockerfile; returns its id.
fn build_sandbox(client: &Client, dockerfile: &str) -> String {
    let request = json!({"buildInfo": {"dockerfileContent": dockerfile}});
    let made = client.post("/daytona/sandbox", request).expect(200);
    let id = made["id"].as_str().unwrap().to_owned();
    wait_long("the sandbox to start", || {
        let found = client.get(&format!("/daytona/sandbox/{id}"));
        let state = found.json()["state"].clone();
        if state == "started" { Ok(()) } else { Err(found.text()) }
    });
    id
}

/// Checks that what E2B and Daytona build from an image has its files and its settings.
fn check_builds(client: &Client, image: &str) {
    let ran = |thread: &str, command: &str| {
        let answer =
            client.post(&format!("/api/threads/{thread}/exec"), json!({"command": command}));
        answer.expect(200)["stdout"].as_str().unwrap().to_owned()
    };
    let greet = json!([{"type": "RUN", "args": ["greet > built"]}]);
    let status = build_template(client, "of-image", image, greet.clone());
    assert_eq!(status["status"], "ready", "{status}");
    let made = client.post("/v2/sandboxes", json!({"templateID": "of-image"})).expect(201);
    let e2b = made["sandboxID"].as_str().unwrap().to_owned();
    assert_eq!(
        ran(&e2b, "cat mark built; greet"),
        "of the image\nhello image in /etc\nhello image in /etc\n"
    );

    let steps = build_sandbox(client, &format!("FROM {image}\nRUN greet > built\n"));
    assert_eq!(ran(&steps, "cat mark built"), "of the image\nhello image in /etc\n");
    let plain = build_sandbox(client, &format!("FROM {image}\n"));
    assert_eq!(ran(&plain, "cat mark; greet"), "of the image\nhello image in /etc\n");

    let absent = build_template(client, "absent", &image.replace("small:1", "absent:1"), greet);
    let reason = absent["reason"]["message"].as_str().unwrap();
    assert!(absent["status"] == "error" && reason.contains("absent:1"), "{absent}");
    for sandbox in [e2b, steps, plain] {
        client.delete(&format!("/api/threads/{sandbox}")).expect_success();
    }
}

#[test]
fn templates_of_other_apis_start_from_an_image_of_a_registry() {
    let home = Home::new();
    let missing = Check::inspect(&namespace(home.path())).missing();
    if !missing.is_empty() {
        eprintln!("skipped: no namespace sandboxes on this machine: {}", missing.join("; "));
        return;
    }
    let image = serve_with_bash(&home);
    let arguments = ["--provider", "namespace", "--set", "sandbox.warm=0"];
    let more = ["--set", "sandbox.egress=none", "--set", "sandbox.disk=64m"];
    let server = Server::start_with(&home, &[&arguments[..], &more].concat());
    let client = server.client();
    check_builds(&client, &image);
    let other = Home::new();
    let refused = build_template(&client, "no-bash", &serve(&other), json!([]));
    let reason = refused["reason"]["message"].as_str().unwrap_or_default();
    assert!(reason.contains("has no /bin/bash"), "{refused}");
    let log = refused["logEntries"].to_string();
    assert!(log.contains("pulling: 0 of"), "{log}");
    // On a machine that reaches no registry, the files of the provider take the place of the image.
    let image = format!("{}/small:1", closed_address());
    let steps = json!([{"type": "RUN", "args": ["true"]}]);
    let built = build_template(&client, "unreachable", &image, steps);
    assert_eq!(built["status"], "ready", "{built}");
    let log = built["logEntries"].to_string();
    assert!(
        log.contains("is not available") && log.contains("using the default files of provider"),
        "{log}"
    );
}

#[test]
fn templates_of_other_apis_start_from_an_image_in_a_container() {
    for (_, engine) in engines() {
        let home = Home::new();
        let image = serve_with_bash(&home);
        let host = format!("docker.host={}", engine.address());
        let arguments = ["--provider", "docker", "--set", &host, "--set", "sandbox.warm=0"];
        let more = ["--set", "sandbox.egress=none", "--set", "sandbox.disk=64m"];
        let server = Server::start_with(&home, &[&arguments[..], &more].concat());
        check_builds(&server.client(), &image);
        wait_long("the containers to be removed", || {
            let left = engine.containers(home.path());
            if left.is_empty() { Ok(()) } else { Err(left) }
        });
    }
}
