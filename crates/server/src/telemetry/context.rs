//! Ids of spans, as in W3C Trace Context.

use std::fmt::Write;

/// Where a span belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanContext {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    pub parent: Option<[u8; 8]>,
    /// Whether the trace is recorded; the client that began it decides.
    pub sampled: bool,
}

impl SpanContext {
    /// Returns the context of the first span of a trace.
    pub fn root() -> SpanContext {
        let mut trace = [0; 16];
        // Without randomness nothing is traced.
        let sampled = getrandom::fill(&mut trace).is_ok();
        SpanContext { trace, span: span_id(), parent: None, sampled }
    }

    pub fn child(&self) -> SpanContext {
        SpanContext { span: span_id(), parent: Some(self.span), ..self.clone() }
    }

    /// Parses a `traceparent` header: `00-<trace>-<span>-<flags>`.
    pub fn parse(header: &str) -> Option<SpanContext> {
        let mut parts = header.split('-');
        let (version, trace, span, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let version = bytes::<1>(version)?[0];
        // Later versions may have more parts.
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        let (trace, span, flags) = (bytes(trace)?, bytes(span)?, bytes::<1>(flags)?[0]);
        let valid = trace != [0; 16] && span != [0; 8];
        valid.then_some(SpanContext { trace, span, parent: None, sampled: flags & 1 == 1 })
    }
}

fn span_id() -> [u8; 8] {
    let mut id = [0; 8];
    let _ = getrandom::fill(&mut id);
    id
}

/// Returns bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let lower = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if digits.len() != 2 * N || !digits.bytes().all(lower) {
        return None;
    }
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_of_a_client_is_continued() {
        let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let given = SpanContext::parse(header).unwrap();
        assert_eq!(hex(&given.trace), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert!(given.sampled);
        let child = given.child();
        assert_eq!(
            (child.trace, child.parent.map(|id| hex(&id))),
            (given.trace, Some("00f067aa0ba902b7".into()))
        );
        assert_ne!(child.span, given.span);
        assert!(!SpanContext::parse(&header.replace("-01", "-00")).unwrap().sampled);
        assert!(
            SpanContext::parse(&header.replace("00-4b", "cc-4b").replace("-01", "-01-more"))
                .is_some()
        );
    }

    #[test]
    fn a_malformed_header_begins_a_trace_of_ours() {
        for header in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e47é-00f067aa0ba902b7-01",
        ] {
            assert_eq!(SpanContext::parse(header), None, "{header}");
        }
    }
}
