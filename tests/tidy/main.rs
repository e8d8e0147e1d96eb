//! Project rules that the compiler does not check.
#![allow(clippy::unwrap_used, missing_docs)]

mod document;
mod licences;
mod names;
mod source;
mod words;

use std::{collections::BTreeMap, fs, path::Path};

use source::{
    Modules, code, crates, cycles, files, folders_of_tests, is_test, product, product_folders, root,
};

/// The crates that each crate may depend on. The compiler refuses a cycle; this refuses a dependency that points
/// outward.
const MAY_USE: [(&str, &[&str]); 23] = [
    ("vt", &[]),
    ("wire", &[]),
    ("shell", &["wire"]),
    ("host", &["shell", "wire"]),
    ("model", &[]),
    ("chaos", &[]),
    ("harness", &[]),
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
            "adapter", "api", "base", "cgroup", "cloud", "compat", "config", "engine", "files",
            "machine", "mcp", "model", "provider", "store",
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
const MAX_TYPICAL_FILE_LINES: usize = 400;
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
    let typical = lines[lines.len() * 9 / 10];
    assert!(typical <= MAX_TYPICAL_FILE_LINES, "one file in ten has {typical} lines or more");
}

#[test]
fn no_mutex_is_poisoned() {
    for folder in product_folders().into_iter().chain(folders_of_tests()) {
        for (path, text) in files(&folder) {
            let poisons = code(&text).contains(concat!("Poison", "Error"));
            assert!(!poisons, "{}: use parking_lot, which does not poison", path.display());
        }
    }
}

#[test]
fn crates_are_small() {
    let tests = fs::read_dir(root().join("tests")).unwrap();
    let tests = tests.map(|it| format!("tests/{}", it.unwrap().file_name().display()));
    for folder in product_folders().into_iter().chain(tests) {
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
            let harness = path.ends_with("crates/harness/src/wait.rs")
                || path.ends_with("support.rs")
                || path.starts_with(root().join("crates/chaos"));
            let tests = path
                .components()
                .any(|part| ["tests", "harness"].iter().any(|name| part.as_os_str() == *name));
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

#[test]
fn every_folder_of_the_map_says_what_may_not_enter_it() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows = map.split("## The tree").nth(1).unwrap().split("\n\n").next().unwrap().lines();
    let empty: Vec<&str> = rows.filter(|row| row.ends_with("| |")).collect();
    assert!(empty.is_empty(), "{empty:#?}");
}

#[test]
fn the_native_api_names_no_vendor() {
    for (path, text) in files("crates/api/src") {
        let text =
            text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_lowercase();
        for vendor in ["e2b", "daytona", "agentbay"] {
            assert!(!text.contains(vendor), "{} names {vendor}", path.display());
        }
    }
}

/// Calls that leave the process.
const WAYS_OUT: [&str; 8] = [
    "UnixStream::connect",
    "TcpStream::connect(",
    "::connect_timeout(",
    "Command::new(",
    "HttpConnector::new(",
    "reqwest::Client",
    "connect_with_unix(",
    "client_async(",
];

/// Where calls may leave the process without `outbound`, and what bounds them there.
const MAY_LEAVE: [(&str, &str); 22] = [
    ("crates/base/src/outbound", "the place itself"),
    ("crates/cli", "a process of its own, whose user sees it wait"),
    ("crates/chaos", "the fault injector"),
    ("crates/host", "the other end"),
    ("crates/images/src/http.rs", "a client that sends no request without a deadline"),
    ("crates/images/src/inside/user.rs", "becomes the step of a build"),
    ("crates/cloud/src/http.rs", "a client that sends no request without a deadline"),
    ("crates/cloud/src/bridge.rs", "a process inside of the sandbox, whose caller has a deadline"),
    ("crates/provider/src/host_socket.rs", "does not wait: a full queue is an error"),
    ("crates/provider/src/local/mod.rs", "a port, within `HOST_TIMEOUT`"),
    (
        "crates/machine/src/docker/engine.rs",
        "a client whose requests have `REQUEST_TIMEOUT_SECONDS`",
    ),
    ("crates/machine/src/docker/start.rs", "a launcher, within `START_TIMEOUT`"),
    ("crates/machine/src/docker/launch.rs", "process 1 of a container, which becomes the host"),
    ("crates/machine/src/port.rs", "a port, within `CONNECT_TIMEOUT`"),
    ("crates/machine/src/namespace/start.rs", "a launcher, within `SANDBOX_TIMEOUT`"),
    ("crates/machine/src/namespace/launch.rs", "a launcher, which becomes the runtime"),
    ("crates/machine/src/namespace/runtime.rs", "process 1 of a sandbox, which becomes the host"),
    ("crates/machine/src/namespace/flatten.rs", "a `ProgramCall`, which becomes `cp`"),
    ("crates/machine/src/network/connect.rs", "tools with an alarm"),
    ("crates/machine/src/network/pasta.rs", "the child of a launcher, which waits for it in time"),
    ("crates/machine/src/network/read_log.rs", "a tool with an alarm"),
    ("crates/machine/src/tools.rs", "launchers, killed at the deadline of the provider's call"),
];

#[test]
fn every_way_out_of_the_process_has_a_deadline() {
    let mut used = BTreeMap::from(MAY_LEAVE.map(|(path, _)| (path, false)));
    let mut wrong = Vec::new();
    for folder in product_folders() {
        for (path, text) in files(&folder) {
            let inner = path.strip_prefix(root()).unwrap();
            let product = product(&text);
            let ways: Vec<_> = WAYS_OUT.iter().filter(|way| product.contains(**way)).collect();
            if is_test(inner) || ways.is_empty() {
                continue;
            }
            match used.iter_mut().find(|(listed, _)| inner.starts_with(listed)) {
                Some((_, used)) => *used = true,
                None => wrong.push(format!("{}: {ways:?}", inner.display())),
            }
        }
    }
    assert!(wrong.is_empty(), "calls that go around `base::outbound`: {wrong:#?}");
    used.retain(|_, used| !*used);
    assert!(used.is_empty(), "listed, but they do not leave the process: {:?}", used.keys());
}

#[test]
fn no_lock_that_is_held_over_slow_work_is_waited_for_without_a_deadline() {
    let mut wrong = Vec::new();
    for name in ["engine", "adapter", "machine"] {
        for (path, text) in files(&format!("crates/{name}/src")) {
            let code: String = product(&text).split_whitespace().collect();
            let waits = [".lock().await", ".read().await", ".write().await", ".lock_owned().await"];
            if !is_test(&path) && waits.iter().any(|wait| code.contains(wait)) {
                wrong.push(path.display().to_string());
            }
        }
    }
    assert!(wrong.is_empty(), "tokio locks without `base::lock::locked`: {wrong:#?}");
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
