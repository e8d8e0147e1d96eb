//! Sandboxes of AgentBay, which calls them sessions.
//!
//! A session runs commands, each for less than a minute, and that is all that is asked of it: files go
//! through commands too (`shell`), since its file tools know only text. So there is no host inside, and
//! terminals stand on the `Remote` runtime; but for programs that want a terminal of their own, which get a PTY
//! of the session's where it has them (`pty`). The key travels in the form of each request, as the vendor
//! wants it.

mod pty;
mod shell;

use shell::text_of;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::http::{ANSWER, Ask, Client, Fault, Key, Progress, Repeat, endpoint, unless_gone};
use super::vendor::{
    Answered, CHANGING, Execute, Executed, Labels, Sandbox, Usage, Vendor, settings, until,
};
use crate::remote::{Screen, Wish};
use provider::{Fidelity, Observed};

const VENDOR: &str = "AgentBay";
const ENDPOINT: &str = "https://agentbay.cn-hangzhou.aliyuncs.com";
/// The version of the API.
const VERSION: &str = "2025-05-06";
/// What an answer about a session begins with that is not there.
const NOT_FOUND: &str = "InvalidMcpSession.NotFound";
/// The server of the shell tool in a session that does not say.
const SHELL: &str = "wuying_shell";

/// What an operator chose.
#[derive(Debug, Clone)]
pub struct Options {
    /// What opens the vendor.
    pub key: Key,
    /// Where its API is; empty for AgentBay's own.
    pub endpoint: String,
    /// The image of a session that names none.
    pub image: String,
    /// How long a session is kept when nobody says that it is needed.
    pub timeout: Duration,
}

/// The settings of a lease.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Spec {
    image: Option<String>,
}

/// The vendor.
#[derive(Debug)]
pub(super) struct AgentBay {
    options: Options,
    endpoint: String,
    client: Client,
}

/// An answer. One that is no success may come with any status.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Said {
    #[serde(default)]
    success: Option<bool>,
    #[serde(default)]
    http_status_code: Option<u16>,
    #[serde(default)]
    code: Option<String>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    data: Value,
    #[serde(default)]
    next_token: Option<String>,
}

/// A session in an answer; a list tells only its state, under another name.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Told {
    #[serde(default)]
    session_id: String,
    #[serde(default, alias = "SessionStatus")]
    status: Option<String>,
    #[serde(default)]
    link_url: Option<String>,
    #[serde(default)]
    ws_url: Option<String>,
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    tool_list: Option<String>,
    #[serde(default)]
    success: Option<bool>,
    #[serde(default)]
    err_msg: Option<String>,
}

impl Told {
    fn status(&self) -> &str {
        self.status.as_deref().unwrap_or("RUNNING")
    }

    /// What is on its way to something is not there yet, but for the way out.
    fn observed(&self) -> Observed {
        match self.status() {
            "PAUSED" | "RESUMING" => Observed::Paused,
            "DELETING" | "DELETED" | "FINISH" => Observed::Gone,
            _ => Observed::Running,
        }
    }

    fn sandbox(self, labels: Labels) -> Sandbox {
        let observed = self.observed();
        let server = self.server_of("shell").unwrap_or_else(|| SHELL.to_owned());
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        Sandbox {
            id: self.session_id,
            labels,
            observed,
            url: self.link_url.unwrap_or_default().trim_end_matches('/').to_owned(),
            token: given(self.token).map(Key::new),
            server: Some(server),
            ptys: given(self.ws_url),
        }
    }

    fn server_of(&self, tool: &str) -> Option<String> {
        let tools: Vec<Value> = serde_json::from_str(self.tool_list.as_deref()?).ok()?;
        let tool = tools.iter().find(|known| known["name"] == tool)?;
        Some(tool["server"].as_str().filter(|server| !server.is_empty())?.to_owned())
    }
}

impl AgentBay {
    pub(super) fn new(options: Options) -> std::io::Result<Self> {
        let endpoint = endpoint(&options.endpoint, ENDPOINT);
        Ok(Self { options, endpoint, client: Client::new(VENDOR)? })
    }

