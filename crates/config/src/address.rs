//! The scheme and the URLs of the server, derived from the settings and the listen address.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
};

use super::settings::Settings;

/// The protocol of the server's own port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    /// Returns the scheme as it appears in a URL.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    /// Returns the port of a URL without one.
    pub fn default_port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

impl Settings {
    /// Returns the files of the certificate chain and its private key, if the server has TLS.
    pub fn tls_files(&self) -> Option<(&Path, &Path)> {
        self.tls.cert.as_deref().zip(self.tls.key.as_deref())
    }

    /// Returns the protocol of the server's own port.
    pub fn scheme(&self) -> Scheme {
        if self.tls_files().is_some() { Scheme::Https } else { Scheme::Http }
    }

    /// Returns the schemes that an `Origin` of the server's own pages may have. Only a proxy knows
    /// whether the browser connected over TLS; a plain server with names may be behind one.
    pub fn origin_schemes(&self) -> &'static [Scheme] {
        match self.scheme() {
            Scheme::Https if !self.behind_proxy => &[Scheme::Https],
            Scheme::Http if !self.behind_proxy && self.names.is_empty() => &[Scheme::Http],
            Scheme::Https | Scheme::Http => &[Scheme::Https, Scheme::Http],
        }
    }

    /// Returns the URL of a server that listens on `address`, for clients on this machine.
    pub fn local_url(&self, address: SocketAddr) -> String {
        let ip = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        format!("{}://{}", self.scheme().name(), SocketAddr::new(ip, address.port()))
    }

    /// Returns the URL for links: with the name of the certificate or proxy if there is one, else the
    /// local URL.
    pub fn public_url(&self, address: SocketAddr) -> String {
        match self.names.first() {
            Some(name) if self.behind_proxy => format!("https://{name}"),
            Some(name) if self.scheme() == Scheme::Https => {
                format!("https://{}", with_port(name, address.port(), Scheme::Https))
            }
            _ => self.local_url(address),
        }
    }
}

/// Adds the port to a name, unless it has one or the scheme implies it.
fn with_port(name: &str, port: u16, scheme: Scheme) -> String {
    if name.contains(':') || port == scheme.default_port() {
        return name.to_owned();
    }
    format!("{name}:{port}")
}

#[cfg(test)]
mod tests {
    use super::super::{ConfigSources, load};

    fn urls(listen: &str, flags: &[(&str, &str)]) -> (String, String) {
        let mut sources = ConfigSources::default();
        sources.flag("home", "/h", "--home");
        sources.flag("listen", listen, "--listen");
        for (key, value) in flags {
            sources.flag(key, *value, "--set");
        }
        let settings = load(&sources).unwrap().settings;
        (settings.local_url(settings.listen), settings.public_url(settings.listen))
    }

    #[test]
    fn links_use_the_name_that_the_certificate_or_the_proxy_has() {
        let tls = [("tls.cert", "/c"), ("tls.key", "/k")];
        let named = |name: &'static str| [tls[0], tls[1], ("names", name)];
        let check = |listen, flags: &[(&str, &str)], local: &str, public: &str| {
            assert_eq!(urls(listen, flags), (local.to_owned(), public.to_owned()));
        };
        let plain = "http://127.0.0.1:7832";
        check("127.0.0.1:7832", &[], plain, plain);
        check("127.0.0.1:7832", &[("names", "a.b")], plain, plain);
        let secure = "https://127.0.0.1:7832";
        check("127.0.0.1:7832", &tls, secure, secure);
        check("0.0.0.0:7832", &tls, secure, secure);
        check("[::]:443", &tls, "https://[::1]:443", "https://[::1]:443");
        check("0.0.0.0:7832", &named("a.b"), secure, "https://a.b:7832");
        check("0.0.0.0:443", &named("a.b"), "https://127.0.0.1:443", "https://a.b");
        check("0.0.0.0:7832", &named("a.b:444"), secure, "https://a.b:444");
        let proxy = [("behind_proxy", "true"), ("names", "a.b,c")];
        check("0.0.0.0:7832", &proxy, plain, "https://a.b");
    }
}
