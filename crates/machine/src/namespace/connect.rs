//! Connecting a sandbox's network to the machine's, and taking back what that changed.

use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::thread::LinkNameSpaceType;

use super::disk::{HOSTS, PATH};
use super::launch::{Inside, doing, lock, machine_lock, open_dir};
use super::make::find_program;
use super::netlink::{Family, Netlink};
use super::network::{self, Uplink, Wire};
use super::place::first_user;
use super::spec::{Destination, Egress};
use super::sys;

/// The file with the name of the machine's end of its wire, if it has one.
const WIRE: &str = "wire";

/// The file that says what came of its network: [`CONNECTED`], or what went wrong.
const NETWORK: &str = "network";

const CONNECTED: &str = "connected";

/// What can be reached, and by which names.
#[derive(Debug)]
pub(crate) struct Reach {
    uplink: Uplink,
    allowed: Vec<(String, Ipv4Addr, u16)>,
}

impl Reach {
    pub(crate) fn of(egress: &Egress) -> Self {
        match egress {
            Egress::None => Self { uplink: Uplink::default(), allowed: vec![] },
            Egress::Public | Egress::All => Self { uplink: uplink(), allowed: vec![] },
            Egress::Only(list) => {
                Self { uplink: uplink(), allowed: list.iter().flat_map(addresses).collect() }
            }
            // A name is allowed with all its ports.
            Egress::Ruled(rules) => {
                let names = rules.names().map(|name| Destination { host: name.into(), port: 0 });
                let allowed = names.flat_map(|name| addresses(&name)).collect();
                Self { uplink: uplink(), allowed }
            }
        }
    }

    /// The rules of the sandbox's own namespace.
    fn rules(&self, egress: &Egress, machine: &[Ipv4Addr]) -> String {
        let allowed: Vec<(Ipv4Addr, u16)> =
            self.allowed.iter().map(|(_, address, port)| (*address, *port)).collect();
        network::sandbox_rules(egress, &self.uplink.resolvers, &allowed, machine)
    }

    /// What `/etc/hosts` and `/etc/resolv.conf` say. With an allow-list, its names are written down
    /// and nobody can be asked for others: a question is a way out, too.
    pub(crate) fn names(&self, egress: &Egress) -> (String, String) {
        let mut hosts = HOSTS.to_owned();
        for (name, address, _) in &self.allowed {
            hosts.push_str(&format!("{address} {name}\n"));
        }
        let resolv = match egress {
            Egress::None | Egress::Only(_) => String::new(),
            Egress::Public | Egress::All | Egress::Ruled(_) => {
                self.uplink.resolvers.iter().map(|at| format!("nameserver {at}\n")).collect()
            }
        };
        (hosts, resolv)
    }
}

/// The addresses of one destination.
fn addresses(destination: &Destination) -> Vec<(String, Ipv4Addr, u16)> {
    let Destination { host, port } = destination;
    let Ok(found) = (host.as_str(), *port).to_socket_addrs() else {
        eprintln!("no address of {host} is known");
        return vec![];
    };
    found
        .filter_map(|address| match address {
            SocketAddr::V4(address) => Some((host.clone(), *address.ip(), *port)),
            SocketAddr::V6(_) => None,
        })
        .take(16)
        .collect()
}

/// Gives the network namespace this process is in its rules, and a wire to the machine.
pub(crate) fn connect(
    dir: &Path,
    egress: &Egress,
    reach: &Reach,
    slot: u32,
    machine: BorrowedFd<'_>,
) -> io::Result<()> {
    let Some(wire) = Wire::new(slot, egress) else {
        return Netlink::routes()?.set_up("lo");
    };
    let sandbox = sys::network()?;
    let uplink = &reach.uplink;
    let rules = reach.rules(egress, &[]);
    let rules = sys::beside(|| run("nft", &["-f", "-"], &rules))?;
    sys::enter(machine, LinkNameSpaceType::Network)?;
    {
        let _others = lock(&machine_lock("network")?)?;
        load_machine_rules(uplink)?;
        pass_docker().map_err(doing("pass Docker's rules"))?;
        fs::write(dir.join(WIRE), &wire.name)?;
        wire.make(sandbox.as_fd()).map_err(doing("make its wire"))?;
        for name in [wire.name.as_str(), uplink.name.as_str()] {
            if !name.is_empty() {
                forward(name)?;
            }
        }
    }
    sys::enter(sandbox.as_fd(), LinkNameSpaceType::Network)?;
    // The wire carries version 4 alone; where the kernel has no version 6 there is nothing to do.
    let _ = set_sysctl("net/ipv6/conf/eth0/disable_ipv6", "1");
    Netlink::routes()?.set_up("lo")?;
    // Before there is a way out.
    rules.join().map_err(doing("load its rules"))?;
    wire.connect().map_err(doing("connect its wire"))
}

