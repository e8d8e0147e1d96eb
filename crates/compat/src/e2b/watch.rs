//! Watches directories: as a stream of events, or with a watcher that clients poll.

use std::collections::HashSet;

use axum::{extract::State, http::HeaderMap, response::Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    address::DaemonCall,
    connect::{self, ConnectCode, ConnectError, Messages, ResponseStream, Unary},
    filesystem::{daemon_stat, entry, failed},
};
use adapter::{
    Adapter, EventQueue,
    instance::{Files, absolute, relative},
};
use files::{Below, FileEvent, FileEventKind, FileKind, Watch, Watched};

/// The limit of remembered names; beyond it, a rewritten file counts as new.
const MAX_KNOWN_NAMES: usize = 100_000;
/// The limit of directory levels whose names are remembered from the start.
const MAX_DEPTH: u32 = 64;
/// The limit of watchers per sandbox.
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
    /// The path of the directory, relative to the root.
    root: String,
    /// Existing names: a file that appears under one of them is not new.
    known: HashSet<String>,
    include_entry: bool,
}

impl WatchedDirectory {
    async fn open(
        app: &Adapter,
        call: &DaemonCall,
        request: WatchDir,
    ) -> Result<WatchedDirectory, ConnectError> {
        let path = absolute(&request.path, call.home()?);
        let files = app.sandbox_files(&call.sandbox).await?;
        let root = relative(&path)?;
        let target = root.clone();
        let found = files.act(move |directory| directory.stat_followed(&target)).await;
        let found = found.map_err(|error| failed(error, &path, "path"))?;
        if found.kind != FileKind::Directory {
            let message = format!("path {path} is not a directory");
            return Err(ConnectError::new(ConnectCode::InvalidArgument, message));
        }
        let below = if request.recursive { Below::All } else { Below::Children };
        let watch = files.directory.watch_closely(&root, below)?;
        let target = root.clone();
        let depth = if request.recursive { MAX_DEPTH } else { 1 };
        let list =
            files.act(move |directory| directory.list(&target, depth, None, MAX_KNOWN_NAMES));
        let known = list.await?;
        Ok(WatchedDirectory {
            watch,
            files,
            root: root.to_string(),
            known: known.into_iter().map(|stat| stat.path).collect(),
            include_entry: request.include_entry,
        })
    }

    /// Returns the next events; `None` if the watch failed. A deleted directory has no more events, but the
    /// client stays connected.
    async fn next(&mut self) -> Option<Vec<Value>> {
        loop {
            match self.watch.next().await {
                Ok(Watched::Event(event)) => return Some(self.translate(event).await),
                Ok(Watched::Lost | Watched::Partly) => {}
                Ok(Watched::Gone) => std::future::pending().await,
                Err(_) => return None,
            }
        }
    }

