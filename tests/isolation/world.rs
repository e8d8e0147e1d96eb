//! A machine and an internet in network namespaces of the test, with a server on the machine.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::mpsc;

use rustix::thread::UnshareFlags;
use serde_json::{Value, json};

use harness::{Client, Home, Server, has_sandboxes};

/// Public addresses of the internet of the test.
pub const PUBLIC: [&str; 2] = ["203.0.113.1", "8.8.4.4"];
const PRIVATE: [&str; 5] =
    ["169.254.169.254", "10.1.2.3", "172.16.9.9", "192.168.7.7", "100.64.1.1"];

/// The machine's own address.
pub const MACHINE: &str = "192.0.2.2";

pub struct World {
    pub server: Server,
    pub home: Home,
    pub canary: String,
    // These listen during the whole test, so that the probes could find them.
    _service: TcpListener,
    _socket: UnixListener,
}

impl World {
    /// Creates the network for this thread and its children, and starts a server. Prints a message and returns `None`
    /// where this machine has no sandboxes.
    pub fn new(arguments: &[&str]) -> Option<World> {
        if !has("perl") {
            eprintln!("skipped: the probes need perl");
            return None;
        }
        if !has_sandboxes() {
            return None;
        }
        internet();
        let canary = format!("stead-canary-{}", uuid());
        let home = Home::new();
        std::fs::write(home.path().join(&canary), &canary).unwrap();
        for dir in ["/tmp", "/var/tmp"] {
            std::fs::write(format!("{dir}/{canary}"), &canary).unwrap();
        }
        let service = TcpListener::bind("0.0.0.0:81").unwrap();
        let socket = {
            use std::os::linux::net::SocketAddrExt;
            let name = std::os::unix::net::SocketAddr::from_abstract_name(&canary).unwrap();
            UnixListener::bind_addr(&name).unwrap()
        };
        let mut all = vec!["--set", "sandbox.disk=64m"];
        if !arguments.contains(&"--provider") {
            all.extend(["--provider", "namespace"]);
        }
        all.extend(["--set", "sandbox.memory=96m", "--set", "sandbox.processes=64"]);
        all.extend(["--set", "sandbox.warm=0"]);
        all.extend(arguments);
        let server = Server::start_as(&home, &all, &[("PROBE_SECRET", &canary)]);
        Some(World { server, home, canary, _service: service, _socket: socket })
    }

    /// Starts the shell of a thread in a new sandbox.
    pub fn sandbox(&self, thread: &str) -> Sandbox {
        let sandbox = Sandbox { client: self.server.client(), thread: thread.to_owned() };
        let gateway = sandbox.run("awk '$2 == \"00000000\" {print $3}' /proc/net/route | head -1");
        let gateway = u32::from_str_radix(gateway.trim(), 16).unwrap_or_default();
        let gateway = Ipv4Addr::from(gateway.swap_bytes());
        let home = self.home.path().display();
        sandbox.run(&format!(
            "export SERVER_PID={} PORT={} HOME_DIR={home} CANARY={} MACHINE={MACHINE} GATEWAY={gateway}",
            self.server.pid(),
            self.server.address.port(),
            self.canary
        ));
        sandbox
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for dir in ["/tmp", "/var/tmp"] {
            let _ = std::fs::remove_file(format!("{dir}/{}", self.canary));
        }
        let pid = rustix::process::Pid::from_raw(self.server.pid()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

pub struct Sandbox {
    client: Client,
    thread: String,
}

impl Sandbox {
    /// Defines shell functions for later commands.
    pub fn define(&self, text: &str) {
        self.run(text);
    }

    /// Runs a command and returns its standard output.
    pub fn run(&self, command: &str) -> String {
        self.receipt(command)["stdout"].as_str().unwrap_or_default().to_owned()
    }

    /// Runs a command and returns its receipt.
    pub fn receipt(&self, command: &str) -> Value {
        let target = format!("/api/threads/{}/exec", self.thread);
        let body = json!({"command": command, "timeout_ms": 60_000});
        self.client.post(&target, body).expect(200)
    }

    /// Returns the text of the screen.
    pub fn screen(&self) -> String {
        let target = format!("/api/threads/{}/terminal", self.thread);
        let terminal = self.client.get(&target).expect(200);
        let id = terminal["terminal_id"].as_str().unwrap();
        self.client
            .get(&format!("/api/terminals/{id}/snapshot?format=text"))
            .expect_success()
            .text()
    }

    pub fn lease(&self) -> Value {
        self.client.get(&format!("/api/threads/{}/lease", self.thread)).expect(200)
    }
}

pub fn has(tool: &str) -> bool {
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    path.split(':').any(|dir| std::path::Path::new(dir).join(tool).is_file())
}

fn uuid() -> String {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).unwrap();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Puts this thread into a network namespace whose only uplink leads to the internet of another thread.
pub fn internet() {
    unshare_network();
    // A network namespace inherits this setting from the machine, and Docker's rules depend on it.
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "0").unwrap();
    let machine = namespace();
    let (sender, ready) = mpsc::channel();
    std::thread::spawn(move || {
        unshare_network();
        let mut batch = String::from("link set lo up\n");
        for address in PUBLIC.iter().chain(&PRIVATE) {
            batch.push_str(&format!("addr add {address}/32 dev lo\n"));
        }
        batch.push_str(&format!("link add wan0 type veth peer name eth0 netns {machine}\n"));
        batch.push_str("addr add 192.0.2.1/24 dev wan0\nlink set wan0 up\n");
        ip(&batch);
        let listener = TcpListener::bind("0.0.0.0:80").unwrap();
        let echo = TcpListener::bind("0.0.0.0:7").unwrap();
        sender.send(()).unwrap();
        std::thread::spawn(move || {
            for stream in echo.incoming().flatten() {
                std::thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
            }
        });
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.write_all(b"the internet\n");
        }
    });
    ready.recv().unwrap();
    ip(&format!(
        "link set lo up\naddr add {MACHINE}/24 dev eth0\nlink set eth0 up\n\
         route add default via 192.0.2.1\n"
    ));
}

/// Puts this thread into a network namespace of its own.
fn unshare_network() {
    // SAFETY: no descriptor table is unshared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
}

/// A path to this thread's network namespace.
fn namespace() -> String {
    let thread = rustix::thread::gettid();
    format!("/proc/{}/task/{}/ns/net", std::process::id(), thread.as_raw_nonzero())
}

fn ip(batch: &str) {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(batch.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "ip: {batch}");
}
