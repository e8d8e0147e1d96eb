//! The labels of a container, which identify its lease and instance.

use std::collections::HashMap;

use crate::label::InstanceLabel;
use model::InstanceId;

const HOME: &str = "dev.stead.home";
const LEASE: &str = "dev.stead.lease";
const GENERATION: &str = "dev.stead.generation";
const INSTANCE: &str = "dev.stead.instance";

/// Returns the labels for the engine. It may serve several homes, each of which removes only its own
/// containers. A warm container has no lease yet; its directory records the lease later.
pub(super) fn write(label: Option<&InstanceLabel>, home: &str) -> HashMap<String, String> {
    let mut labels = HashMap::from([(HOME.to_owned(), home.to_owned())]);
    if let Some(label) = label {
        labels.extend(
            [
                (LEASE, label.lease_id.to_string()),
                (GENERATION, label.generation.to_string()),
                (INSTANCE, label.instance_id.to_string()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
    }
    labels
}

/// The label of a container; `None` for a warm one.
pub(super) fn read(labels: &HashMap<String, String>) -> Option<InstanceLabel> {
    let instance_id: InstanceId = labels.get(INSTANCE)?.parse().ok()?;
    Some(InstanceLabel {
        lease_id: labels.get(LEASE)?.parse().ok()?,
        generation: labels.get(GENERATION)?.parse().ok()?,
        name: container(instance_id.as_str()),
        instance_id,
    })
}

/// The filter that lists the containers of a home.
pub(super) fn filter(home: &str) -> HashMap<String, Vec<String>> {
    [("label".to_owned(), vec![format!("{HOME}={home}")])].into()
}

/// The name of the container with a directory of this name.
pub(super) fn container(directory: &str) -> String {
    format!("stead-{directory}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::LeaseId;

    #[test]
    fn a_label_survives_writing_and_reading() {
        let instance_id = InstanceId::fresh();
        let label = InstanceLabel {
            lease_id: LeaseId::fresh(),
            generation: 7,
            name: container(instance_id.as_str()),
            instance_id,
        };
        let written = write(Some(&label), "/home/of/ours");
        assert_eq!(read(&written), Some(label));
        assert_eq!(written[HOME], "/home/of/ours");
        assert_eq!(filter("/h")["label"], ["dev.stead.home=/h"]);
        assert_eq!(read(&HashMap::new()), None);
        let warm = write(None, "/home/of/ours");
        assert_eq!((warm[HOME].as_str(), read(&warm)), ("/home/of/ours", None));
    }
}
