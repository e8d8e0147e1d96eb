//! Reads cookies, and decides when one is `Secure`.

use axum::http::{HeaderMap, header};

use config::{Scheme, Settings};

/// Returns the value of a cookie.
pub(super) fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    lines
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}

/// Returns the `Secure` attribute if the browser uses TLS.
pub(super) fn secure_attribute(settings: &Settings, headers: &HeaderMap) -> &'static str {
    let forwarded = headers.get("x-forwarded-proto").is_some_and(|scheme| scheme == "https");
    match settings.scheme() {
        Scheme::Https => "; Secure",
        Scheme::Http if settings.behind_proxy && forwarded => "; Secure",
        Scheme::Http => "",
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;
    use crate::test_settings::settings;

    const TLS: [(&str, &str); 2] = [("tls.cert", "/c"), ("tls.key", "/k")];

    #[test]
    fn a_cookie_is_secure_if_the_browser_uses_tls() {
        let forwarded = HeaderMap::from_iter([(
            HeaderName::from_static("x-forwarded-proto"),
            HeaderValue::from_static("https"),
        )]);
        let proxied = settings(&[("behind_proxy", "true")]);
        let none = HeaderMap::new();
        assert_eq!(secure_attribute(&settings(&TLS), &none), "; Secure");
        assert_eq!(secure_attribute(&settings(&[]), &none), "");
        assert_eq!(secure_attribute(&settings(&[]), &forwarded), "");
        assert_eq!(secure_attribute(&proxied, &forwarded), "; Secure");
        assert_eq!(secure_attribute(&proxied, &none), "");
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("a=1; stead_1=x=y"));
        headers.append(header::COOKIE, HeaderValue::from_static("b=2"));
        assert_eq!(value(&headers, "stead_1"), Some("x=y"));
        assert_eq!(value(&headers, "b"), Some("2"));
        assert_eq!(value(&headers, "stead_2"), None);
    }
}
