//! Terminals over HTTP: streams, survival, exec, limits.

mod characters;
mod counted;
mod current;
mod cut;
mod ends;
mod exec;
mod killed;
mod leaving;
mod limits;
mod questions;
mod search;
mod stream;
mod survive;
