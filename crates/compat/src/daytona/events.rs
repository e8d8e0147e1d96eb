//! Events of sandboxes: the part of Socket.IO over a WebSocket that clients use.
//!
//! ```text
//!   server  0{…}                              the connection is open, with its ping interval
//!   client  40{"token":…}                     authenticates; nothing is sent before
//!   server  40{…} | 44{…}                     accepted or refused
//!   server  42["sandbox.state.updated",{…}]   an event
//!   server  2                                 ping
//!   client  3                                 pong
//! ```

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum::{
    extract::{
        Extension, State,
        ws::{Message, WebSocket, WebSocketUpgrade},
    },
    response::Response,
};
use serde_json::{Value, json};
use tokio::{
    sync::Semaphore,
    time::{MissedTickBehavior, interval, timeout},
};

use super::{ORIGIN, view};
use adapter::Adapter;
use api::budget::ClientConnection;
use base::event::{Delivery, EventKind};
use model::{LeaseId, ThreadId};

/// The limit of authenticated clients. Others count as unauthenticated connections, which have their own limit.
const MAX_LISTENERS: usize = 1_000;
static LISTENERS: Semaphore = Semaphore::const_new(MAX_LISTENERS);
/// How long a client may take to send its token.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(10);
const PING_INTERVAL: Duration = Duration::from_secs(25);
/// The limit of a client's message.
const MAX_MESSAGE_BYTES: usize = 64 << 10;

pub(super) async fn connect(
    State(app): State<Adapter>,
    Extension(connection): Extension<Arc<ClientConnection>>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let tasks = app.tasks.clone();
    let upgrade = upgrade.max_message_size(MAX_MESSAGE_BYTES).max_frame_size(MAX_MESSAGE_BYTES);
    upgrade.on_upgrade(move |socket| {
        tasks.track_future(async move {
            tokio::select! {
                // A failed connection is not reported.
                _ = serve(&app, &connection, socket) => {}
                () = app.stopping.cancelled() => {}
            }
        })
    })
}

async fn send(socket: &mut WebSocket, text: String) -> Result<(), axum::Error> {
    socket.send(Message::Text(text.into())).await
}

async fn refuse(mut socket: WebSocket, message: &str) -> Result<(), axum::Error> {
    send(&mut socket, format!("44{}", json!({"message": message}))).await?;
    socket.send(Message::Close(None)).await
}

async fn serve(
    app: &Adapter,
    connection: &ClientConnection,
    mut socket: WebSocket,
) -> Result<(), axum::Error> {
    let id = uuid::Uuid::now_v7().simple().to_string();
    let open = json!({
        "sid": id,
        "upgrades": [],
        "pingInterval": PING_INTERVAL.as_millis() as u64,
        "pingTimeout": PING_INTERVAL.as_millis() as u64,
        "maxPayload": MAX_MESSAGE_BYTES,
    });
    send(&mut socket, format!("0{open}")).await?;
    let given = timeout(TOKEN_TIMEOUT, receive_token(&mut socket)).await.ok().flatten();
    let is_authenticated = app.auth.is_open() || given.is_some_and(|given| app.auth.token(&given));
    if !is_authenticated {
        app.auth.failed(std::time::Instant::now());
        return refuse(socket, "invalid token").await;
    }
    connection.becomes_owner();
    let Ok(_permit) = LISTENERS.try_acquire() else {
        let message =
            format!("{MAX_LISTENERS} clients are already connected; poll the state instead");
        return refuse(socket, &message).await;
    };
    let mut events = app.events.subscribe(None);
    send(&mut socket, format!("40{}", json!({"sid": id}))).await?;
    let mut pings = interval(PING_INTERVAL);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings.tick().await;
    let mut is_alive = true;
    let mut sent_states = HashMap::new();
    loop {
        tokio::select! {
            _ = pings.tick() => {
                if !std::mem::take(&mut is_alive) {
                    return Ok(());
                }
                send(&mut socket, "2".to_owned()).await?;
            }
            message = socket.recv() => match message {
                Some(Ok(Message::Text(text))) if text.starts_with("41") || text.starts_with('1') => return Ok(()),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Ok(()),
                Some(Ok(_)) => is_alive = true,
            },
            delivery = events.next() => match delivery {
                None => return Ok(()),
                Some(delivery) => for update in updates(app, delivery, &mut sent_states).await {
                    send(&mut socket, format!("42{update}")).await?;
                },
            },
        }
    }
}

/// Waits for the token of a client.
async fn receive_token(socket: &mut WebSocket) -> Option<String> {
    loop {
        let Message::Text(text) = socket.recv().await?.ok()? else { continue };
        if let Some(token) = token(&text) {
            return token;
        }
    }
}

/// The token in a client's connect message; `None` for any other message.
fn token(text: &str) -> Option<Option<String>> {
    let body = text.strip_prefix("40")?;
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    Some(body["token"].as_str().map(str::to_owned))
}

/// The messages about an event. `sent_states` holds the last state of each sandbox that the client received.
async fn updates(
    app: &Adapter,
    delivery: Delivery,
    sent_states: &mut HashMap<ThreadId, &'static str>,
) -> Vec<Value> {
    let Delivery::Event(event) = delivery else { return vec![] };
    match &event.kind {
        EventKind::ThreadDeleted { thread_id } => {
            sent_states.remove(thread_id);
            vec![update(json!({"id": thread_id, "state": "destroyed"}), "destroyed")]
        }
        EventKind::InstanceCreated { lease_id, .. }
        | EventKind::InstanceLost { lease_id, .. }
        | EventKind::InstancePaused { lease_id, .. }
        | EventKind::InstanceResumed { lease_id, .. }
        | EventKind::InstanceEnded { lease_id, .. } => {
            lease_updates(app, lease_id, sent_states).await
        }
        _ => vec![],
    }
}

async fn lease_updates(
    app: &Adapter,
    lease: &LeaseId,
    sent_states: &mut HashMap<ThreadId, &'static str>,
) -> Vec<Value> {
    let mut all = Vec::new();
    for id in app.store.lease_threads(lease).await.unwrap_or_default() {
        let Ok(Some(sandbox)) = app.sandboxes.get(&id).await else { continue };
        if sandbox.row.origin != ORIGIN {
            continue;
        }
        let state = view::state(&sandbox);
        if sent_states.insert(id, state) != Some(state) {
            all.push(update(view::sandbox(app, &sandbox), state));
        }
    }
    all
}

fn update(sandbox: Value, state: &str) -> Value {
    json!(["sandbox.state.updated", {"sandbox": sandbox, "newState": state}])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connect_message_carries_a_token() {
        assert_eq!(token(r#"40{"token":"secret"}"#), Some(Some("secret".to_owned())));
        assert_eq!(token("40"), Some(None));
        assert_eq!(token("40{"), Some(None));
        assert_eq!(token("3"), None);
        assert_eq!(token(r#"42["x"]"#), None);
    }
}
