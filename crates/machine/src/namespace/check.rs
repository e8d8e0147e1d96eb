//! Checks whether this machine can run sandboxes, and reports missing requirements.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;

use super::confined::Confined;
use super::kind::Namespace;
use super::options::{NamespaceOptions, OWN_RUNTIME};
use super::remedy;
use crate::layout::CGROUP;
use crate::network::{connect, pasta};
use crate::tools::find_program;
use base::durable::replace_volatile;
use cgroup::Cgroups;
use model::{Instance, InstanceId, LeaseId, Timestamp};
use provider::{Intent, Provider};

/// The name of the finding about network egress.
const EGRESS: &str = "egress";

/// The name of the finding about the program that connects sandboxes of a server that is not root.
const PASTA: &str = "pasta";

/// The name of the finding about the capabilities of root inside.
const ROOT_INSIDE: &str = "root in sandboxes";

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    pub what: String,
    pub verdict: Verdict,
    /// The result, or advice if the requirement is not met.
    pub detail: String,
    /// A shell command, for root, that meets the requirement.
    pub command: Option<String>,
}

/// Whether a requirement is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Yes,
    /// The requirement is not met, but sandboxes run without it.
    Without,
    /// The requirement is not met, and sandboxes cannot run.
    No,
}

/// The results of all checks.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Check {
    /// In the order of display.
    pub findings: Vec<Finding>,
}

impl Check {
    /// Checks the requirements without starting a sandbox.
    #[must_use]
    pub fn inspect(provider: &Namespace) -> Self {
        let mut check = Self::default();
        let root = rustix::process::geteuid().is_root();
        check.add(
            "root",
            if root { Verdict::Yes } else { Verdict::No },
            if root { "the server runs as root" } else { "run the server as root" },
        );
        match provider.kind().options.runtime.as_path() {
            own if own == Path::new(OWN_RUNTIME) => check.add("runtime", Verdict::Yes, "built in"),
            named => {
                check.tool(named, Verdict::No, "install it, or set sandbox.runtime = \"stead\"")
            }
        }
        check.tool(Path::new("mkfs.ext4"), Verdict::No, "install e2fsprogs");
        check.propose(remedy::install("e2fsprogs"));
        check.tool(
            Path::new("nft"),
            Verdict::Without,
            "install nftables; egress is none without it",
        );
        check.propose(remedy::install("nftables"));
        let limits = Cgroups::new(CGROUP).is_ok_and(|cgroups| cgroups.can_limit());
        check.add(
            "cgroups",
            if limits { Verdict::Yes } else { Verdict::No },
            if limits {
                "memory, CPU and process limits"
            } else {
                "mount the memory, cpu and pids controllers"
            },
        );
        check.check_sharing(&provider.kind().options);
        let loops = Path::new("/dev/loop-control").exists();
        check.add(
            "loop devices",
            if loops { Verdict::Yes } else { Verdict::No },
            if loops { "disk limits, also of workspaces" } else { "load the module loop" },
        );
        check.propose(Some("modprobe loop".to_owned()));
        let users =
            fs::read_to_string(remedy::USER_NAMESPACES).is_ok_and(|text| text.trim() != "0");
        check.add(
            "user namespaces",
            if users { Verdict::Yes } else { Verdict::No },
            if users { "a user range for each sandbox" } else { "set user.max_user_namespaces" },
        );
        check.propose(Some(remedy::set(remedy::USER_NAMESPACES, "15000")));
        let uplink = connect::uplink();
        let route = !uplink.name.is_empty();
        check.add(
            "network",
            if route { Verdict::Yes } else { Verdict::Without },
            if route { "the machine has a default route" } else { "there is no default route" },
        );
        check
    }

