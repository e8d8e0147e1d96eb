//! What every tool has: a name, schemas of its arguments and its result, hints, and a function.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rmcp::{
    RoleServer,
    handler::server::common::{schema_for_input, schema_for_output},
    model::{
        CallToolResponse, CallToolResult, ContentBlock, CreateTaskResult, JsonObject, Tool,
        ToolAnnotations,
    },
    service::RequestContext,
};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::native::{NativeApi, NativeProblem};

/// One call of a tool. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ToolCall {
    pub(crate) native: NativeApi,
    pub(crate) context: RequestContext<RoleServer>,
    /// Cancelled when the server stops, which is no cancellation by the client.
    pub(crate) stopping: CancellationToken,
}

/// Why a tool has no result. The client receives the message as the result of the tool.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolError {
    #[error("{0}")]
    Native(#[from] NativeProblem),
    #[error("invalid arguments: {0}")]
    Arguments(String),
    #[error("{0}")]
    Failed(String),
}

/// The result of a tool.
pub(crate) enum ToolReply<O> {
    Done {
        text: String,
        data: O,
    },
    /// The tool ran, and `data` says how it failed.
    Failed {
        text: String,
        data: O,
    },
    /// The call continues as a task.
    Task(CreateTaskResult),
}

/// Whether a tool changes something, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolEffect {
    /// Changes nothing, and can be repeated.
    ReadOnly,
    /// Adds something, or stores a state that a repetition does not change.
    Additive,
    /// May replace or delete something; a repetition changes nothing more.
    Replaces,
    /// Replaces something that it does not find again: a repetition fails, or changes something else.
    Edits,
    /// May do anything a command can.
    Arbitrary,
}

impl ToolEffect {
    /// Only commands and sandboxes reach beyond this server.
    fn annotations(self, title: &str) -> ToolAnnotations {
        let hints = ToolAnnotations::with_title(title);
        match self {
            ToolEffect::ReadOnly => hints.read_only(true).idempotent(true).open_world(false),
            ToolEffect::Additive => hints.read_only(false).destructive(false).open_world(false),
            ToolEffect::Replaces => {
                hints.read_only(false).destructive(true).idempotent(true).open_world(false)
            }
            ToolEffect::Edits => {
                hints.read_only(false).destructive(true).idempotent(false).open_world(false)
            }
            ToolEffect::Arbitrary => {
                hints.read_only(false).destructive(true).idempotent(false).open_world(true)
            }
        }
    }
}

type Run = Box<
    dyn Fn(ToolCall, JsonObject) -> BoxFuture<'static, Result<CallToolResponse, ToolError>>
        + Send
        + Sync,
>;

/// A tool in the catalog.
pub(crate) struct ToolEntry {
    pub(crate) tool: Tool,
    run: Run,
}

impl ToolEntry {
    /// The schemas are those of the types `A` and `O`.
    pub(crate) fn new<A, O, F>(
        name: &'static str,
        title: &'static str,
        description: &'static str,
        effect: ToolEffect,
        run: impl Fn(ToolCall, A) -> F + Send + Sync + 'static,
    ) -> ToolEntry
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        O: Serialize + JsonSchema + 'static,
        F: Future<Output = Result<ToolReply<O>, ToolError>> + Send + 'static,
    {
        let input = schema_for_input::<A>().expect("the arguments of every tool are an object");
        let mut tool = Tool::new(name, description, without_formats(&input));
        tool.title = Some(title.to_owned());
        tool.output_schema = Some(Arc::new(without_formats(&schema_for_output::<O>())));
        tool.annotations = Some(effect.annotations(title));
        let run: Run = Box::new(move |call, arguments| {
            let parsed = serde_json::from_value(Value::Object(arguments));
            let started = parsed.map(|arguments| run(call, arguments));
            Box::pin(async move {
                match started {
                    Ok(running) => Ok(response(running.await?)),
                    Err(error) => Err(ToolError::Arguments(error.to_string())),
                }
            })
        });
        ToolEntry { tool, run }
    }

    /// Calls the tool. A failure is a result that the model can read.
    pub(crate) async fn call(&self, call: ToolCall, arguments: JsonObject) -> CallToolResponse {
        match (self.run)(call, arguments).await {
            Ok(response) => response,
            Err(error) => CallToolResult::error(vec![ContentBlock::text(error.to_string())]).into(),
        }
    }
}

/// Removes the formats of numbers, such as `uint64`: JSON Schema does not define them, and validators of clients
/// print a warning for each.
fn without_formats(schema: &JsonObject) -> JsonObject {
    let is_format = |key: &str, value: &Value| key == "format" && value.is_string();
    let members = schema.iter().filter(|(key, value)| !is_format(key, value));
    members.map(|(key, value)| (key.clone(), without_formats_in(value))).collect()
}

fn without_formats_in(value: &Value) -> Value {
    match value {
        Value::Object(object) => Value::Object(without_formats(object)),
        Value::Array(items) => items.iter().map(without_formats_in).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn response<O: Serialize>(reply: ToolReply<O>) -> CallToolResponse {
    let (text, data, is_error) = match reply {
        ToolReply::Done { text, data } => (text, data, false),
        ToolReply::Failed { text, data } => (text, data, true),
        ToolReply::Task(task) => return task.into(),
    };
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = serde_json::to_value(data).ok();
    result.is_error = Some(is_error);
    result.into()
}

impl<O: Serialize> ToolReply<O> {
    /// Converts to the result of `tools/call`, also inside a finished task.
    pub(crate) fn into_response(self) -> CallToolResponse {
        response(self)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn formats_of_numbers_are_removed_and_properties_of_that_name_are_not() {
        let schema = json!({"properties": {
            "a": {"type": "integer", "format": "uint64", "minimum": 0},
            "format": {"anyOf": [{"type": "integer", "format": "uint8"}]},
        }});
        let expected = json!({"properties": {
            "a": {"type": "integer", "minimum": 0},
            "format": {"anyOf": [{"type": "integer"}]},
        }});
        assert_eq!(without_formats_in(&schema), expected);
    }

    #[test]
    fn a_read_only_tool_is_safe_to_repeat() {
        let hints = ToolEffect::ReadOnly.annotations("t");
        assert_eq!((hints.read_only_hint, hints.idempotent_hint), (Some(true), Some(true)));
        let hints = ToolEffect::Arbitrary.annotations("t");
        assert_eq!((hints.destructive_hint, hints.open_world_hint), (Some(true), Some(true)));
    }
}
