//! Tools for sandboxes: create and list.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::tool::{ToolCall, ToolError, ToolReply};
use crate::native::target;

/// A sandbox to create; all fields are optional.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SandboxCreateArguments {
    /// Name, unique within the project. If a sandbox of this name exists, it is returned instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Id of its project.
    #[serde(skip_serializing_if = "Option::is_none")]
    project_id: Option<String>,
    /// Name of its provider; the default provider if omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    /// Image whose files it starts with.
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
    /// Snapshot whose files it starts with.
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<String>,
    /// Number of CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpus: Option<f64>,
    /// Memory limit, such as `512m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<String>,
    /// Disk limit, such as `10g`.
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<String>,
    /// Environment variables of its shells.
    #[serde(skip_serializing_if = "Option::is_none")]
    env: Option<BTreeMap<String, String>>,
    /// Lifetime in seconds; unlimited if omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_s: Option<u64>,
    /// Labels for `sandbox_list`.
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<BTreeMap<String, String>>,
}

/// A sandbox.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SandboxSummary {
    /// Id of the sandbox.
    sandbox_id: String,
    /// Name of the sandbox.
    name: Option<String>,
    /// Id of its thread, for other tools.
    thread_id: String,
    /// Id of its default terminal.
    terminal_id: String,
    /// `running`, `paused`, `suspended`, `stopped` or `archived`; the next use starts it.
    state: String,
    /// Name of its provider.
    provider: String,
    /// Labels set by clients.
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// End of the lifetime; null if it is unlimited.
    expires_at: Option<String>,
}

impl SandboxSummary {
    fn read(view: Value) -> Result<SandboxSummary, ToolError> {
        serde_json::from_value(view)
            .map_err(|error| ToolError::Failed(format!("cannot read the sandbox: {error}")))
    }

    fn line(&self) -> String {
        let name = self.name.as_deref().unwrap_or("-");
        format!("{} {name} {} (thread {})", self.sandbox_id, self.state, self.thread_id)
    }
}

pub(crate) async fn sandbox_create(
    call: ToolCall,
    arguments: SandboxCreateArguments,
) -> Result<ToolReply<SandboxSummary>, ToolError> {
    let created = call.native.post("/api/sandboxes", &arguments).await?.json();
    let data = SandboxSummary::read(created)?;
    Ok(ToolReply::Done { text: data.line(), data })
}

/// Filters and pages the list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SandboxListArguments {
    /// Only sandboxes with these labels, `KEY=VALUE`, separated by commas.
    label: Option<String>,
    /// Only sandboxes in one of these states, separated by commas.
    state: Option<String>,
    /// Maximum number of items; 100 by default, 1000 at most.
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// A page of sandboxes, newest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SandboxSummaries {
    /// The sandboxes.
    items: Vec<SandboxSummary>,
    /// Continues the list; null at its end.
    next_cursor: Option<String>,
}

pub(crate) async fn sandbox_list(
    call: ToolCall,
    arguments: SandboxListArguments,
) -> Result<ToolReply<SandboxSummaries>, ToolError> {
    let target = target(
        "/api/sandboxes".to_owned(),
        &[
            ("label", arguments.label),
            ("state", arguments.state),
            ("limit", arguments.limit.map(|limit| limit.to_string())),
            ("cursor", arguments.cursor),
        ],
    );
    let mut page = call.native.get(&target).await?.json();
    let items = page["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
    let items = items.into_iter().map(SandboxSummary::read).collect::<Result<Vec<_>, _>>()?;
    let mut text = match items.is_empty() {
        true => "no sandboxes".to_owned(),
        false => items.iter().map(SandboxSummary::line).collect::<Vec<_>>().join("\n"),
    };
    let next_cursor = page["next_cursor"].as_str().map(str::to_owned);
    if let Some(cursor) = &next_cursor {
        text.push_str(&format!("\n[more; continue with cursor={cursor}]"));
    }
    Ok(ToolReply::Done { text, data: SandboxSummaries { items, next_cursor } })
}
