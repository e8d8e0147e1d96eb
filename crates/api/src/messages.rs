//! The conversation of a thread, beside its commands.

use axum::{extract::State, http::StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App,
    error::Problem,
    extract::{Json, Path, Query},
    page::{List, PageQuery},
    params::ThreadPath,
};
use base::event::EventKind;
use model::{Message, MessageId, Role, ThreadId};
use store::ThreadChoices;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list, add))
}

/// Longest content of a message.
const MAX_CONTENT_BYTES: usize = 1 << 20;

/// A message of a thread.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct MessageView {
    /// Id of the message.
    message_id: String,
    /// `system`, `user`, `assistant` or `tool`.
    #[schema(value_type = String)]
    role: Role,
    /// Text of the message.
    content: String,
    /// Time of the message.
    #[schema(value_type = String)]
    at: Timestamp,
}

impl From<Message> for MessageView {
    fn from(message: Message) -> MessageView {
        let Message { message_id, role, content, at } = message;
        MessageView { message_id: message_id.to_string(), role, content, at }
    }
}

/// List the messages of a thread, oldest first.
#[utoipa::path(get, path = "/api/threads/{tid}/messages", tag = "threads",
    operation_id = "messages.list", params(ThreadPath, PageQuery),
    responses((status = 200, description = "A page of messages", body = List<MessageView>)))]
async fn list(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Query(query): Query<PageQuery>,
) -> Result<axum::Json<List<MessageView>>, Problem> {
    if app.store.thread(&id).await?.is_none() {
        return Err(Problem::missing("thread", &id));
    }
    let request = query.request()?;
    let page = app.store.messages(&id, request).await?;
    Ok(axum::Json(page.map(MessageView::from).into()))
}

/// A message to add.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"role": "user", "content": "Run the tests."}))]
struct NewMessage {
    /// `system`, `user`, `assistant` or `tool`.
    #[schema(value_type = String)]
    role: Role,
    /// Text of the message.
    content: String,
}

/// Add a message to a thread.
///
/// Creates the thread if it does not exist.
#[utoipa::path(post, path = "/api/threads/{tid}/messages", tag = "threads",
    operation_id = "messages.create", params(ThreadPath), request_body = NewMessage,
    responses((status = 201, description = "The message", body = MessageView)))]
async fn add(
    State(app): State<App>,
    Path(id): Path<ThreadId>,
    Json(new): Json<NewMessage>,
) -> Result<(StatusCode, axum::Json<MessageView>), Problem> {
    if new.content.len() > MAX_CONTENT_BYTES {
        return Err(Problem::body(
            "/content",
            format!("must have at most {MAX_CONTENT_BYTES} bytes"),
        ));
    }
    app.store.put_thread(app.first_use(&id, ThreadChoices::default())).await?;
    let message = Message {
        message_id: MessageId::fresh(),
        role: new.role,
        content: new.content,
        at: app.now().at,
    };
    app.store.add_message(&id, message.clone()).await?;
    let message_id = message.message_id.clone();
    app.events.publish(EventKind::MessageAdded { thread_id: id, message_id });
    Ok((StatusCode::CREATED, axum::Json(message.into())))
}
