//! Resolves the names that users type to ids.

use anyhow::{Context, bail};
use http::Method;
use serde_json::{Value, json};

use super::client::{ApiClient, ApiError, escape};

/// The thread of commands without `--thread`.
pub(super) const DEFAULT_THREAD: &str = "main";

/// How many items are searched for a prefix.
const MAX_SEARCHED: usize = 100_000;
/// How many commands of each terminal are searched for a prefix.
const RECENT_COMMANDS: usize = 1000;

/// What to do about a thread that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IfMissing {
    Create,
    Fail,
    /// Take the one thread whose id begins with the name. Not for what changes anything: the thread that was meant may
    /// be gone.
    Prefix,
}

/// Returns the id of a terminal, given by its id, a unique prefix of the id, its thread, or its sandbox.
pub(super) async fn terminal(
    client: &ApiClient,
    name: &str,
    missing: IfMissing,
) -> anyhow::Result<String> {
    if name.starts_with("term_") {
        return match is_complete(name) {
            true => Ok(name.to_owned()),
            false => unique("terminal", name, &terminals(client).await?, "terminal_id"),
        };
    }
    let path = format!("/api/threads/{}", escape(name));
    let found = client.get(&format!("{path}/terminal")).await;
    let found = match found {
        Err(error) if is_missing(&error) => match (sandbox_thread(client, name).await?, missing) {
            (Some(thread), _) => {
                client.get(&format!("/api/threads/{}/terminal", escape(&thread))).await?
            }
            (None, IfMissing::Create) => {
                client.json(Method::PUT, &path, Some(&json!({}))).await?;
                client.get(&format!("{path}/terminal")).await?
            }
            (None, IfMissing::Fail) => return Err(error),
            (None, IfMissing::Prefix) => {
                let thread = thread_prefix(client, name).await?.ok_or(error)?;
                client.get(&format!("/api/threads/{}/terminal", escape(&thread))).await?
            }
        },
        found => found?,
    };
    id(&found, "terminal_id")
}

/// Returns the id of a thread, given by its id, a unique prefix of the id, its sandbox, or one of its terminals.
pub(super) async fn thread(client: &ApiClient, name: &str) -> anyhow::Result<String> {
    let found = match find_thread(client, name).await? {
        None => thread_prefix(client, name).await?,
        found => found,
    };
    found.with_context(|| format!("no thread or sandbox {name:?}; `stead thread ls` lists them"))
}

/// Returns the one thread whose id begins with a text, if there is any.
async fn thread_prefix(client: &ApiClient, prefix: &str) -> anyhow::Result<Option<String>> {
    let items = client.list("/api/threads", MAX_SEARCHED).await?;
    let begins =
        |item: &&Value| item["thread_id"].as_str().is_some_and(|id| id.starts_with(prefix));
    match items.iter().any(|item| begins(&item)) {
        true => unique("thread", prefix, &items, "thread_id").map(Some),
        false => Ok(None),
    }
}

/// Like [`thread`], for a thread that is created if there is none: then the name is its id.
pub(super) async fn thread_or_new(client: &ApiClient, name: &str) -> anyhow::Result<String> {
    Ok(find_thread(client, name).await?.unwrap_or_else(|| name.to_owned()))
}

async fn find_thread(client: &ApiClient, name: &str) -> anyhow::Result<Option<String>> {
    if name.starts_with("term_") {
        let terminal = terminal(client, name, IfMissing::Fail).await?;
        let found = client.get(&format!("/api/terminals/{}", escape(&terminal))).await?;
        return id(&found, "thread_id").map(Some);
    }
    match client.get(&format!("/api/threads/{}", escape(name))).await {
        Ok(_) => Ok(Some(name.to_owned())),
        Err(error) if is_missing(&error) => sandbox_thread(client, name).await,
        Err(error) => Err(error),
    }
}

/// Returns the thread of a sandbox, given by its name, its id or a unique prefix of the id.
async fn sandbox_thread(client: &ApiClient, name: &str) -> anyhow::Result<Option<String>> {
    let items = client.list("/api/sandboxes", MAX_SEARCHED).await?;
    let found = match items.iter().find(|item| item["name"] == name) {
        Some(named) => Some(named),
        None if name.starts_with("sb_") => {
            let sandbox = unique("sandbox", name, &items, "sandbox_id")?;
            items.iter().find(|item| item["sandbox_id"] == sandbox.as_str())
        }
        None => None,
    };
    found.map(|item| id(item, "thread_id")).transpose()
}

