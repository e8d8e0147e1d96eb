//! The host names of preview links: one signed DNS label per link.
//!
//! ```text
//!   p-  lease 16 | port 2 | expiry 4 | thread 6 | signature 10      (bytes, in base32)
//! ```
//! The signature covers everything before it, so that a label is checked without the store. The thread is a
//! short keyed hash of its id, because ids of threads are too long for a label.

use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;

use super::key::{Keys, Purpose, same};
use model::{LeaseId, ThreadId};

/// The prefix of every label.
const PREFIX: &str = "p-";
/// The digits of base32 (RFC 4648), in lower case because host names ignore case.
const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const THREAD_BYTES: usize = 6;
const SIGNATURE_BYTES: usize = 10;
/// The number of bytes before the signature.
const SIGNED_BYTES: usize = 16 + 2 + 4 + THREAD_BYTES;

/// The port that a valid label opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreviewTarget {
    pub lease: LeaseId,
    pub port: u16,
    /// The expiry in seconds since 1970.
    pub until: u32,
    thread: [u8; THREAD_BYTES],
}

impl PreviewTarget {
    /// The time from `now` to the expiry.
    pub fn left(&self, now: Timestamp) -> Duration {
        let until = Timestamp::from_second(self.until.into()).unwrap_or(Timestamp::MAX);
        until.duration_since(now).try_into().unwrap_or_default()
    }
}

/// Why a label opens nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    #[error("this preview link is not valid")]
    Invalid,
    #[error("this preview link has expired")]
    Expired,
}

/// Whether a DNS label is that of a preview link, valid or not.
pub fn is_preview(label: &str) -> bool {
    label.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
}

impl Keys {
    /// Returns the DNS label that opens a port of a thread until a time, in seconds since 1970.
    pub fn preview(&self, thread: &ThreadId, lease: &LeaseId, port: u16, until: u32) -> String {
        let thread = self.preview_thread(thread);
        self.label(&PreviewTarget { lease: lease.clone(), port, until, thread })
    }

    /// Returns the port that a label opens at this time.
    pub fn opens_preview(&self, label: &str, now: i64) -> Result<PreviewTarget, LabelError> {
        let label = label.to_ascii_lowercase();
        let target = label.strip_prefix(PREFIX).and_then(decode).and_then(|it| parse(&it));
        let target = target.ok_or(LabelError::Invalid)?;
        if !same(&self.label(&target), &label) {
            return Err(LabelError::Invalid);
        }
        match now < i64::from(target.until) {
            true => Ok(target),
            false => Err(LabelError::Expired),
        }
    }

    /// Whether a label was made for this thread.
    pub fn is_preview_of(&self, target: &PreviewTarget, thread: &ThreadId) -> bool {
        self.preview_thread(thread) == target.thread
    }

    fn preview_thread(&self, thread: &ThreadId) -> [u8; THREAD_BYTES] {
        first(&self.digest(Purpose::PreviewThread, thread.as_str()))
    }

    fn label(&self, target: &PreviewTarget) -> String {
        let lease = target.lease.as_str().strip_prefix(LeaseId::PREFIX).unwrap_or_default();
        let lease = Uuid::try_parse(lease).expect("the id of a lease ends in a UUID");
        let mut bytes = Vec::with_capacity(SIGNED_BYTES + SIGNATURE_BYTES);
        bytes.extend_from_slice(lease.as_bytes());
        bytes.extend_from_slice(&target.port.to_be_bytes());
        bytes.extend_from_slice(&target.until.to_be_bytes());
        bytes.extend_from_slice(&target.thread);
        let signature: [u8; SIGNATURE_BYTES] =
            first(&self.digest(Purpose::Preview, &encode(&bytes)));
        bytes.extend_from_slice(&signature);
        format!("{PREFIX}{}", encode(&bytes))
    }
}

