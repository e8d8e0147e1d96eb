//! A screen: bytes in, picture out. Pure: no I/O, no clock, no async.
