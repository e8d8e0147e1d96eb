//! The API of Daytona below `/daytona`: its control plane, and the toolbox that it has in every sandbox.
//!
//! What is served is what the official clients call; `docs/migrate-daytona.md` lists it. A session of the
//! toolbox is a terminal with a live shell, a PTY a terminal with a program of its own.

mod control;
mod copy;
mod door;
mod events;
mod fault;
mod files;
mod git;
mod guest;
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
mod vendor;
mod view;
mod volume;

pub use door::DaytonaDoor;
pub use routes::routes;
pub use vendor::DaytonaApi;

use guest::DaytonaGuest;
use names::{ORGANIZATION, ORIGIN, TOOLBOX};
use refusal::{DaytonaJson, DaytonaRefusal};
