//! The providers of this server and their capabilities.

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{App, page::List};
use provider::{Capabilities, Fidelity};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list))
}

/// A provider.
#[derive(Debug, Serialize, ToSchema)]
struct ProviderView {
    /// Its name.
    name: String,
    /// Whether threads that name none get it.
    default: bool,
    /// Whether it can be had on this machine.
    available: bool,
    /// What it can do.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    capabilities: Option<Capabilities>,
    /// What is kept of an instance when its lease is suspended: `filesystem` or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    suspend: Option<Fidelity>,
    /// How many instances wait for a thread that needs one, where some are kept ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<usize>,
    /// What this machine lacks for it.
    missing: Vec<String>,
}

/// The providers there are, and what each can do.
#[utoipa::path(get, path = "/api/providers", tag = "leases",
    responses((status = 200, description = "All of them", body = List<ProviderView>)))]
async fn list(State(app): State<App>) -> axum::Json<List<ProviderView>> {
    let providers = app.leases.providers();
    let mut items = Vec::new();
    for provider in providers.all() {
        let missing = provider.lacks().await.unwrap_or_else(|error| vec![error.to_string()]);
        items.push(ProviderView {
            name: provider.name().to_owned(),
            default: provider.name() == app.provider,
            available: missing.is_empty(),
            capabilities: missing.is_empty().then(|| provider.capabilities()),
            suspend: Some(provider.keeps()),
            ready: provider.ready(),
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
