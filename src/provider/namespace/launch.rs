//! The launcher: a process of one thread that makes a sandbox's namespaces and mounts, and then
//! becomes the OCI runtime.
//!
//! Everything it makes hangs on namespaces that only it and the sandbox are in: whenever both are
//! gone, the kernel has taken down every mount, loop device and network interface. So a server that is
//! killed at any instruction leaves nothing but a directory, a disk and a cgroup, and those have names.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, Write};
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FlockOperation, MemfdFlags, Mode, OFlags, ResolveFlags};
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};
use serde::{Deserialize, Serialize};

use super::bundle::{self, Plan};
use super::disk::{HOSTS, PATH, TOP};
use super::filter;
use super::network::{self, SLOTS, Uplink, Wire};
use super::spec::{Destination, Egress, SandboxSpec};
use super::sys::{self, Allows};

/// What a launcher is told, as it stands in the sandbox's directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Launch {
    /// The name the runtime knows it by, and its cgroup.
    pub(super) name: String,
    /// The lease and generation, for the host to repeat.
    pub(super) label: String,
    /// The limits.
    pub(super) spec: SandboxSpec,
    /// The disk's file.
    pub(super) disk: PathBuf,
    /// The root of the image beneath, if it is made from one.
    pub(super) image: Option<PathBuf>,
    /// The directory with the host's executable, and its name in it.
    pub(super) programs: PathBuf,
    /// See `programs`.
    pub(super) program: String,
    /// The OCI runtime.
    pub(super) runtime: PathBuf,
    /// Directories of this machine that are shown read-only.
    pub(super) shown: Vec<PathBuf>,
}

/// The file in a sandbox's directory that [`Launch`] is in.
pub(super) const FILE: &str = "launch.json";

/// Held by the launcher, and the runtime it becomes, as long as they run.
pub(in crate::provider) const LOCK: &str = "launch.lock";

/// The directory of the terminals of an instance.
pub(in crate::provider) const TERMINALS: &str = "t";

/// The file with the name of the machine's end of its wire, if it has one.
const WIRE: &str = "wire";

/// The file that says what came of its network: [`CONNECTED`], or what went wrong.
const NETWORK: &str = "network";

const CONNECTED: &str = "connected";

/// The file with the number of its slot.
const SLOT: &str = "slot";

/// The cgroup below which all sandboxes are.
pub(super) const CGROUP: &str = "/stead-sandboxes";

/// The machine's user that is user 0 of slot 0.
const FIRST_USER: u32 = 0x4000_0000;

/// Places that a launcher may cover in its own view of the machine, as none of them is looked at
/// from then on. The first that nothing of ours is in.
const STAGES: [&str; 4] = ["/mnt", "/media", "/srv", "/opt"];

/// Files that one process may have open.
pub(in crate::provider) const FILES: u64 = 65_536;

/// Signals and timers that may be pending.
pub(in crate::provider) const SIGNALS: u64 = 16_384;

/// Descriptors from here on are in nobody's way.
const ABOVE: i32 = 64;

/// What is shown in a sandbox of this machine's programs.
const SHOWN: Allows = Allows { writing: false, running: true };

/// Launches the sandbox of a directory. Returns only when that failed.
pub(super) fn launch(dir: &Path) -> io::Error {
    match prepare(dir) {
        Ok(Prepared { mut runtime, handed }) => {
            let handed: Vec<BorrowedFd<'_>> = handed.iter().map(AsFd::as_fd).collect();
            sys::become_with(&mut runtime, &handed)
        }
        Err(error) => error,
    }
}

/// Keeps what a descriptor is open on for the life of this process, whatever it becomes, under a
/// number that what is handed over does not take.
fn hold(fd: BorrowedFd<'_>) -> io::Result<i32> {
    let held = rustix::io::fcntl_dupfd_cloexec(fd, ABOVE)?;
    sys::keep(&held)?;
    Ok(std::mem::ManuallyDrop::new(held).as_raw_fd())
}

