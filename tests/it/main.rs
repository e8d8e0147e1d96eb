//! The front door, driven with the real binary.
