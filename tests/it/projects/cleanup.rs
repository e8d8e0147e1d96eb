//! Clean-up on the running product: a project is made old in its row, and the server is down or up.

use serde_json::{Value, json};

use super::{World, backdate, world_with};
use harness::{Home, Server, database, wait_for};

impl World {
    fn plan(&self) -> Vec<Value> {
        let plan = self.client.get("/api/projects/cleanup?dry_run=true").expect(200);
        plan["items"].as_array().unwrap().clone()
    }

    fn age(&self, days: i64) {
        backdate(self.home.path(), &self.project, days);
    }

    fn shown(&self) -> Value {
        self.client.get(&format!("/api/projects/{}", self.project)).expect(200)
    }

    fn is_trashed(&self) -> bool {
        let trash = self.client.get("/api/projects/trash").expect(200);
        trash["items"]
            .as_array()
            .unwrap()
            .iter()
            .any(|it| it["project_id"] == self.project.as_str())
    }

    fn clean_up(&self) -> Vec<Value> {
        let done = self.client.post("/api/projects/cleanup", json!({})).expect(200);
        done["items"].as_array().unwrap().clone()
    }
}

#[test]
fn three_days_of_warnings_reach_log_events_and_command_line() {
    let world = world_with(&[], &[]);
    let mut events = world.client.request("GET", "/api/events").events();
    world.age(27);
    assert_eq!(world.clean_up(), Vec::<Value>::new());
    for days_left in [3, 2, 1] {
        world.age(1);
        let plan = world.plan();
        assert_eq!(plan.len(), 1, "{plan:?}");
        assert_eq!(
            (&plan[0]["action"], &plan[0]["days_left"]),
            (&json!("warn"), &json!(days_left))
        );
        assert!(plan[0]["reason"].as_str().unwrap().contains("unused for"), "{plan:?}");
        // A dry run reports it, and changes nothing.
        assert_eq!(world.shown()["warned_at"].is_null(), days_left == 3);
        world.clean_up();
        // Two checks on one day warn once.
        world.clean_up();
        let event = events.until("project_expiring").json();
        assert_eq!(event["project_id"], world.project.as_str(), "{event}");
        assert!(event["deletes_at"].is_string() && event["reason"].is_string(), "{event}");
        let listed = world.stead_all(&["project", "ls"]);
        let warning = format!("warning: {} is unused and will be deleted in ", world.project);
        assert!(listed.contains(&warning), "{listed}");
    }
    let warned = "it will be deleted in 1 days, at";
    wait_for("the last warning in the log", || match world.server.log() {
        log if log.contains(warned) => Ok(()),
        log => Err(log),
    });
    assert_eq!(world.server.log().matches("it will be deleted in").count(), 3);
    world.age(1);
    assert_eq!(world.plan()[0]["action"], "delete");
    assert!(!world.is_trashed());
    assert_eq!(world.clean_up()[0]["action"], "delete");
    assert_eq!(events.until("project_deleted").json()["project_id"], world.project.as_str());
    assert!(world.is_trashed());
    assert!(world.stead(&["project", "ls", "--deleted"]).contains(&world.project));
    world.stead(&["project", "restore", &world.project]);
    assert!(world.shown()["warned_at"].is_null());
    assert_eq!(world.plan(), Vec::<Value>::new(), "restoring is use");
}

#[test]
fn a_server_that_was_down_on_the_day_warns_first_and_deletes_the_day_after() {
    let mut world = world_with(&[], &[]);
    world.age(90);
    world.restart();
    // A check runs at the start; a project that was never warned about has one more day.
    wait_for("a warning", || match world.shown()["warned_at"].is_string() {
        true => Ok(()),
        false => Err(world.server.log()),
    });
    assert!(!world.is_trashed());
    let plan = world.plan();
    assert_eq!((&plan[0]["action"], &plan[0]["days_left"]), (&json!("warn"), &json!(1)));
    world.age(1);
    world.restart();
    wait_for("the deletion", || match world.is_trashed() {
        true => Ok(()),
        false => Err(world.server.log()),
    });
    // In the trash for seven days, then deleted for good.
    let db = database(world.home.path());
    let older = |days: i64| {
        let by = days * 86_400_000_000;
        db.execute("UPDATE trash SET deleted_at = deleted_at - ?1", [by]).unwrap();
    };
    older(6);
    world.clean_up();
    assert!(world.is_trashed());
    older(1);
    world.clean_up();
    assert!(!world.is_trashed());
    assert!(!world.home.path().join("trash").join(&world.project).exists());
    let path = format!("/api/projects/{}/restore", world.project);
    assert_eq!(world.client.post(&path, json!({})).problem(404), "not_found");
}

