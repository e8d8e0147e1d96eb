//! The description of a new sandbox.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

use super::{egress::Network, vendor::VendorApi};
use engine::sandbox::UNLIMITED_SESSION;
use model::{BuildId, Env, ExpiryAction, LeaseId, PortAccess, SessionPolicy, ThreadId};

#[derive(Debug, Clone)]
pub struct NewSandbox {
    pub vendor: &'static dyn VendorApi,
    pub id: ThreadId,
    pub name: Option<String>,
    /// The name of a template, a snapshot or a provider.
    pub template: String,
    /// The template build that runs in this sandbox.
    pub build_id: Option<BuildId>,
    /// The lifetime; `None` means until the sandbox is deleted.
    pub timeout: Option<Duration>,
    pub on_expiry: ExpiryAction,
    pub delete_after_stop: Option<Duration>,
    pub auto_resume: bool,
    pub port_access: PortAccess,
    pub env: Env,
    pub labels: BTreeMap<String, String>,
    /// Values that only the vendor's API uses.
    pub extra: BTreeMap<String, String>,
    pub policy: SessionPolicy,
    pub network: Network,
    /// Provider settings in addition to those of the template and the network.
    pub settings: serde_json::Map<String, Value>,
    /// The lease of another sandbox that this one is forked from; it takes precedence over the template.
    pub fork: Option<LeaseId>,
}

impl NewSandbox {
    /// A sandbox with the default settings.
    pub fn new(vendor: &'static dyn VendorApi, id: ThreadId, template: String) -> NewSandbox {
        NewSandbox {
            vendor,
            id,
            name: None,
            template,
            build_id: None,
            timeout: None,
            on_expiry: ExpiryAction::Delete,
            delete_after_stop: None,
            auto_resume: false,
            port_access: PortAccess::Token,
            env: Env::new(),
            labels: BTreeMap::new(),
            extra: BTreeMap::new(),
            policy: UNLIMITED_SESSION,
            network: Network::Default,
            settings: serde_json::Map::new(),
            fork: None,
        }
    }
}
