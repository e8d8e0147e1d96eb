//! What the status of a pod means, in words: why it does not start, and why it has ended.

use serde::Deserialize;

use crate::vendor::VendorLabels;

/// A pod as the API server describes it, as far as it is used here.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Pod {
    pub(super) metadata: Metadata,
    #[serde(default)]
    status: PodStatus,
}

/// The metadata that all kinds of objects have.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) labels: VendorLabels,
    deletion_timestamp: Option<String>,
}

impl Metadata {
    /// Whether the object only exists until everything that uses it has ended.
    pub(super) fn is_being_deleted(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodStatus {
    phase: String,
    reason: Option<String>,
    message: Option<String>,
    conditions: Vec<Condition>,
    init_container_statuses: Vec<ContainerStatus>,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: Option<String>,
    message: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ContainerStatus {
    image: String,
    state: PodContainerState,
}

/// The state of a container, of which one field is set.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct PodContainerState {
    waiting: Option<WaitingContainer>,
    running: Option<serde_json::Value>,
    terminated: Option<Terminated>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct WaitingContainer {
    reason: Option<String>,
    message: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Terminated {
    exit_code: i64,
    reason: Option<String>,
    message: Option<String>,
}

/// What a pod does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PodState {
    /// It may still start. The words say what it waits for.
    Starting(String),
    Running,
    /// It does not start with its image.
    BadImage(String),
    /// It does not start with its settings.
    BadSettings(String),
    /// It has ended or is being deleted.
    Ended(String),
}

/// How the kubelet calls an image that cannot be had, once it has tried more than once or need not try again.
const IMAGE_REASONS: [&str; 4] =
    ["ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"];
/// How it calls a container that cannot be made.
const SETTINGS_REASONS: [&str; 5] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "CreatePodSandboxError",
    "CrashLoopBackOff",
];

impl Pod {
    pub(super) fn state(&self) -> PodState {
        let status = &self.status;
        if self.metadata.is_being_deleted() {
            let why = status.reason.as_deref().map(|reason| format!(" ({reason})"));
            return PodState::Ended(format!("the pod was deleted{}", why.unwrap_or_default()));
        }
        let containers = || status.init_container_statuses.iter().chain(&status.container_statuses);
        if let Some(words) = containers().find_map(ContainerStatus::start_error) {
            return PodState::BadSettings(words);
        }
        if matches!(status.phase.as_str(), "Failed" | "Succeeded") {
            let ended = containers().filter_map(ContainerStatus::end).next_back();
            let words = match (status.reason.as_deref(), ended) {
                (Some("Evicted"), _) => {
                    format!("the pod was evicted from its node{}", after_colon(&status.message))
                }
                (Some(reason), _) => {
                    format!("the pod has ended: {reason}{}", after_colon(&status.message))
                }
                (None, Some(ended)) => ended,
                (None, None) => "the pod has ended".to_owned(),
            };
            return PodState::Ended(words);
        }
        if let Some(ended) = status.container_statuses.iter().find_map(ContainerStatus::end) {
            return PodState::Ended(ended);
        }
        let running = !status.container_statuses.is_empty()
            && status.container_statuses.iter().all(|it| it.state.running.is_some());
        // A lost node reports nothing more about its pods.
        if running || status.phase == "Unknown" {
            return PodState::Running;
        }
        let stuck = containers().filter_map(ContainerStatus::stuck).next();
        stuck.unwrap_or_else(|| PodState::Starting(self.waits_for()))
    }

    /// What a pod waits for that may still start.
    fn waits_for(&self) -> String {
        let status = &self.status;
        let unscheduled =
            status.conditions.iter().find(|it| it.kind == "PodScheduled" && it.status == "False");
        if let Some(condition) = unscheduled {
            let reason = after_colon(&condition.message);
            return match condition.reason.as_deref() {
                Some("Unschedulable") | None => format!("no node can run the pod{reason}"),
                Some(other) => format!("the pod is not scheduled ({other}){reason}"),
            };
        }
        let containers = status.init_container_statuses.iter().chain(&status.container_statuses);
        let waits = containers.filter_map(|it| it.state.waiting.as_ref().map(|state| (it, state)));
        for (container, waiting) in waits {
            let reason = waiting.reason.as_deref().unwrap_or_default();
            if reason == "ErrImagePull" {
                return container.image_words(waiting);
            }
            if !matches!(reason, "" | "ContainerCreating" | "PodInitializing") {
                return format!("a container waits: {reason}{}", after_colon(&waiting.message));
            }
        }
        match status.phase.as_str() {
            "" => "the cluster has not looked at the pod yet".to_owned(),
            _ => "its containers are being created".to_owned(),
        }
    }
}

impl ContainerStatus {
    /// How the container has ended, if it has and should not have.
    fn end(&self) -> Option<String> {
        let ended = self.state.terminated.as_ref()?;
        let completed = ended.exit_code == 0 && ended.reason.as_deref() == Some("Completed");
        let message = after_colon(&ended.message);
        Some(match ended.reason.as_deref() {
            Some("OOMKilled") => {
                "a container used up its memory and was killed (OOMKilled)".to_owned()
            }
            _ if completed => return None,
            Some("Error") | None => {
                format!("a container exited with code {}{message}", ended.exit_code)
            }
            Some(reason) => {
                format!("a container ended with {reason} and code {}{message}", ended.exit_code)
            }
        })
    }

    /// Why the container could not run its first program, such as for want of a shell.
    fn start_error(&self) -> Option<String> {
        let ended = self.state.terminated.as_ref()?;
        let reason = ended.reason.as_deref()?;
        let message = after_colon(&ended.message);
        matches!(reason, "StartError" | "ContainerCannotRun")
            .then(|| format!("a container of the image {} cannot start{message}", self.image))
    }

    fn stuck(&self) -> Option<PodState> {
        let waiting = self.state.waiting.as_ref()?;
        let reason = waiting.reason.as_deref()?;
        if IMAGE_REASONS.contains(&reason) {
            return Some(PodState::BadImage(self.image_words(waiting)));
        }
        SETTINGS_REASONS.contains(&reason).then(|| {
            let message = after_colon(&waiting.message);
            PodState::BadSettings(format!("a container cannot be created: {reason}{message}"))
        })
    }

    fn image_words(&self, waiting: &WaitingContainer) -> String {
        let reason = waiting.reason.as_deref().unwrap_or_default();
        format!(
            "the image {} cannot be used: {reason}{}",
            self.image,
            after_colon(&waiting.message)
        )
    }
}

fn after_colon(message: &Option<String>) -> String {
    match message.as_deref().map(str::trim) {
        Some(text) if !text.is_empty() => format!(": {text}"),
        Some(_) | None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn state(status: Value) -> PodState {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p"}, "status": status})).unwrap();
        pod.state()
    }

    fn container(state: Value) -> Value {
        json!([{"name": "stead", "image": "img:1", "state": state}])
    }

    #[test]
    fn what_a_pod_waits_for_is_put_in_words() {
        let starting = |status: Value| match state(status) {
            PodState::Starting(words) => words,
            other => panic!("{other:?}"),
        };
        assert_eq!(starting(json!({})), "the cluster has not looked at the pod yet");
        let unschedulable = json!({"phase": "Pending", "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/1 nodes are available: 1 Insufficient cpu.",
        }]});
        let expected = "no node can run the pod: 0/1 nodes are available: 1 Insufficient cpu.";
        assert_eq!(starting(unschedulable), expected);
        let creating = container(json!({"waiting": {"reason": "ContainerCreating"}}));
        let status = json!({"phase": "Pending", "containerStatuses": creating});
        assert_eq!(starting(status), "its containers are being created");
        let pulling =
            container(json!({"waiting": {"reason": "ErrImagePull", "message": "not found"}}));
        let status = json!({"phase": "Pending", "containerStatuses": pulling});
        assert_eq!(starting(status), "the image img:1 cannot be used: ErrImagePull: not found");
    }

    #[test]
    fn a_pod_that_cannot_start_names_the_cause() {
        let waiting = |reason: &str| {
            let waiting = container(json!({"waiting": {"reason": reason, "message": "why"}}));
            state(json!({"phase": "Pending", "containerStatuses": waiting}))
        };
        let words = "the image img:1 cannot be used: ImagePullBackOff: why";
        assert_eq!(waiting("ImagePullBackOff"), PodState::BadImage(words.to_owned()));
        let words = "a container cannot be created: CreateContainerConfigError: why";
        assert_eq!(waiting("CreateContainerConfigError"), PodState::BadSettings(words.to_owned()));
        let message = "exec: \"/bin/sh\": no such file or directory";
        let terminated = json!({"exitCode": 128, "reason": "StartError", "message": message});
        let ended = container(json!({"terminated": terminated}));
        let words = format!("a container of the image img:1 cannot start: {message}");
        let status = json!({"phase": "Failed", "containerStatuses": ended});
        assert_eq!(state(status), PodState::BadSettings(words));
        // The container that brings our executable has an image, too.
        let host = container(json!({"waiting": {"reason": "InvalidImageName"}}));
        let status = json!({"phase": "Pending", "initContainerStatuses": host});
        assert!(matches!(state(status), PodState::BadImage(_)));
    }

    #[test]
    fn the_end_of_a_pod_is_put_in_words() {
        let check = |status: Value, expected: &str| {
            assert_eq!(state(status), PodState::Ended(expected.to_owned()));
        };
        let message = "The node was low on resource: memory.";
        check(
            json!({"phase": "Failed", "reason": "Evicted", "message": message}),
            "the pod was evicted from its node: The node was low on resource: memory.",
        );
        let ended = |terminated: Value| json!({"phase": "Failed", "containerStatuses": container(json!({"terminated": terminated}))});
        check(
            ended(json!({"exitCode": 137, "reason": "OOMKilled"})),
            "a container used up its memory and was killed (OOMKilled)",
        );
        check(ended(json!({"exitCode": 2, "reason": "Error"})), "a container exited with code 2");
        check(ended(json!({"exitCode": 0, "reason": "Completed"})), "the pod has ended");
        let pod = json!({"metadata": {"deletionTimestamp": "now"}, "status": {"phase": "Running"}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        assert_eq!(pod.state(), PodState::Ended("the pod was deleted".to_owned()));
    }

    #[test]
    fn a_pod_runs_when_its_container_does() {
        let running = container(json!({"running": {"startedAt": "now"}}));
        let done = container(json!({"terminated": {"exitCode": 0, "reason": "Completed"}}));
        let status = json!({
            "phase": "Running", "initContainerStatuses": done, "containerStatuses": running,
        });
        assert_eq!(state(status), PodState::Running);
        assert_eq!(state(json!({"phase": "Unknown"})), PodState::Running);
    }
}
