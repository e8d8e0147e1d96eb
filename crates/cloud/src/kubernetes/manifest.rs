//! The objects that are created: a pod for each instance, and a volume claim for each lease that keeps its files.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::options::KubernetesOptions;
use crate::vendor::{GENERATION_LABEL, LEASE_LABEL, VendorLabels};

/// The container in which the shells run.
pub(super) const CONTAINER: &str = "stead";
/// Where the disk of a lease is mounted, which is the home directory of shells.
pub(super) const HOME: &str = "/home/stead";
/// Where our executable is if an init container brings it.
pub(super) const PROGRAM: &str = "/.stead/stead";
const PROGRAM_DIRECTORY: &str = "/.stead";
/// Where the image of Stead has the executable.
const PROGRAM_IN_IMAGE: &str = "/usr/bin/stead";
/// How long a container may take to end after SIGTERM. Its shells end with it either way.
const GRACE_SECONDS: u64 = 1;
/// Process 1 of the container. It waits for orphaned processes, and ends when the pod is deleted.
const PROCESS_ONE: &str = "trap 'exit 0' TERM; while :; do sleep 86400 & wait $!; done";

/// The settings of a lease.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PodSpec {
    image: Option<String>,
    cpus: Option<f64>,
    /// The memory in bytes, or with a unit such as `512MiB`.
    memory: Option<Value>,
}

/// A toleration in a setting: `KEY`, `KEY=VALUE`, both optionally with `:EFFECT`.
fn toleration(text: &str) -> Value {
    let (rest, effect) = match text.split_once(':') {
        Some((rest, effect)) => (rest, Some(effect)),
        None => (text, None),
    };
    let mut toleration = match rest.split_once('=') {
        Some((key, value)) => json!({"key": key, "operator": "Equal", "value": value}),
        None => json!({"key": rest, "operator": "Exists"}),
    };
    if let Some(effect) = effect {
        toleration["effect"] = effect.into();
    }
    toleration
}

/// Bytes as a number, or as text with a unit.
fn bytes(value: &Value) -> Option<u64> {
    if let Some(bytes) = value.as_u64() {
        return Some(bytes);
    }
    let text = value.as_str()?.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "ki" | "kib" => 10,
        "m" | "mi" | "mib" => 20,
        "g" | "gi" | "gib" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

impl PodSpec {
    /// Checks values; the error is the reason of a refusal.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.image.as_ref().is_some_and(|image| image.trim().is_empty()) {
            return Err("`image` must not be empty".to_owned());
        }
        if self.cpus.is_some_and(|cpus| !cpus.is_finite() || cpus < 0.001) {
            return Err("`cpus` must be a positive number".to_owned());
        }
        match &self.memory {
            Some(memory) if bytes(memory).is_none_or(|bytes| bytes < 16 << 20) => {
                Err("`memory` must be at least 16MiB, for example 512MiB".to_owned())
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Returns the name of the object of a lease, and of an instance if there is a generation. The same lease and
/// generation give the same name, so that a repeated creation finds what the first one left.
pub(super) fn name(labels: &VendorLabels, generation: Option<&str>) -> String {
    let lease = labels.get(LEASE_LABEL).map_or("", String::as_str).replace('_', "-");
    let end = generation.map(|generation| format!("-{generation}")).unwrap_or_default();
    format!("stead-{lease}{end}")
}

pub(super) fn pod_name(labels: &VendorLabels) -> String {
    name(labels, labels.get(GENERATION_LABEL).map(String::as_str))
}

fn with_our_label(labels: &VendorLabels) -> VendorLabels {
    let own = ("app.kubernetes.io/managed-by".to_owned(), "stead".to_owned());
    labels.clone().into_iter().chain([own]).collect()
}

/// The claim to the disk of a lease.
pub(super) fn claim(options: &KubernetesOptions, labels: &VendorLabels) -> Value {
    let mut spec = json!({
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": options.disk_bytes.to_string()}},
    });
    // Without a name, the cluster's default class is used.
    if let Some(class) = options.storage_class.as_deref().filter(|class| *class != "auto") {
        spec["storageClassName"] = class.into();
    }
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name(labels, None), "labels": with_our_label(labels)},
        "spec": spec,
    })
}

