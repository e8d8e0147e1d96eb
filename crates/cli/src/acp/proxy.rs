//! Runs an agent for an editor. All messages pass, except the agent's requests for terminals.

use std::{
    process::{ExitCode, Stdio},
    sync::Arc,
};

use anyhow::Context;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader, stdin, stdout},
    process::Command,
    task::JoinSet,
};

use super::{
    rpc::{self, LineWriter},
    terminals::AcpTerminals,
};

pub(super) async fn run(
    terminals: Arc<AcpTerminals>,
    agent: &[String],
) -> anyhow::Result<ExitCode> {
    let (program, arguments) = agent.split_first().context("the agent has no name")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start the agent {program:?}"))?;
    let (editor, agent) = (
        LineWriter::new(stdout()),
        LineWriter::new(child.stdin.take().context("the agent has no standard input")?),
    );
    let output = child.stdout.take().context("the agent has no standard output")?;
    let to_agent = agent.clone();
    let from_editor = tokio::spawn(async move {
        let mut lines = BufReader::new(stdin()).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            to_agent.send_line(&for_agent(line)).await;
        }
        to_agent.close().await;
    });
    let mut requests = JoinSet::new();
    let mut lines = BufReader::new(output).lines();
    while let Some(line) = lines.next_line().await.context("cannot read the agent's output")? {
        while requests.try_join_next().is_some() {}
        match serde_json::from_str::<Value>(&line) {
            Ok(message) if rpc::is_terminal_request(&message) => {
                let (terminals, agent) = (terminals.clone(), agent.clone());
                requests.spawn(async move {
                    let method = message["method"].as_str().unwrap_or_default();
                    let (id, params) = (&message["id"], &message["params"]);
                    agent.send(&rpc::answer_request(&terminals, id, method, params).await).await;
                });
            }
            Ok(message) => editor.send_line(&for_editor(line, message)).await,
            Err(_) => editor.send_line(&line).await,
        }
    }
    requests.shutdown().await;
    from_editor.abort();
    let status = child.wait().await.context("cannot wait for the agent")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Tells the agent that there are terminals, whatever the editor has.
fn for_agent(line: String) -> String {
    match serde_json::from_str::<Value>(&line) {
        Ok(mut message) if message["method"] == "initialize" && message["params"].is_object() => {
            let capabilities = &mut message["params"]["clientCapabilities"];
            match capabilities {
                Value::Object(capabilities) => {
                    capabilities.insert("terminal".to_owned(), true.into());
                }
                _ => *capabilities = json!({"terminal": true}),
            }
            message.to_string()
        }
        Ok(_) | Err(_) => line,
    }
}

/// Replaces terminals in the content of a tool call by text: the editor does not know these terminals.
fn for_editor(line: String, mut message: Value) -> String {
    if message["method"] != "session/update" {
        return line;
    }
    let Some(content) = message.pointer_mut("/params/update/content").and_then(Value::as_array_mut)
    else {
        return line;
    };
    let mut is_changed = false;
    for item in content {
        if item["type"] == "terminal" {
            let id = item["terminalId"].as_str().unwrap_or_default();
            let text = format!("Command {id} of Stead; the web app shows its terminal.");
            *item = json!({"type": "content", "content": {"type": "text", "text": text}});
            is_changed = true;
        }
    }
    if is_changed { message.to_string() } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_learns_that_there_are_terminals() {
        let check = |line: &str, expected: Value| {
            let seen: Value = serde_json::from_str(&for_agent(line.to_owned())).unwrap();
            assert_eq!(seen, expected);
        };
        check(
            r#"{"id":0,"method":"initialize","params":{"clientCapabilities":{"fs":{},"terminal":false}}}"#,
            json!({"id": 0, "method": "initialize", "params": {"clientCapabilities": {"fs": {}, "terminal": true}}}),
        );
        check(
            r#"{"id":0,"method":"initialize","params":{}}"#,
            json!({"id": 0, "method": "initialize", "params": {"clientCapabilities": {"terminal": true}}}),
        );
        assert_eq!(for_agent("{\"id\": 1}".to_owned()), "{\"id\": 1}");
    }

    #[test]
    fn the_editor_is_not_shown_a_terminal_that_it_does_not_know() {
        let line = r#"{"method":"session/update","params":{"update":{"content":[{"type":"terminal","terminalId":"cmd_1"}]}}}"#;
        let seen = for_editor(line.to_owned(), serde_json::from_str(line).unwrap());
        assert!(seen.contains("Command cmd_1 of Stead") && !seen.contains("terminalId"), "{seen}");
        let other = "{\"method\": \"session/prompt\"}";
        assert_eq!(for_editor(other.to_owned(), serde_json::from_str(other).unwrap()), other);
    }
}
