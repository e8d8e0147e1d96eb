//! What this machine can and cannot give, and how to get it.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;

use super::cgroup::Cgroups;
use super::make::find_program;
use super::spec::Egress;
use super::{Confined, Namespace, OWN_RUNTIME, Options, connect, launch, pasta};
use model::{Instance, InstanceId, LeaseId, Timestamp};
use provider::{Intent, Provider};

/// What was found out about the network by trying.
const REACH: &str = "egress";

/// Stands in the note before why nothing can be reached.
const NO_REACH: &str = " without egress: ";

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// What.
    pub what: String,
    /// Whether it is there.
    pub verdict: Verdict,
    /// What was seen, or how to get it.
    pub detail: String,
}

/// Whether something is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is.
    Yes,
    /// It is not, and sandboxes do without.
    Without,
    /// It is not, and there are no sandboxes.
    No,
}

/// Everything that was looked at.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Check {
    /// In the order a reader wants them.
    pub findings: Vec<Finding>,
}

impl Check {
    /// Looks, without making anything.
    #[must_use]
    pub fn look(provider: &Namespace) -> Self {
        let mut check = Self::default();
        let root = rustix::process::geteuid().is_root();
        check.add(
            "root",
            if root { Verdict::Yes } else { Verdict::No },
            if root { "the server runs as root" } else { "run the server as root" },
        );
        match provider.0.options.runtime.as_path() {
            own if own == Path::new(OWN_RUNTIME) => check.add("runtime", Verdict::Yes, "our own"),
            named => {
                check.tool(named, Verdict::No, "install it, or set sandbox.runtime = \"stead\"")
            }
        }
        check.tool(Path::new("mkfs.ext4"), Verdict::No, "install e2fsprogs");
        check.tool(
            Path::new("nft"),
            Verdict::Without,
            "install nftables; egress is none without it",
        );
        let limits = Cgroups::new(launch::CGROUP).is_ok_and(|cgroups| cgroups.limits());
        check.add(
            "cgroups",
            if limits { Verdict::Yes } else { Verdict::No },
            if limits {
                "memory, processor and process limits"
            } else {
                "mount the memory, cpu and pids controllers"
            },
        );
        check.neighbours(&provider.0.options);
        let loops = Path::new("/dev/loop-control").exists();
        check.add(
            "loop devices",
            if loops { Verdict::Yes } else { Verdict::No },
            if loops { "disk limits" } else { "load the module loop" },
        );
        let users = fs::read_to_string("/proc/sys/user/max_user_namespaces")
            .is_ok_and(|text| text.trim() != "0");
        check.add(
            "user namespaces",
            if users { Verdict::Yes } else { Verdict::No },
            if users { "a user range of its own for each" } else { "set user.max_user_namespaces" },
        );
        let uplink = connect::uplink();
        let route = !uplink.name.is_empty();
        check.add(
            "network",
            if route { Verdict::Yes } else { Verdict::Without },
            if route { "the machine has a default route" } else { "there is no default route" },
        );
        check
    }

    /// Looks, and tries it out if that was not done since this machine started. What came of it holds
    /// for the provider from then on.
    pub async fn once_a_boot(provider: &Namespace) -> Self {
        let inner = &provider.0;
        let note = inner.options.home.join("templates").join("tried");
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let runtime = find_program(&inner.options.runtime).unwrap_or_default();
        let program = inner.programs.name().unwrap_or_default();
        let nft = find_program(Path::new("nft")).is_some();
        let now = format!("{} {} {program} {nft}", boot.trim(), runtime.display());
        let then = fs::read_to_string(&note).unwrap_or_default();
        if let Some(reach) = then.strip_prefix(&now) {
            let mut check = Self::look(provider);
            if let Some(why) = reach.strip_prefix(NO_REACH) {
                check.without_reach(provider, why);
            }
            return check;
        }
        let check = Self::try_out(provider).await;
        if check.passes() {
            let reach = check.findings.iter().find(|finding| finding.what == REACH);
            let reach = reach.map_or(String::new(), |found| format!("{NO_REACH}{}", found.detail));
            if let Err(error) = fs::write(&note, now + &reach) {
                tracing::warn!(%error, "cannot note that sandboxes were tried out");
            }
        }
        check
    }

    /// Looks, and then makes a sandbox and ends it.
    pub async fn try_out(provider: &Namespace) -> Self {
        let mut check = Self::look(provider);
        if !check.passes() {
            return check;
        }
        // No other is kept ready for it.
        let alone = Namespace::new(Options { warm: 0, ..provider.0.options.clone() });
        let usual = trial(&alone, json!({"memory": "64m"})).await;
        let made = |took: Duration| format!("made and ended one in {} ms", took.as_millis());
        match usual {
            Ok(took) => check.add("a sandbox", Verdict::Yes, &made(took)),
            Err(why) => match trial(&alone, json!({"memory": "64m", "egress": "none"})).await {
                Ok(took) if provider.0.options.defaults.egress != Egress::None => {
                    check.add("a sandbox", Verdict::Yes, &made(took));
                    check.without_reach(provider, &why);
                }
                _ => check.add("a sandbox", Verdict::No, &why),
            },
        }
        check
    }

