//! What a container was made for, as its engine keeps it.

use std::collections::HashMap;

use crate::model::InstanceId;
use crate::provider::namespace::Label;

const HOME: &str = "dev.stead.home";
const LEASE: &str = "dev.stead.lease";
const GENERATION: &str = "dev.stead.generation";
const INSTANCE: &str = "dev.stead.instance";

/// As an engine takes them. An engine may serve several homes, and each ends only its own.
pub(super) fn write(label: &Label, home: &str) -> HashMap<String, String> {
    [
        (HOME, home.to_owned()),
        (LEASE, label.lease_id.to_string()),
        (GENERATION, label.generation.to_string()),
        (INSTANCE, label.instance_id.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// The same, read back.
pub(super) fn read(labels: &HashMap<String, String>) -> Option<Label> {
    let instance_id: InstanceId = labels.get(INSTANCE)?.parse().ok()?;
    Some(Label {
        lease_id: labels.get(LEASE)?.parse().ok()?,
        generation: labels.get(GENERATION)?.parse().ok()?,
        name: container(&instance_id),
        instance_id,
    })
}

/// What an engine is asked to list the containers of a home.
pub(super) fn filter(home: &str) -> HashMap<String, Vec<String>> {
    [("label".to_owned(), vec![format!("{HOME}={home}")])].into()
}

/// The name of an instance's container.
pub(super) fn container(instance: &InstanceId) -> String {
    format!("stead-{instance}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LeaseId;

    #[test]
    fn labels_come_back_as_they_went() {
        let instance_id = InstanceId::fresh();
        let label = Label {
            lease_id: LeaseId::fresh(),
            generation: 7,
            name: container(&instance_id),
            instance_id,
        };
        let written = write(&label, "/home/of/ours");
        assert_eq!(read(&written), Some(label));
        assert_eq!(written[HOME], "/home/of/ours");
        assert_eq!(filter("/h")["label"], ["dev.stead.home=/h"]);
        assert_eq!(read(&HashMap::new()), None);
    }
}
