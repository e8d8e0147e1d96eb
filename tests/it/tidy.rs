//! The house's rules that a compiler does not check.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Modules that any other may use.
const LEAVES: [&str; 5] = ["model", "config", "metrics", "clock", "durable"];

/// The others, outermost first: each may use those after it.
const ORDER: [&str; 12] = [
    "cli",
    "server",
    "api",
    "background",
    "project",
    "session",
    "terminal",
    "lease",
    "provider",
    "store",
    "event",
    "outbound",
];

/// Steps that the order alone would allow.
const FORBIDDEN: [(&str, &str); 2] = [("provider", "store"), ("cli", "api")];

fn may_use(module: &str, used: &str) -> bool {
    let place = |name: &str| ORDER.iter().position(|other| *other == name);
    if module == used {
        return true;
    }
    if LEAVES.contains(&used) {
        return module != "model" && !(LEAVES.contains(&module) && used != "model");
    }
    match (place(module), place(used)) {
        (Some(from), Some(to)) => from < to && !FORBIDDEN.contains(&(module, used)),
        _ => false,
    }
}

/// Longest file, its tests aside.
const LONGEST: usize = 800;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &str) -> Vec<(PathBuf, String)> {
    let (mut folders, mut found) = (vec![root().join(folder)], Vec::new());
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                // What the compiler makes is not ours.
                if path.file_name().is_none_or(|name| name != "target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push((path.clone(), fs::read_to_string(path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

fn code(text: &str) -> String {
    let line = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Names right after `prefix`, those in braces at the first level included.
fn names_after(code: &str, prefix: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let word = |text: &str| -> String {
        text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    for (at, _) in code.match_indices(prefix) {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        if !rest.starts_with('{') {
            names.insert(word(rest));
            continue;
        }
        let (mut depth, mut start) = (0, true);
        for (index, c) in rest.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => start = true,
                c if c.is_whitespace() => {}
                _ if start && depth == 1 => {
                    names.insert(word(&rest[index..]));
                    start = false;
                }
                _ => {}
            }
            if c == '{' && depth == 1 {
                start = true;
            }
            if depth == 0 {
                break;
            }
        }
    }
    names
}

#[test]
fn names_are_found_in_paths_and_in_braces() {
    let code = "use crate::{a::{x, y}, b, c::d};\nlet z = crate::e::f();\nuse mycrate::g;";
    let found: Vec<_> = names_after(code, "crate::").into_iter().collect();
    assert_eq!(found, ["a", "b", "c", "e"]);
}

#[test]
fn the_order_is_the_one_of_the_map() {
    for (module, used, expected) in [
        ("api", "terminal", true),
        ("terminal", "api", false),
        ("cli", "server", true),
        ("cli", "api", false),
        ("provider", "store", false),
        ("store", "provider", false),
        ("store", "model", true),
        ("event", "model", true),
        ("model", "config", false),
        ("config", "metrics", false),
    ] {
        assert_eq!(may_use(module, used), expected, "{module} -> {used}");
    }
}

#[test]
fn imports_point_inward() {
    let mut wrong = Vec::new();
    for (path, text) in files("src") {
        let inner = path.strip_prefix(root().join("src")).unwrap();
        let module = inner.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        if module == "main" {
            continue;
        }
        if module == "lib" {
            continue;
        }
        if !ORDER.contains(&module) && !LEAVES.contains(&module) {
            wrong.push(format!("{module} is not in the list of modules"));
            continue;
        }
        for used in names_after(&code(&text), "crate::") {
            if !may_use(module, &used) {
                wrong.push(format!("{} uses {used}", inner.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "imports that point outward: {wrong:#?}");
}

#[test]
fn the_host_and_the_screen_know_nothing_of_the_product() {
    for (name, forbidden) in [
        ("host", ["vt", "stead", "tokio", "axum", "hyper", "rusqlite"]),
        ("vt", ["host", "stead", "tokio", "axum", "rustix", "libc"]),
    ] {
        let manifest = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml"));
        let manifest: toml::Table = manifest.unwrap().parse().unwrap();
        let used = manifest["dependencies"].as_table().unwrap();
        for other in forbidden {
            assert!(!used.contains_key(other), "{name} depends on {other}");
        }
    }
}

#[test]
fn unsafe_lives_in_one_place() {
    let allowed = |path: &Path| {
        path.ends_with("crates/host/src/sys.rs")
            || path.components().any(|part| part.as_os_str() == "sys")
            || path.components().any(|part| part.as_os_str() == "namespace")
    };
    for folder in ["src", "crates/host/src", "crates/vt/src"] {
        for (path, text) in files(folder) {
            let code = code(&text);
            let found = code.contains("unsafe {") || code.contains("unsafe fn");
            assert!(!found || allowed(&path), "unsafe in {}", path.display());
        }
    }
}

#[test]
fn files_are_short_and_say_what_they_are_for() {
    for folder in ["src", "crates/host/src", "crates/vt/src", "tests", "benches"] {
        for (path, text) in files(folder) {
            let lines = text.lines().take_while(|line| !line.starts_with("mod tests")).count();
            assert!(lines <= LONGEST, "{} has {lines} lines", path.display());
            let tests = path.ends_with("tests.rs");
            assert!(tests || text.starts_with("//!"), "{} does not begin with //!", path.display());
        }
    }
}

#[test]
fn tests_wait_for_a_condition_and_do_not_sleep() {
    for folder in ["src", "crates/host", "crates/vt", "tests"] {
        for (path, text) in files(folder) {
            // Each test crate has one place that rests between two looks.
            let harness = path.ends_with("tests/it/harness/mod.rs") || path.ends_with("support.rs");
            let tests =
                folder == "tests" || path.components().any(|part| part.as_os_str() == "tests");
            let tested = code(&text);
            let tested = if tests {
                Some(tested.as_str())
            } else {
                tested.split_once("mod tests {").map(|(_, tests)| tests)
            };
            let sleeps = tested.is_some_and(|code| code.contains(concat!("::sle", "ep(")));
            assert!(harness || !sleeps, "{} sleeps", path.display());
        }
    }
}

/// What opens a way out of the process.
const WAYS_OUT: [&str; 6] = [
    "UnixStream::connect(",
    "TcpStream::connect(",
    "Command::new(",
    "HttpConnector::new(",
    "connect_with_unix(",
    "client_async(",
];

/// The product without its tests.
fn product(text: &str) -> String {
    code(text.split("#[cfg(test)]").next().unwrap_or_default())
}

#[test]
fn only_providers_leave_the_process() {
    let mut wrong = Vec::new();
    for (path, text) in files("src") {
        let inner = path.strip_prefix(root().join("src")).unwrap();
        // The command line is a process of its own, and its user sees it wait.
        let tests = inner.ends_with("tests.rs");
        if tests || inner.starts_with("provider") || inner.starts_with("cli") {
            continue;
        }
        for way in WAYS_OUT.iter().filter(|way| product(&text).contains(**way)) {
            wrong.push(format!("{}: {way}…)", inner.display()));
        }
    }
    assert!(wrong.is_empty(), "calls that go around `outbound::bounded`: {wrong:#?}");
}

#[test]
fn every_answer_of_a_provider_has_a_deadline() {
    let read = |name: &str| fs::read_to_string(root().join("src/provider").join(name)).unwrap();
    let (declared, bounded) = (read("mod.rs"), read("bounded.rs"));
    let declared = declared.split("pub trait Provider").nth(1).unwrap();
    let declared = declared.split("\n}\n").next().unwrap();
    let mut missing = Vec::new();
    for method in declared.split("\n    fn ").skip(1) {
        let head = method.split(['{', ';']).next().unwrap();
        let name: String = head.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let forwarded = format!("self.0.{name}(");
        let limited = bounded.lines().any(|line| {
            line.contains(&forwarded) && (line.contains("within(") || !head.contains("Reply<"))
        });
        if !limited {
            missing.push(name);
        }
    }
    assert!(missing.is_empty(), "methods of Provider without a deadline: {missing:?}");
}
