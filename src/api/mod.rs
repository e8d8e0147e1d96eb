//! HTTP, SSE and WebSocket: the only way in.
//!
//! `guard` stands before every route; `error` holds every status code; each noun has a file of
//! routes. Handlers parse, call inward, and answer: what they do is decided further in. Nothing
//! here starts or owns a shell.

pub mod auth;
mod docs;
pub mod error;
pub mod extract;
pub mod guard;
mod health;
pub mod idempotency;
mod login;
pub mod openapi;
pub mod page;
pub mod sse;
mod web;

use std::{ops::Deref, sync::Arc};

use axum::{
    Router,
    extract::Request,
    http::{Method, Uri},
    middleware,
    response::{IntoResponse, Response},
};
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use utoipa_axum::router::OpenApiRouter;

use crate::{config::Settings, metrics::Metrics, store::Store};

use error::{Code, Problem};

/// What every handler can reach. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Parts>);

/// The inside of [`App`].
pub struct Parts {
    /// The settings the server was started with.
    pub settings: Settings,
    /// The durable rows.
    pub store: Store,
    /// What is counted.
    pub metrics: Metrics,
    /// Who may come in.
    pub auth: auth::Auth,
    /// Cancelled when the server stops: streams say so and end.
    pub stopping: CancellationToken,
    /// Tasks that outlive their request (upgraded sockets); stopping waits for them.
    pub tasks: TaskTracker,
    /// Name of the browser's cookie. Cookies ignore the port, so it is in the name.
    pub cookie: String,
    /// Address clients reach the server at, as `http://HOST:PORT`.
    pub url: String,
    /// Room for requests being answered.
    room: Semaphore,
    answers: idempotency::Answers,
}

impl Deref for App {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl App {
    /// Puts the parts together. `address` is the one really listened on.
    pub fn new(
        settings: Settings,
        address: std::net::SocketAddr,
        store: Store,
        auth: auth::Auth,
        metrics: Metrics,
        stopping: CancellationToken,
    ) -> App {
        App(Arc::new(Parts {
            room: Semaphore::new(settings.limits.requests),
            answers: idempotency::Answers::default(),
            cookie: format!("stead_{}", address.port()),
            url: format!("http://{address}"),
            settings,
            store,
            metrics,
            auth,
            stopping,
            tasks: TaskTracker::new(),
        }))
    }

    /// A link that signs one browser in, once.
    pub fn sign_in_link(&self) -> Result<String, getrandom::Error> {
        let code = self.auth.code(std::time::Instant::now())?;
        Ok(format!("{}/login?code={code}", self.url))
    }
}

/// Every route with its documentation, the guard before all of them.
pub fn router(app: App) -> Router {
    let (router, document) = OpenApiRouter::with_openapi(openapi::base())
        .merge(health::routes())
        .merge(login::routes())
        .merge(docs::routes())
        .split_for_parts();
    let document = openapi::finish(document);
    router
        .route("/openapi.json", axum::routing::get(openapi::serve).with_state(document))
        .fallback(web::serve)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(app.clone(), guard::guard))
        .with_state(app)
}

async fn wrong_method(method: Method) -> Problem {
    Problem::new(Code::MethodNotAllowed, format!("{method} is not known here"))
}

/// What is asked of a path that no route has.
pub(crate) fn no_route(request: &Request) -> Response {
    missing_route(request.uri()).into_response()
}

fn missing_route(uri: &Uri) -> Problem {
    Problem::new(Code::NoSuchRoute, format!("nothing is at {:?}", uri.path()))
}
