//! The size of a sandbox in Daytona's units: CPUs and GiB.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::DaytonaRefusal;
use adapter::{Adapter, usage};
use model::Lease;

const GIB: u64 = 1 << 30;

/// The size that a client requests.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SizeRequest {
    cpu: Option<u64>,
    memory: Option<u64>,
    pub(super) disk: Option<u64>,
    gpu: Option<u64>,
}

impl SizeRequest {
    /// The size as provider settings.
    pub(super) fn settings(&self) -> Result<Map<String, Value>, DaytonaRefusal> {
        if self.gpu.is_some_and(|count| count > 0) {
            return Err(DaytonaRefusal::bad("this server has no GPUs"));
        }
        let mut settings = Map::new();
        for (name, count) in [("cpu", self.cpu), ("memory", self.memory), ("disk", self.disk)] {
            let Some(count) = count else { continue };
            if count == 0 {
                return Err(DaytonaRefusal::bad(format!("{name} must be at least 1")));
            }
            match name {
                "cpu" => settings.insert("cpus".to_owned(), count.into()),
                _ => settings.insert(name.to_owned(), format!("{count}g").into()),
            };
        }
        Ok(settings)
    }
}

/// The resources of a sandbox, rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DaytonaSize {
    pub(super) cpu: u64,
    pub(super) memory: u64,
    pub(super) disk: u64,
}

impl DaytonaSize {
    pub(super) fn of(app: &Adapter, lease: Option<&Lease>) -> DaytonaSize {
        usage::SandboxSize::of(app, lease).into()
    }

    /// The size of a sandbox whose request has none.
    pub(super) fn default_size(app: &Adapter) -> DaytonaSize {
        usage::SandboxSize::default_size(app).into()
    }
}

impl From<usage::SandboxSize> for DaytonaSize {
    fn from(size: usage::SandboxSize) -> DaytonaSize {
        let (memory, disk) = (size.memory.div_ceil(GIB), size.disk.div_ceil(GIB));
        DaytonaSize { cpu: size.cpus, memory, disk }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_size_becomes_provider_settings() {
        let request = SizeRequest { cpu: Some(2), memory: Some(4), disk: Some(8), gpu: Some(0) };
        let expected = json!({"cpus": 2, "memory": "4g", "disk": "8g"});
        assert_eq!(Value::Object(request.settings().unwrap()), expected);
        assert!(SizeRequest::default().settings().unwrap().is_empty());
        assert!(SizeRequest { gpu: Some(1), ..SizeRequest::default() }.settings().is_err());
        assert!(SizeRequest { cpu: Some(0), ..SizeRequest::default() }.settings().is_err());
    }

    #[test]
    fn sizes_are_rounded_up() {
        let size = usage::SandboxSize { cpus: 2, memory: GIB / 2, disk: 3 * GIB };
        assert_eq!(DaytonaSize::from(size), DaytonaSize { cpu: 2, memory: 1, disk: 3 });
    }
}
