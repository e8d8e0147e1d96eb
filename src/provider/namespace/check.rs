//! What this machine can and cannot give, and how to get it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::cgroup::Cgroups;
use super::make::find_program;
use super::{Namespace, disk, launch};
use crate::model::{Instance, InstanceId, LeaseId, Timestamp};
use crate::provider::{Intent, Provider};

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
        check.tool(&provider.0.options.runtime, Verdict::No, "install runc");
        check.tool(Path::new("mkfs.ext4"), Verdict::No, "install e2fsprogs");
        check.tool(Path::new("ip"), Verdict::No, "install iproute2");
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
        let uplink = launch::uplink();
        let route = !uplink.name.is_empty();
        check.add(
            "network",
            if route { Verdict::Yes } else { Verdict::Without },
            if route { "the machine has a default route" } else { "there is no default route" },
        );
        check
    }

    /// Looks, and then makes a sandbox and ends it.
    pub async fn try_out(provider: &Namespace) -> Self {
        let mut check = Self::look(provider);
        if !check.passes() {
            return check;
        }
        let (verdict, detail) = match trial(provider).await {
            Ok(took) => (Verdict::Yes, format!("made and ended one in {} ms", took.as_millis())),
            Err(why) => (Verdict::No, why),
        };
        check.add("a sandbox", verdict, &detail);
        check
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

/// Makes a small sandbox and ends it.
async fn trial(provider: &Namespace) -> Result<Duration, String> {
    let began = std::time::Instant::now();
    let intent = Intent {
        lease_id: LeaseId::fresh(),
        generation: 1,
        instance_id: InstanceId::fresh(),
        spec: serde_json::json!({"disk": "64m", "memory": "64m", "egress": "none"}),
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
    let template = disk::template(&provider.0.options.home, disk::Base::Machine, 64 << 20);
    let _ = fs::remove_file(template);
    let words = |error: &dyn std::error::Error| {
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("{error}{cause}")
    };
    made.map_err(|error| words(&error))?;
    ended.map_err(|error| words(&error))?;
    forgotten.map_err(|error| words(&error))?;
    Ok(began.elapsed())
}
