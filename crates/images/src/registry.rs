//! A client of one repository of a registry.
//!
//! Every request has a deadline. The operator's credentials are sent to the registry and to the token server that
//! it names, never to where a redirect leads. Plain HTTP is spoken to registries of this machine and to
//! those that the operator listed.

use std::io;

use http::header::{ACCEPT, AUTHORIZATION, LOCATION, RANGE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use parking_lot::Mutex;
use reqwest::Url;
use serde::Deserialize;

use crate::auth::{RegistryChallenge, RegistryLogin};
use crate::digest::ContentDigest;
use crate::error::PullError;
use crate::http::{RegistryHttp, RegistryResponse, RequestError};
use crate::manifest::{ACCEPTED, BlobDescriptor};
use crate::reference::{ImageReference, is_loopback};

const MAX_REDIRECTS: usize = 5;
/// Larger manifests, configurations and tokens are refused.
const MAX_DOCUMENT_BYTES: usize = 4 << 20;

/// A client of one repository.
pub(crate) struct RegistryClient {
    http: RegistryHttp,
    image: ImageReference,
    base: Url,
    login: Option<RegistryLogin>,
    /// The value of `Authorization` that the registry accepted last.
    authorization: Mutex<Option<HeaderValue>>,
}

/// Which registries may be contacted without TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RegistryScheme {
    Plain,
    Tls,
}

impl RegistryClient {
    pub(crate) fn new(
        image: &ImageReference,
        login: Option<RegistryLogin>,
        plain_http: &[String],
    ) -> Result<Self, PullError> {
        let host = image.host();
        let is_plain = is_loopback(host) || plain_http.iter().any(|allowed| allowed == host);
        let scheme = if is_plain { "http" } else { "https" };
        let failed = PullError::storage("create an HTTP client");
        let base = Url::parse(&format!("{scheme}://{host}/v2/{}/", image.repository()));
        let built =
            RegistryHttp::new().and_then(|http| Ok((base.map_err(io::Error::other)?, http)));
        let (base, http) = built.map_err(failed)?;
        Ok(Self { http, image: image.clone(), base, login, authorization: Mutex::default() })
    }