/// A runtime that is ready to run.
struct Prepared {
    runtime: Command,
    handed: Vec<OwnedFd>,
}

fn prepare(dir: &Path) -> io::Result<Prepared> {
    let launch: Launch = serde_json::from_slice(&fs::read(dir.join(FILE))?)?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    // Nothing that ends the server's group ends this.
    let _ = rustix::process::setsid();
    // Kept for the life of the process, whatever it becomes.
    hold(lock(&dir.join(LOCK))?.as_fd())?;

    let (slot, slot_lock) = slot(dir, &launch.name).map_err(doing("take a slot"))?;
    let first_user = FIRST_USER + slot * bundle::USERS;
    let users = sys::users(first_user, bundle::USERS).map_err(doing("map users"))?;

    let here = open_dir(dir)?;
    let socket = sys::bound_socket(here.as_fd(), "host.sock").map_err(doing("name a socket"))?;
    let files = Allows { writing: true, running: false };
    let terminals = sys::tree(&dir.join(TERMINALS), files, Some(users.as_fd()))
        .map_err(doing("map the directory of terminals"))?;

    // Names are looked up while this process can still ask.
    let reach = Reach::of(&launch.spec.egress);
    let machine = sys::network()?;
    sys::leave(UnshareFlags::NEWNS | UnshareFlags::NEWNET)
        .map_err(doing("leave the machine's namespaces"))?;
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let stage = stage(dir, &launch)?;
    // The network takes as long as the disk and the runtime. Whoever launches waits for both.
    sys::beside(|| {
        let connected = connect(dir, &launch.spec.egress, &reach, slot, machine.as_fd());
        let word = connected.map_or_else(|error| error.to_string(), |()| CONNECTED.to_owned());
        fs::write(dir.join(NETWORK), word)
    })?;
    drop(machine);
    let root = mount_root(&launch, &reach, stage, users.as_fd(), first_user)?;

    // This process becomes the runtime that opens it.
    let users = hold(users.as_fd())?;
    let users_path = PathBuf::from(format!("/proc/{}/fd/{users}", std::process::id()));

    let config = bundle::config(&Plan {
        root: &root,
        spec: &launch.spec,
        first_user,
        users: &users_path,
        cgroup: &format!("{CGROUP}/{}", launch.name),
        program: &launch.program,
        label: &launch.label,
    })
    .map_err(io::Error::other)?;
    let bundle = dir.join("bundle");
    fs::create_dir_all(&bundle)?;
    fs::write(bundle.join("config.json"), serde_json::to_vec(&config)?)?;

    limit(launch.spec.disk).map_err(doing("lower its limits"))?;
    let handed = vec![socket, terminals, filters()?, slot_lock];
    let mut runtime = Command::new(&launch.runtime);
    runtime
        .arg("--root")
        .arg(dir.join("state"))
        .args(["run", "--detach", "--preserve-fds", &handed.len().to_string(), "--bundle"])
        .arg(&bundle)
        .arg(&launch.name)
        .env_clear()
        .env("PATH", PATH)
        .current_dir("/");
    Ok(Prepared { runtime, handed })
}

