//! Connects a sandbox's network to the machine's, and disconnects it.

use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::thread::LinkNameSpaceType;

use super::netlink::{Netlink, TableFamily};
use super::nft::{self, Uplink, VethPair};
use super::pasta;
use crate::disk::skeleton::HOSTS;
use crate::files::{cannot, open_dir};
use crate::lock::{lock, machine_lock};
use crate::mount::first_user;
use crate::spec::{Destination, EgressPolicy};
use crate::sys;
use crate::tools::{PATH, find_program, run_for_sandbox};
use crate::untrusted_tree::UntrustedTree;
use provider::ProviderError;

/// The file with the name of the machine's end of the veth pair.
const VETH_FILE: &str = "wire";

/// The file with the result of connecting: [`CONNECTED`], or the error.
const RESULT_FILE: &str = "network";

const CONNECTED: &str = "connected";

/// How long the kernel may take to remove a veth pair after the end of its namespace.
const VETH_TIMEOUT: Duration = Duration::from_secs(2);

const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Further addresses of a name are not allowed.
const MAX_ADDRESSES_PER_NAME: usize = 16;

/// An egress policy with its names resolved.
#[derive(Debug)]
pub(crate) struct ResolvedEgress {
    uplink: Uplink,
    allowed: Vec<(String, Ipv4Addr, u16)>,
}

impl ResolvedEgress {
    pub(crate) fn new(egress: &EgressPolicy) -> Self {
        match egress {
            EgressPolicy::None => Self { uplink: Uplink::default(), allowed: vec![] },
            EgressPolicy::Public | EgressPolicy::All => Self { uplink: uplink(), allowed: vec![] },
            EgressPolicy::Only(list) => {
                Self { uplink: uplink(), allowed: list.iter().flat_map(addresses).collect() }
            }
            // A rule with a name allows all ports.
            EgressPolicy::Ruled(rules) => {
                let names = rules.names().map(|name| Destination { host: name.into(), port: 0 });
                let allowed = names.flat_map(|name| addresses(&name)).collect();
                Self { uplink: uplink(), allowed }
            }
        }
    }

    /// The table of the sandbox's namespace.
    fn rules(&self, egress: &EgressPolicy, machine: &[Ipv4Addr]) -> String {
        nft::sandbox_rules(egress, &self.uplink.resolvers, &self.allowed, machine)
    }

