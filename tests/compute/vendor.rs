//! A vendor of sandboxes: a server of ours with the APIs of the vendors, and a proxy between it and its
//! client that loses, delays and truncates messages.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::Arc,
    time::Duration,
};

use cloud::{self, AgentBayOptions, Cloud, DaytonaOptions, E2bOptions, TerminalRuntime, VendorKey};
use parking_lot::Mutex;
use serde_json::{Value, json};

use harness::{
    Client, Home, Server,
    agentbay::{self, StandIn},
};

/// The vendor whose API is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    E2b,
    Daytona,
    AgentBay,
}

/// The vendors that can run our host.
pub const KINDS: [Kind; 2] = [Kind::E2b, Kind::Daytona];

/// The vendors that can run commands: all of them.
pub const COMMANDERS: [Kind; 3] = [Kind::E2b, Kind::Daytona, Kind::AgentBay];

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::E2b => "e2b",
            Kind::Daytona => "daytona",
            Kind::AgentBay => "agentbay",
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Kind::E2b | Kind::AgentBay => "",
            Kind::Daytona => "/daytona/api",
        }
    }
}

/// The vendor.
pub enum Vendor {
    /// Our own server, with its home.
    Ours(Server, Home),
    /// The stand-in for AgentBay.
    Bay(StandIn),
}

impl From<StandIn> for Vendor {
    fn from(bay: StandIn) -> Vendor {
        Vendor::Bay(bay)
    }
}

impl Vendor {
    pub fn start() -> Vendor {
        let home = Home::new();
        Vendor::Ours(Server::start(&home), home)
    }

    /// Starts a vendor of this kind; returns `None` if this machine cannot run it.
    pub fn of(kind: Kind) -> Option<Vendor> {
        match kind {
            Kind::E2b | Kind::Daytona => Some(Vendor::start()),
            Kind::AgentBay => StandIn::start(&[]).map(Vendor::Bay),
        }
    }

    pub fn address(&self) -> SocketAddr {
        match self {
            Vendor::Ours(server, _) => server.address,
            Vendor::Bay(bay) => bay.address,
        }
    }

    /// Returns the API key.
    pub fn key(&self) -> &str {
        match self {
            Vendor::Ours(server, _) => &server.token,
            Vendor::Bay(_) => agentbay::KEY,
        }
    }

    fn client(&self) -> Client {
        match self {
            Vendor::Ours(server, _) => server.client(),
            Vendor::Bay(_) => panic!("a stand-in has no client"),
        }
    }

    /// Kills the vendor and restarts it on the same address and home.
    pub fn restart(self) -> Vendor {
        let (address, home) = self.kill();
        Vendor::start_at(address, home)
    }

    /// Kills the vendor, and returns what it needs to start again.
    pub fn kill(self) -> (SocketAddr, Home) {
        let Vendor::Ours(server, home) = self else { panic!("a stand-in keeps no state") };
        let address = server.address;
        server.kill();
        (address, home)
    }

    pub fn start_at(address: SocketAddr, home: Home) -> Vendor {
        Vendor::Ours(Server::start_at(&home, address), home)
    }

    /// Returns the settings of a server that uses this vendor through an address.
    pub fn settings(&self, kind: Kind, through: SocketAddr, home: &Home) -> Vec<String> {
        let name = kind.name();
        let set = |key: &str, value: String| ["--set".to_owned(), format!("{name}.{key}={value}")];
        let mut all = vec!["--provider".to_owned(), name.to_owned()];
        all.extend(set("key", self.key().to_owned()));
        all.extend(set("endpoint", format!("http://{through}{}", kind.prefix())));
        all.extend(set("directory", inside(home.path())));
        all
    }

    /// Starts a server that uses this vendor.
    pub fn user(&self, kind: Kind, home: &Home) -> Server {
        self.user_through(kind, self.address(), home)
    }

    pub fn user_through(&self, kind: Kind, through: SocketAddr, home: &Home) -> Server {
        let settings = self.settings(kind, through, home);
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        share_packed(home.path());
        Server::start_with(home, &settings)
    }

    /// Starts a server that uses this vendor to run commands only.
    pub fn commander(&self, kind: Kind, through: SocketAddr, home: &Home) -> Server {
        let mut settings = self.settings(kind, through, home);
        if kind != Kind::AgentBay {
            settings.extend(["--set".to_owned(), format!("{}.runtime=remote", kind.name())]);
        }
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        Server::start_with(home, &settings)
    }

