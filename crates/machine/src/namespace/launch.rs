//! The launcher: a process of one thread that makes a sandbox's namespaces and mounts, and then
//! is, or becomes, the OCI runtime.
//!
//! Everything it makes hangs on namespaces that only it and the sandbox are in: whenever both are
//! gone, the kernel has taken down every mount, loop device and network interface. So a server that is
//! killed at any instruction leaves nothing but a directory, a disk and a cgroup, and those have names.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use oci_spec::runtime::Spec;
use rustix::fs::{AtFlags, FlockOperation, MemfdFlags, Mode, OFlags, ResolveFlags};
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};

use super::bundle::{self, Group, Plan};
use super::cgroup::Cgroups;
use super::connect::{self, Reach};
use super::disk::{PATH, TOP};
use super::filter;
use super::netlink::Netlink;
use super::network::SLOTS;
use super::pace::Pace;
use super::pasta::{self, Minder};
use super::runtime;
use super::spec::{Egress, SandboxSpec};
use super::sys::{self, Allows};
use model::TerminalId;

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
    /// The OCI runtime; `None` for our own.
    pub(super) runtime: Option<PathBuf>,
    /// Directories of this machine that are shown read-only.
    pub(super) shown: Vec<PathBuf>,
    /// Bytes a second that it may write to its disk; 0 is no bound.
    #[serde(default)]
    pub(super) disk_rate: u64,
}

/// The file in a sandbox's directory that [`Launch`] is in.
pub(super) const FILE: &str = "launch.json";

/// Held by the launcher, and the runtime it becomes, as long as they run.
pub(crate) const LOCK: &str = "launch.lock";

/// The directory of the terminals of an instance.
pub(crate) const TERMINALS: &str = "t";

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
pub(crate) const FILES: u64 = 65_536;

/// Signals and timers that may be pending.
pub(crate) const SIGNALS: u64 = 16_384;

/// What the kernel counts for the user who made a user namespace, too: a sandbox of an unprivileged
/// user gets a share of it, so that the user's other programs do not go without.
const USER_LIMITS: [(&str, &str); 2] =
    [("max_inotify_instances", "16"), ("max_inotify_watches", "8192")];

/// Descriptors from here on are in nobody's way.
pub(super) const ABOVE: i32 = 64;

/// What is shown in a sandbox of this machine's programs.
const SHOWN: Allows = Allows { writing: false, running: true };

/// What the launcher of a sandbox was told.
pub(super) fn read(dir: &Path) -> io::Result<Launch> {
    Ok(serde_json::from_slice(&fs::read(dir.join(FILE))?)?)
}

/// Launches the sandbox of a directory. With a runtime that is a program, returns only when that
/// failed.
pub(super) fn launch(dir: &Path) -> io::Result<()> {
    let Prepared { launch, bundle, users, handed } = prepare(dir)?;
    let handed: Vec<BorrowedFd<'_>> = handed.iter().map(AsFd::as_fd).collect();
    let Some(runtime) = &launch.runtime else {
        return runtime::run(&bundle, Some(users.as_fd()), &handed);
    };
    let files = dir.join("bundle");
    fs::create_dir_all(&files)?;
    fs::write(files.join("config.json"), serde_json::to_vec(&bundle)?)?;
    let mut runtime = Command::new(runtime);
    runtime
        .arg("--root")
        .arg(dir.join("state"))
        .args(["run", "--detach", "--preserve-fds", &handed.len().to_string(), "--bundle"])
        .arg(&files)
        .arg(&launch.name)
        .env_clear()
        .env("PATH", PATH)
        .current_dir("/");
    Err(sys::become_with(&mut runtime, &handed))
}

/// Keeps what a descriptor is open on for the life of this process, whatever it becomes, under a
/// number that what is handed over does not take.
fn hold(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let held = rustix::io::fcntl_dupfd_cloexec(fd, ABOVE)?;
    sys::keep(&held)?;
    Ok(held)
}

/// Everything that a runtime needs.
struct Prepared {
    launch: Launch,
    bundle: Spec,
    users: OwnedFd,
    handed: Vec<OwnedFd>,
}

