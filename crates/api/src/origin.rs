//! Checks of the `Host` and `Origin` headers: only names of this server, only its own pages.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, Uri, header, uri::Authority};

use super::error::{Code, Problem};
use config::{Scheme, Settings};

/// The `Origin` of a request that is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestOrigin {
    /// A page of this server.
    Own,
    /// There is no `Origin` header.
    Absent,
}

/// Returns the `Host` header, which must match the authority of the target, if it has one.
pub(super) fn host(uri: &Uri, headers: &HeaderMap) -> Result<Authority, Problem> {
    let bad = |detail: &str| Problem::field(Code::InvalidHeader, "/host", detail);
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(bad("there must be exactly one Host header"));
    };
    let host = host.to_str().map_err(|_| bad("not visible ASCII"))?;
    let host: Authority = host.parse().map_err(|_| bad("not a host name or address"))?;
    if host.as_str().contains('@') || uri.authority().is_some_and(|target| *target != host) {
        return Err(bad("differs from the host of the request target"));
    }
    Ok(host)
}

pub(super) fn host_allowed(host: &Authority, local: SocketAddr, settings: &Settings) -> bool {
    let name = host.host();
    let named = settings.names.iter().any(|allowed| {
        allowed.eq_ignore_ascii_case(name) || allowed.eq_ignore_ascii_case(host.as_str())
    });
    if named {
        return true;
    }
    if host.port_u16().unwrap_or(settings.scheme().default_port()) != local.port() {
        return false;
    }
    let local = local.ip().to_canonical();
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>().map(|ip| ip.to_canonical()) {
        Ok(ip) => ip == local || (ip.is_loopback() && local.is_loopback()),
        Err(_) => name.eq_ignore_ascii_case("localhost") && local.is_loopback(),
    }
}

/// Refuses any `Origin` except this server's own.
pub(super) fn origin(
    headers: &HeaderMap,
    host: &Authority,
    schemes: &[Scheme],
) -> Result<RequestOrigin, Problem> {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else {
        return Ok(RequestOrigin::Absent);
    };
    let refused =
        Problem::new(Code::OriginNotAllowed, "requests from pages of other origins are refused");
    let same = origin.to_str().ok().and_then(|text| text.split_once("://")).is_some_and(
        |(scheme, authority)| {
            schemes.iter().any(|ours| ours.name() == scheme)
                && authority.eq_ignore_ascii_case(host.as_str())
        },
    );
    if same && origins.next().is_none() { Ok(RequestOrigin::Own) } else { Err(refused) }
}

/// The initiator of a request according to `Sec-Fetch-Site`, which only the browser itself can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FetchSite {
    /// A page of this server.
    SameOrigin,
    /// The user: the address bar, a bookmark.
    User,
    /// A page of another site.
    Other,
}

/// Returns the value of `Sec-Fetch-Site`, if there is one.
pub(super) fn fetch_site(headers: &HeaderMap) -> Option<FetchSite> {
    let value = headers.get("sec-fetch-site")?;
    Some(match value.as_bytes() {
        b"same-origin" => FetchSite::SameOrigin,
        b"none" => FetchSite::User,
        _ => FetchSite::Other,
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;
    use crate::test_settings::settings;

    const TLS: [(&str, &str); 2] = [("tls.cert", "/c"), ("tls.key", "/k")];

    #[test]
    fn a_host_is_a_listening_address_or_a_configured_name() {
        let loopback: SocketAddr = "127.0.0.1:7832".parse().unwrap();
        let outside: SocketAddr = "10.1.2.3:80".parse().unwrap();
        let settings = settings(&[("names", "stead.example,front:444")]);
        let check = |host: &str, local, expected: bool| {
            let host: Authority = host.parse().unwrap();
            assert_eq!(host_allowed(&host, local, &settings), expected, "{host} at {local}");
        };
        check("127.0.0.1:7832", loopback, true);
        check("localhost:7832", loopback, true);
        check("LOCALHOST:7832", loopback, true);
        check("[::1]:7832", loopback, true);
        check("127.0.0.1:7833", loopback, false);
        check("127.0.0.1", loopback, false);
        check("10.1.2.3:7832", loopback, false);
        check("evil.example:7832", loopback, false);
        check("localhost.evil.example:7832", loopback, false);
        check("stead.example", loopback, true);
        check("stead.example:9", loopback, true);
        check("front:444", loopback, true);
        check("front:445", loopback, false);
        check("10.1.2.3", outside, true);
        check("10.1.2.3:80", outside, true);
        check("localhost:80", outside, false);
        check("127.0.0.1:80", outside, false);
        check("[::ffff:10.1.2.3]:80", outside, true);
    }

    #[test]
    fn a_host_without_a_port_is_on_the_port_of_the_scheme() {
        let (local, host) = ("10.1.2.3:443".parse().unwrap(), "10.1.2.3".parse().unwrap());
        assert!(host_allowed(&host, local, &settings(&TLS)));
        assert!(!host_allowed(&host, local, &settings(&[])));
    }

    #[test]
    fn only_the_own_origin_is_allowed() {
        let host: Authority = "localhost:7832".parse().unwrap();
        let origin_of = |value: Option<&str>, settings: &Settings| {
            let mut headers = HeaderMap::new();
            if let Some(value) = value {
                headers.insert(header::ORIGIN, HeaderValue::from_str(value).unwrap());
            }
            origin(&headers, &host, settings.origin_schemes()).ok()
        };
        let (plain, tls) = (settings(&[]), settings(&TLS));
        let proxied = settings(&[("behind_proxy", "true")]);
        let check = |value: Option<&str>, expected: Option<RequestOrigin>| {
            assert_eq!(origin_of(value, &plain), expected, "{value:?}");
        };
        check(None, Some(RequestOrigin::Absent));
        check(Some("http://localhost:7832"), Some(RequestOrigin::Own));
        check(Some("https://localhost:7832"), None);
        assert_eq!(origin_of(Some("https://localhost:7832"), &tls), Some(RequestOrigin::Own));
        assert_eq!(origin_of(Some("http://localhost:7832"), &tls), None);
        assert_eq!(origin_of(Some("https://localhost:7832"), &proxied), Some(RequestOrigin::Own));
        let named = settings(&[("names", "stead.example")]);
        assert_eq!(origin_of(Some("https://localhost:7832"), &named), Some(RequestOrigin::Own));
        assert_eq!(origin_of(Some("ftp://localhost:7832"), &proxied), None);
        check(Some("http://localhost:7833"), None);
        check(Some("http://127.0.0.1:7832"), None);
        check(Some("http://localhost:7832.evil.example"), None);
        check(Some("http://evil.example"), None);
        check(Some("null"), None);
        check(Some(""), None);
    }
}