    /// Fetches the manifest of the reference, or of a digest that it led to.
    pub(crate) async fn manifest(&self, version: &str) -> Result<Vec<u8>, PullError> {
        let url = self.url(&format!("manifests/{version}"))?;
        let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(ACCEPTED))]);
        let response = self.answer(url, &headers).await?;
        self.read_document(response).await
    }

    /// Fetches a small blob, and verifies it.
    pub(crate) async fn document(&self, blob: &BlobDescriptor) -> Result<Vec<u8>, PullError> {
        let url = self.url(&format!("blobs/{}", blob.digest))?;
        let bytes = self.read_document(self.answer(url, &HeaderMap::new()).await?).await?;
        self.verify(&blob.digest, &bytes)?;
        Ok(bytes)
    }

    /// Begins to fetch a blob at an offset. Returns the offset at which the registry begins: it may ignore ours.
    pub(crate) async fn blob(
        &self,
        digest: &ContentDigest,
        from: u64,
    ) -> Result<(u64, RegistryResponse), PullError> {
        let url = self.url(&format!("blobs/{digest}"))?;
        let mut headers = HeaderMap::new();
        if from > 0 {
            let range = HeaderValue::from_str(&format!("bytes={from}-"));
            headers.insert(RANGE, range.map_err(|error| self.invalid(error.to_string()))?);
        }
        let response = self.answer(url, &headers).await?;
        let begins = if response.status() == StatusCode::PARTIAL_CONTENT { from } else { 0 };
        Ok((begins, response))
    }

    pub(crate) fn verify(&self, expected: &ContentDigest, bytes: &[u8]) -> Result<(), PullError> {
        let found = ContentDigest::of(bytes);
        if found != *expected {
            return Err(self.invalid(format!("the registry sent {found} instead of {expected}")));
        }
        Ok(())
    }

    pub(crate) fn invalid(&self, reason: String) -> PullError {
        PullError::Invalid { image: self.image.to_string(), reason }
    }

    pub(crate) fn unavailable(&self, reason: impl ToString) -> PullError {
        let registry = self.image.registry().to_owned();
        PullError::Unavailable { registry, reason: reason.to_string() }
    }

    fn url(&self, path: &str) -> Result<Url, PullError> {
        self.base.join(path).map_err(|error| self.invalid(error.to_string()))
    }

    /// Sends a request, authenticates if the registry wants that, and follows redirects.
    async fn answer(&self, url: Url, headers: &HeaderMap) -> Result<RegistryResponse, PullError> {
        let mut at = url.clone();
        let mut redirects = 0;
        let mut has_authenticated = false;
        loop {
            let is_registry = at.origin() == self.base.origin();
            let mut headers = headers.clone();
            if is_registry && let Some(value) = self.authorization() {
                headers.insert(AUTHORIZATION, value);
            }
            let response = self.send(at.clone(), headers).await?;
            let status = response.status();
            match status {
                StatusCode::OK | StatusCode::PARTIAL_CONTENT => return Ok(response),
                StatusCode::UNAUTHORIZED if is_registry && !has_authenticated => {
                    has_authenticated = true;
                    self.authenticate(&response).await?;
                }
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(self.denied()),
                StatusCode::NOT_FOUND => {
                    let (registry, what) = (self.image.registry(), self.image.to_string());
                    return Err(PullError::NotFound { registry: registry.to_owned(), what });
                }
                _ if status.is_redirection() && redirects < MAX_REDIRECTS => {
                    redirects += 1;
                    at = self.redirected(&at, &response)?;
                }
                _ => return Err(self.unavailable(format!("it answered {status}"))),
            }
        }
    }

    fn redirected(&self, from: &Url, response: &RegistryResponse) -> Result<Url, PullError> {
        let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let target = location.and_then(|location| from.join(location).ok());
        let target = target.ok_or_else(|| self.unavailable("it redirects to no address"))?;
        self.check_scheme(&target)?;
        Ok(target)
    }

    /// Refuses an address that the registry gave us if TLS would be lost.
    fn check_scheme(&self, url: &Url) -> Result<(), PullError> {
        let scheme = |url: &Url| match url.scheme() {
            "https" => Some(RegistryScheme::Tls),
            "http" => Some(RegistryScheme::Plain),
            _ => None,
        };
        match (scheme(&self.base), scheme(url)) {
            (_, Some(RegistryScheme::Tls)) => Ok(()),
            // A registry of this machine may have a token server or storage of this machine.
            (Some(RegistryScheme::Plain), Some(RegistryScheme::Plain))
                if url.host_str() == self.base.host_str() =>
            {
                Ok(())
            }
            _ => {
                let host = url.host_str().unwrap_or_default();
                Err(self.invalid(format!("the registry leads to {host}, without TLS")))
            }
        }
    }

    async fn authenticate(&self, response: &RegistryResponse) -> Result<(), PullError> {
        let values = response.headers().get_all(WWW_AUTHENTICATE).iter();
        let values = values.filter_map(|value| value.to_str().ok());
        let value = match (RegistryChallenge::parse(values), &self.login) {
            (Some(RegistryChallenge::Bearer { realm, service, scope }), _) => {
                let scope =
                    scope.unwrap_or_else(|| format!("repository:{}:pull", self.image.repository()));
                format!("Bearer {}", self.token(&realm, service.as_deref(), &scope).await?)
            }
            (Some(RegistryChallenge::Basic), Some(login)) => login.basic(),
            (Some(RegistryChallenge::Basic) | None, _) => return Err(self.denied()),
        };
        let value = self.secret(&value)?;
        *self.authorization.lock() = Some(value);
        Ok(())
    }

    /// Fetches a token from the server that the registry named.
    async fn token(
        &self,
        realm: &str,
        service: Option<&str>,
        scope: &str,
    ) -> Result<String, PullError> {
        #[derive(Deserialize)]
        struct TokenAnswer {
            token: Option<String>,
            access_token: Option<String>,
        }
        let mut url = Url::parse(realm)
            .map_err(|_| self.unavailable("its token server has no valid address"))?;
        self.check_scheme(&url)?;
        url.query_pairs_mut().append_pair("scope", scope);
        if let Some(service) = service {
            url.query_pairs_mut().append_pair("service", service);
        }
        let mut headers = HeaderMap::new();
        if let Some(login) = &self.login {
            headers.insert(AUTHORIZATION, self.secret(&login.basic())?);
        }
        let response = self.send(url, headers).await?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(self.denied()),
            status => return Err(self.unavailable(format!("its token server answered {status}"))),
        }
        let bytes = self.read_document(response).await?;
        let answer: Option<TokenAnswer> = serde_json::from_slice(&bytes).ok();
        let token = answer.and_then(|answer| answer.token.or(answer.access_token));
        token.ok_or_else(|| self.unavailable("its token server sent no token"))
    }

    async fn send(&self, url: Url, headers: HeaderMap) -> Result<RegistryResponse, PullError> {
        self.http.get(url, headers).await.map_err(|error| self.unanswered(&error))
    }

    async fn read_document(&self, response: RegistryResponse) -> Result<Vec<u8>, PullError> {
        let read = response.document(MAX_DOCUMENT_BYTES).await;
        read.map_err(|error| self.unanswered(&error))
    }

    pub(crate) fn unanswered(&self, error: &RequestError) -> PullError {
        match error {
            RequestError::Failed(_) => self.unavailable(error),
            RequestError::TooLarge(_) => self.invalid(error.to_string()),
        }
    }

    /// A header value that logs do not show.
    fn secret(&self, value: &str) -> Result<HeaderValue, PullError> {
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| self.unavailable("its token is not a header value"))?;
        value.set_sensitive(true);
        Ok(value)
    }

    fn authorization(&self) -> Option<HeaderValue> {
        self.authorization.lock().clone()
    }

    fn denied(&self) -> PullError {
        let repository = self.image.repository().to_owned();
        let registry = self.image.registry().to_owned();
        match self.login {
            Some(_) => PullError::WrongCredentials { registry, repository },
            None => PullError::Denied { registry, repository },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_spoken_to_this_machine_and_listed_registries_only() {
        let allowed = ["registry.example:5000".to_owned()];
        for (image, url) in [
            ("python:3", "https://registry-1.docker.io/v2/library/python/"),
            ("ghcr.io/a/b", "https://ghcr.io/v2/a/b/"),
            ("10.0.0.1:5000/a", "https://10.0.0.1:5000/v2/a/"),
            ("registry.example/a", "https://registry.example/v2/a/"),
            ("registry.example:5000/a", "http://registry.example:5000/v2/a/"),
            ("127.0.0.1:5000/a", "http://127.0.0.1:5000/v2/a/"),
            ("localhost:5000/a", "http://localhost:5000/v2/a/"),
        ] {
            let client = RegistryClient::new(&image.parse().unwrap(), None, &allowed).unwrap();
            assert_eq!(client.base.as_str(), url, "{image}");
        }
    }

    #[test]
    fn an_address_of_the_registry_never_loses_tls() {
        for (image, url, fine) in [
            ("ghcr.io/a", "https://storage.example/blob", true),
            ("ghcr.io/a", "http://ghcr.io/blob", false),
            ("ghcr.io/a", "file:///etc/passwd", false),
            ("localhost:5000/a", "https://storage.example/blob", true),
            ("localhost:5000/a", "http://localhost:6000/blob", true),
            ("localhost:5000/a", "http://storage.example/blob", false),
        ] {
            let client = RegistryClient::new(&image.parse().unwrap(), None, &[]).unwrap();
            let checked = client.check_scheme(&Url::parse(url).unwrap());
            assert_eq!(checked.is_ok(), fine, "{image} {url}");
        }
    }
}
