//! The front door: who gets in, what is refused and how.

mod compat;
mod hostile;
mod input;
mod keys;
mod lifecycle;
mod sandboxes;
mod settings;
mod shares;
mod stack;
