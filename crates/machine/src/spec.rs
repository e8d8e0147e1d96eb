//! The settings of a sandbox: limits, egress, capabilities, image and snapshot.
//!
//! Pure. Field names are those of a lease's `spec`, so an error contains the field of the client.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::network::rules::{EgressBase, EgressRules};
use crate::volume::VolumeMount;
use provider::ResourceLimits;

/// The settings of one sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// Bytes of memory, including page cache and the sandbox's RAM disks.
    pub memory: u64,
    /// Thousandths of a CPU.
    pub milli_cpus: u64,
    /// Processes and threads.
    pub processes: u64,
    /// Bytes of its own disk.
    pub disk: u64,
    pub egress: EgressPolicy,
    /// Sandboxes that were started before this setting existed have none.
    #[serde(default = "SandboxCapabilities::none")]
    pub capabilities: SandboxCapabilities,
    /// The image, or `None` for this machine's programs.
    pub image: Option<String>,
    /// The snapshot that its disk starts from.
    pub snapshot: Option<String>,
    /// Directories that it shares with other sandboxes.
    #[serde(default)]
    pub volumes: Vec<VolumeMount>,
}

/// The capabilities of user 0 inside, within the sandbox's own user namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxCapabilities {
    /// Those with which root manages files, users and packages. Programs of this machine can be replaced
    /// inside.
    Root,
    /// None, and none can be gained. Programs of this machine are read-only.
    None,
}

impl SandboxCapabilities {
    pub(crate) fn none() -> Self {
        Self::None
    }
}

/// The allowed network egress of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EgressPolicy {
    /// Only its own loopback.
    None,
    /// The internet, but not this machine, private, link-local or metadata addresses.
    Public,
    /// All destinations that this machine can reach, except this machine itself.
    All,
    /// These destinations.
    Only(Vec<Destination>),
    /// The destinations that these rules allow.
    Ruled(EgressRules),
}

/// A host and a TCP port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destination {
    /// A name or an address.
    pub host: String,
    pub port: u16,
}

/// A setting that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct BadSpec {
    pub field: String,
    pub reason: String,
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// With less, a shell does not start or the file system cannot be created.
const MIN_MEMORY_BYTES: u64 = 16 * MIB;
const MIN_DISK_BYTES: u64 = 32 * MIB;
const MIN_PROCESSES: u64 = 8;

/// Volumes of one sandbox.
const MAX_VOLUMES: usize = 64;

impl SandboxSpec {
    /// The default limits on a machine of this size. A sandbox may use much of the machine but never all of
    /// it, so that the server can answer.
    #[must_use]
    pub fn default_for(memory: u64, cpus: u64) -> Self {
        Self {
            memory: (memory / 2).clamp(256 * MIB, 4 * GIB),
            milli_cpus: (cpus * 750).max(500),
            processes: 1024,
            disk: 8 * GIB,
            egress: EgressPolicy::Public,
            capabilities: SandboxCapabilities::Root,
            image: None,
            snapshot: None,
            volumes: vec![],
        }
    }

    #[must_use]
    pub fn limits(&self) -> ResourceLimits {
        ResourceLimits {
            memory_bytes: self.memory,
            milli_cpus: self.milli_cpus,
            processes: self.processes,
            disk_bytes: Some(self.disk),
        }
    }

    /// These settings, changed by a lease's `spec`.
    ///
    /// # Errors
    /// [`BadSpec`] names the field; an unknown field is one.
    pub fn with(mut self, spec: &Value) -> Result<Self, BadSpec> {
        let fields = match spec {
            Value::Null => return Ok(self),
            Value::Object(fields) => fields,
            _ => return Err(bad("spec", "is not an object")),
        };
        for (field, value) in fields {
            match field.as_str() {
                "memory" => self.memory = at_least(field, bytes(field, value)?, MIN_MEMORY_BYTES)?,
                "disk" => self.disk = at_least(field, bytes(field, value)?, MIN_DISK_BYTES)?,
                "processes" => {
                    let count = value.as_u64().or_else(|| value.as_str()?.parse().ok());
                    let count = count.ok_or_else(|| bad(field, "is not a whole number"))?;
                    self.processes = at_least(field, count, MIN_PROCESSES)?;
                }
                "cpus" => self.milli_cpus = milli_cpus(field, value)?,
                "egress" => self.egress = egress(field, value, &self.egress)?,
                "capabilities" => {
                    self.capabilities = match value.as_str() {
                        Some("root") => SandboxCapabilities::Root,
                        Some("none") => SandboxCapabilities::None,
                        _ => return Err(bad(field, "is not root or none")),
                    }
                }
                "image" => {
                    let name = value.as_str().ok_or_else(|| bad(field, "is not a name"))?;
                    self.image = (!name.is_empty()).then(|| name.to_owned());
                }
                "snapshot" => {
                    let name = value.as_str().ok_or_else(|| bad(field, "is not a name"))?;
                    self.snapshot = Some(name.to_owned());
                }
                "volumes" => self.volumes = volumes(field, value)?,
                _ => return Err(bad(field, "is not a setting of a sandbox")),
            }
        }
        if self.snapshot.is_some()
            && let Some(field) = ["image", "disk"].iter().find(|field| fields.contains_key(**field))
        {
            return Err(bad(field, "is the snapshot's"));
        }
        Ok(self)
    }
}

