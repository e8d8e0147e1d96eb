//! Watching directories: as a stream, or by a watcher that is asked now and then.

use std::collections::HashSet;

use axum::{extract::State, http::HeaderMap, response::Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    address::E2bGuest,
    connect::{self, ConnectCode, Failed, Messages, ResponseStream, Unary},
    filesystem::{entry, failed, look},
};
use adapter::{
    Adapter, EventQueue,
    instance::{Files, absolute, relative},
};
use files::{Below, FileEvent, FileEventKind, FileKind, Watch, Watched};

/// Names that are remembered; beyond them a file that is written again counts as new.
const KNOWN: usize = 100_000;
/// Levels below a watched directory whose names are remembered from the start.
const LEVELS: u32 = 64;
/// Watchers of one sandbox.
const MAX_WATCHERS: usize = 64;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WatchDir {
    path: String,
    #[serde(default)]
    recursive: bool,
    #[serde(default, alias = "include_entry")]
    include_entry: bool,
}

/// A directory that is watched.
struct WatchedDirectory {
    watch: Watch,
    files: Files,
    /// The directory, below the root.
    root: String,
    /// Names that were there: what is written whole under one of them is no new file.
    known: HashSet<String>,
    include_entry: bool,
}

impl WatchedDirectory {
    async fn begin(
        app: &Adapter,
        guest: &E2bGuest,
        asked: WatchDir,
    ) -> Result<WatchedDirectory, Failed> {
        let path = absolute(&asked.path, guest.home()?);
        let files = app.sandbox_files(&guest.sandbox).await?;
        let root = relative(&path)?;
        let looked = root.clone();
        let found = files.act(move |directory| directory.stat_followed(&looked)).await;
        let found = found.map_err(|error| failed(error, &path, "path"))?;
        if found.kind != FileKind::Directory {
            let message = format!("path {path} is not a directory");
            return Err(Failed::new(ConnectCode::InvalidArgument, message));
        }
        let below = if asked.recursive { Below::All } else { Below::Children };
        let watch = files.directory.watch_closely(&root, below)?;
        let listed = root.clone();
        let depth = if asked.recursive { LEVELS } else { 1 };
        let list = files.act(move |directory| directory.list(&listed, depth, None, KNOWN));
        let known = list.await?;
        Ok(WatchedDirectory {
            watch,
            files,
            root: root.to_string(),
            known: known.into_iter().map(|stat| stat.path).collect(),
            include_entry: asked.include_entry,
        })
    }

    /// What happens next; `None` when it cannot be watched any more. Of a directory that is gone
    /// there are no more events, but the client stays connected.
    async fn next(&mut self) -> Option<Vec<Value>> {
        loop {
            match self.watch.next().await {
                Ok(Watched::Event(event)) => return Some(self.told(event).await),
                Ok(Watched::Lost | Watched::Partly) => {}
                Ok(Watched::Gone) => std::future::pending().await,
                Err(_) => return None,
            }
        }
    }

    /// One event of ours as those that E2B would send: what appears with something in it was made and
    /// then written, and a rename is an event of the old name before the new one is created.
    async fn told(&mut self, event: FileEvent) -> Vec<Value> {
        let FileEvent { path, kind } = event;
        let asked = format!("/{path}");
        let found = self.files.act(move |directory| look(directory, &asked)).await.ok();
        let types: &[&str] = match kind {
            FileEventKind::Created => {
                self.note(&path);
                &["EVENT_TYPE_CREATE"]
            }
            FileEventKind::Appeared => {
                // The daemon makes a file, gives it to its user, and then writes it.
                let size = found.as_ref().and_then(|(stat, _)| match stat.kind {
                    FileKind::File => Some(stat.size),
                    FileKind::Directory | FileKind::Link | FileKind::Other => None,
                });
                match (self.note(&path), size) {
                    (true, Some(1..)) => {
                        &["EVENT_TYPE_CREATE", "EVENT_TYPE_CHMOD", "EVENT_TYPE_WRITE"]
                    }
                    (true, Some(0) | None) => &["EVENT_TYPE_CREATE"],
                    (false, _) => &["EVENT_TYPE_WRITE"],
                }
            }
            FileEventKind::Modified => &["EVENT_TYPE_WRITE"],
            FileEventKind::Removed => {
                self.known.remove(&path);
                &["EVENT_TYPE_REMOVE"]
            }
            FileEventKind::MovedAway => {
                self.known.remove(&path);
                &["EVENT_TYPE_RENAME"]
            }
            FileEventKind::Permitted => &["EVENT_TYPE_CHMOD"],
        };
        let name = match path.strip_prefix(&self.root).unwrap_or(&path).trim_start_matches('/') {
            "" => ".",
            name => name,
        };
        let entry = match found {
            Some((stat, leads_to)) if self.include_entry => {
                Some(entry(&self.files, &stat, leads_to))
            }
            _ => None,
        };
        let tell = |kind: &&str| {
            let mut event = json!({"name": name, "type": kind});
            if let Some(entry) = &entry {
                event["entry"] = entry.clone();
            }
            event
        };
        types.iter().map(tell).collect()
    }

