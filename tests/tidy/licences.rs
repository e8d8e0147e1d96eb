//! The licences of all dependencies: what `cargo deny` checks, for machines that do not have it.

use std::{collections::BTreeSet, fs, process::Command};

use serde_json::Value;

use super::root;

/// The part of `deny.toml` that is compared here.
struct Rules {
    targets: Vec<String>,
    licences: BTreeSet<String>,
    banned: BTreeSet<String>,
}

fn rules() -> Rules {
    let file: toml::Table = fs::read_to_string(root().join("deny.toml")).unwrap().parse().unwrap();
    let texts = |list: &toml::Value| -> Vec<String> {
        let items = list.as_array().unwrap().iter();
        items.map(|item| item.get("name").unwrap_or(item).as_str().unwrap().to_owned()).collect()
    };
    Rules {
        targets: texts(&file["graph"]["targets"]),
        licences: texts(&file["licenses"]["allow"]).into_iter().collect(),
        banned: texts(&file["bans"]["deny"]).into_iter().collect(),
    }
}

/// The packages of a target that are not ours, from cargo's cache.
fn packages(target: &str) -> Vec<Value> {
    let arguments = ["metadata", "--format-version=1", "--offline", "--locked"];
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .args(["--filter-platform", target])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages.filter(|package| !package["source"].is_null()).cloned().collect()
}

/// Splits an SPDX expression into names, operators and parentheses. Old manifests separate alternatives by a slash.
fn tokens(expression: &str) -> Vec<String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    spaced.split_whitespace().map(str::to_owned).collect()
}

/// Returns whether the alternatives at the beginning of the tokens are allowed, and removes them.
fn alternatives(tokens: &mut &[String], allowed: &BTreeSet<String>) -> bool {
    let mut any = conjunction(tokens, allowed);
    while let [operator, rest @ ..] = *tokens
        && operator == "OR"
    {
        *tokens = rest;
        any |= conjunction(tokens, allowed);
    }
    any
}

fn conjunction(tokens: &mut &[String], allowed: &BTreeSet<String>) -> bool {
    let mut all = licence(tokens, allowed);
    while let [operator, rest @ ..] = *tokens
        && operator == "AND"
    {
        *tokens = rest;
        all &= licence(tokens, allowed);
    }
    all
}

fn licence(tokens: &mut &[String], allowed: &BTreeSet<String>) -> bool {
    let (name, rest) = tokens.split_first().expect("an SPDX expression does not end here");
    *tokens = rest;
    if name == "(" {
        let inside = alternatives(tokens, allowed);
        *tokens = tokens.split_first().expect("a parenthesis is closed").1;
        return inside;
    }
    match *tokens {
        [operator, exception, rest @ ..] if operator == "WITH" => {
            *tokens = rest;
            allowed.contains(&format!("{name} WITH {exception}"))
        }
        _ => allowed.contains(name),
    }
}

fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    alternatives(&mut &tokens(expression)[..], allowed)
}

#[test]
fn every_dependency_has_a_licence_that_the_project_accepts() {
    let rules = rules();
    let mut wrong = BTreeSet::new();
    for target in &rules.targets {
        let packages = packages(target);
        assert!(packages.len() > 100, "{} packages for {target}", packages.len());
        for package in packages {
            let (name, version) = (package["name"].as_str().unwrap(), &package["version"]);
            match package["license"].as_str() {
                Some(licence) if is_allowed(licence, &rules.licences) => {}
                other => drop(wrong.insert(format!("{name} {version}: {other:?}"))),
            }
            if rules.banned.contains(name) {
                wrong.insert(format!("{name} {version} is banned"));
            }
        }
    }
    assert!(wrong.is_empty(), "not accepted by deny.toml: {wrong:#?}");
}

#[test]
fn a_licence_expression_is_accepted_if_one_of_its_choices_is() {
    let allowed = ["MIT", "Apache-2.0", "Zlib", "Apache-2.0 WITH LLVM-exception"];
    let allowed = BTreeSet::from(allowed.map(str::to_owned));
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0-only", false),
        ("GPL-3.0-only OR MIT", true),
        ("MIT/GPL-3.0-only", true),
        ("MIT AND GPL-3.0-only", false),
        ("MIT AND (GPL-3.0-only OR Zlib)", true),
        ("(MIT OR Apache-2.0) AND GPL-3.0-only", false),
        ("Apache-2.0 WITH LLVM-exception OR GPL-3.0-only", true),
        ("Zlib WITH LLVM-exception", false),
        ("GPL-3.0-only OR MIT AND Zlib", true),
    ] {
        assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
    }
}
