//! Names: one type per name in the workspace, one schema per name in the API document.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{attributes, files, is_test, product, product_folders, root};

/// Returns the name of the struct, enum, union or trait that a line declares, whatever its visibility.
fn declared_type(line: &str) -> Option<&str> {
    let is_modifier = |word: &&str| word.starts_with("pub") || ["unsafe", "auto"].contains(word);
    // A visibility such as `pub(in crate::lease)` is two words.
    let mut words =
        line.split_whitespace().skip_while(|word| is_modifier(word) || word.ends_with(')'));
    let keyword = words.next()?;
    if !["struct", "enum", "union", "trait"].contains(&keyword) {
        return None;
    }
    // A macro's `struct $name` has no name yet.
    let name = words.next()?.split(|c: char| !c.is_alphanumeric() && c != '_').next();
    name.filter(|name| !name.is_empty())
}

#[test]
fn no_two_types_have_one_name() {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for folder in product_folders() {
        for (path, text) in files(&folder) {
            if is_test(&path) {
                continue;
            }
            let file = path.strip_prefix(root()).unwrap().display().to_string();
            for name in product(&text).lines().filter_map(declared_type) {
                found.entry(name.to_owned()).or_default().insert(file.clone());
            }
        }
    }
    found.retain(|_, files| files.len() > 1);
    assert!(found.is_empty(), "types of one name: {found:#?}");
}

#[test]
fn no_two_schemas_have_one_name() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for folder in product_folders() {
        for (path, text) in files(&folder) {
            let lines: Vec<&str> = text.lines().collect();
            for (index, line) in lines.iter().enumerate() {
                let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
                let declares = words.next().is_some_and(|word| ["struct", "enum"].contains(&word));
                if declares && attributes(&lines, index).contains("ToSchema") {
                    let name = words.next().unwrap_or_default();
                    let name = name.split(|c: char| !c.is_alphanumeric()).next().unwrap();
                    let file = path.strip_prefix(root()).unwrap().display().to_string();
                    found.entry(name.to_owned()).or_default().push(file);
                }
            }
        }
    }
    assert!(found.len() > 50, "the schemas were not found: {found:#?}");
    // utoipa keeps the last of two schemas of one name and describes the wrong type.
    found.retain(|_, files| files.len() > 1);
    assert!(found.is_empty(), "schemas of one name: {found:#?}");
}

#[test]
fn a_declared_type_is_recognized() {
    let check = |line: &str, expected: Option<&str>| assert_eq!(declared_type(line), expected);
    check("pub struct Lease {", Some("Lease"));
    check("pub(crate) struct Shares<T>(", Some("Shares"));
    check("pub(in crate::lease) struct Worker;", Some("Worker"));
    check("    pub(super) enum Mode {", Some("Mode"));
    check("pub unsafe trait Zeroed {}", Some("Zeroed"));
    check("struct Private;", Some("Private"));
    check("pub fn structure() {", None);
    check("pub structure: Lease,", None);
    check("    structure: Lease,", None);
}