#[test]
fn pins_extensions_commands_and_people_keep_a_project() {
    let world = world_with(&[], &[]);
    let path = format!("/api/projects/{}", world.project);
    let post = |verb: &str, body: Value| world.client.post(&format!("{path}/{verb}"), body);
    world.age(100);
    post("pin", json!({})).expect(200);
    assert_eq!(world.plan(), Vec::<Value>::new());
    assert!(world.shown()["deletes_at"].is_null());
    post("unpin", json!({})).expect(200);
    assert_eq!(world.plan().len(), 1);
    post("extend", json!({"days": 7})).expect(200);
    assert_eq!(world.plan(), Vec::<Value>::new());
    for days in [0, 4000] {
        let refused = post("extend", json!({"days": days}));
        assert_eq!(refused.expect_status(400).json()["errors"][0]["pointer"], "/days");
    }

    // A running command and a watching client count as use.
    let world = world_with(&[], &[]);
    let body = json!({"command": "read line", "yield_ms": 1});
    let command = world.client.post("/api/threads/t/exec", body).expect(200);
    world.age(100);
    assert_eq!(world.plan(), Vec::<Value>::new());
    let id = command["command_id"].as_str().unwrap();
    let body = json!({"data": "x\n", "eof": true});
    world.client.post(&format!("/api/commands/{id}/stdin"), body).expect_success();
    wait_for("the command to end", || {
        let receipt = world.client.get(&format!("/api/commands/{id}")).expect(200);
        if receipt["status"] == "finished" { Ok(()) } else { Err(receipt) }
    });
    let terminal = world.client.get("/api/threads/t/terminal").expect(200);
    let terminal = terminal["terminal_id"].as_str().unwrap();
    let target = format!("/api/terminals/{terminal}/stream");
    let mut person = world.client.request("GET", &target).events();
    person.until("snapshot");
    world.age(100);
    assert_eq!(world.plan(), Vec::<Value>::new());
    assert_eq!(world.clean_up(), Vec::<Value>::new());
    assert!(!world.is_trashed());
    // The time of a disconnect counts as the last use.
    world.age(100);
    drop(person);
    wait_for("the departure to count as use", || match world.plan().is_empty() {
        true => Ok(()),
        false => Err(world.plan()),
    });
}

#[test]
fn every_setting_has_a_variable() {
    let home = Home::new();
    let settings = [
        ("STEAD_PROJECT_CLEANUP_ENABLED", "false", "project.cleanup_enabled"),
        ("STEAD_PROJECT_CLEANUP_AFTER_DAYS", "11", "project.cleanup_after_days"),
        ("STEAD_PROJECT_CLEANUP_WARNING_DAYS", "2", "project.cleanup_warning_days"),
        ("STEAD_PROJECT_CLEANUP_CHECK_INTERVAL", "7h", "project.cleanup_check_interval"),
        ("STEAD_PROJECT_TRASH_TIME", "3d", "project.trash_time"),
        ("STEAD_PROJECT_STOP_ON_DISCONNECT", "true", "project.stop_on_disconnect"),
        ("STEAD_PROJECT_RECREATE_ON_RECONNECT", "false", "project.recreate_on_reconnect"),
        ("STEAD_PROJECT_DISCONNECT_GRACE", "3s", "project.disconnect_grace"),
        ("STEAD_MEMORY_SNAPSHOT_INTERVAL", "1m", "memory.snapshot_interval"),
        ("STEAD_MAX_PROJECTS", "5", "max_projects"),
    ];
    let path = home.path().to_str().unwrap().to_owned();
    let mut environment = vec![("STEAD_HOME", path.as_str()), ("HOME", path.as_str())];
    environment.extend(settings.iter().map(|&(name, value, _)| (name, value)));
    let shown = harness::run(&["config"], &environment);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    for (name, value, key) in settings {
        let lines = format!("environment {name}; environment: {name}\n{key} = \"{value}\"");
        assert!(shown.contains(&lines), "no {lines} in {shown}");
    }
    // Without clean-up nothing is ever planned, and with a short check it comes by itself.
    let off = [("STEAD_PROJECT_CLEANUP_ENABLED", "false")];
    let server = Server::start_as(&home, &["--provider", "local"], &off);
    let made = server.client().post("/api/projects", json!({"prefix": "old"})).expect(201);
    let id = made["project_id"].as_str().unwrap().to_owned();
    backdate(home.path(), &id, 400);
    let plan = server.client().post("/api/projects/cleanup", json!({})).expect(200);
    assert_eq!(plan["items"], json!([]));
    server.kill();
    let soon = [
        ("STEAD_PROJECT_CLEANUP_CHECK_INTERVAL", "1s"),
        ("STEAD_PROJECT_CLEANUP_AFTER_DAYS", "500"),
        ("STEAD_PROJECT_CLEANUP_WARNING_DAYS", "0"),
    ];
    let server = Server::start_as(&home, &["--provider", "local"], &soon);
    let client = server.client();
    client.get(&format!("/api/projects/{id}")).expect(200);
    backdate(home.path(), &id, 400);
    wait_for("the check to come", || {
        let status = client.get(&format!("/api/projects/{id}")).status;
        if status == 404 { Ok(()) } else { Err(status) }
    });
}
