//! Authentication, authorization and refusals of the HTTP API.

mod assets;
mod budgets;
mod compat;
mod hostile;
mod input;
mod keys;
mod lifecycle;
mod lists;
mod native_sandboxes;
mod preview;
mod sandboxes;
mod secrets;
mod settings;
mod shares;
mod stack;
mod telemetry;
mod tls;
mod tokens;
