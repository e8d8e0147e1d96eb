//! Fuzzes the check of the same name.
#![no_main]

#[path = "../checks/wire.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