fn bad(field: &str, reason: impl Into<String>) -> BadSpec {
    BadSpec { field: field.to_owned(), reason: reason.into() }
}

fn at_least(field: &str, value: u64, min: u64) -> Result<u64, BadSpec> {
    if value < min {
        return Err(bad(field, format!("is less than {min}")));
    }
    Ok(value)
}

/// Bytes as a number, or as text with a unit: `512m`, `1g`, `1GiB`.
fn bytes(field: &str, value: &Value) -> Result<u64, BadSpec> {
    if let Some(bytes) = value.as_u64() {
        return Ok(bytes);
    }
    let wrong = || bad(field, "is not a size such as 536870912, 512m or 1g");
    let text = value.as_str().ok_or_else(wrong)?.trim().to_ascii_lowercase();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => MIB,
        "g" | "gb" | "gib" => GIB,
        "t" | "tb" | "tib" => GIB << 10,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.trim().parse().map_err(|_| wrong())?;
    number.checked_mul(unit).ok_or_else(wrong)
}

fn volumes(field: &str, value: &Value) -> Result<Vec<VolumeMount>, BadSpec> {
    let all: Vec<VolumeMount> =
        serde_json::from_value(value.clone()).map_err(|error| bad(field, error.to_string()))?;
    if all.len() > MAX_VOLUMES {
        return Err(bad(field, format!("are more than {MAX_VOLUMES}")));
    }
    for (nth, mounted) in all.iter().enumerate() {
        mounted.check().map_err(|reason| bad(field, reason))?;
        // A volume inside of another would hide a part of it, or be hidden.
        let within = |one: &str, other: &str| {
            one.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let meets = |other: &VolumeMount| {
            within(&other.path, &mounted.path) || within(&mounted.path, &other.path)
        };
        if all[..nth].iter().any(meets) {
            return Err(bad(field, format!("two volumes overlap at {}", mounted.path)));
        }
    }
    Ok(all)
}

fn milli_cpus(field: &str, value: &Value) -> Result<u64, BadSpec> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    match number {
        Some(cpus) if (0.01..=4096.0).contains(&cpus) => Ok((cpus * 1000.0).round() as u64),
        _ => Err(bad(field, "is not a number of CPUs such as 0.5 or 2")),
    }
}

fn egress(field: &str, value: &Value, default: &EgressPolicy) -> Result<EgressPolicy, BadSpec> {
    let list = match value {
        Value::Object(_) => return ruled(field, value, default),
        Value::String(word) => match word.as_str() {
            "none" => return Ok(EgressPolicy::None),
            "public" => return Ok(EgressPolicy::Public),
            "all" => return Ok(EgressPolicy::All),
            list => list.split(',').map(str::to_owned).collect(),
        },
        Value::Array(items) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| bad(field, "is not a list of host:port"))?,
        _ => return Err(bad(field, "is not none, public, all or a list of host:port")),
    };
    let destinations = list
        .iter()
        .map(|item| item.trim().parse().map_err(|reason: String| bad(field, reason)))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(EgressPolicy::Only(destinations))
}

