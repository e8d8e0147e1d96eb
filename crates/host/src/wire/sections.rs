//! The sections of a shell's state, as they are sent and kept.

use super::error::Malformed;
use super::field::{Field, Rest};

/// Named bytes that make up a shell's state; only `host::shell` knows what is in them.
pub type Sections = Vec<(String, Vec<u8>)>;

/// Sections as bytes, for what is kept rather than sent.
pub(crate) fn encode_sections(sections: &Sections) -> Vec<u8> {
    let mut out = Vec::new();
    sections.put(&mut out);
    out
}

/// What [`encode_sections`] made.
pub(crate) fn decode_sections(bytes: &[u8]) -> Result<Sections, Malformed> {
    Sections::take(&mut Rest(bytes))
}
