//! Project rules that the compiler does not check.

mod document;
mod names;
mod source;
mod words;

use std::{collections::BTreeMap, fs, path::Path};

use source::{Modules, code, crates, cycles, files, is_test, product, product_folders, root};

/// The crates that each crate may depend on. The compiler refuses a cycle; this refuses a dependency that points
/// outward.
const MAY_USE: [(&str, &[&str]); 22] = [
    ("vt", &[]),
    ("wire", &[]),
    ("shell", &["wire"]),
    ("host", &["shell", "wire"]),
    ("model", &[]),
    ("chaos", &[]),
    ("cgroup", &[]),
    ("mcp", &["base"]),
    ("config", &[]),
    ("base", &["model"]),
    ("store", &["model"]),
    ("provider", &["base", "host", "model", "wire"]),
    ("images", &["base"]),
    ("machine", &["base", "cgroup", "images", "model", "provider", "wire"]),
    ("cloud", &["base", "host", "model", "provider", "shell", "wire"]),
    ("files", &["base", "model", "provider", "store"]),
    ("engine", &["base", "files", "host", "model", "provider", "shell", "store", "vt", "wire"]),
    (
        "api",
        &[
            "base", "config", "engine", "files", "machine", "model", "provider", "store", "vt",
            "wire",
        ],
    ),
    (
        "adapter",
        &[
            "api", "base", "config", "engine", "files", "machine", "model", "provider", "store",
            "wire",
        ],
    ),
    (
        "compat",
        &[
            "adapter", "api", "base", "config", "engine", "files", "machine", "model", "store",
            "wire",
        ],
    ),
    (
        "server",
        &[
            "adapter", "api", "base", "cloud", "compat", "config", "engine", "files", "machine",
            "mcp", "model", "provider", "store",
        ],
    ),
    ("cli", &["base", "cloud", "config", "images", "machine", "model", "server", "store", "vt"]),
];

/// Libraries that must not enter a crate, because they would bring I/O, HTTP or SQL to where there is none.
const MUST_NOT_USE: [(&str, &[&str]); 6] = [
    ("vt", &["tokio", "axum", "rustix", "libc"]),
    ("wire", &["tokio", "axum", "rustix", "libc"]),
    ("shell", &["tokio", "axum", "hyper", "rusqlite"]),
    ("host", &["tokio", "axum", "hyper", "rusqlite"]),
    ("model", &["tokio", "axum", "rusqlite", "rustix"]),
    ("engine", &["axum", "hyper", "rusqlite"]),
];

/// Maximum number of lines of a file without its tests.
const MAX_FILE_LINES: usize = 800;
/// Maximum number of lines of nine in ten files.
const MAX_MOST_FILE_LINES: usize = 400;
/// Maximum number of lines of a crate, its unit tests included.
const MAX_CRATE_LINES: usize = 15_000;

fn manifest(name: &str) -> toml::Table {
    let text = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
    text.parse().unwrap()
}

#[test]
fn crates_depend_inward() {
    let allowed = BTreeMap::from(MAY_USE);
    let forbidden = BTreeMap::from(MUST_NOT_USE);
    let all = crates();
    let mut wrong = Vec::new();
    for name in &all {
        let Some(allowed) = allowed.get(name.as_str()) else {
            wrong.push(format!("{name} is not in MAY_USE"));
            continue;
        };
        let manifest = manifest(name);
        let Some(used) = manifest.get("dependencies").and_then(|it| it.as_table()) else {
            continue;
        };
        for other in used.keys() {
            let outward = all.contains(other) && !allowed.contains(&other.as_str());
            let unwanted =
                forbidden.get(name.as_str()).is_some_and(|list| list.contains(&other.as_str()));
            if outward || unwanted {
                wrong.push(format!("{name} uses {other}"));
            }
        }
    }
    assert!(wrong.is_empty(), "dependencies that point outward: {wrong:#?}");
}

#[test]
fn no_two_files_import_each_other() {
    let mut found = Vec::new();
    for folder in product_folders() {
        for cycle in cycles(&Modules::of(&folder).imports()) {
            let names: Vec<_> = cycle
                .iter()
                .map(|path| path.strip_prefix(root()).unwrap().display().to_string())
                .collect();
            found.push(names);
        }
    }
    assert!(found.is_empty(), "files that import each other: {found:#?}");
}

#[test]
fn every_crate_of_ours_is_logged_at_the_chosen_level() {
    let log = fs::read_to_string(root().join("crates/server/src/log.rs")).unwrap();
    for name in crates() {
        let logs = files(&format!("crates/{name}/src"))
            .iter()
            .any(|(_, text)| code(text).contains("tracing::"));
        assert!(!logs || log.contains(&format!("\"{name}\"")), "log.rs does not know {name}");
    }
}

#[test]
fn unsafe_lives_in_one_place() {
    let allowed = |path: &Path| {
        path.ends_with("crates/host/src/sys.rs")
            || path.components().any(|part| part.as_os_str() == "sys")
            || path.starts_with(root().join("crates/machine"))
    };
    for folder in product_folders() {
        for (path, text) in files(&folder) {
            let code = code(&text);
            let found = code.contains("unsafe {") || code.contains("unsafe fn");
            assert!(!found || allowed(&path), "unsafe in {}", path.display());
        }
    }
}