fn prepare(dir: &Path) -> io::Result<Prepared> {
    let launch = read(dir)?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    // Nothing that ends the server's group ends this.
    let _ = rustix::process::setsid();
    // Kept for the life of the process, whatever it becomes.
    std::mem::forget(hold(lock(&dir.join(LOCK))?.as_fd())?);

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
    let disk = sys::loop_device(&launch.disk).map_err(doing("make the disk a device"))?;
    let pace = Pace::new(&disk.0, launch.disk_rate, &launch.name)?;
    // This process becomes the runtime that opens it.
    let users = hold(users.as_fd())?;
    let root = stage.join(ROOT);
    let cgroup = format!("{CGROUP}/{}", launch.name);
    let bundle = bundle::config(&Plan {
        root: &root,
        spec: &launch.spec,
        first_user,
        terminals: Group::Fifth,
        users: Path::new(&format!("/proc/{}/fd/{}", std::process::id(), users.as_raw_fd())),
        cgroup: &cgroup,
        program: &launch.program,
        label: &launch.label,
        pace: Some(&pace),
    })
    .map_err(io::Error::other)?;
    // The network takes as long as the disk and the runtime. Whoever launches waits for both.
    sys::beside(|| {
        connect::connect_and_say(dir, &launch.spec.egress, &reach, slot, machine.as_fd())
    })?;
    drop(machine);
    let cgroups = match &launch.runtime {
        None => Some(enter_cgroups(&cgroup, &bundle)?),
        Some(_) => None,
    };
    pace.set(dir, &Cgroups::new(&cgroup)?).map_err(doing("bound its writing"))?;
    mount_root(&launch, &reach, stage, disk, users.as_fd(), first_user)?;
    limit(launch.spec.disk).map_err(doing("lower its limits"))?;
    let handed = vec![socket, terminals, filters()?, slot_lock];
    if let Some((cgroups, entered)) = cgroups {
        entered.join().map_err(doing("enter its cgroups"))?;
        cgroups.deny_devices().map_err(doing("deny it devices"))?;
    }
    Ok(Prepared { launch, bundle, users, handed })
}

/// Launches the sandbox of a directory for a user who is not root.
pub(super) fn confine(dir: &Path) -> io::Result<()> {
    let launch = read(dir)?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let _ = rustix::process::setsid();
    // What needs the machine's network is done and started while this process is in it.
    let egress = &launch.spec.egress;
    let reach = Reach::of(egress);
    let connecting = match egress {
        Egress::None => None,
        Egress::Public | Egress::All | Egress::Only(_) | Egress::Ruled(_) => {
            let mut machine = connect::own_addresses()?;
            machine.push(pasta::GATEWAY);
            Some((machine, Minder::start(dir)?))
        }
    };
    let _lock = lock(&dir.join(LOCK))?;
    let here = open_dir(dir)?;
    let socket = sys::bound_socket(here.as_fd(), "host.sock").map_err(doing("name a socket"))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let terminals = rustix::fs::open(dir.join(TERMINALS), flags, Mode::empty())?;
    let stage = stage(dir, &launch)?;
    let root = stage.join(ROOT);
    let bundle = bundle::config(&Plan {
        root: &root,
        spec: &launch.spec,
        first_user: rustix::process::getuid().as_raw(),
        users: Path::new(""),
        terminals: Group::Own,
        cgroup: &format!("{CGROUP}/{}", launch.name),
        program: &launch.program,
        label: &launch.label,
        pace: None,
    })
    .map_err(io::Error::other)?;
    sys::own_users()
        .map_err(doing("make a user namespace; this machine may not let users have any"))?;
    for (name, most) in USER_LIMITS {
        // Where `/proc/sys` cannot be written to, hosts that find none left still work.
        let _ = fs::write(Path::new("/proc/sys/user").join(name), most);
    }
    sys::leave(UnshareFlags::NEWNS | UnshareFlags::NEWNET)
        .map_err(doing("leave the machine's namespaces"))?;
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    Netlink::routes()?.set_up("lo").map_err(doing("set its loopback up"))?;
    let life = match connecting {
        None => None,
        Some((machine, minder)) => {
            // Before there is a way out.
            connect::shut(egress, &reach, &machine).map_err(doing("load its rules"))?;
            Some(minder.connect().map_err(doing("connect it"))?)
        }
    };

    let files = launch.disk.join("root");
    let own = sys::tree(&files, Allows { writing: true, running: true }, None)?;
    let mut shown =
        vec![(PathBuf::from(bundle::PROGRAMS), sys::tree(&launch.programs, SHOWN, None)?)];
    for path in machine_directories(&launch.shown) {
        shown.push((path.clone(), sys::tree(&path, SHOWN, None)?));
    }
    furnish(&launch, &reach, &files)?;
    let quiet = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("tmpfs", stage, "tmpfs", quiet, c"mode=755,size=64k")?;
    fs::create_dir(&root)?;
    sys::attach(own.as_fd(), open_dir(&root)?.as_fd()).map_err(doing("mount its files"))?;
    let inside = open_dir(&root)?;
    for (path, tree) in &shown {
        let at = Inside(inside.as_fd()).open(path).map_err(doing("find a place inside"))?;
        sys::attach(tree.as_fd(), at.as_fd()).map_err(doing("mount into the sandbox"))?;
    }
    limit(launch.spec.disk).map_err(doing("lower its limits"))?;
    // Counted in the user namespace, so that it is the sandbox's own.
    lower(Resource::Nproc, launch.spec.processes)?;
    let mut handed = vec![socket, terminals, filters()?];
    // Held by process 1 alone, as long as it lives.
    handed.extend(life);
    let handed: Vec<BorrowedFd<'_>> = handed.iter().map(AsFd::as_fd).collect();
    runtime::run(&bundle, None, &handed)
}