    /// Returns the provider for this vendor, with a home.
    pub fn provider(&self, kind: Kind, home: &Path, runtime: TerminalRuntime) -> Cloud {
        share_packed(home);
        let options = cloud::CloudOptions {
            runtime,
            executable: harness::program().into(),
            inside: inside(home),
            ..cloud::CloudOptions::new(home)
        };
        let key = VendorKey::new(self.key().to_owned());
        let endpoint = format!("http://{}{}", self.address(), kind.prefix());
        match kind {
            Kind::E2b => {
                let vendor = E2bOptions {
                    key,
                    endpoint,
                    sandbox_url: String::new(),
                    template: "base".into(),
                    timeout: Duration::from_secs(600),
                };
                Cloud::e2b(vendor, options).unwrap()
            }
            Kind::Daytona => {
                let auto_stop = Duration::from_secs(600);
                let snapshot = String::new();
                let vendor = DaytonaOptions { key, endpoint, snapshot, auto_stop };
                Cloud::daytona(vendor, options).unwrap()
            }
            Kind::AgentBay => {
                let (image, timeout) = ("linux_latest".into(), Duration::from_secs(600));
                let vendor = AgentBayOptions { key, endpoint, image, timeout };
                Cloud::agentbay(vendor, options).unwrap()
            }
        }
    }

    /// Returns the ids of all sandboxes.
    pub fn sandboxes(&self, kind: Kind) -> Vec<String> {
        if let Vendor::Bay(bay) = self {
            return bay.sessions();
        }
        let (target, name) = match kind {
            Kind::E2b => ("/v2/sandboxes", "sandboxID"),
            Kind::Daytona | Kind::AgentBay => ("/daytona/sandbox", "id"),
        };
        let answer = self.client().get(target).expect(200);
        let items = answer.as_array().or(answer["items"].as_array()).unwrap();
        items.iter().map(|it: &Value| it[name].as_str().unwrap().to_owned()).collect()
    }

    /// Deletes a sandbox without the knowledge of its user.
    pub fn end(&self, kind: Kind, id: &str) {
        if let Vendor::Bay(bay) = self {
            bay.control(&json!({"vanish": id}));
            return;
        }
        let target = match kind {
            Kind::E2b => format!("/sandboxes/{id}"),
            Kind::Daytona | Kind::AgentBay => format!("/daytona/sandbox/{id}"),
        };
        self.client().delete(&target).expect_success();
    }
}

/// The directory of the hosts, which is on this machine because the vendor has no sandboxes.
fn inside(home: &Path) -> String {
    home.join("inside").display().to_string()
}

/// Shares the packed executable between tests, because packing takes a second.
fn share_packed(home: &Path) {
    let shared = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packed");
    std::fs::create_dir_all(&shared).unwrap();
    let _ = std::os::unix::fs::symlink(shared, home.join("programs"));
}

/// A fault that the proxy injects into a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Harm {
    /// The request is executed, but the answer is lost.
    LoseReply,
    /// The request is not executed, and this is the answer.
    Answer(&'static str),
    /// The answer is truncated.
    Half,
    /// The request is executed, and there is no answer until the client disconnects.
    Silence,
    /// The request is delayed by this time.
    Late(Duration),
}

type Plan = Arc<Mutex<Vec<(&'static str, Harm)>>>;

/// A proxy between a client and a vendor.
pub struct Proxy {
    pub address: SocketAddr,
    plan: Plan,
}

/// What happens to the vendor's addresses in answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AddressRewrite {
    Keep,
    /// They are replaced with the address of the proxy.
    Replace(SocketAddr),
}

impl Proxy {
    pub fn start(to: SocketAddr) -> Proxy {
        Proxy::with(to, |_| AddressRewrite::Keep)
    }

    /// Starts a proxy that replaces the vendor's addresses in answers, so that it receives all requests.
    pub fn around(to: SocketAddr) -> Proxy {
        Proxy::with(to, AddressRewrite::Replace)
    }

