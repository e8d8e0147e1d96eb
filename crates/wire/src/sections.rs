//! The sections of a shell's state, as they are sent and kept.

use super::error::Malformed;
use super::field::{Field, Rest};

/// The named sections of a shell's state. Only the crate `shell` knows their contents.
pub type Sections = Vec<(String, Vec<u8>)>;

/// Encodes sections, to be stored.
pub fn encode_sections(sections: &Sections) -> Vec<u8> {
    let mut out = Vec::new();
    sections.put(&mut out);
    out
}

/// Decodes the result of [`encode_sections`].
pub fn decode_sections(bytes: &[u8]) -> Result<Sections, Malformed> {
    Sections::take(&mut Rest(bytes))
}
