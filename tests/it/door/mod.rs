//! The front door: who gets in, what is refused and how.

mod budgets;
mod compat;
mod hostile;
mod input;
mod keys;
mod lifecycle;
mod lists;
mod sandboxes;
mod settings;
mod shares;
mod stack;
mod tls;
mod tokens;