/// The addresses of this machine.
pub(super) fn own_addresses() -> io::Result<Vec<Ipv4Addr>> {
    Ok(network::own_addresses(&fs::read_to_string("/proc/thread-self/net/fib_trie")?))
}

/// Gives the network namespace this process is in its rules, without a wire: for one that a user's
/// program connects to this machine, which has these addresses.
pub(super) fn shut(egress: &Egress, reach: &Reach, machine: &[Ipv4Addr]) -> io::Result<()> {
    // Interfaces that come later carry version 4 alone, where the kernel has another.
    let _ = set_sysctl("net/ipv6/conf/default/disable_ipv6", "1");
    run("nft", &["-f", "-"], &reach.rules(egress, machine))
}

/// Gives the sandbox that a process is in other rules, all at once; connections that they do not allow end.
/// For a process of one thread.
pub(super) fn change(pid: i32, egress: &Egress) -> io::Result<()> {
    let (own, theirs) = ("/proc/self/ns/net", format!("/proc/{pid}/ns/net"));
    if fs::read_link(&theirs)? == fs::read_link(own)? {
        return Err(io::Error::other("that process has no network of its own"));
    }
    // Names are looked up while this process can still ask.
    let reach = Reach::of(egress);
    let root = rustix::process::geteuid().is_root();
    let mut machine = Vec::new();
    if !root {
        machine = own_addresses()?;
        machine.push(super::pasta::GATEWAY);
    }
    let network = fs::File::open(theirs)?;
    let users = fs::File::open(format!("/proc/{pid}/ns/user"))?;
    let files = open_dir(Path::new(&format!("/proc/{pid}/root")))?;
    if !reach.allowed.is_empty() {
        let (hosts, _) = reach.names(egress);
        let write = || Inside(files.as_fd()).write(Path::new("etc"), "hosts", &hosts);
        // What it did to its own files is its own loss.
        let _ = if root { sys::as_user(first_user(pid)?, write) } else { write() };
    }
    if !root {
        // With the rights that whoever made a namespace has in it.
        sys::enter(users.as_fd(), LinkNameSpaceType::User)?;
    }
    sys::enter(network.as_fd(), LinkNameSpaceType::Network)?;
    let rules = format!("{}{}", network::NO_RULES, reach.rules(egress, &machine));
    run("nft", &["-f", "-"], &rules)
}

/// Makes the machine's table say what it is to, if it does not.
fn load_machine_rules(uplink: &Uplink) -> io::Result<()> {
    let (rules, loaded) = (network::machine_rules(uplink), machine_lock("rules")?);
    let here = fs::metadata("/proc/self/ns/net")?.ino();
    let now = format!("{here}\n{rules}");
    let same = fs::read_to_string(&loaded).is_ok_and(|before| before == now);
    if same && Netlink::rules()?.has_table(Family::Inet, network::TABLE)? {
        return Ok(());
    }
    run("nft", &["-f", "-"], &rules)?;
    fs::write(loaded, now)
}

/// Where Docker runs, what is passed on is dropped unless a rule of the machine's older tables lets it
/// through, whatever ours say. Docker keeps a place for such rules; what passes there was judged by our
/// own before.
fn pass_docker() -> io::Result<()> {
    let newer = || Netlink::rules().and_then(|kernel| kernel.has_table(Family::V4, "filter"));
    let older =
        || fs::read_to_string("/proc/net/ip_tables_names").is_ok_and(|names| !names.is_empty());
    if !older() && !newer().unwrap_or(false) {
        return Ok(());
    }
    let Some(iptables) = find_program(Path::new("iptables")) else { return Ok(()) };
    let iptables = iptables.to_string_lossy();
    for rule in network::PASS_DOCKER {
        let say = |verb: &str| {
            let words = ["-w", verb, network::DOCKERS_PLACE];
            run(&iptables, &[&words[..], rule].concat(), "")
        };
        // Not there: no Docker, or no rule yet.
        if say("-C").is_err()
            && run(&iptables, &["-w", "-n", "-L", network::DOCKERS_PLACE], "").is_ok()
        {
            say("-I")?;
            fs::write(machine_lock("docker")?, "")?;
        }
    }
    Ok(())
}