    /// Checks the requirements, and starts a sandbox unless that was tried since this machine booted. If the
    /// network does not work, the provider turns it off.
    pub async fn once_per_boot(provider: &Namespace) -> Self {
        let kind = provider.kind();
        let note = kind.options.home.join("templates").join("tried");
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let runtime = find_program(&kind.options.runtime).unwrap_or_default();
        let program = kind.program().unwrap_or_default();
        let nft = find_program(Path::new("nft")).is_some();
        let wanted = format!("{} {} {program} {nft}", boot.trim(), runtime.display());
        let then = fs::read_to_string(&note).unwrap_or_default();
        // The first line says what was tried; each other line is a finding of the trial.
        let mut lines = then.lines();
        if lines.next() == Some(&wanted) {
            let mut check = Self::inspect(provider);
            for (what, why) in lines.filter_map(|line| line.split_once(": ")) {
                check.turn_off(provider, what, why);
            }
            return check;
        }
        let check = Self::try_out(provider).await;
        if check.passes() {
            let mut text = wanted;
            let off =
                check.findings.iter().filter(|found| [EGRESS, ROOT_INSIDE].contains(&&*found.what));
            for Finding { what, detail, .. } in off {
                text += &format!("\n{what}: {}", detail.replace('\n', " "));
            }
            if let Err(error) = replace_volatile(&note, text.as_bytes()) {
                tracing::warn!(%error, "cannot save the result of the sandbox check");
            }
        }
        check
    }

    /// Checks the requirements, and then starts a sandbox and ends it.
    pub async fn try_out(provider: &Namespace) -> Self {
        let mut check = Self::inspect(provider);
        if !check.passes() {
            return check;
        }
        // Without a pool.
        let alone = Namespace::new(NamespaceOptions { warm: 0, ..provider.kind().options.clone() });
        let started = |took: Duration| format!("started and ended in {} ms", took.as_millis());
        let mut first = None;
        for (spec, without) in [
            (json!({"memory": "64m"}), &[][..]),
            (json!({"memory": "64m", "egress": "none"}), &[EGRESS]),
            (json!({"memory": "64m", "capabilities": "none"}), &[ROOT_INSIDE]),
            (
                json!({"memory": "64m", "egress": "none", "capabilities": "none"}),
                &[EGRESS, ROOT_INSIDE],
            ),
        ] {
            match trial(&alone, spec).await {
                Ok(took) => {
                    check.add("a sandbox", Verdict::Yes, &started(took));
                    for what in without {
                        check.turn_off(provider, what, first.as_deref().unwrap_or_default());
                    }
                    return check;
                }
                Err(why) => first = first.or(Some(why)),
            }
        }
        check.add("a sandbox", Verdict::No, &first.unwrap_or_default());
        check
    }

    /// Checks the requirements of a server that is not root, without starting a sandbox.
    #[must_use]
    pub fn inspect_as_user() -> Self {
        let mut check = Self::default();
        check.add(
            "root",
            Verdict::Without,
            "the server is not root: no memory, CPU and disk limits, also not of workspaces; no images",
        );
        let switches = [
            (remedy::USER_NAMESPACES, "0", "15000"),
            ("/proc/sys/kernel/unprivileged_userns_clone", "0", "1"),
            ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
        ];
        let off = switches
            .into_iter()
            .find(|(file, off, _)| fs::read_to_string(file).is_ok_and(|text| text.trim() == *off));
        match off {
            None => check.add("user namespaces", Verdict::Yes, "users may create them"),
            Some((file, _, on)) => {
                let advice = format!("set {} to {on}", remedy::name_of(file));
                check.add("user namespaces", Verdict::No, &advice);
                check.propose(Some(remedy::set(file, on)));
            }
        }
        match pasta::impossible() {
            None => check.add(PASTA, Verdict::Yes, "connects sandboxes"),
            Some(why) => check.add(PASTA, Verdict::Without, &format!("{why}; egress is none")),
        }
        if find_program(Path::new("pasta")).is_none() || find_program(Path::new("nft")).is_none() {
            check.propose(remedy::install("passt nftables"));
        }
        check
    }