    /// Remembers a name; whether it is new.
    fn note(&mut self, path: &str) -> bool {
        !self.known.contains(path)
            && (self.known.len() >= KNOWN || self.known.insert(path.to_owned()))
    }
}

/// Tells what happens in a directory as it happens.
pub(super) async fn watch_dir(
    State(app): State<Adapter>,
    guest: E2bGuest,
    headers: HeaderMap,
    messages: Messages,
) -> Response {
    let begun = async {
        let asked = messages.only().await?;
        WatchedDirectory::begin(&app, &guest, asked).await
    };
    let mut watching = match begun.await {
        Ok(watching) => watching,
        Err(failed) => return connect::refused(&failed),
    };
    let (answer, response) = connect::stream();
    let (timeout, keepalive) = (connect::timeout(&headers), connect::keepalive(&headers));
    app.tasks.clone().spawn(async move {
        let tell = async {
            if !answer.say(&json!({"start": {}})).await {
                return;
            }
            loop {
                // Kept while it waits: one that is dropped may have an event in its hands.
                let mut next = std::pin::pin!(watching.next());
                let events = loop {
                    match tokio::time::timeout(keepalive, &mut next).await {
                        Ok(events) => break events,
                        Err(_) if answer.say(&json!({"keepalive": {}})).await => {}
                        Err(_) => return,
                    }
                };
                match events {
                    Some(events) if say_all(&answer, &events).await => {}
                    Some(_) | None => return,
                }
            }
        };
        let deadline = async {
            match timeout {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            () = tell => Ok(()),
            () = answer.closed() => return,
            () = deadline => {
                Err(Failed::new(ConnectCode::DeadlineExceeded, "context deadline exceeded"))
            }
            () = app.stopping.cancelled() => {
                Err(Failed::new(ConnectCode::Unavailable, "the server is stopping"))
            }
        };
        answer.end(ended).await;
    });
    response
}

async fn say_all(answer: &ResponseStream, events: &[Value]) -> bool {
    for event in events {
        if !answer.say(&json!({"filesystem": event})).await {
            return false;
        }
    }
    true
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WatcherName {
    #[serde(alias = "watcher_id")]
    watcher_id: String,
}

fn missing(id: &str) -> Failed {
    Failed::new(ConnectCode::NotFound, format!("watcher with id {id} not found"))
}

/// Begins to watch a directory.
pub(super) async fn create(
    State(app): State<Adapter>,
    guest: E2bGuest,
    Unary(asked): Unary<WatchDir>,
) -> Result<axum::Json<Value>, Failed> {
    let id = guest.sandbox.id().clone();
    if app.watchers().count(&id) >= MAX_WATCHERS {
        let message = format!("a sandbox may have {MAX_WATCHERS} watchers; remove one first");
        return Err(Failed::new(ConnectCode::ResourceExhausted, message));
    }
    let mut watching = WatchedDirectory::begin(&app, &guest, asked).await?;
    let events = EventQueue::default();
    let (queue, stopping) = (events.clone(), app.stopping.clone());
    let task = app.tasks.spawn(async move {
        let pump = async {
            while let Some(events) = watching.next().await {
                queue.extend(events);
            }
        };
        tokio::select! {
            () = pump => {}
            () = stopping.cancelled() => {}
        }
    });
    let name = format!("w{}", uuid::Uuid::now_v7().simple());
    app.watchers().add(name.clone(), id, events, task.abort_handle());
    Ok(axum::Json(json!({"watcherId": name})))
}

/// What happened since it was last asked.
pub(super) async fn events(
    State(app): State<Adapter>,
    guest: E2bGuest,
    Unary(named): Unary<WatcherName>,
) -> Result<axum::Json<Value>, Failed> {
    let events = app.watchers().take_events(guest.sandbox.id(), &named.watcher_id);
    let events = events.ok_or_else(|| missing(&named.watcher_id))?;
    Ok(axum::Json(if events.is_empty() { json!({}) } else { json!({"events": events}) }))
}

pub(super) async fn remove(
    State(app): State<Adapter>,
    guest: E2bGuest,
    Unary(named): Unary<WatcherName>,
) -> Result<axum::Json<Value>, Failed> {
    match app.watchers().remove(guest.sandbox.id(), &named.watcher_id) {
        true => Ok(axum::Json(json!({}))),
        false => Err(missing(&named.watcher_id)),
    }
}
