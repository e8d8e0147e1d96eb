//! Pods of a real Kubernetes, which `tests/kubernetes/run` starts. Without it, these tests are skipped.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use cloud::{Cloud, CloudOptions, KubernetesAccess, KubernetesOptions};
use model::{Instance, InstanceId, LeaseId, Timestamp};
use provider::{Fidelity, Intent, Observed, Provider, ProviderError};
use serde_json::{Value, json};

use super::cloud::stdout;
use harness::{Client, Home, Server, let_pass, terminal::exec, wait_for, wait_long};

/// Names the directory of the cluster.
const CLUSTER: &str = "STEAD_TEST_KUBERNETES";
/// Where the cluster answers an administrator's requests.
const ADMINISTRATOR: ([u8; 4], u16) = ([127, 0, 0, 1], 8001);
const NAMESPACE: &str = "agents";
/// The images that the cluster has.
const IMAGE: &str = "stead.test/debian:1";
const HOST_IMAGE: &str = "stead.test/stead:1";

/// The cluster that the tests run in.
pub struct Cluster(PathBuf);

impl Cluster {
    /// Returns the cluster, or `None` with a message if there is none.
    pub fn of_tests() -> Option<Cluster> {
        let found = std::env::var_os(CLUSTER).map(|dir| Cluster(dir.into()));
        if found.is_none() {
            println!("skipped: {CLUSTER} is not set; `make test-kubernetes` sets it");
        }
        found
    }

    fn kubeconfig(&self) -> PathBuf {
        self.0.join("kubeconfig")
    }

    pub fn options(&self) -> KubernetesOptions {
        KubernetesOptions {
            access: KubernetesAccess::from_kubeconfig(&self.kubeconfig(), None).unwrap(),
            namespace: None,
            image: IMAGE.to_owned(),
            pull_policy: "Never".to_owned(),
            pull_secrets: vec![],
            service_account: None,
            node_selector: vec![],
            tolerations: vec![],
            runtime_class: None,
            user: 1000,
            cpus: 0.5,
            memory_bytes: 256 << 20,
            disk_bytes: 256 << 20,
            storage_class: None,
            host_image: Some(HOST_IMAGE.to_owned()),
            start_timeout: Duration::from_secs(60),
        }
    }

    /// Returns the provider for a home. The directory of a pod's files has the same path as the home, so that the
    /// processes of a test are found by it.
    pub fn provider(&self, home: &Path) -> Cloud {
        provider(home, self.options())
    }

    /// Starts a server whose threads are pods, with further settings.
    fn server(&self, home: &Home, settings: &[&str]) -> Server {
        let config = format!("kubernetes.config={}", self.kubeconfig().display());
        let image = format!("kubernetes.image={IMAGE}");
        let host = format!("kubernetes.host_image={HOST_IMAGE}");
        let mut own = vec![&*config, &image, &host];
        own.extend([
            "kubernetes.pull_policy=Never",
            "kubernetes.cpus=0.5",
            "kubernetes.memory=256MiB",
            "kubernetes.disk=256MiB",
        ]);
        own.extend(settings);
        let mut arguments = vec!["--provider", "kubernetes"];
        arguments.extend(own.into_iter().flat_map(|setting| ["--set", setting]));
        Server::start_with(home, &arguments)
    }

    /// Kills the API server, which is then started again.
    fn kill_api_server(&self) {
        let pid = std::fs::read_to_string(self.0.join("kube-apiserver.pid")).unwrap();
        let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        wait_for("another API server", || {
            let now = std::fs::read_to_string(self.0.join("kube-apiserver.pid")).unwrap();
            if now.trim() == pid.as_raw_nonzero().to_string() { Err(now) } else { Ok(()) }
        });
    }
}

fn provider(home: &Path, options: KubernetesOptions) -> Cloud {
    let cloud = CloudOptions {
        executable: harness::program().into(),
        inside: home.join("inside").display().to_string(),
        ..CloudOptions::new(home)
    };
    Cloud::kubernetes(options, cloud).unwrap()
}

fn administrator() -> Client {
    Client::new(SocketAddr::from(ADMINISTRATOR), None)
}