/// The target in the bytes of a label. The signature is not checked.
fn parse(bytes: &[u8]) -> Option<PreviewTarget> {
    if bytes.len() != SIGNED_BYTES + SIGNATURE_BYTES {
        return None;
    }
    let (lease, rest) = bytes.split_first_chunk::<16>()?;
    let (port, rest) = rest.split_first_chunk()?;
    let (until, rest) = rest.split_first_chunk()?;
    let (thread, _) = rest.split_first_chunk()?;
    Some(PreviewTarget {
        lease: LeaseId::from_uuid(Uuid::from_bytes(*lease)),
        port: u16::from_be_bytes(*port),
        until: u32::from_be_bytes(*until),
        thread: *thread,
    })
}

fn first<const N: usize>(digest: &[u8; 32]) -> [u8; N] {
    *digest.first_chunk().expect("no part of a label is longer than a digest")
}

/// Encodes bytes in base32 without padding.
fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity((bytes.len() * 8).div_ceil(5));
    let (mut buffer, mut bits) = (0u32, 0);
    for byte in bytes {
        buffer = buffer << 8 | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(DIGITS[(buffer >> bits & 31) as usize]));
        }
    }
    if bits > 0 {
        text.push(char::from(DIGITS[(buffer << (5 - bits) & 31) as usize]));
    }
    text
}

/// Decodes base32 without padding; drops bits that do not fill a byte. Returns `None` if a digit is invalid.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 5 / 8);
    let (mut buffer, mut bits) = (0u32, 0);
    for digit in text.bytes() {
        let value = DIGITS.iter().position(|known| *known == digit)?;
        buffer = buffer << 5 | u32::try_from(value).ok()?;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push((buffer >> bits & 255) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNTIL: u32 = 1_800_000_000;

    fn thread(id: &str) -> ThreadId {
        id.parse().unwrap()
    }

    #[test]
    fn a_label_opens_its_port_of_its_thread_until_it_expires() {
        let keys = Keys::new("secret");
        let lease = LeaseId::fresh();
        let label = keys.preview(&thread("build"), &lease, 65_535, UNTIL);
        assert_eq!(label.len(), 63, "{label}");
        assert!(is_preview(&label) && is_preview(&label.to_uppercase()));
        let target = keys.opens_preview(&label, i64::from(UNTIL) - 1).unwrap();
        assert_eq!((&target.lease, target.port, target.until), (&lease, 65_535, UNTIL));
        assert!(keys.is_preview_of(&target, &thread("build")));
        assert!(!keys.is_preview_of(&target, &thread("other")));
        // Host names ignore case.
        assert_eq!(keys.opens_preview(&label.to_uppercase(), 0), Ok(target));
        assert_eq!(keys.opens_preview(&label, i64::from(UNTIL)), Err(LabelError::Expired));
        let others = Keys::new("another");
        assert_eq!(others.opens_preview(&label, 0), Err(LabelError::Invalid));
    }

    #[test]
    fn an_altered_label_opens_nothing() {
        let keys = Keys::new("secret");
        let label = keys.preview(&thread("build"), &LeaseId::fresh(), 8000, UNTIL);
        for at in PREFIX.len()..label.len() {
            for digit in DIGITS {
                let mut altered = label.clone().into_bytes();
                altered[at] = *digit;
                let altered = String::from_utf8(altered).unwrap();
                if altered != label {
                    assert_eq!(
                        keys.opens_preview(&altered, 0),
                        Err(LabelError::Invalid),
                        "{altered}"
                    );
                }
            }
        }
        let long = format!("{label}a");
        for wrong in ["", "p-", "p-a", "p-1", "p-é", &label[2..], &label[..62], &long] {
            assert_eq!(keys.opens_preview(wrong, 0), Err(LabelError::Invalid), "{wrong}");
        }
    }

    #[test]
    fn base32_matches_the_test_vectors_of_the_rfc() {
        for (bytes, text) in
            [("", ""), ("f", "my"), ("fo", "mzxq"), ("foo", "mzxw6"), ("foobar", "mzxw6ytboi")]
        {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
        }
    }
}
