//! Templates are built in sandboxes: after a server was killed during a build, the next one removes the build and
//! reports it as failed.

use serde_json::{Value, json};

use crate::world::World;
use harness::{Client, Server, engines, left, wait_long};

/// Requests and starts a build. Returns the path of the build in the API.
fn build(client: &Client, name: &str, steps: &Value) -> String {
    let requested = client.post("/v3/templates", json!({"name": name})).expect(202);
    let text = |field: &str| requested[field].as_str().unwrap().to_owned();
    let path = format!("templates/{}/builds/{}", text("templateID"), text("buildID"));
    let plan = json!({"fromTemplate": "base", "steps": steps, "force": false});
    client.post(&format!("/v2/{path}"), plan.clone()).expect_status(202);
    client.post(&format!("/v2/{path}"), plan).expect_status(409);
    path
}

fn status(client: &Client, path: &str) -> Value {
    client.get(&format!("/{path}/status")).expect(200)
}

fn run(command: &str) -> Value {
    json!({"type": "RUN", "args": [command]})
}

fn wait_for_end(client: &Client, path: &str) -> Value {
    wait_long("the build to end", || {
        let status = status(client, path);
        let over = ["ready", "error"].contains(&status["status"].as_str().unwrap());
        if over { Ok(status) } else { Err(status) }
    })
}

fn snapshots(client: &Client) -> Vec<Value> {
    let all = client.get("/api/snapshots").expect(200)["items"].as_array().unwrap().clone();
    all.into_iter().map(|snapshot| snapshot["name"].clone()).collect()
}

#[test]
fn a_build_whose_server_was_killed_is_reported_and_removed() {
    let Some(mut world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let client = world.server.client();
    let good = build(&client, "good", &json!([run("echo kept > /opt/file")]));
    assert_eq!(wait_for_end(&client, &good)["status"], "ready");
    let before = snapshots(&client);
    let path = build(&client, "cut", &json!([run("true"), run("echo begun; sleep 10000")]));
    wait_long("the step to begin", || {
        let status = status(&client, &path);
        let lines = status["logEntries"].as_array().unwrap();
        let begun = lines.iter().any(|line| line["message"] == "begun" && line["step"] == "2");
        if begun { Ok(()) } else { Err(status) }
    });
    assert_eq!(
        client.get("/v2/sandboxes").expect(200),
        json!([]),
        "a build is listed as a sandbox"
    );
    let cut = path.rsplit('/').next().unwrap();
    let pid = rustix::process::Pid::from_raw(world.server.pid()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    world.server.wait();
    // As if the server had been killed a moment later: the snapshot exists, but no row refers to it.
    let dir = world.home.path().join("snapshots");
    let mut kept = std::fs::read_dir(&dir).unwrap().flatten().map(|entry| entry.path());
    let kept = kept.find(|path| path.extension().is_some_and(|it| it == "img")).unwrap();
    std::fs::copy(kept, dir.join(format!("build-{cut}.img"))).unwrap();
    // And as if files were being uploaded.
    let files = world.home.path().join("builds/files");
    std::fs::create_dir_all(&files).unwrap();
    std::fs::write(files.join("0123456789abcdef.x.part"), "half").unwrap();

    let arguments =
        ["--provider", "namespace", "--set", "sandbox.disk=64m", "--set", "sandbox.warm=0"];
    world.server = Server::start_with(&world.home, &arguments);
    let client = world.server.client();
    let build_status = wait_for_end(&client, &path);
    assert_eq!(build_status["status"], "error");
    assert_eq!(build_status["reason"]["step"], "2");
    let message = build_status["reason"]["message"].as_str().unwrap();
    assert!(message.contains("server stopped during the build"), "{message}");
    wait_long("the rest of the build to be removed", || {
        let left = (left(world.home.path()), snapshots(&client));
        if left.0.is_empty() && left.1 == before { Ok(()) } else { Err(left) }
    });
    assert_eq!(std::fs::read_dir(files).unwrap().count(), 0);
    // The finished template still works, and the failed one can be built again.
    let made = client.post("/v2/sandboxes", json!({"templateID": "good", "timeout": 600}));
    let id = made.expect(201)["sandboxID"].as_str().unwrap().to_owned();
    let command = json!({"command": "cat /opt/file", "timeout_ms": 60_000});
    let ran = client.post(&format!("/api/threads/{id}/exec"), command).expect(200);
    assert_eq!(ran["stdout"], "kept\n");
    let again = build(&client, "cut", &json!([run("true")]));
    assert_eq!(wait_for_end(&client, &again)["status"], "ready");
}

#[test]
fn deleting_a_template_removes_its_build_and_its_files() {
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let client = world.server.client();
    for step in ["true", "echo begun; sleep 10000"] {
        let path = build(&client, "gone", &json!([run(step)]));
        if step == "true" {
            assert_eq!(wait_for_end(&client, &path)["status"], "ready");
        } else {
            wait_long("the step to begin", || {
                let lines = status(&client, &path)["logEntries"].to_string();
                if lines.contains("\"begun\"") { Ok(()) } else { Err(lines) }
            });
        }
        client.delete("/templates/gone").expect_status(204);
        client.delete("/templates/gone").expect_status(404);
        client.get(&format!("/{path}/status")).expect_status(404);
        wait_long("the rest of the build to be removed", || {
            let left = (left(world.home.path()), snapshots(&client));
            if left.0.is_empty() && left.1.is_empty() { Ok(()) } else { Err(left) }
        });
    }
    // The log is removed after the build has ended, which may take a moment.
    wait_long("the logs to be removed", || {
        let left: Vec<_> = std::fs::read_dir(world.home.path().join("builds")).unwrap().collect();
        let left: Vec<_> = left.into_iter().flatten().map(|entry| entry.file_name()).collect();
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
}

#[test]
fn templates_are_built_in_containers_too() {
    for (name, engine) in engines() {
        let host = format!("docker.host={}", engine.address());
        let arguments = ["--provider", "docker", "--set", &host, "--set", "sandbox.egress=none"];
        let Some(world) = World::new(&arguments) else { return };
        let client = world.server.client();
        let steps = json!([run("echo built > /opt/file"), {"type": "ENV", "args": ["A", "1"]}]);
        let path = build(&client, "contained", &steps);
        let build_status = wait_for_end(&client, &path);
        assert_eq!(build_status["status"], "ready", "{name}: {build_status}");
        let made = client.post("/v2/sandboxes", json!({"templateID": "contained", "timeout": 600}));
        let id = made.expect(201)["sandboxID"].as_str().unwrap().to_owned();
        let command = json!({"command": "cat /opt/file; echo $A", "timeout_ms": 60_000});
        let ran = client.post(&format!("/api/threads/{id}/exec"), command).expect(200);
        assert_eq!(ran["stdout"], "built\n1\n", "{name}");
        client.delete(&format!("/sandboxes/{id}")).expect_status(204);
        client.delete("/templates/contained").expect_status(204);
        assert_eq!(snapshots(&client), Vec::<Value>::new(), "{name}");
    }
}
