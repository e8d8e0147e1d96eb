//! The few calls of the Kubernetes API that are needed, over the HTTP client of all vendors.

use std::io;
use std::time::Duration;

use base::outbound::tls::{ClientIdentity, private_config};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::kubeconfig::KubernetesAccess;
use super::options::KubernetesOptions;
use crate::http::{VendorClient, VendorFault, VendorRequest, none_if_missing, url_encoded};
use crate::vendor::VendorLabels;
use crate::websocket::WebSocket;

pub(super) const VENDOR: &str = "Kubernetes";
/// How many objects one response lists.
const PAGE_OBJECTS: usize = 500;
/// How often a list is begun again whose next page has expired.
const MAX_LIST_ATTEMPTS: usize = 3;
/// How often a creation is repeated that conflicts with another one, and the wait after the first attempt.
const MAX_CREATE_ATTEMPTS: u32 = 5;
const CREATE_DELAY: Duration = Duration::from_millis(50);
/// Names the framing of a stream to a program: each message begins with the number of its channel. Version 5 adds
/// only the end of an input, which is not used.
const EXEC_PROTOCOLS: &str = "v5.channel.k8s.io, v4.channel.k8s.io";

/// A kind of object, by its name in URLs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectKind {
    Pod,
    Claim,
}

impl ObjectKind {
    fn path(self) -> &'static str {
        match self {
            Self::Pod => "pods",
            Self::Claim => "persistentvolumeclaims",
        }
    }
}

/// A client for the objects of one namespace.
#[derive(Debug)]
pub(super) struct KubernetesClient {
    access: KubernetesAccess,
    namespace: String,
    client: VendorClient,
}

/// One page of a list.
#[derive(Debug, Deserialize)]
struct ListPage<T> {
    #[serde(default)]
    metadata: PageMetadata,
    items: Vec<T>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PageMetadata {
    #[serde(rename = "continue")]
    next: String,
}

impl KubernetesClient {
    pub(super) fn new(options: &KubernetesOptions) -> io::Result<Self> {
        let namespace = options.namespace().to_owned();
        let access = options.access.clone();
        let identity = access.identity.as_ref();
        let identity = identity.map(|(certificate, key)| ClientIdentity { certificate, key });
        let tls = private_config(access.authorities.as_deref(), identity)?;
        Ok(Self { access, namespace, client: VendorClient::with_tls(VENDOR, tls)? })
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    fn url(&self, kind: ObjectKind, rest: &str) -> String {
        let (server, namespace) = (&self.access.server, url_encoded(&self.namespace));
        format!("{server}/api/v1/namespaces/{namespace}/{}{rest}", kind.path())
    }

    fn request(
        &self,
        doing: &'static str,
        method: Method,
        kind: ObjectKind,
        rest: &str,
    ) -> VendorRequest {
        let request = VendorRequest::new(doing, method, self.url(kind, rest));
        match self.access.token.read() {
            Some(token) => request.bearer(&token),
            None => request,
        }
    }

    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        kind: ObjectKind,
        name: &str,
    ) -> Result<Option<T>, VendorFault> {
        let rest = format!("/{}", url_encoded(name));
        let request = self.request("get an object", Method::GET, kind, &rest);
        none_if_missing(self.client.send_json(&request).await)
    }

    /// Lists the objects with these labels.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        kind: ObjectKind,
        labels: &VendorLabels,
    ) -> Result<Vec<T>, VendorFault> {
        let selector: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let query =
            format!("?limit={PAGE_OBJECTS}&labelSelector={}", url_encoded(&selector.join(",")));
        let mut attempts = 0;
        'again: loop {
            attempts += 1;
            let (mut all, mut next) = (Vec::new(), String::new());
            loop {
                let rest = format!("{query}&continue={}", url_encoded(&next));
                let rest = if next.is_empty() { &query } else { &rest };
                let request = self.request("list objects", Method::GET, kind, rest);
                let page: ListPage<T> = match self.client.send_json(&request).await {
                    Ok(page) => page,
                    // The snapshot that the list was read from is no longer kept.
                    Err(fault)
                        if fault.status() == Some(StatusCode::GONE)
                            && attempts < MAX_LIST_ATTEMPTS =>
                    {
                        continue 'again;
                    }
                    Err(fault) => return Err(fault),
                };
                all.extend(page.items);
                if page.metadata.next.is_empty() {
                    return Ok(all);
                }
                next = page.metadata.next;
            }
        }
    }

    /// Creates an object. Returns whether it was created; `false` if one of this name exists.
    pub(super) async fn create(
        &self,
        kind: ObjectKind,
        object: &Value,
    ) -> Result<bool, VendorFault> {
        let mut attempts = 0;
        loop {
            // The name is in the object, so that a second attempt creates nothing else.
            let request = self.request("create an object", Method::POST, kind, "");
            let fault = match self.client.send(&request.json(object).idempotent()).await {
                Ok(_) => return Ok(true),
                Err(fault) => fault,
            };
            attempts += 1;
            if fault.status() != Some(StatusCode::CONFLICT) {
                return Err(fault);
            }
            if fault.to_string().contains("already exists") {
                return Ok(false);
            }
            // Another creation has changed the quota of the namespace at the same time.
            if attempts >= MAX_CREATE_ATTEMPTS {
                return Err(fault);
            }
            sleep(CREATE_DELAY * attempts).await;
        }
    }

    /// Requests the deletion of an object. Succeeds if there is none.
    pub(super) async fn delete(&self, kind: ObjectKind, name: &str) -> Result<(), VendorFault> {
        let rest = format!("/{}", url_encoded(name));
        let request = self
            .request("delete an object", Method::DELETE, kind, &rest)
            .json(&json!({"propagationPolicy": "Background"}));
        none_if_missing(self.client.send(&request).await).map(drop)
    }

    /// Starts a program in a container, and returns the stream of its channels.
    pub(super) async fn exec(
        &self,
        pod: &str,
        container: &str,
        argv: &[&str],
    ) -> Result<WebSocket, VendorFault> {
        let words: String =
            argv.iter().map(|word| format!("&command={}", url_encoded(word))).collect();
        let rest = format!(
            "/{}/exec?container={}&stdin=true&stdout=true&stderr=true{words}",
            url_encoded(pod),
            url_encoded(container),
        );
        let mut headers = HeaderMap::new();
        headers.insert(
            HeaderName::from_static("sec-websocket-protocol"),
            HeaderValue::from_static(EXEC_PROTOCOLS),
        );
        let token = self.access.token.read();
        headers.extend(token.and_then(|key| key.header("Bearer ")).map(|key| (AUTHORIZATION, key)));
        self.client.websocket(&self.url(ObjectKind::Pod, &rest), headers).await
    }
}