/// The pod of an instance. It has no privileges, and nothing in it can use the API of the cluster.
pub(super) fn pod(options: &KubernetesOptions, labels: &VendorLabels, spec: &PodSpec) -> Value {
    let image = spec.image.as_ref().unwrap_or(&options.image);
    let memory = spec.memory.as_ref().and_then(bytes).unwrap_or(options.memory_bytes);
    let millis = (spec.cpus.unwrap_or(options.cpus) * 1000.0).ceil();
    let resources = json!({
        "limits": {
            "cpu": format!("{millis}m"),
            "memory": memory.to_string(),
            "ephemeral-storage": options.disk_bytes.to_string(),
        },
        // Those of CPU and memory equal the limits.
        "requests": {"ephemeral-storage": options.disk_bytes.min(128 << 20).to_string()},
    });
    let unprivileged = json!({
        "privileged": false,
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
    });
    let disk = match &options.storage_class {
        Some(_) => json!({
            "name": "disk", "persistentVolumeClaim": {"claimName": name(labels, None)},
        }),
        None => json!({"name": "disk", "emptyDir": {"sizeLimit": options.disk_bytes.to_string()}}),
    };
    let mut container = json!({
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": options.pull_policy,
        "command": ["/bin/sh", "-c", PROCESS_ONE],
        "resources": resources,
        "securityContext": unprivileged,
        "volumeMounts": [{"name": "disk", "mountPath": HOME}],
    });
    let mut pod = json!({
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "securityContext": {
            "runAsUser": options.user,
            "runAsGroup": options.user,
            "fsGroup": options.user,
            "runAsNonRoot": options.user != 0,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": [disk],
    });
    if let Some(image) = &options.host_image {
        let mount = json!({"name": "program", "mountPath": PROGRAM_DIRECTORY});
        pod["initContainers"] = json!([{
            "name": "program",
            "image": image,
            "imagePullPolicy": options.pull_policy,
            "command": [PROGRAM_IN_IMAGE, "cloud", "copy", PROGRAM],
            "resources": resources,
            "securityContext": unprivileged,
            "volumeMounts": [mount],
        }]);
        push(&mut pod["volumes"], json!({"name": "program", "emptyDir": {}}));
        let mount = json!({
            "name": "program", "mountPath": PROGRAM_DIRECTORY, "readOnly": true,
        });
        push(&mut container["volumeMounts"], mount);
    }
    pod["containers"] = json!([container]);
    if !options.node_selector.is_empty() {
        let pairs = options.node_selector.iter().filter_map(|pair| pair.split_once('='));
        pod["nodeSelector"] = json!(pairs.collect::<BTreeMap<_, _>>());
    }
    if !options.tolerations.is_empty() {
        pod["tolerations"] = options.tolerations.iter().map(|text| toleration(text)).collect();
    }
    if !options.pull_secrets.is_empty() {
        let names = options.pull_secrets.iter().map(|name| json!({"name": name}));
        pod["imagePullSecrets"] = names.collect();
    }
    if let Some(class) = &options.runtime_class {
        pod["runtimeClassName"] = class.as_str().into();
    }
    if let Some(account) = &options.service_account {
        pod["serviceAccountName"] = account.as_str().into();
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod_name(labels), "labels": with_our_label(labels)},
        "spec": pod,
    })
}