    /// Translates an event to those of E2B: a file that appears with content was created and then written, and a
    /// rename is an event of the old name followed by the creation of the new name.
    async fn translate(&mut self, event: FileEvent) -> Vec<Value> {
        let FileEvent { path, kind } = event;
        let target = format!("/{path}");
        let found = self.files.act(move |directory| daemon_stat(directory, &target)).await.ok();
        let types: &[&str] = match kind {
            FileEventKind::Created => {
                self.remember(&path);
                &["EVENT_TYPE_CREATE"]
            }
            FileEventKind::Appeared => {
                // E2B's daemon creates a file, changes its owner, and then writes it.
                let size = found.as_ref().and_then(|(stat, _)| match stat.kind {
                    FileKind::File => Some(stat.size),
                    FileKind::Directory | FileKind::Link | FileKind::Other => None,
                });
                match (self.remember(&path), size) {
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
        let view = |kind: &&str| {
            let mut event = json!({"name": name, "type": kind});
            if let Some(entry) = &entry {
                event["entry"] = entry.clone();
            }
            event
        };
        types.iter().map(view).collect()
    }

    /// Remembers a name. Returns whether it is new.
    fn remember(&mut self, path: &str) -> bool {
        !self.known.contains(path)
            && (self.known.len() >= MAX_KNOWN_NAMES || self.known.insert(path.to_owned()))
    }
}

/// Streams the events of a directory.
pub(super) async fn watch_dir(
    State(app): State<Adapter>,
    call: DaemonCall,
    headers: HeaderMap,
    messages: Messages,
) -> Response {
    let opened = async {
        let request = messages.only().await?;
        WatchedDirectory::open(&app, &call, request).await
    };
    let mut watched = match opened.await {
        Ok(watched) => watched,
        Err(failed) => return connect::refused(&failed),
    };
    let (response_stream, response) = connect::stream();
    let (timeout, keepalive) = (connect::timeout(&headers), connect::keepalive(&headers));
    app.tasks.clone().spawn(async move {
        let stream = async {
            if !response_stream.send(&json!({"start": {}})).await {
                return;
            }
            loop {
                // The future is kept across keep-alives: dropping it may lose an event.
                let mut next = std::pin::pin!(watched.next());
                let events = loop {
                    match tokio::time::timeout(keepalive, &mut next).await {
                        Ok(events) => break events,
                        Err(_) if response_stream.send(&json!({"keepalive": {}})).await => {}
                        Err(_) => return,
                    }
                };
                match events {
                    Some(events) if send_all(&response_stream, &events).await => {}
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
            () = stream => Ok(()),
            () = response_stream.closed() => return,
            () = deadline => {
                Err(ConnectError::new(ConnectCode::DeadlineExceeded, "context deadline exceeded"))
            }
            () = app.stopping.cancelled() => {
                Err(ConnectError::new(ConnectCode::Unavailable, "the server is stopping"))
            }
        };
        response_stream.end(ended).await;
    });
    response
}

async fn send_all(response_stream: &ResponseStream, events: &[Value]) -> bool {
    for event in events {
        if !response_stream.send(&json!({"filesystem": event})).await {
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

fn missing(id: &str) -> ConnectError {
    ConnectError::new(ConnectCode::NotFound, format!("watcher with id {id} not found"))
}

/// Creates a watcher that the client polls.
pub(super) async fn create(
    State(app): State<Adapter>,
    call: DaemonCall,
    Unary(request): Unary<WatchDir>,
) -> Result<axum::Json<Value>, ConnectError> {
    let id = call.sandbox.id().clone();
    if app.watchers().count(&id) >= MAX_WATCHERS {
        let message = format!("a sandbox may have up to {MAX_WATCHERS} watchers; remove one first");
        return Err(ConnectError::new(ConnectCode::ResourceExhausted, message));
    }
    let mut watched = WatchedDirectory::open(&app, &call, request).await?;
    let events = EventQueue::default();
    let (queue, stopping) = (events.clone(), app.stopping.clone());
    let task = app.tasks.spawn(async move {
        let pump = async {
            while let Some(events) = watched.next().await {
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

/// Returns the events since the last poll.
pub(super) async fn events(
    State(app): State<Adapter>,
    call: DaemonCall,
    Unary(request): Unary<WatcherName>,
) -> Result<axum::Json<Value>, ConnectError> {
    let events = app.watchers().take_events(call.sandbox.id(), &request.watcher_id);
    let events = events.ok_or_else(|| missing(&request.watcher_id))?;
    Ok(axum::Json(if events.is_empty() { json!({}) } else { json!({"events": events}) }))
}

pub(super) async fn remove(
    State(app): State<Adapter>,
    call: DaemonCall,
    Unary(request): Unary<WatcherName>,
) -> Result<axum::Json<Value>, ConnectError> {
    match app.watchers().remove(call.sandbox.id(), &request.watcher_id) {
        true => Ok(axum::Json(json!({}))),
        false => Err(missing(&request.watcher_id)),
    }
}
