//! The API of Daytona below `/daytona`: its control plane, and the toolbox of every sandbox.
//!
//! It has the routes that the official clients call; `docs/migrate-daytona.md` lists them. A session of the
//! toolbox is a terminal with a live shell; a PTY is a terminal with a program of its own.

mod build_log;
mod control;
mod copy;
mod door;
mod events;
mod files;
mod git;
mod image;
mod interpreter;
mod link;
mod list;
mod names;
mod network;
mod process;
mod pty;
mod refusal;
mod routes;
mod session;
mod settings;
mod size;
mod toolbox_sandbox;
mod vendor;
mod view;
mod volume;
mod waiting_sandbox;

pub use door::DaytonaDoor;
pub use routes::routes;
pub use vendor::DaytonaApi;

use names::{ORGANIZATION, ORIGIN, TOOLBOX};
use refusal::{DaytonaJson, DaytonaRefusal};
use toolbox_sandbox::ToolboxSandbox;