    /// The content of `/etc/hosts` and `/etc/resolv.conf`. With an allow-list, its names are in `hosts` and
    /// there is no name server: a DNS query could carry data out, too.
    pub(crate) fn names(&self, egress: &EgressPolicy) -> (String, String) {
        let mut hosts = HOSTS.to_owned();
        for (name, address, _) in &self.allowed {
            hosts.push_str(&format!("{address} {name}\n"));
        }
        let resolv = match egress {
            EgressPolicy::None | EgressPolicy::Only(_) => String::new(),
            EgressPolicy::Public | EgressPolicy::All | EgressPolicy::Ruled(_) => {
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
        eprintln!("{host} has no address");
        return vec![];
    };
    found
        .filter_map(|address| match address {
            SocketAddr::V4(address) => Some((host.clone(), *address.ip(), *port)),
            SocketAddr::V6(_) => None,
        })
        .take(MAX_ADDRESSES_PER_NAME)
        .collect()
}

/// Loads the rules of this process's network namespace, and connects it to the machine by a veth pair.
pub(crate) fn connect(
    dir: &Path,
    egress: &EgressPolicy,
    resolved: &ResolvedEgress,
    slot: u32,
    machine: BorrowedFd<'_>,
) -> io::Result<()> {
    let Some(veth) = VethPair::new(slot, egress) else {
        return Netlink::routes()?.set_up("lo");
    };
    let sandbox = sys::network_namespace()?;
    let uplink = &resolved.uplink;
    let rules = resolved.rules(egress, &[]);
    let rules = sys::fork(|| run("nft", &["-f", "-"], &rules))?;
    sys::enter(machine, LinkNameSpaceType::Network)?;
    {
        let _others = lock(&machine_lock("network")?)?;
        load_machine_rules(uplink)?;
        add_docker_rules().map_err(cannot("add rules to Docker's chain"))?;
        fs::write(dir.join(VETH_FILE), &veth.name)?;
        veth.create(sandbox.as_fd()).map_err(cannot("create the veth pair"))?;
        for name in [veth.name.as_str(), uplink.name.as_str()] {
            if !name.is_empty() {
                enable_forwarding(name)?;
            }
        }
    }
    sys::enter(sandbox.as_fd(), LinkNameSpaceType::Network)?;
    // Only IPv4 is connected. This fails harmlessly on a kernel without IPv6.
    let _ = set_sysctl("net/ipv6/conf/eth0/disable_ipv6", "1");
    Netlink::routes()?.set_up("lo")?;
    // The rules are loaded before the sandbox is connected.
    rules.join().map_err(cannot("load the sandbox's rules"))?;
    veth.connect().map_err(cannot("connect the veth pair"))
}

/// Allows all users to listen on low ports in this process's network namespace, and these groups to send ICMP echo
/// requests. The namespace belongs to the machine, so capabilities of the sandbox mean nothing there.
pub(crate) fn open_ports(groups: RangeInclusive<u32>) {
    let groups = format!("{} {}", groups.start(), groups.end());
    for (name, value) in [("ip_unprivileged_port_start", "0"), ("ping_group_range", &groups)] {
        // May fail where `/proc/sys` is read-only. The sandbox also works without.
        let _ = set_sysctl(&format!("net/ipv4/{name}"), value);
    }
}

/// The addresses of this machine.
pub(crate) fn own_addresses() -> io::Result<Vec<Ipv4Addr>> {
    Ok(nft::own_addresses(&fs::read_to_string("/proc/thread-self/net/fib_trie")?))
}

/// Loads the rules of this process's network namespace, which `pasta` will connect. `machine` are the
/// addresses of this machine.
pub(crate) fn load_rules(
    egress: &EgressPolicy,
    resolved: &ResolvedEgress,
    machine: &[Ipv4Addr],
) -> io::Result<()> {
    // Only IPv4 is connected. This fails harmlessly on a kernel without IPv6.
    let _ = set_sysctl("net/ipv6/conf/default/disable_ipv6", "1");
    run("nft", &["-f", "-"], &resolved.rules(egress, machine))
}

/// Changes the egress of the sandbox of a process, in a launcher process. A sandbox that was started
/// without a network cannot get one.
pub(crate) async fn set_egress(
    provider: &str,
    executable: &Path,
    pid: i32,
    (started_with, egress): (&EgressPolicy, &EgressPolicy),
) -> Result<(), ProviderError> {
    if *started_with == EgressPolicy::None {
        if *egress == EgressPolicy::None {
            return Ok(());
        }
        let what = "give a network to an instance that was started without one";
        return Err(ProviderError::unsupported(provider, what));
    }
    let failed = |source| ProviderError::failed("change the egress of a sandbox", source);
    let egress = serde_json::to_string(egress).map_err(|error| failed(error.into()))?;
    let arguments = [egress.as_ref()];
    run_for_sandbox(executable, "reach", pid, &arguments).await.map(drop).map_err(failed)
}

/// Replaces the rules in the network namespace of a process atomically. Connections that the new rules do
/// not allow end. Needs a process of one thread.
pub(crate) fn replace_rules(pid: i32, egress: &EgressPolicy) -> io::Result<()> {
    let network = SandboxNetwork::of(pid)?;
    // Names are resolved while this process is in the machine's network.
    let resolved = ResolvedEgress::new(egress);
    let root = rustix::process::geteuid().is_root();
    let mut machine = Vec::new();
    if !root {
        machine = own_addresses()?;
        machine.push(pasta::GATEWAY);
    }
    let files = open_dir(Path::new(&format!("/proc/{pid}/root")))?;
    if !resolved.allowed.is_empty() {
        let (hosts, _) = resolved.names(egress);
        let write = || UntrustedTree(files.as_fd()).write(Path::new("etc"), "hosts", &hosts);
        // The sandbox may have made its own /etc unusable.
        let _ = if root { sys::as_user(first_user(pid)?, write) } else { write() };
    }
    network.enter()?;
    run("nft", &["-f", "-"], &resolved.rules(egress, &machine))
}

/// The network namespace of a sandbox's process, and the user namespace that owns it.
#[derive(Debug)]
pub(super) struct SandboxNetwork {
    network: fs::File,
    users: fs::File,
}

impl SandboxNetwork {
    pub(super) fn of(pid: i32) -> io::Result<Self> {
        let (own, theirs) = ("/proc/self/ns/net", format!("/proc/{pid}/ns/net"));
        if fs::read_link(&theirs)? == fs::read_link(own)? {
            return Err(io::Error::other("the process has no network namespace of its own"));
        }
        let users = fs::File::open(format!("/proc/{pid}/ns/user"))?;
        Ok(Self { network: fs::File::open(theirs)?, users })
    }

    /// Moves this process there. Needs a process of one thread.
    pub(super) fn enter(&self) -> io::Result<()> {
        if !rustix::process::geteuid().is_root() {
            // The creator of a user namespace has all capabilities in it.
            sys::enter(self.users.as_fd(), LinkNameSpaceType::User)?;
        }
        sys::enter(self.network.as_fd(), LinkNameSpaceType::Network)
    }
}

/// Loads the machine's table unless it is loaded.
fn load_machine_rules(uplink: &Uplink) -> io::Result<()> {
    let (rules, loaded) = (nft::machine_rules(uplink), machine_lock("rules")?);
    let namespace = fs::metadata("/proc/self/ns/net")?.ino();
    let wanted = format!("{namespace}\n{rules}");
    let same = fs::read_to_string(&loaded).is_ok_and(|before| before == wanted);
    if same && Netlink::rules()?.has_table(TableFamily::Inet, nft::TABLE)? {
        return Ok(());
    }
    run("nft", &["-f", "-"], &rules)?;
    fs::write(loaded, wanted)
}

/// Adds rules to Docker's chain, if Docker runs: its iptables rules drop forwarded packets that no rule
/// there accepts, even if our table does. Our table has checked these packets before.
fn add_docker_rules() -> io::Result<()> {
    let nftables =
        || Netlink::rules().and_then(|kernel| kernel.has_table(TableFamily::V4, "filter"));
    let legacy =
        || fs::read_to_string("/proc/net/ip_tables_names").is_ok_and(|names| !names.is_empty());
    if !legacy() && !nftables().unwrap_or(false) {
        return Ok(());
    }
    let Some(iptables) = find_program(Path::new("iptables")) else { return Ok(()) };
    let iptables = iptables.to_string_lossy();
    for rule in nft::DOCKER_RULES {
        let apply = |verb: &str| {
            let words = ["-w", verb, nft::DOCKER_CHAIN];
            run(&iptables, &[&words[..], rule].concat(), "")
        };
        // The check fails without Docker, and without the rule.
        if apply("-C").is_err()
            && run(&iptables, &["-w", "-n", "-L", nft::DOCKER_CHAIN], "").is_ok()
        {
            apply("-I")?;
            fs::write(machine_lock("docker")?, "")?;
        }
    }
    Ok(())
}

/// Removes our rules from Docker's chain.
fn remove_docker_rules() -> io::Result<()> {
    let noted = machine_lock("docker")?;
    if noted.exists() {
        for rule in nft::DOCKER_RULES {
            let words = ["-w", "-D", nft::DOCKER_CHAIN];
            let _ = run("iptables", &[&words[..], rule].concat(), "");
        }
        fs::remove_file(noted)?;
    }
    Ok(())
}

/// Connects the sandbox, and writes the result to its directory.
pub(crate) fn connect_and_report(
    dir: &Path,
    egress: &EgressPolicy,
    resolved: &ResolvedEgress,
    slot: u32,
    machine: BorrowedFd<'_>,
) -> io::Result<()> {
    let connected = connect(dir, egress, resolved, slot, machine);
    let result = connected.map_or_else(|error| error.to_string(), |()| CONNECTED.to_owned());
    fs::write(dir.join(RESULT_FILE), result)
}

/// Returns the result of connecting a sandbox, or `None` while it is unknown.
pub(crate) fn result(dir: &Path) -> Option<Result<(), String>> {
    match fs::read_to_string(dir.join(RESULT_FILE)).ok()?.as_str() {
        "" => None,
        CONNECTED => Some(Ok(())),
        error => Some(Err(format!("cannot set up the network: {error}"))),
    }
}

/// Enables IPv4 forwarding on an interface. The machine's original setting is recorded, to be restored.
fn enable_forwarding(name: &str) -> io::Result<()> {
    let setting = format!("net/ipv4/conf/{name}/forwarding");
    let before = fs::read_to_string(Path::new("/proc/sys").join(&setting))?;
    if before.trim() == "0" && !name.starts_with(nft::PREFIX) {
        fs::write(machine_lock("forwarding")?, name)?;
    }
    if before.trim() == "0" {
        set_sysctl(&setting, "1")?;
    }
    Ok(())
}

/// Reverts the changes to this machine's network after the last sandbox was disconnected. Waits until the
/// kernel has removed the veth pair of the sandbox with this directory.
pub(crate) fn disconnect(dir: &Path) -> io::Result<()> {
    let Ok(veth) = fs::read_to_string(dir.join(VETH_FILE)) else { return Ok(()) };
    let interfaces = || -> io::Result<Vec<String>> {
        Ok(nft::interfaces(&fs::read_to_string("/proc/thread-self/net/dev")?))
    };
    let deadline = Instant::now() + VETH_TIMEOUT;
    while interfaces()?.contains(&veth) && Instant::now() < deadline {
        std::thread::sleep(POLL_INTERVAL);
    }
    let _others = lock(&machine_lock("network")?)?;
    if interfaces()?.iter().any(|name| name.starts_with(nft::PREFIX)) {
        return Ok(());
    }
    let _ = fs::remove_file(machine_lock("rules")?);
    remove_docker_rules()?;
    let _ = run("nft", &["-f", "-"], nft::DELETE_TABLE);
    let noted = machine_lock("forwarding")?;
    if let Ok(name) = fs::read_to_string(&noted) {
        let _ = set_sysctl(&format!("net/ipv4/conf/{name}/forwarding"), "0");
        fs::remove_file(noted)?;
    }
    Ok(())
}

/// Returns the uplink of this machine.
pub(crate) fn uplink() -> Uplink {
    let routes = fs::read_to_string("/proc/thread-self/net/route").unwrap_or_default();
    let mut resolvers = nft::resolvers(&fs::read_to_string("/etc/resolv.conf").unwrap_or_default());
    if resolvers.is_empty() {
        // The machine has a local resolver: use the name servers behind it.
        let upstream = fs::read_to_string("/run/systemd/resolve/resolv.conf").unwrap_or_default();
        resolvers = nft::resolvers(&upstream);
    }
    Uplink { name: nft::default_interface(&routes).unwrap_or_default(), resolvers }
}

fn set_sysctl(name: &str, value: &str) -> io::Result<()> {
    fs::write(Path::new("/proc/sys").join(name), value)
}

/// Runs a tool of the machine with this input. It ends at its deadline: `iptables -w` waits for other changes.
fn run(tool: &str, args: &[&str], input: &str) -> io::Result<()> {
    let mut child = sys::end_in_time(&mut Command::new(tool))
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
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{tool}: {}: {}", output.status, stderr.trim())))
}
