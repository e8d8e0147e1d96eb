//! What a container was made for, as its engine keeps it.

use std::collections::HashMap;

use crate::namespace::Label;
use model::InstanceId;

const HOME: &str = "dev.stead.home";
const LEASE: &str = "dev.stead.lease";
const GENERATION: &str = "dev.stead.generation";
const INSTANCE: &str = "dev.stead.instance";

/// As an engine takes them. An engine may serve several homes, and each ends only its own. One that waits
/// was made for nothing yet; what it is for later is in its directory.
pub(super) fn write(label: Option<&Label>, home: &str) -> HashMap<String, String> {
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

/// The same, read back.
pub(super) fn read(labels: &HashMap<String, String>) -> Option<Label> {
    let instance_id: InstanceId = labels.get(INSTANCE)?.parse().ok()?;
    Some(Label {
        lease_id: labels.get(LEASE)?.parse().ok()?,
        generation: labels.get(GENERATION)?.parse().ok()?,
        name: container(instance_id.as_str()),
        instance_id,
    })
}

/// What an engine is asked to list the containers of a home.
pub(super) fn filter(home: &str) -> HashMap<String, Vec<String>> {
    [("label".to_owned(), vec![format!("{HOME}={home}")])].into()
}

/// What the engine calls the container that is made in a directory of this name.
pub(super) fn container(directory: &str) -> String {
    format!("stead-{directory}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::LeaseId;

    #[test]
    fn labels_come_back_as_they_went() {
        let instance_id = InstanceId::fresh();
        let label = Label {
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
        let waits = write(None, "/home/of/ours");
        assert_eq!((waits[HOME].as_str(), read(&waits)), ("/home/of/ours", None));
    }
}