/// Rules restrict the default egress of this server, which must be `public` or `all`.
fn ruled(field: &str, value: &Value, default: &EgressPolicy) -> Result<EgressPolicy, BadSpec> {
    let base = match default {
        EgressPolicy::Public => EgressBase::Public,
        EgressPolicy::All => EgressBase::All,
        EgressPolicy::Ruled(rules) => rules.base,
        EgressPolicy::None => {
            return Err(bad(
                field,
                "rules need `sandbox.egress` to be public or all; this server has none",
            ));
        }
        EgressPolicy::Only(_) => {
            return Err(bad(
                field,
                "rules need `sandbox.egress` to be public or all; this server has a list",
            ));
        }
    };
    EgressRules::parse(base, value).map(EgressPolicy::Ruled).map_err(|reason| bad(field, reason))
}

/// Whether a string is a valid name of an image or snapshot.
#[must_use]
pub fn is_image_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && !name.starts_with(['.', '-'])
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not host:port");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
        let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
        let name = !host.is_empty()
            && host.len() <= 253
            && host.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
        if !name && host.parse::<IpAddr>().is_err() {
            return Err(wrong());
        }
        Ok(Self { host, port })
    }
}

impl fmt::Display for EgressPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Public => f.write_str("public"),
            Self::All => f.write_str("all"),
            Self::Ruled(rules) => rules.fmt(f),
            Self::Only(list) => {
                for (at, Destination { host, port }) in list.iter().enumerate() {
                    write!(f, "{}{host}:{port}", if at == 0 { "" } else { "," })?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn base() -> SandboxSpec {
        SandboxSpec::default_for(8 * GIB, 4)
    }

    #[test]
    fn limits_are_written_with_units() {
        let spec = base()
            .with(&json!({"memory": "1g", "cpus": 1.5, "processes": 64, "disk": "512MiB",
                "egress": "github.com:443,10.0.0.7:22", "image": "debian"}))
            .unwrap();
        assert_eq!((spec.memory, spec.milli_cpus, spec.processes), (GIB, 1500, 64));
        assert_eq!(spec.disk, 512 * MIB);
        assert_eq!(spec.egress.to_string(), "github.com:443,10.0.0.7:22");
        assert_eq!(spec.image.as_deref(), Some("debian"));
        assert_eq!(base().with(&Value::Null).unwrap(), base());
    }

    #[test]
    fn the_error_contains_the_refused_field() {
        for (spec, field) in [
            (json!({"memory": "much"}), "memory"),
            (json!({"memory": 1}), "memory"),
            (json!({"memory": "99999999999999g"}), "memory"),
            (json!({"cpus": 0}), "cpus"),
            (json!({"cpus": "all"}), "cpus"),
            (json!({"processes": -1}), "processes"),
            (json!({"egress": "somewhere"}), "egress"),
            (json!({"egress": ["a b:80"]}), "egress"),
            (json!({"egress": ["host:0"]}), "egress"),
            (json!({"egress": ["x; drop:80"]}), "egress"),
            (json!({"egress": {"deny": ["example.com"]}}), "egress"),
            (json!({"snapshot": "s", "disk": "1g"}), "disk"),
            (json!({"snapshot": 1}), "snapshot"),
            (json!({"volumes": [{"id": "x", "path": "/a"}]}), "volumes"),
            (json!({"volumes": [{"path": "/a"}]}), "volumes"),
            (json!({"privileged": true}), "privileged"),
            (json!([]), "spec"),
        ] {
            assert_eq!(base().with(&spec).unwrap_err().field, field, "{spec}");
        }
    }

    #[test]
    fn rules_restrict_the_servers_default() {
        let ruled = json!({"egress": {"deny": ["0.0.0.0/0"], "allow": ["1.1.1.1"]}});
        let check = |egress: EgressPolicy, expected: Option<&str>| {
            let spec = SandboxSpec { egress, ..base() }.with(&ruled);
            assert_eq!(spec.ok().map(|spec| spec.egress.to_string()).as_deref(), expected);
        };
        check(EgressPolicy::Public, Some("public -0.0.0.0/0 +1.1.1.1/32"));
        check(EgressPolicy::All, Some("all -0.0.0.0/0 +1.1.1.1/32"));
        check(EgressPolicy::None, None);
        check(EgressPolicy::Only(vec![]), None);
    }

    #[test]
    fn the_defaults_reserve_a_part_of_a_small_machine_for_the_server() {
        let spec = SandboxSpec::default_for(2 * GIB, 2);
        assert_eq!((spec.memory, spec.milli_cpus), (GIB, 1500));
    }
}