    /// A question to the API.
    fn control(&self, action: &'static str, fields: &[(&str, &str)]) -> Ask {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let query = form_urlencoded::Serializer::new(String::new())
            .extend_pairs([("Action", action), ("Format", "json"), ("Version", VERSION)])
            .append_pair("Timestamp", &now)
            .append_pair("SignatureNonce", &uuid::Uuid::now_v7().simple().to_string())
            .finish();
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("Authorization", &format!("Bearer {}", self.options.key.reveal()))
            .extend_pairs(fields)
            .finish();
        Ask::new(action, Method::POST, format!("{}/?{query}", self.endpoint))
            .text("x-acs-action", action)
            .text("x-acs-version", VERSION)
            .body("application/x-www-form-urlencoded", form.into())
    }

    /// Asks, and takes only a success for an answer.
    async fn said(&self, ask: &Ask) -> Result<Said, Fault> {
        let said: Said = self.client.ask_json(ask).await.map_err(known)?;
        if said.success != Some(false) {
            return Ok(said);
        }
        let status = said.http_status_code.and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.filter(|status| !status.is_success());
        let words = [said.code, said.message].into_iter().flatten().collect::<Vec<_>>().join(": ");
        Err(known(refusal(status.unwrap_or(StatusCode::BAD_REQUEST), words)))
    }

    /// Asks about one session; that may be asked again.
    async fn of(&self, id: &str, action: &'static str) -> Result<Said, Fault> {
        self.said(&self.control(action, &[("SessionId", id)]).safe()).await
    }

    async fn told(&self, id: &str) -> Result<Told, Fault> {
        meaning(self.of(id, "GetSession").await?.data)
    }

    /// Asks for a change, which the state tells when it has come about.
    async fn change(&self, id: &str, action: &'static str, wanted: &str) -> Result<(), Fault> {
        if let Err(fault) = self.of(id, action).await {
            // One that is as it is wanted may say so by refusing.
            let refused = fault.status().is_some_and(|status| status.is_client_error());
            if !refused || self.told(id).await?.status() != wanted {
                return Err(fault);
            }
        }
        until(VENDOR, || async {
            let told = self.told(id).await?;
            match told.observed() {
                _ if told.status() == wanted => Ok(Some(())),
                Observed::Gone => {
                    let words = format!("session {id} is {}", told.status());
                    Err(refusal(StatusCode::NOT_FOUND, words))
                }
                Observed::Running | Observed::Paused => Ok(None),
            }
        })
        .await
    }

    async fn labels(&self, id: &str) -> Result<Option<Labels>, Fault> {
        let Some(said) = unless_gone(self.of(id, "GetLabel").await)? else { return Ok(None) };
        let text = said.data["Labels"].as_str().filter(|text| !text.is_empty());
        text.map_or(Ok(Some(Labels::new())), |text| read(text).map(Some))
    }
}

fn refusal(status: StatusCode, words: String) -> Fault {
    Fault::Status { vendor: VENDOR, status, words }
}

fn broken(why: impl std::fmt::Display) -> Fault {
    Fault::Broken { vendor: VENDOR, why: why.to_string() }
}

/// A session that is not there has a status of its own with us.
fn known(fault: Fault) -> Fault {
    match fault {
        Fault::Status { words, .. } if words.starts_with(NOT_FOUND) => {
            refusal(StatusCode::NOT_FOUND, words)
        }
        other => other,
    }
}

fn meaning<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, Fault> {
    let unread = |error| broken(format!("its answer cannot be read: {error}"));
    serde_json::from_value(value).map_err(unread)
}

fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Fault> {
    meaning(serde_json::from_str(text).map_err(broken)?)
}