/// Makes the cgroups, with the limits of a bundle, and lets this process be taken in beside: the kernel
/// lets all processors come to rest before it moves one.
fn enter_cgroups(path: &str, bundle: &Spec) -> io::Result<(Cgroups, sys::Beside)> {
    let cgroups = Cgroups::new(path)?;
    let limits = bundle.linux().as_ref().and_then(|linux| linux.resources().as_ref());
    let limits = limits.ok_or_else(|| io::Error::other("a bundle without limits"))?;
    cgroups.make(limits).map_err(doing("make its cgroups"))?;
    let own = std::process::id();
    let entered = sys::beside(|| cgroups.take_in(own))?;
    Ok((cgroups, entered))
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
        lower(resource, most)?;
    }
    Ok(())
}

fn lower(resource: Resource, most: u64) -> io::Result<()> {
    let most = getrlimit(resource).maximum.map_or(most, |ours| ours.min(most));
    Ok(setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}

/// Where the host finds the directory of a terminal.
pub(super) fn terminal_inside(terminal: &TerminalId) -> PathBuf {
    format!("/proc/self/fd/{}/{terminal}", bundle::TERMINALS_FD).into()
}

/// The filters of system calls, to be read from the start.
pub(crate) fn filters() -> io::Result<OwnedFd> {
    let memory = rustix::fs::memfd_create("filters", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(memory);
    file.write_all(&filter::programs()?)?;
    file.rewind()?;
    Ok(file.into())
}

/// The name of the root on the stage.
const ROOT: &str = "root";

/// Puts the sandbox's root together.
fn mount_root(
    launch: &Launch,
    reach: &Reach,
    stage: &Path,
    (device, device_path): (File, String),
    users: BorrowedFd<'_>,
    first_user: u32,
) -> io::Result<()> {
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

    let mount_tmpfs = rustix::mount::mount("tmpfs", stage, "tmpfs", quiet, c"mode=755,size=64k");
    mount_tmpfs.map_err(|error| doing("mount the stage")(error.into()))?;
    let [disk, mapped, lower, root] =
        ["disk", "mapped", "lower", ROOT].map(|name| stage.join(name));
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
    Ok(())
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
pub(crate) fn machine_directories(shown: &[PathBuf]) -> Vec<PathBuf> {
    let mut list = vec![PathBuf::from("/usr")];
    let top = TOP.iter().map(|name| Path::new("/").join(name));
    list.extend(top.filter(|path| fs::symlink_metadata(path).is_ok_and(|kind| kind.is_dir())));
    list.extend(shown.iter().filter(|path| path.is_absolute() && path.is_dir()).cloned());
    list
}

/// A number that no other living sandbox of this machine has, and what holds it: the sandbox keeps
/// that open, so that the kernel gives the number back with the sandbox's last process.
pub(crate) fn slot(dir: &Path, name: &str) -> io::Result<(u32, OwnedFd)> {
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

/// Removes the files of slots that nobody has: what is left of servers that were killed.
pub(super) fn sweep_slots() -> io::Result<()> {
    let dir = machine_lock("network")?;
    for entry in fs::read_dir(dir.parent().unwrap_or(&dir))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let slot = name.strip_suffix(".lock").and_then(|slot| slot.parse::<u32>().ok());
        if slot.is_some() {
            give_back(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes the file of the slot of a sandbox that is gone.
pub(crate) fn give_slot_back(dir: &Path) -> io::Result<()> {
    match fs::read_to_string(dir.join(SLOT)) {
        Ok(slot) => give_back(&machine_lock(&slot)?),
        Err(_) => Ok(()),
    }
}

fn give_back(path: &Path) -> io::Result<()> {
    let Ok(file) = File::open(path) else { return Ok(()) };
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
pub(crate) fn lock(path: &Path) -> io::Result<File> {
    let file = open_lock(path)?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

fn stage(dir: &Path, launch: &Launch) -> io::Result<&'static Path> {
    let ours = [Some(dir), launch.runtime.as_deref()];
    STAGES
        .iter()
        .map(Path::new)
        .find(|stage| stage.is_dir() && ours.iter().flatten().all(|path| !path.starts_with(stage)))
        .ok_or_else(|| io::Error::other("no place for a sandbox's root: /mnt is missing"))
}

pub(crate) fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

pub(crate) fn doing(what: &'static str) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("cannot {what}: {error}"))
}

/// A tree whose content is not ours: nothing leads out of it, and no link is followed.
pub(crate) struct Inside<'a>(pub(crate) BorrowedFd<'a>);

impl Inside<'_> {
    /// What is at a path.
    fn open(&self, path: &Path) -> io::Result<OwnedFd> {
        let path = path.strip_prefix("/").unwrap_or(path);
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
        Ok(rustix::fs::openat2(self.0, path, flags, Mode::empty(), resolve)?)
    }

    /// Makes a directory, with those above it; whatever else has its name is removed.
    pub(crate) fn make(&self, path: &Path) -> io::Result<OwnedFd> {
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
    pub(crate) fn write(&self, dir: &Path, name: &str, text: &str) -> io::Result<()> {
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
