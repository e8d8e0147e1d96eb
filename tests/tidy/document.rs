//! The API document as the server publishes it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::words::banned;
use harness::{Home, Server};

fn document() -> Value {
    let home = Home::new();
    Server::start(&home).client().get("/openapi.json").expect(200)
}

/// The operations of the document by method and path.
fn operations(document: &Value) -> BTreeMap<String, Value> {
    let paths = document["paths"].as_object().unwrap().iter();
    let all = paths.flat_map(|(path, item)| {
        let item = item.as_object().unwrap().iter();
        item.map(move |(method, operation)| (format!("{method} {path}"), operation.clone()))
    });
    all.collect()
}

/// Calls `act` with the path and the value of every member of a JSON value.
fn visit(value: &Value, path: &str, act: &mut impl FnMut(&str, &Value)) {
    act(path, value);
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, member)| visit(member, &format!("{path}/{name}"), act));
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(index, item)| visit(item, &format!("{path}/{index}"), act));
        }
        _ => {}
    }
}

#[test]
fn the_document_can_be_used_to_generate_clients() {
    let document = document();
    let (mut ids, mut wrong) = (BTreeMap::new(), Vec::new());
    for (name, operation) in operations(&document) {
        let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
        let parts: Vec<&str> = id.split('.').collect();
        let is_word = |part: &&str| part.bytes().all(|it| it.is_ascii_lowercase() || it == b'_');
        if parts.len() != 2 || !parts.iter().all(is_word) {
            wrong.push(format!("{name}: {id:?} is not noun.verb"));
        }
        if let Some(other) = ids.insert(id.clone(), name.clone()) {
            wrong.push(format!("{name} and {other} are both {id}"));
        }
        if name.contains("{*") || name.contains(" /session/") {
            wrong.push(format!("{name} does not belong into the document"));
        }
        let mut parameters = BTreeSet::new();
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            if !parameters.insert((parameter["in"].to_string(), parameter["name"].to_string())) {
                wrong.push(format!("{name}: {} is described twice", parameter["name"]));
            }
        }
        for (kind, body) in operation["requestBody"]["content"].as_object().into_iter().flatten() {
            let schema = body["schema"]["$ref"].as_str().unwrap_or_default();
            let pointer = schema.trim_start_matches('#');
            let example = document.pointer(pointer).is_some_and(|it| !it["example"].is_null());
            if kind == "application/json" && !example {
                wrong.push(format!("{name}: {schema} has no example"));
            }
        }
    }
    let mut missing = BTreeSet::new();
    visit(&document, "", &mut |_, value| {
        if let Some(target) = value.get("$ref").and_then(Value::as_str)
            && document.pointer(target.trim_start_matches('#')).is_none()
        {
            missing.insert(target.to_owned());
        }
    });
    visit(&document["components"]["schemas"], "", &mut |path, value| {
        let kinds = ["properties", "additionalProperties", "allOf", "oneOf"];
        let is_object = |kind: &Value| kind == "object" || kind[0] == "object";
        if is_object(&value["type"]) && kinds.iter().all(|kind| value[kind].is_null()) {
            wrong.push(format!("{path} is an object without a type"));
        }
    });
    assert!(missing.is_empty(), "schemas that are not defined: {missing:#?}");
    assert!(document["servers"][0]["url"].is_string(), "{}", document["servers"]);
    assert!(ids.len() > 90 && wrong.is_empty(), "{} operations: {wrong:#?}", ids.len());
}

#[test]
fn the_document_is_written_for_strangers() {
    let document = document();
    let mut wrong = Vec::new();
    for (name, operation) in operations(&document) {
        let summary = operation["summary"].as_str().unwrap_or_default();
        if !summary.ends_with('.') || summary.len() < 12 || summary.contains('\n') {
            wrong.push(format!("{name}: {summary:?} is not a one-line sentence"));
        }
    }
    visit(&document, "", &mut |path, value| {
        let is_text = ["/description", "/summary", "/title"].iter().any(|end| path.ends_with(end));
        let Some(text) = value.as_str().filter(|_| is_text) else { return };
        let empty = text.split_whitespace().count() < 2 && !path.ends_with("/title");
        let pronoun =
            ["It ", "Its ", "Whether it ", "When it "].iter().any(|it| text.starts_with(it));
        if empty || pronoun || !banned(text).is_empty() {
            wrong.push(format!("{path}: {text}"));
        }
    });
    assert!(wrong.is_empty(), "texts to rewrite: {wrong:#?}");
}

/// The operations that the API changelog leaves after all its versions, as `noun.verb METHOD /path`, and what is
/// wrong with its rows. The newest version is at the top.
fn logged_operations(page: &str) -> (BTreeSet<String>, Vec<String>) {
    let (mut current, mut wrong) = (BTreeSet::new(), Vec::new());
    for line in page.lines().rev() {
        let cells: Vec<&str> = line.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        let ["", change @ ("added" | "changed" | "removed"), id, route, ..] = cells[..] else {
            continue;
        };
        let operation = format!("{id} {route}");
        let is_right = match change {
            "added" => current.insert(operation),
            "removed" => current.remove(&operation),
            _ => current.contains(&operation),
        };
        if !is_right {
            wrong.push(line.to_owned());
        }
    }
    (current, wrong)
}

#[test]
fn every_operation_is_in_the_changelog_of_the_api() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/api-changelog.md");
    let (logged, wrong) = logged_operations(&std::fs::read_to_string(page).unwrap());
    assert!(wrong.is_empty(), "rows that do not fit the older ones below them: {wrong:#?}");
    let served: BTreeSet<String> = operations(&document())
        .into_iter()
        .map(|(name, operation)| {
            let (method, path) = name.split_once(' ').unwrap();
            let id = operation["operationId"].as_str().unwrap();
            format!("{id} {} {path}", method.to_uppercase())
        })
        .collect();
    let unlogged: Vec<_> = served.difference(&logged).collect();
    assert!(unlogged.is_empty(), "add these to docs/api-changelog.md: {unlogged:#?}");
    let gone: Vec<_> = logged.difference(&served).collect();
    assert!(gone.is_empty(), "docs/api-changelog.md must say that these are removed: {gone:#?}");
}

#[test]
fn the_changelog_of_the_api_is_read_from_the_oldest_version() {
    let page = "## 2\n| change | operation | route | what |\n|---|---|---|---|\n\
        | removed | `a.get` | `GET /a` | use b |\n| changed | `b.get` | `GET /b` | more fields |\n\
        ## 1\n| added | `a.get` | `GET /a` | |\n| added | `b.get` | `GET /b` | |\n";
    let (current, wrong) = logged_operations(page);
    assert_eq!(
        (current.into_iter().collect::<Vec<_>>(), wrong),
        (vec!["b.get GET /b".to_owned()], vec![])
    );
    assert_eq!(logged_operations("| removed | `c.get` | `GET /c` |").1.len(), 1);
}