impl Vendor for Arc<AgentBay> {
    fn name(&self) -> &'static str {
        "agentbay"
    }

    fn user(&self) -> (&'static str, &'static str) {
        ("wuying", "/home/wuying")
    }

    fn pauses(&self) -> Fidelity {
        Fidelity::Memory
    }

    fn accepts(&self, spec: &Value) -> Result<(), String> {
        settings::<Spec>(spec).map(drop)
    }

    fn make<'a>(
        &'a self,
        _name: &'a str,
        labels: &'a Labels,
        spec: &'a Value,
    ) -> Answered<'a, Sandbox> {
        Box::pin(async move {
            let image = settings::<Spec>(spec).ok().and_then(|spec| spec.image);
            let fields = [
                ("ImageId", image.as_ref().unwrap_or(&self.options.image).as_str()),
                ("Labels", &json!(labels).to_string()),
                // Whatever becomes of us, nothing costs for ever.
                ("Timeout", &self.options.timeout.as_secs().to_string()),
            ];
            let ask = self.control("CreateMcpSession", &fields).within(CHANGING);
            let told: Told = meaning(self.said(&ask).await?.data)?;
            if told.success == Some(false) || told.session_id.is_empty() {
                let words = told.err_msg.unwrap_or_else(|| "no session was made".to_owned());
                return Err(refusal(StatusCode::BAD_REQUEST, words));
            }
            Ok(told.sandbox(labels.clone()))
        })
    }

    fn find<'a>(&'a self, labels: &'a Labels) -> Answered<'a, Vec<Sandbox>> {
        Box::pin(async move {
            let wanted = json!(labels).to_string();
            let (mut all, mut next) = (Vec::new(), String::new());
            loop {
                let mut fields = vec![("Labels", wanted.as_str()), ("MaxResults", "100")];
                if !next.is_empty() {
                    fields.push(("NextToken", &next));
                }
                let said = self.said(&self.control("ListSession", &fields).safe()).await?;
                let page: Vec<Told> = meaning(said.data)?;
                let full = !page.is_empty();
                for told in page.into_iter().filter(|told| told.observed() != Observed::Gone) {
                    // A list does not tell the labels.
                    if let Some(labels) = self.labels(&told.session_id).await? {
                        all.push(told.sandbox(labels));
                    }
                }
                match said.next_token.filter(|token| full && !token.is_empty()) {
                    Some(token) => next = token,
                    None => return Ok(all),
                }
            }
        })
    }

    fn look<'a>(&'a self, id: &'a str) -> Answered<'a, Option<Sandbox>> {
        Box::pin(async move {
            let told = unless_gone(self.told(id).await)?;
            let there = told.filter(|told| told.observed() != Observed::Gone);
            Ok(there.map(|told| Told { session_id: id.to_owned(), ..told }.sandbox(Labels::new())))
        })
    }

    fn pause<'a>(&'a self, id: &'a str) -> Answered<'a, ()> {
        Box::pin(self.change(id, "PauseSessionAsync", "PAUSED"))
    }

    fn resume<'a>(&'a self, id: &'a str) -> Answered<'a, ()> {
        Box::pin(self.change(id, "ResumeSessionAsync", "RUNNING"))
    }

    fn kill<'a>(&'a self, id: &'a str) -> Answered<'a, ()> {
        Box::pin(async move {
            if unless_gone(self.of(id, "DeleteSessionAsync").await)?.is_none() {
                return Ok(());
            }
            until(VENDOR, || async {
                let told = unless_gone(self.told(id).await)?;
                Ok(told
                    .is_none_or(|told| ["DELETED", "FINISH"].contains(&told.status()))
                    .then_some(()))
            })
            .await
        })
    }

    fn keep<'a>(&'a self, sandbox: &'a Sandbox) -> Answered<'a, ()> {
        Box::pin(async move { self.of(&sandbox.id, "RefreshSessionIdleTime").await.map(drop) })
    }

    fn pace(&self) -> Duration {
        self.options.timeout / 3
    }

    fn run<'a>(&'a self, sandbox: &'a Sandbox, command: &'a Execute) -> Answered<'a, Executed> {
        Box::pin(self.execute(sandbox, command))
    }

    fn upload<'a>(
        &'a self,
        sandbox: &'a Sandbox,
        path: &'a str,
        bytes: Bytes,
        progress: Option<Progress>,
    ) -> Answered<'a, ()> {
        Box::pin(self.put(sandbox, path, bytes, progress))
    }

    fn screen<'a>(&'a self, sandbox: &'a Sandbox, wish: &'a Wish) -> Answered<'a, Option<Screen>> {
        Box::pin(self.pty(sandbox, wish))
    }

    fn usage<'a>(&'a self, sandbox: &'a Sandbox) -> Answered<'a, Option<Usage>> {
        Box::pin(async move {
            let nothing = json!({});
            let said = self.tool(&sandbox.id, "get_metrics", &nothing, ANSWER, Repeat::Safe);
            read(&text_of(&said.await?)?).map(Some)
        })
    }
}

#[cfg(test)]
mod tests;
