//! AgentBay's API: its requests, its responses, and the sessions in them.

use std::time::Duration;

use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::Value;

use super::super::http::{
    VendorClient, VendorFault, VendorKey, VendorRequest, endpoint, none_if_missing,
};
use super::super::vendor::{VendorLabels, VendorSandbox, poll_until};
use provider::Observed;

pub(super) const VENDOR: &str = "AgentBay";
pub(super) const ENDPOINT: &str = "https://agentbay.cn-hangzhou.aliyuncs.com";
pub(super) const API_VERSION: &str = "2025-05-06";
/// The prefix of the error message about a session that does not exist.
pub(super) const MISSING_SESSION_PREFIX: &str = "InvalidMcpSession.NotFound";
/// The MCP server of the shell tool, if the session does not name one.
pub(super) const DEFAULT_SHELL_SERVER: &str = "wuying_shell";

#[derive(Debug, Clone)]
pub struct AgentBayOptions {
    pub key: VendorKey,
    /// The API; empty for AgentBay's own.
    pub endpoint: String,
    /// The default image.
    pub image: String,
    /// How long a session is kept without a keep-alive.
    pub timeout: Duration,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AgentBaySpec {
    pub(super) image: Option<String>,
}

#[derive(Debug)]
pub(crate) struct AgentBayVendor {
    pub(super) options: AgentBayOptions,
    pub(super) endpoint: String,
    pub(super) client: VendorClient,
}

/// A response. An unsuccessful one may have any HTTP status.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct AgentBayResponse {
    #[serde(default)]
    pub(super) success: Option<bool>,
    #[serde(default)]
    pub(super) http_status_code: Option<u16>,
    #[serde(default)]
    pub(super) code: Option<String>,
    #[serde(default)]
    pub(super) message: Option<String>,
    #[serde(default)]
    pub(super) data: Value,
    #[serde(default)]
    pub(super) next_token: Option<String>,
}

/// A session in a response; a list has only its state, in another field.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct AgentBaySession {
    #[serde(default)]
    pub(super) session_id: String,
    #[serde(default, alias = "SessionStatus")]
    pub(super) status: Option<String>,
    #[serde(default)]
    pub(super) link_url: Option<String>,
    #[serde(default)]
    pub(super) ws_url: Option<String>,
    #[serde(default)]
    pub(super) token: Option<String>,
    #[serde(default)]
    pub(super) tool_list: Option<String>,
    #[serde(default)]
    pub(super) success: Option<bool>,
    #[serde(default)]
    pub(super) err_msg: Option<String>,
}

impl AgentBaySession {
    pub(super) fn status(&self) -> &str {
        self.status.as_deref().unwrap_or("RUNNING")
    }

    /// A session in transition still counts as its old state, except when it is being deleted.
    pub(super) fn observed(&self) -> Observed {
        match self.status() {
            "PAUSED" | "RESUMING" => Observed::Paused,
            "DELETING" | "DELETED" | "FINISH" => Observed::Gone,
            _ => Observed::Running,
        }
    }

    pub(super) fn sandbox(self, labels: VendorLabels) -> VendorSandbox {
        let observed = self.observed();
        let server = self.server_of("shell").unwrap_or_else(|| DEFAULT_SHELL_SERVER.to_owned());
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        VendorSandbox {
            id: self.session_id,
            labels,
            observed,
            url: self.link_url.unwrap_or_default().trim_end_matches('/').to_owned(),
            token: given(self.token).map(VendorKey::new),
            server: Some(server),
            pty_url: given(self.ws_url),
            program: None,
        }
    }

    pub(super) fn server_of(&self, tool: &str) -> Option<String> {
        let tools: Vec<Value> = serde_json::from_str(self.tool_list.as_deref()?).ok()?;
        let tool = tools.iter().find(|known| known["name"] == tool)?;
        Some(tool["server"].as_str().filter(|server| !server.is_empty())?.to_owned())
    }
}

impl AgentBayVendor {
    pub(crate) fn new(options: AgentBayOptions) -> std::io::Result<Self> {
        let endpoint = endpoint(&options.endpoint, ENDPOINT);
        Ok(Self { options, endpoint, client: VendorClient::new(VENDOR)? })
    }