fn push(list: &mut Value, item: Value) {
    if let Some(list) = list.as_array_mut() {
        list.push(item);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::kubernetes::kubeconfig::{ClusterToken, KubernetesAccess};
    use crate::vendor::{HOME_LABEL, INSTANCE_LABEL, settings};

    fn options() -> KubernetesOptions {
        let access = KubernetesAccess {
            server: "https://10.0.0.1".to_owned(),
            namespace: "agents".to_owned(),
            authorities: None,
            identity: None,
            token: ClusterToken::None,
        };
        KubernetesOptions {
            access,
            namespace: None,
            image: "debian:stable-slim".to_owned(),
            pull_policy: "IfNotPresent".to_owned(),
            pull_secrets: vec![],
            service_account: None,
            node_selector: vec![],
            tolerations: vec![],
            runtime_class: None,
            user: 1000,
            cpus: 1.0,
            memory_bytes: 1 << 30,
            disk_bytes: 8 << 30,
            storage_class: None,
            host_image: None,
            start_timeout: Duration::from_secs(300),
        }
    }

    fn labels() -> VendorLabels {
        let labels = [
            (HOME_LABEL, "0123"),
            (LEASE_LABEL, "lease_ab12"),
            (GENERATION_LABEL, "3"),
            (INSTANCE_LABEL, "inst_cd34"),
        ];
        labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    fn check(made: &Value, expected: &str) {
        let text = serde_json::to_string_pretty(made).unwrap();
        let expected: Value = serde_json::from_str(expected).unwrap();
        assert_eq!(*made, expected, "{text}");
    }

    #[test]
    fn a_pod_has_no_privileges_and_names_its_lease() {
        check(
            &pod(&options(), &labels(), &PodSpec::default()),
            r#"{
  "apiVersion": "v1",
  "kind": "Pod",
  "metadata": {
    "name": "stead-lease-ab12-3",
    "labels": {
      "app.kubernetes.io/managed-by": "stead",
      "stead_generation": "3",
      "stead_home": "0123",
      "stead_instance": "inst_cd34",
      "stead_lease": "lease_ab12"
    }
  },
  "spec": {
    "restartPolicy": "Never",
    "terminationGracePeriodSeconds": 1,
    "automountServiceAccountToken": false,
    "enableServiceLinks": false,
    "securityContext": {
      "runAsUser": 1000,
      "runAsGroup": 1000,
      "fsGroup": 1000,
      "runAsNonRoot": true,
      "seccompProfile": {"type": "RuntimeDefault"}
    },
    "volumes": [{"name": "disk", "emptyDir": {"sizeLimit": "8589934592"}}],
    "containers": [{
      "name": "stead",
      "image": "debian:stable-slim",
      "imagePullPolicy": "IfNotPresent",
      "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 86400 & wait $!; done"],
      "resources": {
        "limits": {"cpu": "1000m", "memory": "1073741824", "ephemeral-storage": "8589934592"},
        "requests": {"ephemeral-storage": "134217728"}
      },
      "securityContext": {
        "privileged": false,
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]}
      },
      "volumeMounts": [{"name": "disk", "mountPath": "/home/stead"}]
    }]
  }
}"#,
        );
    }

    #[test]
    fn every_setting_is_in_the_pod() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let options = KubernetesOptions {
            pull_secrets: words("one two"),
            service_account: Some("agents".to_owned()),
            node_selector: words("pool=agents zone=a"),
            tolerations: words("agents gpu=yes:NoSchedule"),
            runtime_class: Some("gvisor".to_owned()),
            user: 0,
            storage_class: Some("fast".to_owned()),
            host_image: Some("stead:1".to_owned()),
            ..options()
        };
        let spec = json!({"image": "node:22", "cpus": 0.25, "memory": "512MiB"});
        let spec: PodSpec = settings(&spec).unwrap();
        let made = pod(&options, &labels(), &spec);
        let made = &made["spec"];
        let container = &made["containers"][0];
        assert_eq!(container["image"], "node:22");
        assert_eq!(container["resources"]["limits"]["cpu"], "250m");
        assert_eq!(container["resources"]["limits"]["memory"], "536870912");
        let mounts = json!([
            {"name": "disk", "mountPath": "/home/stead"},
            {"name": "program", "mountPath": "/.stead", "readOnly": true},
        ]);
        assert_eq!(container["volumeMounts"], mounts);
        let brings = &made["initContainers"][0];
        assert_eq!(brings["image"], "stead:1");
        assert_eq!(brings["command"], json!(["/usr/bin/stead", "cloud", "copy", "/.stead/stead"]));
        assert_eq!(brings["securityContext"], container["securityContext"]);
        let volumes = json!([
            {"name": "disk", "persistentVolumeClaim": {"claimName": "stead-lease-ab12"}},
            {"name": "program", "emptyDir": {}},
        ]);
        assert_eq!(made["volumes"], volumes);
        assert_eq!(made["imagePullSecrets"], json!([{"name": "one"}, {"name": "two"}]));
        assert_eq!(made["serviceAccountName"], "agents");
        assert_eq!(made["automountServiceAccountToken"], false);
        assert_eq!(made["nodeSelector"], json!({"pool": "agents", "zone": "a"}));
        let tolerations = json!([
            {"key": "agents", "operator": "Exists"},
            {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
        ]);
        assert_eq!(made["tolerations"], tolerations);
        assert_eq!(made["runtimeClassName"], "gvisor");
        assert_eq!(made["securityContext"]["runAsNonRoot"], false);
        let claim = claim(&options, &labels());
        assert_eq!(claim["metadata"]["name"], "stead-lease-ab12");
        assert_eq!(claim["metadata"]["labels"]["stead_lease"], "lease_ab12");
        assert_eq!(claim["spec"]["storageClassName"], "fast");
        assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "8589934592");
    }

    #[test]
    fn wrong_settings_of_a_lease_are_refused() {
        let refused = |spec: Value| settings::<PodSpec>(&spec).and_then(|spec| spec.check());
        let check = |spec: Value, expected: &str| {
            let error = refused(spec.clone()).unwrap_err();
            assert!(error.contains(expected), "{spec}: {error}");
        };
        check(json!({"hostNetwork": true}), "unknown field");
        check(json!({"image": " "}), "must not be empty");
        check(json!({"cpus": 0.0}), "positive");
        check(json!({"memory": "12 elephants"}), "at least 16MiB");
        check(json!({"memory": 1024}), "at least 16MiB");
        assert_eq!(refused(Value::Null), Ok(()));
        assert_eq!(refused(json!({"memory": 1 << 30, "cpus": 2})), Ok(()));
        assert_eq!(bytes(&json!("2Gi")), Some(2 << 30));
    }
}
