//! Sandboxes of AgentBay, which calls them sessions.
//!
//! We only use a session to run commands, each for less than a minute. Files are also transferred by commands
//! (`shell`), because its file tools only handle text. So there is no host inside, and terminals use the
//! in-process host. A program that needs a terminal gets a PTY of the session, if the image
//! has them (`pty`). The key is sent in the form of each request, as the vendor requires.

mod api;
mod pty;
mod shell;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::http::{RESPONSE_TIMEOUT, Repeat, UploadProgress, none_if_missing};
use super::vendor::{
    Execute, Executed, TRANSITION_TIMEOUT, Vendor, VendorLabels, VendorReply, VendorSandbox,
    VendorUsage, poll_until, settings,
};
use crate::remote::{PtyRequest, RemotePty};
use api::{AgentBaySession, AgentBaySpec, VENDOR, decode, parse, refusal};
use provider::{Fidelity, Observed};
use shell::text_of;

pub use api::AgentBayOptions;
pub(super) use api::AgentBayVendor;

impl Vendor for Arc<AgentBayVendor> {
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
        settings::<AgentBaySpec>(spec).map(drop)
    }

    fn create<'a>(
        &'a self,
        _name: &'a str,
        labels: &'a VendorLabels,
        spec: &'a Value,
    ) -> VendorReply<'a, VendorSandbox> {
        Box::pin(async move {
            let image = settings::<AgentBaySpec>(spec).ok().and_then(|spec| spec.image);
            let fields = [
                ("ImageId", image.as_ref().unwrap_or(&self.options.image).as_str()),
                ("Labels", &json!(labels).to_string()),
                // If the server dies, the vendor ends the session.
                ("Timeout", &self.options.timeout.as_secs().to_string()),
            ];
            let request = self.control("CreateMcpSession", &fields).timeout(TRANSITION_TIMEOUT);
            let session: AgentBaySession = decode(self.send(&request).await?.data)?;
            if session.success == Some(false) || session.session_id.is_empty() {
                let message =
                    session.err_msg.unwrap_or_else(|| "no session was created".to_owned());
                return Err(refusal(StatusCode::BAD_REQUEST, message));
            }
            Ok(session.sandbox(labels.clone()))
        })
    }

    fn find<'a>(&'a self, labels: &'a VendorLabels) -> VendorReply<'a, Vec<VendorSandbox>> {
        Box::pin(async move {
            let wanted = json!(labels).to_string();
            let (mut all, mut next) = (Vec::new(), String::new());
            loop {
                let mut fields = vec![("Labels", wanted.as_str()), ("MaxResults", "100")];
                if !next.is_empty() {
                    fields.push(("NextToken", &next));
                }
                let response =
                    self.send(&self.control("ListSession", &fields).idempotent()).await?;
                let page: Vec<AgentBaySession> = decode(response.data)?;
                let full = !page.is_empty();
                for session in
                    page.into_iter().filter(|session| session.observed() != Observed::Gone)
                {
                    // A list does not contain the labels.
                    if let Some(labels) = self.labels(&session.session_id).await? {
                        all.push(session.sandbox(labels));
                    }
                }
                match response.next_token.filter(|token| full && !token.is_empty()) {
                    Some(token) => next = token,
                    None => return Ok(all),
                }
            }
        })
    }

    fn get<'a>(&'a self, id: &'a str) -> VendorReply<'a, Option<VendorSandbox>> {
        Box::pin(async move {
            let session = none_if_missing(self.session(id).await)?;
            let there = session.filter(|session| session.observed() != Observed::Gone);
            Ok(there.map(|session| {
                AgentBaySession { session_id: id.to_owned(), ..session }
                    .sandbox(VendorLabels::new())
            }))
        })
    }

    fn pause<'a>(&'a self, id: &'a str) -> VendorReply<'a, ()> {
        Box::pin(self.change(id, "PauseSessionAsync", "PAUSED"))
    }

    fn resume<'a>(&'a self, id: &'a str) -> VendorReply<'a, ()> {
        Box::pin(self.change(id, "ResumeSessionAsync", "RUNNING"))
    }

    fn delete<'a>(&'a self, id: &'a str) -> VendorReply<'a, ()> {
        Box::pin(async move {
            if none_if_missing(self.session_call(id, "DeleteSessionAsync").await)?.is_none() {
                return Ok(());
            }
            poll_until(VENDOR, || async {
                let session = none_if_missing(self.session(id).await)?;
                Ok(session
                    .is_none_or(|session| ["DELETED", "FINISH"].contains(&session.status()))
                    .then_some(()))
            })
            .await
        })
    }

    fn keep_alive<'a>(&'a self, sandbox: &'a VendorSandbox) -> VendorReply<'a, ()> {
        Box::pin(
            async move { self.session_call(&sandbox.id, "RefreshSessionIdleTime").await.map(drop) },
        )
    }

    fn keep_alive_interval(&self) -> Duration {
        self.options.timeout / 3
    }

    fn run<'a>(
        &'a self,
        sandbox: &'a VendorSandbox,
        command: &'a Execute,
    ) -> VendorReply<'a, Executed> {
        Box::pin(self.execute(sandbox, command))
    }

    fn upload<'a>(
        &'a self,
        sandbox: &'a VendorSandbox,
        path: &'a str,
        bytes: Bytes,
        progress: Option<UploadProgress>,
    ) -> VendorReply<'a, ()> {
        Box::pin(self.put(sandbox, path, bytes, progress))
    }

    fn max_output_bytes(&self) -> usize {
        // The output is encoded twice inside the answer of a tool.
        192 << 10
    }

    fn open_pty<'a>(
        &'a self,
        sandbox: &'a VendorSandbox,
        wish: &'a PtyRequest,
    ) -> VendorReply<'a, Option<RemotePty>> {
        Box::pin(self.pty(sandbox, wish))
    }

    fn usage<'a>(&'a self, sandbox: &'a VendorSandbox) -> VendorReply<'a, Option<VendorUsage>> {
        Box::pin(async move {
            let nothing = json!({});
            let response =
                self.tool(&sandbox.id, "get_metrics", &nothing, RESPONSE_TIMEOUT, Repeat::Safe);
            parse(&text_of(&response.await?)?).map(Some)
        })
    }
}

#[cfg(test)]
mod tests;
