//! What the programs of a sandbox may reach over the network, at the beginning and later.

use serde_json::{Map, Value, json};

use super::sandbox::{Facts, Sandbox};
use crate::Compat;
use api::error::{Code, Problem};
use machine::AddressBlock;
use provider::ProviderError;

/// The setting of a provider.
const EGRESS: &str = "egress";

/// What the programs of a sandbox may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Network {
    /// What the server's settings say.
    Usual,
    /// Less than that.
    Ruled(Rules),
}

/// Rules for single destinations; what is allowed goes before what is denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Addresses, blocks and names.
    pub allow: Vec<String>,
    /// Addresses and blocks.
    pub deny: Vec<String>,
}

impl Network {
    /// These alone.
    pub fn only(allow: Vec<String>) -> Network {
        Network::Ruled(Rules { allow, deny: vec![AddressBlock::EVERYTHING.to_string()] })
    }

    /// Whether nothing is reached but oneself.
    fn is_nothing(&self) -> bool {
        *self == Network::only(vec![])
    }
}

impl Compat {
    /// Settings of a provider with what is to be reached, if it takes them. Whoever is to reach nothing
    /// has a network that can be opened later, where there are networks.
    pub(super) fn reaching(
        &self,
        provider: &str,
        mut spec: Map<String, Value>,
        network: &Network,
    ) -> Result<Option<Value>, Problem> {
        match network {
            Network::Usual => drop(spec.remove(EGRESS)),
            Network::Ruled(Rules { allow, deny }) => {
                let rules = json!({"allow": allow, "deny": deny});
                spec.insert(EGRESS.to_owned(), rules);
            }
        }
        if spec.is_empty() {
            return Ok(None);
        }
        let refused = |error: ProviderError| Problem::new(Code::InvalidRequest, error.to_string());
        let provider = self.leases.providers().named(provider).map_err(refused)?;
        let asked = Value::Object(spec.clone());
        match provider.accepts(&asked) {
            Ok(()) => Ok(Some(asked)),
            Err(_) if network.is_nothing() => {
                spec.insert(EGRESS.to_owned(), "none".into());
                let none = Value::Object(spec);
                provider.accepts(&none).map_err(refused)?;
                Ok(Some(none))
            }
            Err(error) => Err(refused(error)),
        }
    }

    /// Changes what the programs of a sandbox reach, and what is known of that; they go on. `None` if
    /// there is no such sandbox.
    pub async fn change_network(
        &self,
        sandbox: &Sandbox,
        network: &Network,
        note: impl FnOnce(&mut Facts),
    ) -> Result<Option<Sandbox>, Problem> {
        let id = &sandbox.thread.lease_id;
        let Some(lease) = self.store.lease(id).await? else { return Ok(None) };
        let before = lease.spec.as_object().cloned().unwrap_or_default();
        let spec = self.reaching(&lease.provider, before, network)?.unwrap_or_default();
        // What reaches what is usual goes on to, also where there is nothing to choose.
        if spec != lease.spec || *network != Network::Usual {
            self.leases.reach(id, &spec).await?;
        }
        self.change_sandbox(sandbox.id(), note).await
    }
}
