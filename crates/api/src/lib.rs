//! HTTP, SSE and WebSocket: the only way in.
//!
//! `guard` stands before every route; `error` holds every status code; each noun has a file of
//! routes. Handlers parse, call inward, and answer: what they do is decided further in. Nothing
//! here starts or owns a shell.

mod app;
pub mod auth;
pub mod budget;
mod commands;
mod detach;
mod docs;
pub mod door;
mod drain;
pub mod error;
mod events;
mod exec;
pub mod extract;
mod files;
pub mod guard;
mod gzip;
mod header_rules;
mod health;
pub mod idempotency;
mod interactive;
mod leases;
mod login;
mod memories;
pub mod openapi;
pub mod page;
mod params;
pub mod pass;
mod projects;
mod query;
mod removal;
mod sessions;
mod shares;
mod signal;
pub mod slow_body;
pub mod sse;
mod stream;
mod target;
mod terminals;
mod threads;
pub mod transfer;
mod ws;

use std::{ops::Deref, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::Request,
    http::{Method, Uri},
    middleware,
    response::{IntoResponse, Response},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use utoipa_axum::router::OpenApiRouter;

use base::{clock::Clock, event::Events, metrics::Metrics};
use config::Settings;
use engine::{lease::Leases, project::Projects, session::Sessions, terminal::Terminals};
use store::Store;

pub use door::{Door, Doors};
pub use guard::Entrance;
pub use terminals::check_env;

use error::{Code, Problem};

/// How long a client may take to read that the server stops.
const GRACE: Duration = Duration::from_secs(1);

/// What every handler can reach. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Parts>);

/// The inside of [`App`].
pub struct Parts {
    /// The settings the server was started with.
    pub settings: Settings,
    /// The durable rows.
    pub store: Store,
    /// What runs behind the API.
    engine: Engine,
    /// What is counted.
    pub metrics: Metrics,
    /// Who may come in.
    pub auth: auth::Auth,
    /// Who may look at one terminal.
    pub shares: pass::Shares,
    /// Cancelled when the server stops: streams say so and end.
    pub stopping: CancellationToken,
    /// Tasks that outlive their request (upgraded sockets); stopping waits for them.
    pub tasks: TaskTracker,
    /// Name of the browser's cookie. Cookies ignore the port, so it is in the name.
    pub cookie: String,
    /// URL that clients reach the server at, without a path.
    pub url: String,
    /// What each class of caller may use at once.
    pub budgets: budget::Budgets,
    /// Requests that run on without their clients.
    detached: detach::Detached,
    /// What was deleted and is not gone yet.
    removals: removal::Removals,
    answers: idempotency::Answers,
}

/// What runs behind the API. Its fields are those of [`App`], too.
pub struct Engine {
    /// What is beneath terminals.
    pub leases: Leases,
    /// Windows of policy.
    pub sessions: Sessions,
    /// Terminals that are alive.
    pub terminals: Terminals,
    /// Bodies of work: their files and memories.
    pub projects: Projects,
    /// What happens.
    pub events: Events,
    /// The time.
    pub clock: Clock,
    /// The provider of a thread that names none.
    pub provider: String,
}

impl Deref for Parts {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
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
        engine: Engine,
        (auth, shares): (auth::Auth, pass::Shares),
        metrics: Metrics,
        stopping: CancellationToken,
    ) -> App {
        App(Arc::new(Parts {
            budgets: budget::Budgets::new(
                settings.limits.connections,
                settings.limits.requests,
                &metrics.evicted,
            ),
            detached: detach::Detached::new(settings.limits.requests),
            removals: removal::Removals::default(),
            answers: idempotency::Answers::default(),
            cookie: format!("stead_{}", address.port()),
            url: settings.public_url(address),
            settings,
            store,
            engine,
            metrics,
            auth,
            shares,
            stopping,
            tasks: TaskTracker::new(),
        }))
    }

    /// Name of the cookie of a browser that came by a share link.
    pub fn share_cookie(&self) -> String {
        format!("{}_share", self.cookie)
    }

    /// A link that signs one browser in, once.
    pub fn sign_in_link(&self) -> Result<String, getrandom::Error> {
        let code = self.auth.code(std::time::Instant::now())?;
        Ok(format!("{}/login?code={code}", self.url))
    }
}

/// The files of the web app, which the binary embeds.
#[derive(Clone, Copy)]
pub struct Assets {
    /// Whether a file is at a path.
    pub has: fn(&str) -> bool,
    /// Answers a request for one; `None` if no file is there.
    pub serve: fn(&Request) -> Option<Response>,
}

/// Every native route with its documentation, those of other APIs, and the guard before all of them.
pub fn router(entrance: Entrance, others: Router) -> Router {
    let Entrance { app, assets, .. } = entrance.clone();
    let (router, document) = OpenApiRouter::with_openapi(openapi::base())
        .merge(health::routes())
        .merge(login::routes())
        .merge(docs::routes())
        .merge(threads::routes())
        .merge(sessions::routes())
        .merge(terminals::routes())
        .merge(interactive::routes())
        .merge(shares::routes())
        .merge(exec::routes())
        .merge(commands::routes())
        .merge(leases::routes())
        .merge(events::routes())
        .merge(projects::routes())
        .merge(memories::routes())
        .merge(files::routes())
        .split_for_parts();
    let document = openapi::text(&openapi::finish(document));
    router
        .merge(interactive::older_routes())
        .route("/openapi.json", axum::routing::get(openapi::serve).with_state(document))
        .fallback(move |request: Request| async move {
            (assets.serve)(&request).unwrap_or_else(|| no_route(&request))
        })
        .method_not_allowed_fallback(wrong_method)
        .with_state(app)
        .merge(others)
        // Inside the guard, which passes on what programs behind a port answer as it is.
        .layer(middleware::from_fn(gzip::events))
        .layer(middleware::from_fn_with_state(entrance, guard::guard))
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
