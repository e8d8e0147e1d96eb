//! The sessions of clients that begin with `initialize` (2025-11-25 and before), bounded in number.
//!
//! A session holds nothing but the capabilities of its client. The oldest one is closed when there are too many,
//! and all are gone after a restart: the client gets a 404 and initializes again, as the protocol prescribes.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures_util::Stream;
use parking_lot::Mutex;
use rmcp::{
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::{
        common::server_side_http::ServerSseMessage,
        streamable_http_server::session::{
            SessionId, SessionManager,
            local::{LocalSessionManager, LocalSessionManagerError},
        },
    },
};

const MAX_SESSIONS: usize = 256;
/// Time without a message after which a session is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);

/// The sessions in the order of their creation.
pub(crate) struct BoundedSessions {
    sessions: LocalSessionManager,
    order: Mutex<VecDeque<SessionId>>,
}

impl BoundedSessions {
    pub(crate) fn shared() -> Arc<BoundedSessions> {
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(IDLE_TIMEOUT);
        Arc::new(BoundedSessions { sessions, order: Mutex::default() })
    }

    /// Records a session; returns the oldest one if there are too many.
    fn record(&self, id: &SessionId) -> Option<SessionId> {
        let mut order = self.order.lock();
        order.push_back(id.clone());
        if order.len() > MAX_SESSIONS { order.pop_front() } else { None }
    }

    fn forget(&self, id: &SessionId) {
        self.order.lock().retain(|other| other != id);
    }
}

impl SessionManager for BoundedSessions {
    type Error = LocalSessionManagerError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let (id, transport) = self.sessions.create_session().await?;
        if let Some(oldest) = self.record(&id) {
            self.sessions.close_session(&oldest).await?;
        }
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.sessions.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        self.sessions.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.forget(id);
        self.sessions.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.sessions.create_stream(id, message).await
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Self::Error> {
        self.sessions.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.sessions.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.sessions.resume(id, last_event_id).await
    }
}