/// Returns the objects of a kind that belong to a home.
fn objects(kind: &str, home: &Home) -> Vec<Value> {
    let owner = std::fs::read_to_string(home.path().join("cloud-name")).unwrap_or_default();
    let target =
        format!("/api/v1/namespaces/{NAMESPACE}/{kind}?labelSelector=stead_home%3D{owner}");
    administrator().get(&target).expect(200)["items"].as_array().unwrap().clone()
}

fn names(kind: &str, home: &Home) -> Vec<String> {
    let name = |object: Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    objects(kind, home).into_iter().map(name).collect()
}

/// Waits until a home has nothing in the cluster.
fn is_left_empty(home: &Home) {
    for kind in ["pods", "persistentvolumeclaims"] {
        wait_for("nothing to be left", || match names(kind, home) {
            left if left.is_empty() => Ok(()),
            left => Err(left),
        });
    }
}

fn intent() -> Intent {
    Intent {
        lease_id: LeaseId::fresh(),
        generation: 1,
        instance_id: InstanceId::fresh(),
        spec: Value::Null,
    }
}

async fn create(provider: &dyn Provider, intent: &Intent) -> Instance {
    let created = provider.create(intent).await.unwrap();
    Instance {
        instance_id: intent.instance_id.clone(),
        generation: intent.generation,
        reference: created.reference,
        started_at: Timestamp::now(),
    }
}