/// Lists the terminals of all threads.
async fn terminals(client: &ApiClient) -> anyhow::Result<Vec<Value>> {
    let mut found = Vec::new();
    for thread in client.list("/api/threads", MAX_SEARCHED).await? {
        let path = format!("/api/threads/{}/terminals", escape(&id(&thread, "thread_id")?));
        match client.list(&path, MAX_SEARCHED).await {
            Ok(more) => found.extend(more),
            // The thread was deleted after it was listed.
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Returns the id of a project, given by its id or a unique prefix.
pub(super) async fn project(client: &ApiClient, name: &str) -> anyhow::Result<String> {
    let is_suffix = |text: &str| text.len() == 8 && text.bytes().all(|b| b.is_ascii_hexdigit());
    if name.rsplit_once('-').is_some_and(|(_, suffix)| is_suffix(suffix)) {
        return Ok(name.to_owned());
    }
    unique("project", name, &client.list("/api/projects", MAX_SEARCHED).await?, "project_id")
}

/// Returns the id of a lease, given by its id or a unique prefix.
pub(super) async fn lease(client: &ApiClient, name: &str) -> anyhow::Result<String> {
    if is_complete(name) {
        return Ok(name.to_owned());
    }
    unique("lease", name, &client.list("/api/leases", MAX_SEARCHED).await?, "lease_id")
}

/// Returns the id of a hand-off, given by its id or a unique prefix, first among the open ones.
pub(super) async fn handoff(client: &ApiClient, name: &str) -> anyhow::Result<String> {
    if is_complete(name) {
        return Ok(name.to_owned());
    }
    let open = client.list("/api/handoffs?status=open", MAX_SEARCHED).await?;
    match unique("handoff", name, &open, "handoff_id") {
        Ok(id) => Ok(id),
        Err(_) => {
            let all = client.list("/api/handoffs", MAX_SEARCHED).await?;
            unique("handoff", name, &all, "handoff_id")
        }
    }
}

/// Returns the id of a share link, given by its id or a unique prefix.
pub(super) async fn share(client: &ApiClient, name: &str) -> anyhow::Result<String> {
    if is_complete(name) {
        return Ok(name.to_owned());
    }
    unique("share", name, &client.list("/api/shares", MAX_SEARCHED).await?, "share_id")
}

/// Returns the id of a command, given by its id or a unique prefix among the latest of each terminal.
pub(super) async fn command(client: &ApiClient, name: &str) -> anyhow::Result<String> {
    if is_complete(name) {
        return Ok(name.to_owned());
    }
    let mut recent = Vec::new();
    for terminal in terminals(client).await? {
        let path = format!("/api/terminals/{}/commands", escape(&id(&terminal, "terminal_id")?));
        match client.list(&path, RECENT_COMMANDS).await {
            Ok(more) => recent.extend(more),
            // The terminal was deleted after it was listed.
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    unique("command", name, &recent, "command_id")
}

/// Returns the id of a sandbox, given by its name, its id or a unique prefix of the id.
pub(super) async fn sandbox(client: &ApiClient, name: &str) -> anyhow::Result<String> {
    if name.starts_with("sb_") && is_complete(name) {
        return Ok(name.to_owned());
    }
    let items = client.list("/api/sandboxes", MAX_SEARCHED).await?;
    match items.iter().find(|item| item["name"] == name) {
        Some(named) => id(named, "sandbox_id"),
        None => unique("sandbox", name, &items, "sandbox_id"),
    }
}

/// Whether a generated id is complete: a kind, an underscore and 32 hexadecimal digits.
fn is_complete(id: &str) -> bool {
    id.split_once('_').is_some_and(|(_, digits)| digits.len() >= 32)
}

/// Finds the one item whose id starts with the prefix.
fn unique(kind: &str, prefix: &str, items: &[Value], field: &str) -> anyhow::Result<String> {
    let ids = items.iter().filter_map(|item| item[field].as_str());
    let found: Vec<&str> = ids.filter(|id| id.starts_with(prefix)).collect();
    match found.as_slice() {
        [id] => Ok((*id).to_owned()),
        [] if kind == "command" => bail!("no command {prefix:?}; `stead history` lists them"),
        [] => bail!("no {kind} {prefix:?}; `stead {kind} ls` lists them"),
        [first, second, ..] => {
            bail!("{prefix:?} matches several {kind}s, among them {first} and {second}")
        }
    }
}

/// Whether the server answered that something does not exist.
pub(super) fn is_missing(error: &anyhow::Error) -> bool {
    error.downcast_ref::<ApiError>().is_some_and(|refusal| refusal.code == "not_found")
}

/// Returns a required text field of a response.
pub(super) fn id(answer: &Value, field: &str) -> anyhow::Result<String> {
    let found = answer[field].as_str().map(str::to_owned);
    found.with_context(|| format!("the response of the server has no {field}"))
}

/// Parses `KEY=VALUE` pairs into a map.
pub(super) fn pairs(list: &[String]) -> anyhow::Result<Value> {
    let mut map = serde_json::Map::new();
    for pair in list {
        match pair.split_once('=') {
            Some((key, value)) if !key.is_empty() => map.insert(key.into(), value.into()),
            _ => bail!("{pair:?}: expected KEY=VALUE"),
        };
    }
    Ok(Value::Object(map))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_must_be_unique() {
        let items = [json!({"id": "demo-1"}), json!({"id": "demo-2"}), json!({"id": "other"})];
        let check =
            |prefix: &str| unique("project", prefix, &items, "id").map_err(|e| e.to_string());
        assert_eq!(check("ot"), Ok("other".into()));
        assert_eq!(check("x"), Err("no project \"x\"; `stead project ls` lists them".into()));
        assert_eq!(
            check("demo"),
            Err("\"demo\" matches several projects, among them demo-1 and demo-2".into())
        );
        assert!(is_complete("term_0198c3c1f0e47d1c8f9e2a3b4c5d6e7f") && !is_complete("term_0198"));
    }
}
