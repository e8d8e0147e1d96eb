//! Volumes are shared by sandboxes and outlive them.

use serde_json::{Value, json};

use crate::world::World;
use harness::{Client, Server, engines, left, wait_long};

fn create(client: &Client, volumes: Value) -> String {
    let made = client.post("/daytona/sandbox", json!({"volumes": volumes})).expect(200);
    made["id"].as_str().unwrap().to_owned()
}

/// Returns the output of a command in a sandbox.
fn output(client: &Client, sandbox: &str, command: &str) -> String {
    let target = format!("/daytona/toolbox/{sandbox}/process/execute");
    let ran = client.post(&target, json!({"command": command})).expect(200);
    ran["result"].as_str().unwrap().to_owned()
}

fn shared_and_kept(arguments: &[&str]) {
    let all = [arguments, &["--set", "sandbox.egress=none"]].concat();
    let Some(mut world) = World::new(&all) else { return };
    let client = world.server.client();
    let volume = client.post("/daytona/volumes", json!({"name": "shared"})).expect(200);
    let id = volume["id"].as_str().unwrap();
    client.post("/daytona/volumes", json!({"name": "shared"})).expect(409);
    let mount = json!([{"volumeId": id, "mountPath": "/mnt/shared"}]);
    // By name, and only a subdirectory.
    let part = json!([{"volumeId": "shared", "mountPath": "/opt/deep/part", "subpath": "a/b"}]);
    let (one, two) = (create(&client, mount.clone()), create(&client, part));
    let written =
        "echo first > /mnt/shared/a/b/file; mkdir /mnt/shared/d; stat -c %u:%g /mnt/shared/d";
    assert_eq!(output(&client, &one, written), "0:0\n");
    assert_eq!(
        output(&client, &two, "cat /opt/deep/part/file; ls /opt/deep/part"),
        "first\nfile\n"
    );
    let sandbox_view = client.get(&format!("/daytona/sandbox/{one}")).expect(200);
    assert_eq!(sandbox_view["volumes"], mount);
    client.delete(&format!("/daytona/volumes/{id}")).expect(409);
    // The volume outlives the server, and a stopped sandbox gets it back.
    let pid = rustix::process::Pid::from_raw(world.server.pid()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    world.server.wait();
    let again = ["--set", "sandbox.disk=64m", "--set", "sandbox.warm=0"];
    let provider: &[&str] =
        if arguments.contains(&"--provider") { &[] } else { &["--provider", "namespace"] };
    world.server = Server::start_with(&world.home, &[&again, provider, &all].concat());
    let client = world.server.client();
    output(&client, &two, "echo second > /opt/deep/part/file");
    client.post(&format!("/daytona/sandbox/{one}/stop"), json!({})).expect(200);
    client.post(&format!("/daytona/sandbox/{one}/start"), json!({})).expect(200);
    assert_eq!(output(&client, &one, "cat /mnt/shared/a/b/file"), "second\n");
    for sandbox in [&one, &two] {
        client.delete(&format!("/daytona/sandbox/{sandbox}")).expect(200);
    }
    let three = create(&client, mount);
    assert_eq!(output(&client, &three, "cat /mnt/shared/a/b/file"), "second\n");
    client.delete(&format!("/daytona/sandbox/{three}")).expect(200);
    client.delete(&format!("/daytona/volumes/{id}")).expect_success();
    client.get("/daytona/volumes/by-name/shared").expect(404);
    client
        .post("/daytona/sandbox", json!({"volumes": [{"volumeId": id, "mountPath": "/a"}]}))
        .expect(404);
    wait_long("everything to be removed", || {
        let left = left(world.home.path());
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
}

#[test]
fn a_volume_is_shared_and_outlives_sandboxes_and_servers() {
    shared_and_kept(&[]);
}

#[test]
fn containers_share_volumes_too() {
    for (_, engine) in engines() {
        let host = format!("docker.host={}", engine.address());
        shared_and_kept(&["--provider", "docker", "--set", &host]);
    }
}

#[test]
fn a_link_in_a_volume_does_not_lead_out_of_it() {
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let client = world.server.client();
    client.post("/daytona/volumes", json!({"name": "v"})).expect(200);
    let one = create(&client, json!([{"volumeId": "v", "mountPath": "/mnt/v"}]));
    output(&client, &one, "ln -s /root /mnt/v/out; ln -s / /mnt/v/all");
    for subpath in ["out", "all/root", "all"] {
        let volumes = json!([{"volumeId": "v", "mountPath": "/mnt/v", "subpath": subpath}]);
        let refused = client.post("/daytona/sandbox", json!({"volumes": volumes}));
        assert!(refused.status >= 400, "{subpath}: {}", refused.text());
    }
    for (path, subpath) in [("/proc/x", ""), ("/mnt/../etc", ""), ("/mnt/a", "../..")] {
        let volumes = json!([{"volumeId": "v", "mountPath": path, "subpath": subpath}]);
        client.post("/daytona/sandbox", json!({"volumes": volumes})).expect(400);
    }
}

#[test]
fn a_volume_with_a_size_fills_up_alone() {
    let Some(world) = World::new(&["--set", "sandbox.egress=none"]) else { return };
    let client = world.server.client();
    client.post("/daytona/volumes", json!({"name": "tiny", "size": 1})).expect(400);
    let created =
        client.post("/daytona/volumes", json!({"name": "v", "size": 32 << 20})).expect(200);
    assert_eq!(created["sizeBytes"], 32 << 20, "{created}");
    let volumes = json!([{"volumeId": "v", "mountPath": "/mnt/v"}]);
    let (one, two) = (create(&client, volumes.clone()), create(&client, volumes));
    let fill = "head -c 64m /dev/zero 2>&1 > /mnt/v/big; echo $?; echo here > /root/other; cat /root/other";
    let filled = output(&client, &one, fill);
    assert!(filled.contains("No space left") && filled.ends_with("1\nhere\n"), "{filled}");
    // The sandboxes keep running, and both see the volume.
    let freed = output(
        &client,
        &two,
        "ls /mnt/v; rm /mnt/v/big; echo kept > /mnt/v/small; cat /mnt/v/small",
    );
    assert_eq!(freed, "big\nkept\n");
    assert_eq!(output(&client, &one, "cat /mnt/v/small"), "kept\n");
}
