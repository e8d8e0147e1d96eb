//! Watches the screen of a terminal for subscribed clients.

use std::time::Duration;

use http::Method;

use crate::{
    events::NativeEvents,
    native::{NativeApi, escape},
    resources::ResourceName,
};

/// Shortest time between two notifications about one screen.
const NOTIFY_INTERVAL: Duration = Duration::from_millis(500);

/// Reports each change of the screen that a URI names, until the terminal ends or `updated` returns `false`. Begins with
/// a report, because the screen may have changed between the client's request and the first event.
pub(crate) async fn watch<F>(native: NativeApi, uri: String, updated: impl Fn(String) -> F + Send)
where
    F: Future<Output = bool> + Send,
{
    let Some(ResourceName::Screen { terminal_id }) = ResourceName::parse(&uri) else { return };
    let target = format!("/api/terminals/{}/stream?mode=viewer", escape(&terminal_id));
    let response = match native.stream(Method::GET, &target, None).await {
        Ok(response) => response,
        Err(problem) => {
            tracing::debug!(%problem, uri, "cannot watch a screen");
            return;
        }
    };
    let mut events = NativeEvents::new(response.into_body());
    while let Some(event) = events.next().await {
        match event.name.as_str() {
            "snapshot" | "data" | "resize" | "exit" => {
                if !updated(uri.clone()).await {
                    return;
                }
                // The stream buffers what comes meanwhile; a slow reader gets a picture instead of the bytes.
                tokio::time::sleep(NOTIFY_INTERVAL).await;
            }
            _ => {}
        }
    }
}