    /// Checks the requirements of a server that is not root, and then starts a sandbox and ends it.
    pub async fn try_as_user(provider: &Confined) -> Self {
        let mut check = Self::inspect_as_user();
        if !check.passes() {
            return check;
        }
        let nothing = serde_json::Value::Null;
        let started = |took: Duration| format!("started and ended in {} ms", took.as_millis());
        match trial(provider, nothing.clone()).await {
            Ok(took) => check.add("a sandbox", Verdict::Yes, &started(took)),
            Err(why) if provider.disable_egress(&why) => match trial(provider, nothing).await {
                Ok(took) => {
                    check.add("a sandbox", Verdict::Yes, &started(took));
                    check.add(EGRESS, Verdict::Without, &why);
                }
                Err(why) => check.add("a sandbox", Verdict::No, &why),
            },
            Err(why) => check.add("a sandbox", Verdict::No, &why),
        }
        check
    }

    /// Turns a feature of all sandboxes off, by the name of its finding.
    fn turn_off(&mut self, provider: &Namespace, what: &str, why: &str) {
        let kind = provider.kind();
        match what {
            EGRESS => kind.no_egress.store(true, Ordering::Relaxed),
            ROOT_INSIDE => kind.no_root.store(true, Ordering::Relaxed),
            _ => return,
        }
        self.add(what, Verdict::Without, why);
    }

    /// Whether sandboxes can run.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.findings.iter().all(|finding| finding.verdict != Verdict::No)
    }

    /// Whether sandboxes of a server that is not root reach the network.
    #[must_use]
    pub fn connects(&self) -> bool {
        let of_network = |finding: &&Finding| [EGRESS, PASTA].contains(&finding.what.as_str());
        self.findings.iter().filter(of_network).all(|finding| finding.verdict == Verdict::Yes)
    }

    /// Returns why sandboxes cannot run, as text.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let lacking = self.findings.iter().filter(|finding| finding.verdict == Verdict::No);
        lacking.map(|finding| format!("{}: {}", finding.what, finding.detail)).collect()
    }

    /// Checks the mechanisms that keep sandboxes from slowing each other down.
    fn check_sharing(&mut self, options: &NamespaceOptions) {
        let cgroups = Cgroups::new(CGROUP);
        let has = |what: fn(&Cgroups) -> bool| cgroups.as_ref().is_ok_and(what);
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let (verdict, detail) = match options.reserve_cpus.min(cpus - 1) {
            0 if cpus == 1 => (Verdict::Without, "the machine has one CPU".to_owned()),
            0 => (Verdict::Without, "sandbox.reserve_cpus is 0".to_owned()),
            _ if !has(Cgroups::can_restrict_cpus) => {
                (Verdict::Without, "mount the cpuset controller".to_owned())
            }
            count => (
                Verdict::Yes,
                format!("{count} of {cpus} reserved: CPU-heavy sandboxes do not use them"),
            ),
        };
        self.add("CPUs", verdict, &detail);
        let (verdict, detail) = match options.disk_rate {
            0 => (Verdict::Without, "sandbox.disk_rate is 0".to_owned()),
            _ if !has(Cgroups::can_limit_writes) => {
                (Verdict::Without, "mount the blkio or io controller".to_owned())
            }
            rate => {
                (Verdict::Yes, format!("heavy writers get {} MiB/s while others wait", rate >> 20))
            }
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
        self.findings.push(Finding { what: what.to_owned(), verdict, detail, command: None });
    }

    /// Proposes a command that meets the requirement of the last finding, if that is not met.
    fn propose(&mut self, command: Option<String>) {
        if let Some(last) = self.findings.last_mut().filter(|last| last.verdict != Verdict::Yes) {
            last.command = command;
        }
    }
}

/// Starts a sandbox and ends it.
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
    let created = provider.create(&intent).await;
    let ended = provider.destroy(&instance).await;
    let forgotten = match provider.disks() {
        Some(disks) => disks.forget(&intent.lease_id).await,
        None => Ok(()),
    };
    let chain = |error: &dyn std::error::Error| {
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("{error}{cause}")
    };
    created.map_err(|error| chain(&error))?;
    ended.map_err(|error| chain(&error))?;
    forgotten.map_err(|error| chain(&error))?;
    Ok(began.elapsed())
}