    pub(super) fn control(&self, action: &'static str, fields: &[(&str, &str)]) -> VendorRequest {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let query = form_urlencoded::Serializer::new(String::new())
            .extend_pairs([("Action", action), ("Format", "json"), ("Version", API_VERSION)])
            .append_pair("Timestamp", &now)
            .append_pair("SignatureNonce", &uuid::Uuid::now_v7().simple().to_string())
            .finish();
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("Authorization", &format!("Bearer {}", self.options.key.reveal()))
            .extend_pairs(fields)
            .finish();
        VendorRequest::new(action, Method::POST, format!("{}/?{query}", self.endpoint))
            .text("x-acs-action", action)
            .text("x-acs-version", API_VERSION)
            .body("application/x-www-form-urlencoded", form.into())
    }

    /// Sends a request; an unsuccessful response is a fault.
    pub(super) async fn send(
        &self,
        request: &VendorRequest,
    ) -> Result<AgentBayResponse, VendorFault> {
        let response: AgentBayResponse =
            self.client.send_json(request).await.map_err(with_missing_status)?;
        if response.success != Some(false) {
            return Ok(response);
        }
        let status = response.http_status_code.and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.filter(|status| !status.is_success());
        let message =
            [response.code, response.message].into_iter().flatten().collect::<Vec<_>>().join(": ");
        Err(with_missing_status(refusal(status.unwrap_or(StatusCode::BAD_REQUEST), message)))
    }

    /// Sends an idempotent request about one session.
    pub(super) async fn session_call(
        &self,
        id: &str,
        action: &'static str,
    ) -> Result<AgentBayResponse, VendorFault> {
        self.send(&self.control(action, &[("SessionId", id)]).idempotent()).await
    }

    pub(super) async fn session(&self, id: &str) -> Result<AgentBaySession, VendorFault> {
        decode(self.session_call(id, "GetSession").await?.data)
    }

    /// Requests a change of state and waits for it.
    pub(super) async fn change(
        &self,
        id: &str,
        action: &'static str,
        wanted: &str,
    ) -> Result<(), VendorFault> {
        if let Err(fault) = self.session_call(id, action).await {
            // A session that already is in that state may refuse.
            let refused = fault.status().is_some_and(|status| status.is_client_error());
            if !refused || self.session(id).await?.status() != wanted {
                return Err(fault);
            }
        }
        poll_until(VENDOR, || async {
            let session = self.session(id).await?;
            match session.observed() {
                _ if session.status() == wanted => Ok(Some(())),
                Observed::Gone => {
                    let message = format!("session {id} is {}", session.status());
                    Err(refusal(StatusCode::NOT_FOUND, message))
                }
                Observed::Running | Observed::Paused => Ok(None),
            }
        })
        .await
    }

    pub(super) async fn labels(&self, id: &str) -> Result<Option<VendorLabels>, VendorFault> {
        let Some(response) = none_if_missing(self.session_call(id, "GetLabel").await)? else {
            return Ok(None);
        };
        let text = response.data["Labels"].as_str().filter(|text| !text.is_empty());
        text.map_or(Ok(Some(VendorLabels::new())), |text| parse(text).map(Some))
    }
}

pub(super) fn refusal(status: StatusCode, message: String) -> VendorFault {
    VendorFault::Status { vendor: VENDOR, status, message }
}

pub(super) fn broken(why: impl std::fmt::Display) -> VendorFault {
    VendorFault::Transport { vendor: VENDOR, reason: why.to_string() }
}

/// Gives the error about a missing session status 404.
pub(super) fn with_missing_status(fault: VendorFault) -> VendorFault {
    match fault {
        VendorFault::Status { message, .. } if message.starts_with(MISSING_SESSION_PREFIX) => {
            refusal(StatusCode::NOT_FOUND, message)
        }
        other => other,
    }
}

pub(super) fn decode<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, VendorFault> {
    let unread = |error| broken(format!("cannot decode the response: {error}"));
    serde_json::from_value(value).map_err(unread)
}

pub(super) fn parse<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, VendorFault> {
    decode(serde_json::from_str(text).map_err(broken)?)
}
