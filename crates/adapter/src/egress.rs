//! Network rules of a sandbox: the destinations its programs may connect to, at creation and later.

use serde_json::{Map, Value, json};

use crate::Adapter;
use api::error::{Code, Problem};
use machine::AddressBlock;
use model::Sandbox;
use provider::ProviderError;
use store::SandboxRecord;

/// The provider's setting with the network rules.
const EGRESS: &str = "egress";

/// The destinations that the programs of a sandbox may connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Network {
    /// Every destination that the server's settings allow.
    Default,
    /// Only the destinations that these rules allow.
    Ruled(NetworkRules),
}

/// Rules for single destinations; `allow` takes precedence over `deny`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkRules {
    /// Addresses, blocks and domain names.
    pub allow: Vec<String>,
    pub deny: Vec<String>,
}

impl Network {
    pub fn only(allow: Vec<String>) -> Network {
        Network::Ruled(NetworkRules { allow, deny: vec![AddressBlock::EVERYTHING.to_string()] })
    }

    /// Whether no destination is allowed.
    fn is_nothing(&self) -> bool {
        *self == Network::only(vec![])
    }
}

impl Adapter {
    /// Adds the rules to the settings of a provider, if it accepts them. A sandbox without any allowed destination
    /// still gets a network that can be opened later, if the provider supports that.
    pub(super) fn with_egress(
        &self,
        provider: &str,
        mut spec: Map<String, Value>,
        network: &Network,
    ) -> Result<Option<Value>, Problem> {
        match network {
            Network::Default => drop(spec.remove(EGRESS)),
            Network::Ruled(NetworkRules { allow, deny }) => {
                let rules = json!({"allow": allow, "deny": deny});
                spec.insert(EGRESS.to_owned(), rules);
            }
        }
        if spec.is_empty() {
            return Ok(None);
        }
        let refused = |error: ProviderError| Problem::new(Code::InvalidRequest, error.to_string());
        let provider = self.leases.providers().named(provider).map_err(refused)?;
        let requested = Value::Object(spec.clone());
        match provider.accepts(&requested) {
            Ok(()) => Ok(Some(requested)),
            Err(_) if network.is_nothing() => {
                spec.insert(EGRESS.to_owned(), "none".into());
                let none = Value::Object(spec);
                provider.accepts(&none).map_err(refused)?;
                Ok(Some(none))
            }
            Err(error) => Err(refused(error)),
        }
    }

    /// Changes the network rules of a sandbox and its row; its programs keep running. `None` if there is no
    /// such sandbox.
    pub async fn change_network(
        &self,
        sandbox: &SandboxRecord,
        network: &Network,
        change: impl FnMut(&mut Sandbox),
    ) -> Result<Option<SandboxRecord>, Problem> {
        let id = &sandbox.thread.lease_id;
        let Some(lease) = self.store.lease(id).await? else { return Ok(None) };
        let before = lease.spec.as_object().cloned().unwrap_or_default();
        let spec = self.with_egress(&lease.provider, before, network)?.unwrap_or_default();
        // Without rules before and after there is nothing to change, so providers without rules are not called.
        if spec != lease.spec || *network != Network::Default {
            self.leases.set_egress(id, &spec).await?;
        }
        Ok(self.sandboxes.change(sandbox.id(), change).await?)
    }
}