    fn with(to: SocketAddr, rewrite: impl Fn(SocketAddr) -> AddressRewrite) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (plan, rewrite) = (Plan::default(), rewrite(address));
        let harms = plan.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let harms = harms.clone();
                std::thread::spawn(move || drop(pass(stream, to, rewrite, &harms)));
            }
        });
        Proxy { address, plan }
    }

    /// Injects these faults into the next requests that start with these texts, in this order.
    pub fn harm(&self, plan: &[(&'static str, Harm)]) {
        *self.plan.lock() = plan.to_vec();
    }

    /// Returns the faults that have not happened yet.
    pub fn left(&self) -> Vec<(&'static str, Harm)> {
        self.plan.lock().clone()
    }
}

/// Forwards one request per connection, with `connection: close`.
fn pass(
    client: TcpStream,
    to: SocketAddr,
    rewrite: AddressRewrite,
    plan: &Plan,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let mut head = String::new();
    let mut upgrade = false;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let lower = line.to_ascii_lowercase();
        upgrade |= lower.starts_with("upgrade:");
        if line == "\r\n" {
            break;
        }
        if lower.starts_with("host:") {
            head.push_str(&format!("host: {to}\r\n"));
        } else if upgrade || !lower.starts_with("connection:") {
            head.push_str(&line);
        }
    }
    let end = if upgrade { "connection: upgrade\r\n\r\n" } else { "connection: close\r\n\r\n" };
    head.push_str(end);
    let harm = {
        let mut plan = plan.lock();
        let first = plan.first().is_some_and(|(start, _)| head.starts_with(start));
        first.then(|| plan.remove(0).1)
    };
    let mut server = TcpStream::connect(to)?;
    if let Some(Harm::Answer(answer)) = harm {
        let mut client = client;
        client.write_all(answer.as_bytes())?;
        // Read the rest of the request, or the client's connection is reset before it reads the answer.
        client.shutdown(Shutdown::Write)?;
        let _ = std::io::copy(&mut reader, &mut std::io::sink());
        return Ok(());
    }
    if let Some(Harm::Late(wait)) = harm {
        harness::let_pass(wait);
    }
    server.write_all(head.as_bytes())?;
    let mut back = server.try_clone()?;
    let mut out = client.try_clone()?;
    let answers = std::thread::spawn(move || match harm {
        Some(Harm::LoseReply) => {
            let _ = back.read(&mut [0; 1]);
            let _ = out.shutdown(Shutdown::Both);
        }
        Some(Harm::Half) => {
            let mut whole = Vec::new();
            let _ = back.read_to_end(&mut whole);
            let _ = out.write_all(&whole[..whole.len() - whole.len().min(20)]);
            let _ = out.shutdown(Shutdown::Both);
        }
        Some(Harm::Silence) => {
            let _ = std::io::copy(&mut back, &mut std::io::sink());
        }
        Some(Harm::Answer(_) | Harm::Late(_)) | None => {
            let _ = match rewrite {
                AddressRewrite::Keep => std::io::copy(&mut back, &mut out).map(drop),
                AddressRewrite::Replace(address) => renaming(&mut back, &mut out, to, address),
            };
            let _ = out.shutdown(Shutdown::Both);
        }
    });
    let _ = std::io::copy(&mut reader, &mut server);
    let _ = server.shutdown(Shutdown::Write);
    let _ = answers.join();
    Ok(())
}

/// Copies a stream and replaces one address with another of the same length.
fn renaming(
    from: &mut impl Read,
    to: &mut impl Write,
    old: SocketAddr,
    new: SocketAddr,
) -> std::io::Result<()> {
    let (old, new) = (old.to_string().into_bytes(), new.to_string().into_bytes());
    assert_eq!(old.len(), new.len(), "ephemeral ports have five digits");
    let (mut held, mut piece) = (Vec::new(), [0; 64 << 10]);
    loop {
        let count = from.read(&mut piece)?;
        held.extend_from_slice(&piece[..count]);
        let found = (0..held.len()).filter(|at| held[*at..].starts_with(&old));
        for at in found.collect::<Vec<_>>() {
            held[at..at + new.len()].copy_from_slice(&new);
        }
        // A possible start of an address waits for the rest.
        let start = (1..old.len()).rev().find(|length| held.ends_with(&old[..*length]));
        let whole = if count == 0 { held.len() } else { held.len() - start.unwrap_or(0) };
        to.write_all(&held[..whole])?;
        held.drain(..whole);
        if count == 0 {
            return Ok(());
        }
    }
}
