//! Programs written for other vendors' sandboxes, unchanged: their APIs on our port.
//!
//! Each API is a [`Door`](api::Door) beside the native one, and a [`VendorApi`] to the code that they
//! share, which is the crate `adapter`.

mod daytona;
mod e2b;

use std::sync::Arc;

use adapter::{Adapter, vendor::VendorApi};
use api::Doors;
use axum::Router;

/// The APIs that a sandbox may have been created through, besides the native one.
static VENDORS: [&dyn VendorApi; 2] = [&e2b::E2bApi, &daytona::DaytonaApi];

/// What the guard asks of each API.
pub fn doors(app: &Adapter) -> Doors {
    Doors::new(vec![
        Arc::new(e2b::E2bDoor { app: app.clone(), vendors: &VENDORS }),
        Arc::new(daytona::DaytonaDoor(app.clone())),
    ])
}

/// The routes of all of them.
pub fn routes(app: &Adapter) -> Router {
    e2b::routes().merge(daytona::routes()).with_state(app.clone())
}