fn lines_without_tests(text: &str) -> usize {
    text.lines().take_while(|line| !line.starts_with("mod tests")).count()
}

#[test]
fn files_are_short_and_say_what_they_are_for() {
    let others = ["tests", "benches"].map(str::to_owned);
    for folder in product_folders().into_iter().chain(others) {
        for (path, text) in files(&folder) {
            let lines = lines_without_tests(&text);
            assert!(lines <= MAX_FILE_LINES, "{} has {lines} lines", path.display());
            let tests = path.ends_with("tests.rs");
            assert!(tests || text.starts_with("//!"), "{} does not begin with //!", path.display());
        }
    }
}

#[test]
fn nine_in_ten_files_are_shorter_still() {
    let all = product_folders().into_iter().flat_map(|folder| files(&folder));
    let mut lines: Vec<usize> = all.map(|(_, text)| text.lines().count()).collect();
    lines.sort_unstable();
    let most = lines[lines.len() * 9 / 10];
    assert!(most <= MAX_MOST_FILE_LINES, "one file in ten has {most} lines or more");
}

#[test]
fn no_mutex_is_poisoned() {
    for folder in product_folders() {
        for (path, text) in files(&folder) {
            let poisons = code(&text).contains("PoisonError");
            assert!(!poisons, "{}: use parking_lot, which does not poison", path.display());
        }
    }
}

#[test]
fn crates_are_small() {
    for folder in product_folders() {
        let lines: usize = files(&folder).iter().map(|(_, text)| text.lines().count()).sum();
        assert!(lines < MAX_CRATE_LINES, "{folder} has {lines} lines");
    }
}

#[test]
fn tests_wait_for_a_condition_and_do_not_sleep() {
    for folder in ["src", "crates", "tests"] {
        for (path, text) in files(folder) {
            // Each test crate has one place that sleeps between two polls. The fault injector sleeps to keep
            // its schedule.
            let harness = path.ends_with("tests/it/harness/mod.rs")
                || path.ends_with("support.rs")
                || path.starts_with(root().join("crates/chaos"));
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

/// Calls that leave the process.
const WAYS_OUT: [&str; 7] = [
    "UnixStream::connect(",
    "TcpStream::connect(",
    "Command::new(",
    "HttpConnector::new(",
    "reqwest::Client",
    "connect_with_unix(",
    "client_async(",
];

#[test]
fn only_providers_leave_the_process() {
    // The command line is a process of its own, whose user sees it wait. A host is the other end. The HTTP
    // client of registries has no request without a deadline. The program of a build becomes the step that it runs.
    let exempt = [
        "crates/cli",
        "crates/base/src/outbound",
        "crates/provider",
        "crates/images/src/http.rs",
        "crates/images/src/inside/user.rs",
        "crates/machine",
        "crates/cloud",
        "crates/host",
        "crates/chaos",
    ];
    let mut wrong = Vec::new();
    for folder in product_folders() {
        for (path, text) in files(&folder) {
            let inner = path.strip_prefix(root()).unwrap();
            if is_test(inner) || exempt.iter().any(|folder| inner.starts_with(folder)) {
                continue;
            }
            for way in WAYS_OUT.iter().filter(|way| product(&text).contains(**way)) {
                wrong.push(format!("{}: {way}…)", inner.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "calls that go around `outbound::bounded`: {wrong:#?}");
}

/// The methods of a trait or of an `impl`, each as its head and its body.
fn methods(block: &str) -> Vec<(String, String)> {
    let all = block.split("\n    fn ").skip(1).map(|method| {
        let (head, body) = method.split_once(['{', ';']).unwrap();
        (head.to_owned(), body.to_owned())
    });
    all.collect()
}

/// The text from a line up to the brace that closes its block.
fn block<'a>(text: &'a str, line: &str) -> Option<&'a str> {
    let rest = text.split_once(line)?.1;
    Some(rest.split("\n}\n").next().unwrap_or(rest))
}

#[test]
fn every_answer_of_a_provider_has_a_deadline() {
    let read =
        |name: &str| fs::read_to_string(root().join("crates/provider/src").join(name)).unwrap();
    let (declared, bounded) = (read("traits.rs"), read("bounded.rs"));
    let name = |text: &str| {
        text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>()
    };
    let traits: Vec<String> = declared.split("\npub trait ").skip(1).map(name).collect();
    assert!(traits.len() >= 6, "the traits of a provider: {traits:?}");
    let mut missing = Vec::new();
    for declared_trait in traits {
        let wrapper = block(&bounded, &format!("impl {declared_trait} for Bounded {{"));
        let wrapped = methods(wrapper.unwrap_or_default());
        let wanted = block(&declared, &format!("\npub trait {declared_trait}")).unwrap();
        for (head, _) in methods(wanted) {
            let method = name(&head);
            let forward = format!(".{method}(");
            let covered = wrapped.iter().any(|(wrapping, body)| {
                // An ability is lent as the wrapper itself, so that its calls are covered, too.
                let lends = head.contains("Option<&dyn ");
                name(wrapping) == method
                    && body.contains(&forward)
                    && (!head.contains("Reply<") || body.contains("within("))
                    && (!lends || body.contains(".map(|_| self as &dyn "))
            });
            if !covered {
                missing.push(format!("{declared_trait}::{method}"));
            }
        }
    }
    assert!(missing.is_empty(), "methods of a provider without a deadline: {missing:?}");
}
