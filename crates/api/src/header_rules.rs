//! Refuses repeated and malformed headers.
//!
//! Where a header is repeated, one program reads the first and another the last value; none of these headers
//! is a list.

use axum::http::{HeaderMap, header};
use base64::{Engine, engine::general_purpose::STANDARD};

use super::{
    door::Doors,
    error::{Code, Problem},
};

/// The headers that a request may have only once, besides those of [`Doors`].
const SINGLE_HEADERS: [&str; 6] =
    ["authorization", "content-type", "origin", "sec-websocket-key", "x-access-token", "x-api-key"];
/// Bytes in a `Sec-WebSocket-Key` (RFC 6455, 4.1).
const WEBSOCKET_KEY_BYTES: usize = 16;

/// Refuses a request with a header that is repeated or malformed.
pub(super) fn check(headers: &HeaderMap, doors: &Doors) -> Result<(), Problem> {
    let bad = |name: &str, detail: &str| {
        Err(Problem::field(Code::InvalidHeader, format!("/{name}"), detail))
    };
    let of_doors = doors.iter().flat_map(|door| door.single_headers().iter().copied());
    let mut single = SINGLE_HEADERS.into_iter().chain(of_doors);
    if let Some(name) = single.find(|name| headers.get_all(*name).iter().nth(1).is_some()) {
        return bad(name, "given more than once");
    }
    if let Some(key) = headers.get(header::SEC_WEBSOCKET_KEY)
        && !STANDARD.decode(key).is_ok_and(|key| key.len() == WEBSOCKET_KEY_BYTES)
    {
        return bad(header::SEC_WEBSOCKET_KEY.as_str(), "must be 16 bytes in base64");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn refused(pairs: &[(&'static str, &'static str)]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        check(&headers, &Doors::default()).err().map(|problem| problem.detail().to_owned())
    }

    #[test]
    fn a_repeated_credential_is_refused() {
        assert_eq!(refused(&[("authorization", "Bearer a"), ("x-api-key", "b")]), None);
        assert_eq!(refused(&[("accept", "a/b"), ("accept", "c/d")]), None);
        for name in ["authorization", "x-api-key", "x-access-token", "content-type"] {
            let expected = format!("/{name}: given more than once");
            assert_eq!(refused(&[(name, "a"), (name, "a")]), Some(expected));
        }
    }

    #[test]
    fn a_websocket_key_is_sixteen_bytes() {
        assert_eq!(refused(&[("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")]), None);
        for key in ["abc", "", "dGhlIHNhbXBsZSBub25jZQ", "dGhlIHNhbXBsZSBub25jZSE="] {
            let expected = "/sec-websocket-key: must be 16 bytes in base64";
            assert_eq!(refused(&[("sec-websocket-key", key)]).as_deref(), Some(expected), "{key}");
        }
    }
}
