//! The address of a client, also behind a proxy.

use std::net::{IpAddr, SocketAddr};

use axum::http::HeaderMap;

use config::Settings;

/// Returns the address that a request came from. Behind a proxy that is the last one in `X-Forwarded-For`, which the
/// proxy appended: clients choose the others. Without a proxy clients choose the whole header, and it is ignored.
pub(super) fn client_address(
    settings: &Settings,
    headers: &HeaderMap,
    connected: SocketAddr,
) -> IpAddr {
    let appended = || {
        let last = headers.get_all("x-forwarded-for").iter().next_back()?.to_str().ok()?;
        let last = last.rsplit(',').next().unwrap_or_default().trim();
        let with_port = || last.parse::<SocketAddr>().map(|address| address.ip());
        last.parse().or_else(|_| with_port()).ok()
    };
    match settings.behind_proxy {
        true => appended().unwrap_or(connected.ip()),
        false => connected.ip(),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;
    use crate::test_settings::settings;

    #[test]
    fn only_the_address_that_the_proxy_appended_is_believed() {
        let (direct, proxied) = (settings(&[]), settings(&[("behind_proxy", "true")]));
        let proxy: SocketAddr = "10.0.0.1:9".parse().unwrap();
        let check = |lines: &[&str], expected: &str| {
            let name = HeaderName::from_static("x-forwarded-for");
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(name.clone(), HeaderValue::from_str(line).unwrap());
            }
            let found = client_address(&proxied, &headers, proxy);
            assert_eq!(found.to_string(), expected, "{lines:?}");
            assert_eq!(client_address(&direct, &headers, proxy), proxy.ip(), "{lines:?}");
        };
        check(&["192.0.2.7"], "192.0.2.7");
        check(&["203.0.113.1, 192.0.2.7"], "192.0.2.7");
        check(&["192.0.2.7", "2001:db8::1"], "2001:db8::1");
        check(&["192.0.2.7:4711"], "192.0.2.7");
        check(&["[2001:db8::1]:80"], "2001:db8::1");
        for absent in [&[][..], &[""], &["unknown"], &["192.0.2.7, "]] {
            check(absent, "10.0.0.1");
        }
    }
}
