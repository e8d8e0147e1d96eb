//! What a sandbox is asked to be: its limits, what it may reach and what it is made from.
//!
//! Pure. The words are those of a lease's `spec`, so that what a client wrote is what is refused or
//! taken, field by field.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::rules::{Base, Rules};
use crate::volume::Mounted;
use provider::Limits;

/// The limits and the reach of one sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// Bytes of memory, page cache and the sandbox's RAM disks included.
    pub memory: u64,
    /// Thousandths of a processor.
    pub milli_cpus: u64,
    /// Processes and threads.
    pub processes: u64,
    /// Bytes of its own disk.
    pub disk: u64,
    /// What it may reach.
    pub egress: Egress,
    /// The image it is made from; `None` for this machine's own programs, read-only.
    pub image: Option<String>,
    /// The snapshot its files begin with, in place of fresh ones.
    pub snapshot: Option<String>,
    /// What it shares with others.
    #[serde(default)]
    pub volumes: Vec<Mounted>,
}

/// What a sandbox may reach over the network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Egress {
    /// Nothing but itself.
    None,
    /// The internet; never this machine, private ranges, link-local or metadata addresses.
    Public,
    /// Whatever this machine reaches, but not this machine itself.
    All,
    /// These alone.
    Only(Vec<Destination>),
    /// As rules for single destinations say.
    Ruled(Rules),
}

/// A name or an address, and a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destination {
    /// A host name or an address.
    pub host: String,
    /// A TCP port.
    pub port: u16,
}

/// A setting that cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct BadSpec {
    /// The field.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Below these a shell does not start or the file system cannot be made.
const LEAST_MEMORY: u64 = 16 * MIB;
const LEAST_DISK: u64 = 32 * MIB;
const LEAST_PROCESSES: u64 = 8;

/// Volumes of one sandbox.
const MOST_VOLUMES: usize = 64;

impl SandboxSpec {
    /// The limits where none are named, on a machine of this size. A sandbox may take much of the
    /// machine but never all of it: the server has to answer beside it.
    #[must_use]
    pub fn default_for(memory: u64, cpus: u64) -> Self {
        Self {
            memory: (memory / 2).clamp(256 * MIB, 4 * GIB),
            milli_cpus: (cpus * 750).max(500),
            processes: 1024,
            disk: 8 * GIB,
            egress: Egress::Public,
            image: None,
            snapshot: None,
            volumes: vec![],
        }
    }

    /// What they limit.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            memory_bytes: self.memory,
            milli_cpus: self.milli_cpus,
            processes: self.processes,
            disk_bytes: Some(self.disk),
        }
    }

    /// These settings with what a lease's `spec` says instead.
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
                "memory" => self.memory = at_least(field, bytes(field, value)?, LEAST_MEMORY)?,
                "disk" => self.disk = at_least(field, bytes(field, value)?, LEAST_DISK)?,
                "processes" => {
                    let count = value.as_u64().or_else(|| value.as_str()?.parse().ok());
                    let count = count.ok_or_else(|| bad(field, "is not a whole number"))?;
                    self.processes = at_least(field, count, LEAST_PROCESSES)?;
                }
                "cpus" => self.milli_cpus = milli_cpus(field, value)?,
                "egress" => self.egress = egress(field, value, &self.egress)?,
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

fn at_least(field: &str, value: u64, least: u64) -> Result<u64, BadSpec> {
    if value < least {
        return Err(bad(field, format!("is less than {least}")));
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

fn volumes(field: &str, value: &Value) -> Result<Vec<Mounted>, BadSpec> {
    let all: Vec<Mounted> =
        serde_json::from_value(value.clone()).map_err(|error| bad(field, error.to_string()))?;
    if all.len() > MOST_VOLUMES {
        return Err(bad(field, format!("are more than {MOST_VOLUMES}")));
    }
    for (nth, mounted) in all.iter().enumerate() {
        mounted.check().map_err(|reason| bad(field, reason))?;
        // One within another would hide a part of it, or be hidden.
        let within = |one: &str, other: &str| {
            one.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let meets = |other: &Mounted| {
            within(&other.path, &mounted.path) || within(&mounted.path, &other.path)
        };
        if all[..nth].iter().any(meets) {
            return Err(bad(field, format!("two would be seen at {}", mounted.path)));
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
        _ => Err(bad(field, "is not a number of processors such as 0.5 or 2")),
    }
}

fn egress(field: &str, value: &Value, usual: &Egress) -> Result<Egress, BadSpec> {
    let list = match value {
        Value::Object(_) => return ruled(field, value, usual),
        Value::String(word) => match word.as_str() {
            "none" => return Ok(Egress::None),
            "public" => return Ok(Egress::Public),
            "all" => return Ok(Egress::All),
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
    Ok(Egress::Only(destinations))
}

/// Rules narrow down what sandboxes of this server reach; where that is little, there is nothing to say.
fn ruled(field: &str, value: &Value, usual: &Egress) -> Result<Egress, BadSpec> {
    let base = match usual {
        Egress::Public => Base::Public,
        Egress::All => Base::All,
        Egress::Ruled(rules) => rules.base,
        Egress::None => {
            return Err(bad(field, "sandboxes of this server reach nothing (`sandbox.egress`)"));
        }
        Egress::Only(_) => {
            return Err(bad(field, "sandboxes of this server reach a list (`sandbox.egress`)"));
        }
    };
    Rules::parse(base, value).map(Egress::Ruled).map_err(|reason| bad(field, reason))
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

impl fmt::Display for Egress {
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
    fn a_spec_says_its_limits_in_the_words_of_a_person() {
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
    fn a_setting_that_cannot_be_taken_is_named() {
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
    fn rules_narrow_down_what_the_server_allows() {
        let ruled = json!({"egress": {"deny": ["0.0.0.0/0"], "allow": ["1.1.1.1"]}});
        let check = |egress: Egress, expected: Option<&str>| {
            let spec = SandboxSpec { egress, ..base() }.with(&ruled);
            assert_eq!(spec.ok().map(|spec| spec.egress.to_string()).as_deref(), expected);
        };
        check(Egress::Public, Some("public -0.0.0.0/0 +1.1.1.1/32"));
        check(Egress::All, Some("all -0.0.0.0/0 +1.1.1.1/32"));
        check(Egress::None, None);
        check(Egress::Only(vec![]), None);
    }

    #[test]
    fn the_defaults_leave_some_of_a_small_machine_to_the_server() {
        let spec = SandboxSpec::default_for(2 * GIB, 2);
        assert_eq!((spec.memory, spec.milli_cpus), (GIB, 1500));
    }
}
