//! Events of sandboxes: Socket.IO over a WebSocket, as far as clients use it.
//!
//! ```text
//!   us  0{…}                              the connection is open, with its ping interval
//!   they 40{"token":…}                     their token: nothing is sent before it
//!   us  40{…} | 44{…}                      welcome, or not
//!   us  42["sandbox.state.updated",{…}]    again and again
//!   us  2        they 3                    are you there? yes
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

/// Clients with the token at the same time. Those without are bounded as all unauthenticated connections.
const MAX_LISTENERS: usize = 1_000;
static LISTENERS: Semaphore = Semaphore::const_new(MAX_LISTENERS);
/// How long a client may take to say who it is.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is asked whether it is there.
const PING_INTERVAL: Duration = Duration::from_secs(25);
/// Bytes of what a client says.
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
                // The failure of a connection needs no report.
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
    let given = timeout(TOKEN_TIMEOUT, introduced(&mut socket)).await.ok().flatten();
    let admitted = app.auth.is_open() || given.is_some_and(|given| app.auth.token(&given));
    if !admitted {
        app.auth.failed(std::time::Instant::now());
        return refuse(socket, "no valid token was given").await;
    }
    connection.becomes_owner();
    let Ok(_room) = LISTENERS.try_acquire() else {
        let message = format!("{MAX_LISTENERS} clients listen already; ask for the state instead");
        return refuse(socket, &message).await;
    };
    let mut events = app.events.subscribe(None);
    send(&mut socket, format!("40{}", json!({"sid": id}))).await?;
    let mut pings = interval(PING_INTERVAL);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings.tick().await;
    let mut there = true;
    let mut told = HashMap::new();
    loop {
        tokio::select! {
            _ = pings.tick() => {
                if !std::mem::take(&mut there) {
                    return Ok(());
                }
                send(&mut socket, "2".to_owned()).await?;
            }
            said = socket.recv() => match said {
                Some(Ok(Message::Text(text))) if text.starts_with("41") || text.starts_with('1') => return Ok(()),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Ok(()),
                Some(Ok(_)) => there = true,
            },
            heard = events.next() => match heard {
                None => return Ok(()),
                Some(heard) => for news in news(app, heard, &mut told).await {
                    send(&mut socket, format!("42{news}")).await?;
                },
            },
        }
    }
}

/// The token that a client introduces itself with.
async fn introduced(socket: &mut WebSocket) -> Option<String> {
    loop {
        let Message::Text(text) = socket.recv().await?.ok()? else { continue };
        if let Some(token) = token(&text) {
            return token;
        }
    }
}

/// The token in the message that a client connects with; `None` if that is another message.
fn token(text: &str) -> Option<Option<String>> {
    let said = text.strip_prefix("40")?;
    let said: Value = serde_json::from_str(said).unwrap_or_default();
    Some(said["token"].as_str().map(str::to_owned))
}

/// The messages about an event.
async fn news(
    app: &Adapter,
    heard: Delivery,
    told: &mut HashMap<ThreadId, &'static str>,
) -> Vec<Value> {
    let Delivery::Event(event) = heard else { return vec![] };
    match &event.kind {
        EventKind::ThreadDeleted { thread_id } => {
            told.remove(thread_id);
            vec![changed(json!({"id": thread_id, "state": "destroyed"}), "destroyed")]
        }
        EventKind::InstanceCreated { lease_id, .. }
        | EventKind::InstanceLost { lease_id, .. }
        | EventKind::InstancePaused { lease_id, .. }
        | EventKind::InstanceResumed { lease_id, .. }
        | EventKind::InstanceEnded { lease_id, .. } => of_lease(app, lease_id, told).await,
        _ => vec![],
    }
}

async fn of_lease(
    app: &Adapter,
    lease: &LeaseId,
    told: &mut HashMap<ThreadId, &'static str>,
) -> Vec<Value> {
    let mut all = Vec::new();
    for id in app.store.lease_threads(lease).await.unwrap_or_default() {
        let Ok(Some(sandbox)) = app.sandboxes.get(&id).await else { continue };
        if sandbox.row.origin != ORIGIN {
            continue;
        }
        let state = view::state(&sandbox);
        if told.insert(id, state) != Some(state) {
            all.push(changed(view::sandbox(app, &sandbox), state));
        }
    }
    all
}

fn changed(sandbox: Value, state: &str) -> Value {
    json!(["sandbox.state.updated", {"sandbox": sandbox, "newState": state}])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_introduces_itself_with_its_token() {
        assert_eq!(token(r#"40{"token":"secret"}"#), Some(Some("secret".to_owned())));
        assert_eq!(token("40"), Some(None));
        assert_eq!(token("40{"), Some(None));
        assert_eq!(token("3"), None);
        assert_eq!(token(r#"42["x"]"#), None);
    }
}
