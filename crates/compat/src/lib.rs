//! The APIs of other vendors' sandboxes on our port, so that programs written for them run unchanged.
//!
//! Each API implements [`Door`](api::Door) for the guard, beside the native API, and [`VendorApi`] for the shared
//! code in the crate `adapter`.

mod daytona;
mod e2b;

use std::sync::Arc;

use adapter::{Adapter, vendor::VendorApi};
use api::Doors;
use axum::Router;

/// The APIs that a sandbox may have been created through, besides the native one.
static VENDORS: [&dyn VendorApi; 2] = [&e2b::E2bApi, &daytona::DaytonaApi];

/// The APIs as the guard sees them.
pub fn doors(app: &Adapter) -> Doors {
    Doors::new(vec![
        Arc::new(e2b::E2bDoor { app: app.clone(), vendors: &VENDORS }),
        Arc::new(daytona::DaytonaDoor(app.clone())),
    ])
}

/// The routes of all APIs.
pub fn routes(app: &Adapter) -> Router {
    e2b::routes().merge(daytona::routes()).with_state(app.clone())
}
