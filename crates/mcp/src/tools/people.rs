//! The tool that asks a person.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    progress::{CallProgress, cancelled},
    terminals::{MissingThread, terminal_id},
    tool::{ToolCall, ToolError, ToolReply},
};
use crate::native::{escape, target};

/// Default and maximum time of one call. Many clients end a call after a minute.
const MAX_WAIT_MS: u64 = 50_000;

/// A question to a person, or an earlier question whose answer is awaited.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskPersonArguments {
    /// What the person is asked, and why. Required unless handoff_id is given.
    reason: Option<String>,
    /// `input` (text for you; the default), `approval`, or `secret` (typed into the program that waits for it in
    /// the terminal; you do not receive it).
    #[serde(default)]
    kind: HandoffName,
    /// Answers to choose from, for input and approval.
    #[serde(default)]
    options: Vec<String>,
    /// Time until the question expires, in milliseconds; a day by default.
    timeout_ms: Option<u64>,
    /// Time to wait for the answer in this call, in milliseconds; 50000 by default and at most.
    wait_ms: Option<u64>,
    /// Id of an earlier question, to wait for its answer instead of asking again.
    handoff_id: Option<String>,
    /// Id of the thread whose default terminal the question belongs to; `main` by default.
    thread: Option<String>,
    /// Id of another terminal, instead of a thread.
    terminal_id: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HandoffName {
    #[default]
    Input,
    Approval,
    Secret,
}

/// A question and its answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PersonAnswer {
    /// Id of the question, to wait for its answer later.
    handoff_id: String,
    /// `open`, `answered`, `declined` or `expired`.
    status: String,
    /// Decision about an approval.
    approve: Option<bool>,
    /// The chosen option.
    option: Option<String>,
    /// Text of the person.
    text: Option<String>,
}

impl PersonAnswer {
    fn new(handoff: &Value) -> PersonAnswer {
        let text_of = |value: &Value| value.as_str().map(str::to_owned);
        let answer = &handoff["answer"];
        PersonAnswer {
            handoff_id: text_of(&handoff["handoff_id"]).unwrap_or_default(),
            status: text_of(&handoff["status"]).unwrap_or_default(),
            approve: answer["approve"].as_bool(),
            option: text_of(&answer["option"]),
            text: text_of(&answer["text"]),
        }
    }

    /// Describes the answer for a model.
    fn describe(&self) -> String {
        if self.status == "open" {
            let id = &self.handoff_id;
            return format!("no answer yet; call ask_person with handoff_id={id} to wait for it");
        }
        let decision = match self.approve {
            Some(true) => Some("approved"),
            Some(false) => Some("not approved"),
            None => None,
        };
        let parts = [decision, self.option.as_deref(), self.text.as_deref()];
        let parts: Vec<&str> = parts.into_iter().flatten().collect();
        match parts.is_empty() {
            true => self.status.clone(),
            false => format!("{}: {}", self.status, parts.join("; ")),
        }
    }
}

/// Which call asked the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    OfThisCall,
    Earlier,
}

pub(crate) async fn ask_person(
    call: ToolCall,
    arguments: AskPersonArguments,
) -> Result<ToolReply<PersonAnswer>, ToolError> {
    let native = &call.native;
    let mut progress = CallProgress::new(&call);
    progress.set_message("waiting for a person");
    let wait_ms = arguments.wait_ms.unwrap_or(MAX_WAIT_MS).min(MAX_WAIT_MS);
    let (id, question) = match (arguments.handoff_id, arguments.reason) {
        (Some(id), None) => (id, Question::Earlier),
        (None, Some(reason)) => {
            let (id, thread) = (arguments.terminal_id, arguments.thread.as_deref());
            let id = terminal_id(native, id, thread, MissingThread::Create).await?;
            let mut body = json!({
                "kind": arguments.kind,
                "reason": reason,
                "options": arguments.options,
            });
            if let Some(timeout_ms) = arguments.timeout_ms {
                body["timeout_ms"] = json!(timeout_ms);
            }
            let path = format!("/api/terminals/{}/handoffs", escape(&id));
            let opened = native.post(&path, &body).await?.json();
            (opened["handoff_id"].as_str().unwrap_or_default().to_owned(), Question::OfThisCall)
        }
        (None, None) | (Some(_), Some(_)) => {
            return Err(ToolError::Arguments("give either reason or handoff_id".into()));
        }
    };
    let path = format!("/api/handoffs/{}", escape(&id));
    let wait = target(path.clone(), &[("wait_ms", Some(wait_ms.to_string()))]);
    let Some(handoff) = progress.wait(&call, native.get(&wait)).await else {
        // A server that stops closes its connections, which is no wish of the client.
        if question == Question::OfThisCall && !call.stopping.is_cancelled() {
            let text = "the agent no longer waits for an answer";
            native.post(&format!("{path}/decline"), &json!({ "text": text })).await?;
        }
        return Err(cancelled());
    };
    let answer = PersonAnswer::new(&handoff?.json());
    Ok(ToolReply::Done { text: answer.describe(), data: answer })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_described() {
        let answer = |status: &str, answer: Value| {
            let handoff = json!({"handoff_id": "handoff_1", "status": status, "answer": answer});
            PersonAnswer::new(&handoff).describe()
        };
        assert_eq!(
            answer("open", Value::Null),
            "no answer yet; call ask_person with handoff_id=handoff_1 to wait for it"
        );
        assert_eq!(answer("answered", json!({"text": "blue"})), "answered: blue");
        assert_eq!(
            answer("answered", json!({"approve": false, "text": "after lunch"})),
            "answered: not approved; after lunch"
        );
        assert_eq!(answer("declined", Value::Null), "declined");
    }
}