async fn script(provider: &dyn Provider, instance: &Instance, text: &str) -> String {
    let ran = provider.scripts().unwrap().run_script(instance, text).await.unwrap();
    assert_eq!(ran.exit_code, Some(0), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

/// Kills the host of an instance, from another process of its pod.
pub async fn kill_host(provider: &dyn Provider, home: &Path, instance: &Instance) {
    let pid = home.join("inside").join(format!("stead-{}", instance.instance_id)).join("host.pid");
    script(provider, instance, &format!("kill -9 $(cat {})", pid.display())).await;
}

#[test]
fn a_terminal_runs_in_a_pod() {
    let Some(cluster) = Cluster::of_tests() else { return };
    let home = Home::new();
    let server = cluster.server(&home, &[]);
    let client = server.client();
    let began = Instant::now();
    assert_eq!(stdout(&client, "t", "cd /usr; export A=1; echo $((6 * 7))"), "42\n");
    println!("the first command of a pod ended after {} ms", began.elapsed().as_millis());
    assert_eq!(names("pods", &home).len(), 1);
    let both = exec(&client, "t", "pwd; echo $A >&2; (exit 7)");
    assert_eq!((&both["stdout"], &both["stderr"]), (&json!("/usr\n"), &json!("1\n")));
    assert_eq!(both["exit_code"], 7);
    let many = exec(&client, "t", "head -c 300000 /dev/zero | tr '\\0' '\\377'; printf '\\0\\n'");
    assert_eq!(many["stdout_bytes"], 300_002);
    let body = json!({"command": "wc -c", "stdin": "x".repeat(200_000)});
    let ran = client.post("/api/threads/t/exec", body).expect(200);
    assert_eq!(ran["stdout"].as_str().unwrap().trim(), "200000");
    // It is a terminal: input is echoed.
    let id = both["terminal_id"].as_str().unwrap();
    let typed = json!({"data": "echo typed-$((1 + 1))\r"});
    client.post(&format!("/api/terminals/{id}/input"), typed).expect_status(204);
    harness::terminal::shows(&client, id, "typed-2");
    // The pod has no rights, in the cluster or on its node.
    let rights = "id -u; ls /var/run/secrets/kubernetes.io 2>/dev/null; \
                  grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -s '\\t ' ' '";
    let expected =
        "1000\nCapBnd: 0000000000000000\nCapEff: 0000000000000000\nNoNewPrivs: 1\nSeccomp: 2\n";
    let mut found: Vec<String> = stdout(&client, "t", rights).lines().map(str::to_owned).collect();
    found[1..].sort();
    assert_eq!(found.join("\n") + "\n", expected);
    let providers = client.get("/api/providers").expect(200);
    let pods = providers["items"].as_array().unwrap().iter().find(|it| it["name"] == "kubernetes");
    assert_eq!(pods.unwrap()["available"], true, "{providers}");
    client.delete("/api/threads/t").expect_success();
    is_left_empty(&home);
}

#[test]
fn a_killed_server_finds_its_command_running_in_a_pod() {
    let Some(cluster) = Cluster::of_tests() else { return };
    let home = Home::new();
    let server = cluster.server(&home, &[]);
    let command = "echo before; until [ -e /tmp/gate ]; do sleep 0.05; done; seq 20000; echo after";
    let body = json!({"command": command, "yield_ms": 500});
    let ran = server.client().post("/api/threads/t/exec", body).expect(200);
    assert_eq!(ran["status"], "running");
    let id = ran["command_id"].as_str().unwrap().to_owned();
    server.kill();
    let server = cluster.server(&home, &[]);
    let client = server.client();
    let other = client.post("/api/threads/t/terminals", json!({})).expect(201);
    let other = other["terminal_id"].as_str().unwrap();
    let body = json!({"command": "touch /tmp/gate"});
    client.post(&format!("/api/terminals/{other}/exec"), body).expect(200);
    let done = ended(&client, &id);
    assert_eq!(done["status"], "finished", "{done}");
    assert!(done["stdout"].as_str().unwrap().ends_with("19999\n20000\nafter\n"));
    assert_eq!(names("pods", &home).len(), 1);
    client.delete("/api/threads/t").expect_success();
    is_left_empty(&home);
}

fn ended(client: &Client, command: &str) -> Value {
    wait_long("the command to end", || {
        let receipt = client.get(&format!("/api/commands/{command}")).expect(200);
        if receipt["status"] == "running" { Err(receipt) } else { Ok(receipt) }
    })
}

#[test]
fn a_pod_that_is_deleted_loses_its_command_and_no_state() {
    let Some(cluster) = Cluster::of_tests() else { return };
    let home = Home::new();
    let server = cluster.server(&home, &[]);
    let client = server.client();
    assert_eq!(stdout(&client, "t", "cd /usr; mark=kept; echo up"), "up\n");
    let body = json!({"command": "echo begun; sleep 600", "yield_ms": 500});
    let ran = client.post("/api/threads/t/exec", body).expect(200);
    assert_eq!(ran["status"], "running");
    let before = names("pods", &home);
    let target = format!("/api/v1/namespaces/{NAMESPACE}/pods/{}", before[0]);
    administrator().delete(&target).expect_success();
    let lost = ended(&client, ran["command_id"].as_str().unwrap());
    assert_eq!((&lost["status"], &lost["stdout"]), (&json!("lost"), &json!("begun\n")), "{lost}");
    assert_eq!(stdout(&client, "t", "echo $mark $PWD"), "kept /usr\n");
    // The deleted pod still ends while the next one runs.
    wait_for("the deleted pod to be gone", || match names("pods", &home) {
        after if after.len() == 1 && after != before => Ok(()),
        after => Err(after),
    });
    client.delete("/api/threads/t").expect_success();
    is_left_empty(&home);
}

#[test]
fn a_command_survives_a_restart_of_the_api_server() {
    let Some(cluster) = Cluster::of_tests() else { return };
    let home = Home::new();
    let server = cluster.server(&home, &[]);
    let client = server.client();
    assert_eq!(stdout(&client, "t", "mark=kept; echo up"), "up\n");
    let command = "for i in $(seq 100); do echo $i; sleep 0.1; done; echo through";
    let body = json!({"command": command, "yield_ms": 500});
    let ran = client.post("/api/threads/t/exec", body).expect(200);
    assert_eq!(ran["status"], "running");
    cluster.kill_api_server();
    let done = ended(&client, ran["command_id"].as_str().unwrap());
    let expected: String = (1..=100).map(|number| format!("{number}\n")).collect();
    assert_eq!(done["stdout"], expected + "through\n", "{done}");
    assert_eq!(stdout(&client, "t", "echo $mark"), "kept\n");
    client.delete("/api/threads/t").expect_success();
    is_left_empty(&home);
}

#[test]
fn a_server_that_is_killed_while_it_creates_pods_leaves_none() {
    let Some(cluster) = Cluster::of_tests() else { return };
    let home = Home::new();
    let mut server = cluster.server(&home, &[]);
    // Before and after the request, while the pod starts, and while the host starts.
    let delays = [0, 20, 60, 150, 400, 800, 1200, 2000, 3000];
    for (number, delay) in delays.into_iter().enumerate() {
        let client = server.client();
        let request = thread::spawn(move || {
            let body = json!({"command": "echo fine"});
            // The answer is lost with the server.
            let _ = std::panic::catch_unwind(|| {
                client.post(&format!("/api/threads/t{number}/exec"), body)
            });
        });
        let_pass(Duration::from_millis(delay));
        server.kill();
        request.join().unwrap();
        server = cluster.server(&home, &[]);
        let client = server.client();
        // The same lease gets its one pod.
        assert_eq!(
            stdout(&client, &format!("t{number}"), "echo fine"),
            "fine\n",
            "after {delay} ms"
        );
        assert_eq!(names("pods", &home).len(), 1, "after {delay} ms");
        client.delete(&format!("/api/threads/t{number}")).expect_success();
        is_left_empty(&home);
    }
    // A pod whose lease has no row, as after a restored backup, is an orphan.
    let owner = std::fs::read_to_string(home.path().join("cloud-name")).unwrap();
    let lease = LeaseId::fresh().to_string();
    let labels = json!({
        "stead_home": owner, "stead_lease": lease, "stead_generation": "1",
        "stead_instance": InstanceId::fresh().to_string(),
    });
    let pod = json!({
        "metadata": {"name": "orphan", "labels": labels},
        "spec": {"containers": [{"name": "stead", "image": IMAGE, "imagePullPolicy": "Never",
                                 "command": ["sleep", "600"]}]},
    });
    let target = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    administrator().post(&target, pod).expect_status(201);
    server.kill();
    let _server = cluster.server(&home, &[]);
    is_left_empty(&home);
}

#[test]
fn a_pod_that_cannot_start_says_why() {
    let Some(cluster) = Cluster::of_tests() else { return };
    let home = Home::new();
    let check = |server: &Server, thread: &str, sandbox: Value, expected: &str| {
        let client = server.client();
        let choices = json!({"sandbox": sandbox});
        client.put(&format!("/api/threads/{thread}"), choices).expect_status(201);
        let body = json!({"command": "true"});
        let answer = client.post(&format!("/api/threads/{thread}/exec"), body);
        assert!(answer.status >= 400, "{}", answer.text());
        assert!(answer.text().contains(expected), "{thread}: {} {}", answer.status, answer.text());
        client.delete(&format!("/api/threads/{thread}")).expect_success();
    };
    let server = cluster.server(&home, &["kubernetes.start_timeout=5s"]);
    check(
        &server,
        "image",
        json!({"image": "stead.test/missing:1"}),
        "the image stead.test/missing:1 cannot be used: ErrImageNeverPull",
    );
    check(&server, "name", json!({"image": "Not/A/Name"}), "InvalidImageName");
    check(
        &server,
        "cpus",
        json!({"cpus": 1000}),
        "no node can run the pod: 0/1 nodes are available: 1 Insufficient cpu",
    );
    check(&server, "shell", json!({"image": "stead.test/shell-less:1"}), "/bin/sh");
    is_left_empty(&home);
    drop(server);
    let server = cluster.server(&home, &["kubernetes.namespace=full"]);
    check(&server, "quota", Value::Null, "exceeded quota: team-budget");
    drop(server);
    let server = cluster.server(&home, &["kubernetes.namespace=default"]);
    check(&server, "rights", Value::Null, "cannot");
    let providers = server.client().get("/api/providers").expect(200);
    let pods = providers["items"].as_array().unwrap().iter().find(|it| it["name"] == "kubernetes");
    let missing = pods.unwrap()["missing"][0].as_str().unwrap_or_default();
    assert!(missing.contains("cannot list pods in the namespace default"), "{providers}");
}

#[test]
fn a_program_that_uses_up_the_memory_of_a_pod_ends_alone() {
    let Some(cluster) = Cluster::of_tests() else { return };
    let home = Home::new();
    let server = cluster.server(&home, &["kubernetes.memory=128MiB"]);
    let client = server.client();
    assert_eq!(stdout(&client, "t", "mark=kept; echo up"), "up\n");
    let ran = exec(
        &client,
        "t",
        "head -c 300000000 /dev/zero | tail -c 300000000 | wc -c; echo ${PIPESTATUS[1]}",
    );
    assert_eq!(ran["stdout"].as_str().unwrap().trim(), "0\n137", "{ran}");
    assert_eq!(stdout(&client, "t", "echo $mark"), "kept\n");
    client.delete("/api/threads/t").expect_success();
    is_left_empty(&home);
}

#[tokio::test]
async fn files_outlive_a_pod_on_a_volume_and_are_deleted_with_their_lease() {
    let Some(cluster) = Cluster::of_tests() else { return };
    let home = Home::new();
    // The provisioner of the tests makes directories that only root may write to.
    let storage_class = Some("auto".to_owned());
    let options = KubernetesOptions { storage_class, user: 0, ..cluster.options() };
    let provider = provider(home.path(), options);
    assert_eq!(provider.profile().suspend, Fidelity::Filesystem);
    let disks = provider.disks().unwrap();
    let first = intent();
    let instance = create(&provider, &first).await;
    script(&provider, &instance, "echo kept >/home/stead/file").await;
    provider.destroy(&instance).await.unwrap();
    assert_eq!(provider.inspect(&instance).await.unwrap(), Observed::Gone);
    assert_eq!(disks.kept().await.unwrap(), std::slice::from_ref(&first.lease_id));
    let next = Intent { generation: 2, instance_id: InstanceId::fresh(), ..first.clone() };
    let instance = create(&provider, &next).await;
    assert_eq!(script(&provider, &instance, "cat /home/stead/file").await, "kept\n");
    provider.destroy(&instance).await.unwrap();
    disks.forget(&first.lease_id).await.unwrap();
    disks.forget(&first.lease_id).await.unwrap();
    assert_eq!(disks.kept().await.unwrap(), []);
    is_left_empty(&home);
}

#[tokio::test]
async fn an_image_without_our_program_gets_it_by_upload() {
    let Some(cluster) = Cluster::of_tests() else { return };
    let home = Home::new();
    let provider =
        provider(home.path(), KubernetesOptions { host_image: None, ..cluster.options() });
    let began = Instant::now();
    let instance = create(&provider, &intent()).await;
    println!("a pod with an upload was created after {} ms", began.elapsed().as_millis());
    let mut link = super::link::Link::new(provider.connect(&instance).await.unwrap().stream).await;
    let terminal = model::TerminalId::fresh();
    let dir = home.path().join("inside").join(format!("stead-{}", instance.instance_id));
    link.open_at(&terminal, &dir.join("t").join(terminal.as_str()), super::link::TICKING).await;
    link.attach(&terminal).await;
    link.ticks().await;
    provider.destroy(&instance).await.unwrap();
    is_left_empty(&home);
}

#[tokio::test]
async fn settings_that_make_no_pod_are_refused_before_anything_is_created() {
    let Some(cluster) = Cluster::of_tests() else { return };
    let home = Home::new();
    let provider: Arc<dyn Provider> = Arc::new(cluster.provider(home.path()));
    for wrong in [
        json!({"image": ""}),
        json!({"cpus": 0}),
        json!({"cpus": -1}),
        json!({"memory": "1KiB"}),
        json!({"memory": "much"}),
        json!({"privileged": true}),
    ] {
        let refused = provider.accepts(&wrong);
        assert!(matches!(refused, Err(ProviderError::Refused { .. })), "{wrong}");
    }
    provider.accepts(&json!({"image": "a", "cpus": 0.5, "memory": "512MiB"})).unwrap();
    provider.accepts(&Value::Null).unwrap();
    assert_eq!(names("pods", &home), Vec::<String>::new());
}

/// Starts a server for the hostile cases.
pub fn server_of_tests(home: &Home) -> Option<Server> {
    let cluster = Cluster::of_tests()?;
    Some(cluster.server(home, &["kubernetes.cpus=1", "kubernetes.memory=1GiB"]))
}