    /// Looks at what a server that is not root can give, without making anything.
    #[must_use]
    pub fn look_as_user() -> Self {
        let mut check = Self::default();
        check.add(
            "root",
            Verdict::Without,
            "the server is not root: no limits of memory, processor and disk, no images",
        );
        let switches = [
            ("/proc/sys/user/max_user_namespaces", "0", "set user.max_user_namespaces"),
            (
                "/proc/sys/kernel/unprivileged_userns_clone",
                "0",
                "set kernel.unprivileged_userns_clone to 1",
            ),
            (
                "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
                "1",
                "set kernel.apparmor_restrict_unprivileged_userns to 0",
            ),
        ];
        let off = switches
            .into_iter()
            .find(|(file, off, _)| fs::read_to_string(file).is_ok_and(|text| text.trim() == *off));
        match off {
            None => check.add("user namespaces", Verdict::Yes, "users may have them"),
            Some((_, _, advice)) => check.add("user namespaces", Verdict::No, advice),
        }
        match pasta::impossible() {
            None => check.add("pasta", Verdict::Yes, "connects sandboxes"),
            Some(why) => check.add("pasta", Verdict::Without, &format!("{why}; egress is none")),
        }
        check
    }

    /// The same, and then makes a sandbox and ends it.
    pub async fn try_as_user(provider: &Confined) -> Self {
        let mut check = Self::look_as_user();
        if !check.passes() {
            return check;
        }
        let nothing = serde_json::Value::Null;
        let made = |took: Duration| format!("made and ended one in {} ms", took.as_millis());
        match trial(provider, nothing.clone()).await {
            Ok(took) => check.add("a sandbox", Verdict::Yes, &made(took)),
            Err(why) if provider.without_reach(&why) => match trial(provider, nothing).await {
                Ok(took) => {
                    check.add("a sandbox", Verdict::Yes, &made(took));
                    check.add(REACH, Verdict::Without, &why);
                }
                Err(why) => check.add("a sandbox", Verdict::No, &why),
            },
            Err(why) => check.add("a sandbox", Verdict::No, &why),
        }
        check
    }

    fn without_reach(&mut self, provider: &Namespace, why: &str) {
        provider.0.unreachable.store(true, Ordering::Relaxed);
        self.add(REACH, Verdict::Without, why);
    }

    /// Whether there can be sandboxes.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.findings.iter().all(|finding| finding.verdict != Verdict::No)
    }

    /// Why there can be none, in words.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let lacking = self.findings.iter().filter(|finding| finding.verdict == Verdict::No);
        lacking.map(|finding| format!("{}: {}", finding.what, finding.detail)).collect()
    }

    /// What keeps sandboxes out of each other's way.
    fn neighbours(&mut self, options: &Options) {
        let cgroups = Cgroups::new(launch::CGROUP);
        let has = |what: fn(&Cgroups) -> bool| cgroups.as_ref().is_ok_and(what);
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let (verdict, detail) = match options.reserve_cpus.min(cpus - 1) {
            0 if cpus == 1 => (Verdict::Without, "there is one processor".to_owned()),
            0 => (Verdict::Without, "sandbox.reserve_cpus is 0".to_owned()),
            _ if !has(Cgroups::can_keep_off) => {
                (Verdict::Without, "mount the cpuset controller".to_owned())
            }
            count => (
                Verdict::Yes,
                format!("{count} of {cpus} kept free of those that compute for long"),
            ),
        };
        self.add("processors", verdict, &detail);
        let (verdict, detail) = match options.disk_rate {
            0 => (Verdict::Without, "sandbox.disk_rate is 0".to_owned()),
            _ if !has(Cgroups::can_pace_writing) => {
                (Verdict::Without, "mount the blkio or io controller".to_owned())
            }
            rate => (Verdict::Yes, format!("a sandbox writes at most {} MiB/s", rate >> 20)),
        };
        self.add("disk rate", verdict, &detail);
    }

    fn tool(&mut self, program: &Path, otherwise: Verdict, advice: &str) {
        match find_program(program) {
            Some(path) => {
                self.add(&program.to_string_lossy(), Verdict::Yes, &path.to_string_lossy());
            }
            None => self.add(&program.to_string_lossy(), otherwise, advice),
        }
    }

    fn add(&mut self, what: &str, verdict: Verdict, detail: &str) {
        let detail = detail.to_owned();
        self.findings.push(Finding { what: what.to_owned(), verdict, detail });
    }
}

/// Makes a sandbox and ends it.
async fn trial(provider: &dyn Provider, spec: serde_json::Value) -> Result<Duration, String> {
    let began = std::time::Instant::now();
    let intent = Intent {
        lease_id: LeaseId::fresh(),
        generation: 1,
        instance_id: InstanceId::fresh(),
        spec,
    };
    let instance = Instance {
        instance_id: intent.instance_id.clone(),
        generation: 1,
        reference: String::new(),
        started_at: Timestamp::now(),
    };
    let made = provider.create(&intent).await;
    let ended = provider.destroy(&instance).await;
    let forgotten = provider.forget(&intent.lease_id).await;
    let words = |error: &dyn std::error::Error| {
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("{error}{cause}")
    };
    made.map_err(|error| words(&error))?;
    ended.map_err(|error| words(&error))?;
    forgotten.map_err(|error| words(&error))?;
    Ok(began.elapsed())
}