/// Takes the rules among Docker's back, if there are any.
fn leave_docker() -> io::Result<()> {
    let noted = machine_lock("docker")?;
    if noted.exists() {
        for rule in network::PASS_DOCKER {
            let words = ["-w", "-D", network::DOCKERS_PLACE];
            let _ = run("iptables", &[&words[..], rule].concat(), "");
        }
        fs::remove_file(noted)?;
    }
    Ok(())
}

/// The same, and leaves word of what came of it in the sandbox's directory.
pub(super) fn connect_and_say(
    dir: &Path,
    egress: &Egress,
    reach: &Reach,
    slot: u32,
    machine: BorrowedFd<'_>,
) -> io::Result<()> {
    let connected = connect(dir, egress, reach, slot, machine);
    let word = connected.map_or_else(|error| error.to_string(), |()| CONNECTED.to_owned());
    fs::write(dir.join(NETWORK), word)
}

/// Whether the network of a sandbox is as it is to be; `None` while that is not known.
pub(super) fn connected(dir: &Path) -> Option<Result<(), String>> {
    match fs::read_to_string(dir.join(NETWORK)).ok()?.as_str() {
        "" => None,
        CONNECTED => Some(Ok(())),
        wrong => Some(Err(format!("cannot set up the network: {wrong}"))),
    }
}

/// Makes an interface pass on what is not for this machine, and remembers one that did not before.
fn forward(name: &str) -> io::Result<()> {
    let setting = format!("net/ipv4/conf/{name}/forwarding");
    let before = fs::read_to_string(Path::new("/proc/sys").join(&setting))?;
    if before.trim() == "0" && !name.starts_with(network::PREFIX) {
        fs::write(machine_lock("forwarding")?, name)?;
    }
    if before.trim() == "0" {
        set_sysctl(&setting, "1")?;
    }
    Ok(())
}

/// Takes back what was changed in this machine's network, once no sandbox has a wire; waits a moment
/// for the kernel to take down the wire of the sandbox whose directory this is.
pub(crate) fn disconnect(dir: &Path) -> io::Result<()> {
    let Ok(wire) = fs::read_to_string(dir.join(WIRE)) else { return Ok(()) };
    let interfaces = || -> io::Result<Vec<String>> {
        Ok(network::interfaces(&fs::read_to_string("/proc/thread-self/net/dev")?))
    };
    let deadline = Instant::now() + Duration::from_secs(2);
    while interfaces()?.contains(&wire) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
    let _others = lock(&machine_lock("network")?)?;
    if interfaces()?.iter().any(|name| name.starts_with(network::PREFIX)) {
        return Ok(());
    }
    let _ = fs::remove_file(machine_lock("rules")?);
    leave_docker()?;
    let _ = run("nft", &["-f", "-"], network::NO_RULES);
    let remembered = machine_lock("forwarding")?;
    if let Ok(name) = fs::read_to_string(&remembered) {
        let _ = set_sysctl(&format!("net/ipv4/conf/{name}/forwarding"), "0");
        fs::remove_file(remembered)?;
    }
    Ok(())
}

/// How this machine reaches others.
pub(super) fn uplink() -> Uplink {
    let routes = fs::read_to_string("/proc/thread-self/net/route").unwrap_or_default();
    let mut resolvers =
        network::resolvers(&fs::read_to_string("/etc/resolv.conf").unwrap_or_default());
    if resolvers.is_empty() {
        // Where the machine asks a service of its own, that service's sources.
        let upstream = fs::read_to_string("/run/systemd/resolve/resolv.conf").unwrap_or_default();
        resolvers = network::resolvers(&upstream);
    }
    Uplink { name: network::default_interface(&routes).unwrap_or_default(), resolvers }
}

fn set_sysctl(name: &str, value: &str) -> io::Result<()> {
    fs::write(Path::new("/proc/sys").join(name), value)
}

/// Runs a tool of the machine with something to read.
fn run(tool: &str, args: &[&str], input: &str) -> io::Result<()> {
    let mut child = Command::new(tool)
        .args(args)
        .env_clear()
        .env("PATH", PATH)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("cannot run {tool}: {error}")))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{tool}: {}", said.trim())))
}