/// Lowers what one process may have of each, for this one and so for all in the sandbox. Not by the
/// runtime, which would need a capability over processes that are another user's by then.
fn limit(disk: u64) -> io::Result<()> {
    for (resource, most) in [
        // A limit of 0 would still let a machine that pipes its cores to a program run that.
        (Resource::Core, 1),
        (Resource::Memlock, 64 << 10),
        (Resource::Msgqueue, 819_200),
        (Resource::Nofile, FILES),
        (Resource::Sigpending, SIGNALS),
        // A workspace is not on the sandbox's own disk: at least no file in it grows beyond that.
        (Resource::Fsize, disk),
    ] {
        let most = getrlimit(resource).maximum.map_or(most, |ours| ours.min(most));
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    Ok(())
}

/// The filters of system calls, to be read from the start.
pub(in crate::provider) fn filters() -> io::Result<OwnedFd> {
    let memory = rustix::fs::memfd_create("filters", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(memory);
    file.write_all(&filter::programs()?)?;
    file.rewind()?;
    Ok(file.into())
}

/// Puts the sandbox's root together; returns where it is.
fn mount_root(
    launch: &Launch,
    reach: &Reach,
    stage: &Path,
    users: BorrowedFd<'_>,
    first_user: u32,
) -> io::Result<PathBuf> {
    let quiet = MountFlags::NOSUID | MountFlags::NODEV;
    // Opened before the stage covers anything.
    let image = match &launch.image {
        Some(image) => {
            Some(sys::tree(image, SHOWN, Some(users)).map_err(doing("map the image's users"))?)
        }
        None => None,
    };
    let mut shown =
        vec![(PathBuf::from(bundle::PROGRAMS), sys::tree(&launch.programs, SHOWN, None)?)];
    if image.is_none() {
        for path in machine_directories(&launch.shown) {
            let tree =
                sys::tree(&path, SHOWN, None).map_err(doing("show a directory of this machine"))?;
            shown.push((path, tree));
        }
    }
    let (device, device_path) =
        sys::loop_device(&launch.disk).map_err(doing("make the disk a device"))?;

    let mount_tmpfs = rustix::mount::mount("tmpfs", stage, "tmpfs", quiet, c"mode=755,size=64k");
    mount_tmpfs.map_err(|error| doing("mount the stage")(error.into()))?;
    let [disk, mapped, lower, root] =
        ["disk", "mapped", "lower", "root"].map(|name| stage.join(name));
    for dir in [&disk, &mapped, &lower, &root] {
        fs::create_dir(dir)?;
    }
    rustix::mount::mount(&device_path, &disk, "ext4", quiet, c"noacl,errors=remount-ro")
        .or_else(|_| rustix::mount::mount(&device_path, &disk, "ext4", quiet, None))
        .map_err(|error| doing("mount the disk")(error.into()))?;
    drop(device);
    furnish(launch, reach, &disk.join("root"))?;

    let layer = sys::tree(&disk, Allows { writing: true, running: true }, Some(users))
        .map_err(doing("map the disk's users"))?;
    sys::attach(layer.as_fd(), open_dir(&mapped)?.as_fd())?;
    match image {
        None => rustix::mount::mount_bind(mapped.join("root"), &root)?,
        Some(image) => {
            sys::attach(image.as_fd(), open_dir(&lower)?.as_fd())?;
            let options = format!(
                "lowerdir={},upperdir={},workdir={}",
                lower.display(),
                mapped.join("root").display(),
                mapped.join("work").display()
            );
            let options = std::ffi::CString::new(options).map_err(io::Error::other)?;
            sys::as_user(first_user, || {
                Ok(rustix::mount::mount("overlay", &root, "overlay", quiet, options.as_c_str())?)
            })
            .map_err(doing("mount the overlay"))?;
        }
    }
    let inside = open_dir(&root)?;
    for (path, tree) in &shown {
        let at = Inside(inside.as_fd()).open(path).map_err(doing("find a place inside"))?;
        sys::attach(tree.as_fd(), at.as_fd()).map_err(doing("mount into the sandbox"))?;
    }
    Ok(root)
}

/// Makes the places that are mounted on, and writes the files that say where names are looked up.
/// What is on the disk was in the sandbox's hands: no link in it is followed.
fn furnish(launch: &Launch, reach: &Reach, root: &Path) -> io::Result<()> {
    let root = open_dir(root)?;
    let inside = Inside(root.as_fd());
    for path in ["proc", "dev", "sys", "run", "workspace", "memories/hot", "memories/persistent"] {
        inside.make(Path::new(path))?;
    }
    inside.make(Path::new(bundle::PROGRAMS))?;
    if launch.image.is_none() {
        for path in machine_directories(&launch.shown) {
            inside.make(&path)?;
        }
    }
    let (hosts, resolv) = reach.names(&launch.spec.egress);
    // What it did to its own files is its own loss.
    let _ = inside.write(Path::new("etc"), "hosts", &hosts);
    let _ = inside.write(Path::new("etc"), "resolv.conf", &resolv);
    Ok(())
}

/// The directories of this machine's programs.
pub(in crate::provider) fn machine_directories(shown: &[PathBuf]) -> Vec<PathBuf> {
    let mut list = vec![PathBuf::from("/usr")];
    let top = TOP.iter().map(|name| Path::new("/").join(name));
    list.extend(top.filter(|path| fs::symlink_metadata(path).is_ok_and(|kind| kind.is_dir())));
    list.extend(shown.iter().filter(|path| path.is_absolute() && path.is_dir()).cloned());
    list
}

/// What can be reached, and by which names.
#[derive(Debug)]
pub(in crate::provider) struct Reach {
    uplink: Uplink,
    allowed: Vec<(String, Ipv4Addr, u16)>,
}

impl Reach {
    pub(in crate::provider) fn of(egress: &Egress) -> Self {
        match egress {
            Egress::None => Self { uplink: Uplink::default(), allowed: vec![] },
            Egress::Public | Egress::All => Self { uplink: uplink(), allowed: vec![] },
            Egress::Only(list) => {
                Self { uplink: uplink(), allowed: list.iter().flat_map(addresses).collect() }
            }
        }
    }

    /// What `/etc/hosts` and `/etc/resolv.conf` say. With an allow-list, its names are written down
    /// and nobody can be asked for others: a question is a way out, too.
    pub(in crate::provider) fn names(&self, egress: &Egress) -> (String, String) {
        let mut hosts = HOSTS.to_owned();
        for (name, address, _) in &self.allowed {
            hosts.push_str(&format!("{address} {name}\n"));
        }
        let resolv = match egress {
            Egress::None | Egress::Only(_) => String::new(),
            Egress::Public | Egress::All => {
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
pub(in crate::provider) fn connect(
    dir: &Path,
    egress: &Egress,
    reach: &Reach,
    slot: u32,
    machine: BorrowedFd<'_>,
) -> io::Result<()> {
    let Some(wire) = Wire::new(slot, egress) else {
        return run("ip", &["-batch", "-"], "link set lo up\n");
    };
    let sandbox = sys::network()?;
    let uplink = &reach.uplink;
    let allowed: Vec<(Ipv4Addr, u16)> =
        reach.allowed.iter().map(|(_, address, port)| (*address, *port)).collect();
    let rules = network::sandbox_rules(egress, &uplink.resolvers, &allowed);
    let rules = sys::beside(|| run("nft", &["-f", "-"], &rules))?;
    sys::enter(machine, LinkNameSpaceType::Network)?;
    {
        let _others = lock(&machine_lock("network")?)?;
        run("nft", &["-f", "-"], &network::machine_rules(uplink))?;
        fs::write(dir.join(WIRE), &wire.name)?;
        // A path, because a number would be taken for a process.
        let path = format!("/proc/{}/fd/{}", std::process::id(), sandbox.as_raw_fd());
        run("ip", &["-batch", "-"], &wire.machine_side(&path))?;
        for name in [wire.name.as_str(), uplink.name.as_str()] {
            if !name.is_empty() {
                forward(name)?;
            }
        }
    }
    sys::enter(sandbox.as_fd(), LinkNameSpaceType::Network)?;
    // The wire carries version 4 alone; where the kernel has no version 6 there is nothing to do.
    let _ = set_sysctl("net/ipv6/conf/eth0/disable_ipv6", "1");
    // Before there is a way out.
    rules.join().map_err(doing("load its rules"))?;
    run("ip", &["-batch", "-"], &wire.sandbox_side())
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
pub(in crate::provider) fn disconnect(dir: &Path) -> io::Result<()> {
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
    let _ = run("nft", &["-f", "-"], network::NO_MACHINE_RULES);
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
pub(super) fn run(tool: &str, args: &[&str], input: &str) -> io::Result<()> {
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

/// A number that no other living sandbox of this machine has, and what holds it: the sandbox keeps
/// that open, so that the kernel gives the number back with the sandbox's last process.
pub(in crate::provider) fn slot(dir: &Path, name: &str) -> io::Result<(u32, OwnedFd)> {
    let start = name
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    for step in 0..SLOTS {
        let slot = start.wrapping_add(step) % SLOTS;
        let path = machine_lock(&slot.to_string())?;
        let file = open_lock(&path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // Who gives a slot back removes its file: one without a name is nobody's lock.
            Ok(()) if file.metadata()?.nlink() == 0 => {}
            Ok(()) => {
                fs::write(dir.join(SLOT), slot.to_string())?;
                return Ok((slot, file.into()));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other("as many sandboxes as this machine has numbers for are running"))
}

/// Removes the file of the slot of a sandbox that is gone.
pub(in crate::provider) fn give_slot_back(dir: &Path) -> io::Result<()> {
    let Ok(slot) = fs::read_to_string(dir.join(SLOT)) else { return Ok(()) };
    let path = machine_lock(&slot)?;
    let Ok(file) = File::open(&path) else { return Ok(()) };
    // Another that has it already keeps it.
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => fs::remove_file(path),
        Err(_) => Ok(()),
    }
}

/// A lock that all servers of this machine share.
pub(super) fn machine_lock(name: &str) -> io::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let dir = Path::new("/run/stead");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    Ok(dir.join(format!("{name}.lock")))
}

fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Waits for a lock and takes it.
pub(in crate::provider) fn lock(path: &Path) -> io::Result<File> {
    let file = open_lock(path)?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

fn stage(dir: &Path, launch: &Launch) -> io::Result<&'static Path> {
    let ours = [Some(dir), Some(launch.runtime.as_path())];
    STAGES
        .iter()
        .map(Path::new)
        .find(|stage| stage.is_dir() && ours.iter().flatten().all(|path| !path.starts_with(stage)))
        .ok_or_else(|| io::Error::other("no place for a sandbox's root: /mnt is missing"))
}

pub(in crate::provider) fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

pub(in crate::provider) fn doing(what: &'static str) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("cannot {what}: {error}"))
}

/// A tree whose content is not ours: nothing leads out of it, and no link is followed.
struct Inside<'a>(BorrowedFd<'a>);

impl Inside<'_> {
    /// What is at a path.
    fn open(&self, path: &Path) -> io::Result<OwnedFd> {
        let path = path.strip_prefix("/").unwrap_or(path);
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
        Ok(rustix::fs::openat2(self.0, path, flags, Mode::empty(), resolve)?)
    }

    /// Makes a directory, with those above it; whatever else has its name is removed.
    fn make(&self, path: &Path) -> io::Result<OwnedFd> {
        let mode = Mode::from_raw_mode(0o755);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at = rustix::io::dup(self.0)?;
        for name in path.strip_prefix("/").unwrap_or(path) {
            at = match rustix::fs::openat(&at, name, flags, Mode::empty()) {
                Ok(next) => next,
                Err(rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {
                    rustix::fs::unlinkat(&at, name, AtFlags::empty())?;
                    rustix::fs::mkdirat(&at, name, mode)?;
                    rustix::fs::openat(&at, name, flags, Mode::empty())?
                }
                Err(rustix::io::Errno::NOENT) => {
                    rustix::fs::mkdirat(&at, name, mode)?;
                    rustix::fs::openat(&at, name, flags, Mode::empty())?
                }
                Err(error) => return Err(error.into()),
            };
        }
        Ok(at)
    }

    /// Writes a file, in place of whatever has its name.
    fn write(&self, dir: &Path, name: &str, text: &str) -> io::Result<()> {
        let dir = self.make(dir)?;
        let beside = ".stead-new";
        let _ = rustix::fs::unlinkat(&dir, beside, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file =
            rustix::fs::openat(&dir, beside, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o644))?;
        File::from(file).write_all(text.as_bytes())?;
        Ok(rustix::fs::renameat(&dir, beside, &dir, name)?)
    }
}
