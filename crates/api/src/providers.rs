//! The providers of this server and their capabilities.

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{App, error::Problem, page::List, shapes::CapabilitiesSchema};
use provider::{Capabilities, Fidelity, ProviderError};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list))
}

/// A provider of compute.
#[derive(Debug, Serialize, ToSchema)]
struct ProviderView {
    /// Name of the provider.
    name: String,
    /// Whether this is the default provider.
    default: bool,
    /// Whether the provider can be used on this machine.
    available: bool,
    /// Capabilities of the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = CapabilitiesSchema)]
    capabilities: Option<Capabilities>,
    /// What a suspended instance keeps: `filesystem`, `memory` or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    suspend: Option<Fidelity>,
    /// Number of instances in the warm pool, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<usize>,
    /// What this machine lacks to use it.
    missing: Vec<String>,
}

/// List the providers and their capabilities.
#[utoipa::path(get, path = "/api/providers", tag = "leases",
    operation_id = "providers.list", responses((status = 200, description = "All providers", body = List<ProviderView>)))]
async fn list(State(app): State<App>) -> axum::Json<List<ProviderView>> {
    let providers = app.leases.providers();
    let mut items = Vec::new();
    for provider in providers.all() {
        let profile = provider.profile();
        let missing = provider.missing().await.unwrap_or_else(|error| vec![error.to_string()]);
        items.push(ProviderView {
            name: provider.name().to_owned(),
            default: provider.name() == app.provider,
            available: missing.is_empty(),
            capabilities: missing.is_empty().then(|| provider.capabilities()),
            suspend: Some(profile.suspend),
            ready: profile.warm,
            missing,
        });
    }
    let absent = providers.absent().map(|(name, lacks)| ProviderView {
        name: name.to_owned(),
        default: false,
        available: false,
        capabilities: None,
        suspend: None,
        ready: None,
        missing: lacks.to_vec(),
    });
    items.extend(absent);
    axum::Json(List::whole(items))
}

/// Refuses the name of a provider that this server does not have.
pub(super) fn check_provider(app: &App, name: Option<&str>) -> Result<(), Problem> {
    let providers = app.leases.providers();
    if name.is_none_or(|name| providers.named(name).is_ok()) {
        return Ok(());
    }
    let known: Vec<&str> = providers.all().map(|provider| provider.name()).collect();
    Err(Problem::body("/provider", format!("must be one of {}", known.join(", "))))
}

/// Refuses settings that the provider does not accept.
pub(super) fn check_settings(
    app: &App,
    provider: &str,
    settings: &serde_json::Value,
    pointer: &str,
) -> Result<(), Problem> {
    let provider = app.leases.providers().named(provider);
    match provider.ok().and_then(|provider| provider.accepts(settings).err()) {
        None => Ok(()),
        Some(ProviderError::Refused { reason, .. }) => Err(Problem::body(pointer, reason)),
        Some(other) => Err(Problem::body(pointer, other.to_string())),
    }
}
