//! The tools. Each is a translation of its arguments into requests to native routes.

mod commands;
mod exec;
mod files;
mod people;
mod progress;
mod sandboxes;
mod terminals;
mod tool;

use std::sync::LazyLock;

pub(crate) use exec::cancel;
pub(crate) use files::read_range;
pub(crate) use terminals::screen_text;
pub(crate) use tool::{ToolCall, ToolEntry, ToolError, ToolReply};

use tool::ToolEffect;

/// All tools, in the order in which clients show them.
pub(crate) static CATALOG: LazyLock<Vec<ToolEntry>> = LazyLock::new(|| {
    vec![
        ToolEntry::new(
            "exec",
            "Run a command",
            "Runs a shell command in a live shell that keeps its directory, variables, functions and \
             background jobs between calls and across restarts. Returns stdout, stderr and the exit code. A \
             long command continues in the background: its result then has status `running` and a \
             command_id for command_output, command_input and command_cancel.",
            ToolEffect::Arbitrary,
            exec::exec,
        ),
        ToolEntry::new(
            "command_output",
            "Read output",
            "Reads the output of a command by offset, while it runs or afterwards, and its status. Waits for \
             more output if wait_ms is given.",
            ToolEffect::ReadOnly,
            commands::command_output,
        ),
        ToolEntry::new(
            "command_input",
            "Send input",
            "Writes to the standard input of a running command that was started with keep_stdin_open.",
            ToolEffect::Arbitrary,
            commands::command_input,
        ),
        ToolEntry::new(
            "command_cancel",
            "Cancel a command",
            "Ends a command with all its processes, or removes it from the queue.",
            ToolEffect::Replaces,
            commands::command_cancel,
        ),
        ToolEntry::new(
            "screen",
            "Read the screen",
            "Returns the text on the screen of a terminal, as a person attached to it sees it. Use it for \
             programs with a user interface, and for prompts.",
            ToolEffect::ReadOnly,
            terminals::screen,
        ),
        ToolEntry::new(
            "type",
            "Type into a terminal",
            "Types text and keys into a terminal, as a person would, and returns the screen afterwards. Use \
             it to answer prompts and to drive programs with a user interface; use exec for commands.",
            ToolEffect::Arbitrary,
            terminals::type_text,
        ),
        ToolEntry::new(
            "read_file",
            "Read a file",
            "Reads a file of a thread, whole or in part.",
            ToolEffect::ReadOnly,
            files::read_file,
        ),
        ToolEntry::new(
            "write_file",
            "Write a file",
            "Writes a whole file atomically, and creates missing directories.",
            ToolEffect::Replaces,
            files::write_file,
        ),
        ToolEntry::new(
            "edit_file",
            "Edit a file",
            "Replaces a text in a file by another. Fails if the text is not found, or is found more than \
             once without replace_all.",
            ToolEffect::Edits,
            files::edit_file,
        ),
        ToolEntry::new(
            "list_files",
            "List files",
            "Lists a directory of a thread, with a depth if given.",
            ToolEffect::ReadOnly,
            files::list_files,
        ),
        ToolEntry::new(
            "search_files",
            "Search files",
            "Searches the content of files with a regular expression.",
            ToolEffect::ReadOnly,
            files::search_files,
        ),
        ToolEntry::new(
            "ports",
            "List ports",
            "Lists the TCP ports that programs of a thread's sandbox listen on.",
            ToolEffect::ReadOnly,
            terminals::ports,
        ),
        ToolEntry::new(
            "port_link",
            "Link to a port",
            "Creates a link that opens one TCP port of a thread in a browser, without a token, until it expires. \
             Everyone who has the link can use the port.",
            ToolEffect::Additive,
            terminals::port_link,
        ),
        ToolEntry::new(
            "sandbox_create",
            "Create a sandbox",
            "Creates a sandbox and starts it. The other tools work in it by its thread_id. With a name, a \
             repeated call returns the same sandbox.",
            ToolEffect::Additive,
            sandboxes::sandbox_create,
        ),
        ToolEntry::new(
            "sandbox_list",
            "List sandboxes",
            "Lists sandboxes, newest first.",
            ToolEffect::ReadOnly,
            sandboxes::sandbox_list,
        ),
        ToolEntry::new(
            "fork",
            "Fork",
            "Copies a sandbox with its files and the state of its shell, or the state of one shell into \
             another terminal of the same sandbox.",
            ToolEffect::Additive,
            terminals::fork,
        ),
        ToolEntry::new(
            "rollback",
            "Roll back a shell",
            "Restores an earlier state of a shell: directory, variables, functions and options. Files and \
             processes stay as they are.",
            ToolEffect::Edits,
            terminals::rollback,
        ),
        ToolEntry::new(
            "ask_person",
            "Ask a person",
            "Asks a person for input, an approval, or a secret that a program in the terminal waits for, and \
             waits for the answer. A question stays open after the call: its result then has status `open`, \
             and a call with its handoff_id waits again. Cancelling the call that asked withdraws the question.",
            ToolEffect::Additive,
            people::ask_person,
        ),
        ToolEntry::new(
            "memory_read",
            "Read a memory",
            "Reads a memory of the thread's project. Memories outlive threads and sandboxes.",
            ToolEffect::ReadOnly,
            files::memory_read,
        ),
        ToolEntry::new(
            "memory_write",
            "Write a memory",
            "Writes a memory of the thread's project, which later threads of the project can read.",
            ToolEffect::Replaces,
            files::memory_write,
        ),
    ]
});

/// Returns the tool with a name.
pub(crate) fn find(name: &str) -> Option<&'static ToolEntry> {
    CATALOG.iter().find(|entry| entry.tool.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_tool_describes_its_arguments_and_its_result() {
        let mut names = BTreeSet::new();
        for entry in CATALOG.iter() {
            let tool = &entry.tool;
            assert!(names.insert(&tool.name), "{} is listed twice", tool.name);
            let properties = tool.input_schema["properties"].as_object().unwrap();
            for (name, schema) in properties {
                let text = schema.to_string();
                assert!(text.contains("description"), "{}.{name} has no description", tool.name);
            }
            let output = tool.output_schema.as_ref().unwrap();
            assert_eq!(output["type"], "object", "{}", tool.name);
            assert!(tool.annotations.as_ref().unwrap().read_only_hint.is_some(), "{}", tool.name);
        }
        assert_eq!(names.len(), 20);
    }

    #[test]
    fn a_tool_that_fails_when_it_is_repeated_is_not_idempotent() {
        for (name, is_idempotent) in
            [("write_file", true), ("edit_file", false), ("rollback", false)]
        {
            let hints = find(name).unwrap().tool.annotations.as_ref().unwrap();
            assert_eq!(hints.idempotent_hint, Some(is_idempotent), "{name}");
        }
    }
}
