//! Reads the project's own source: its files, their code without comments, and what each file imports.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The crates beneath the binary, by name.
pub fn crates() -> Vec<String> {
    let entries = fs::read_dir(root().join("crates")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The crate that only tests use.
const HARNESS: &str = "harness";

/// The folders that hold the product's code.
pub fn product_folders() -> Vec<String> {
    let crates = crates().into_iter().filter(|name| name != HARNESS);
    let crates = crates.map(|name| format!("crates/{name}/src"));
    std::iter::once("src".to_owned()).chain(crates).collect()
}

/// The folders of tests and benchmarks in Rust.
pub fn folders_of_tests() -> Vec<String> {
    let of_crates = crates()
        .into_iter()
        .flat_map(|name| ["tests", "benches"].map(|it| format!("crates/{name}/{it}")))
        .chain([format!("crates/{HARNESS}/src")]);
    ["tests", "benches"].map(str::to_owned).into_iter().chain(of_crates).collect()
}

/// The Rust files of a folder.
pub fn files(folder: &str) -> Vec<(PathBuf, String)> {
    let found = paths(folder).into_iter().filter(|path| is_kind(path, &["rs"]));
    found.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// The pages and scripts of a folder, or one page.
pub fn texts(folder: &str) -> Vec<(PathBuf, String)> {
    let kinds = ["md", "py", "mjs", "sh", "toml", "ts", "tsx", "mts"];
    let is_text = |path: &PathBuf| path.extension().is_none() || is_kind(path, &kinds);
    let found = paths(folder).into_iter().filter(is_text);
    // A file without an extension may be a program.
    found.filter_map(|path| Some((path.clone(), fs::read_to_string(path).ok()?))).collect()
}

fn is_kind(path: &Path, kinds: &[&str]) -> bool {
    path.extension().is_some_and(|extension| kinds.iter().any(|kind| extension == *kind))
}

/// The files in a folder and in its folders, without hidden ones and those that tools generate.
fn paths(folder: &str) -> Vec<PathBuf> {
    const GENERATED: [&str; 5] = ["__pycache__", "dist", "node_modules", "target", "public"];
    let (mut left, mut found) = (vec![root().join(folder)], Vec::new());
    while let Some(path) = left.pop() {
        let Ok(entries) = fs::read_dir(&path) else {
            found.push(path);
            continue;
        };
        let is_source = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            !name.starts_with('.') && !GENERATED.contains(&&*name)
        };
        left.extend(entries.flatten().map(|entry| entry.path()).filter(is_source));
    }
    found.retain(|path| path.is_file());
    found.sort();
    found
}

/// The text without line comments.
pub fn code(text: &str) -> String {
    let line = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The code without its tests.
pub fn product(text: &str) -> String {
    code(text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default())
}

/// The attributes directly above a line, as one text.
pub fn attributes(lines: &[&str], index: usize) -> String {
    let (mut found, mut open) = (Vec::new(), 0i32);
    for line in lines[..index].iter().rev() {
        let line = line.trim();
        let closes = line.ends_with(']');
        if open == 0 && (!closes || line.starts_with("///")) {
            break;
        }
        open += i32::from(closes && !line.starts_with("#["));
        open -= i32::from(line.starts_with("#[") && !closes);
        found.push(line);
    }
    found.reverse();
    found.join("\n")
}

/// The files of one crate by module path, such as `["shell", "driver"]`; the root is the empty path.
pub struct Modules(BTreeMap<Vec<String>, (PathBuf, String)>);

impl Modules {
    pub fn of(folder: &str) -> Modules {
        let base = root().join(folder);
        let mut modules = BTreeMap::new();
        for (path, text) in files(folder) {
            if is_test(&path) {
                continue;
            }
            let inner = path.strip_prefix(&base).unwrap().with_extension("");
            let mut module: Vec<String> =
                inner.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
            if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
                module.pop();
            }
            modules.insert(module, (path, product(&text)));
        }
        Modules(modules)
    }

    /// Which files each file depends on: by `use`, or by a path such as `super::exec::run` in its code. An item
    /// re-exported by a parent is followed to the file that defines it; `mod` and `pub use` of children are the
    /// table of contents and no dependency.
    pub fn imports(&self) -> BTreeMap<PathBuf, BTreeSet<PathBuf>> {
        let mut imports = BTreeMap::new();
        for (module, (path, code)) in &self.0 {
            let mut used = BTreeSet::new();
            let (statements, rest) = statements(code);
            let imported = statements.iter().flat_map(|statement| {
                flatten(&statement.tree).into_iter().map(|(path, _)| (statement.public, path))
            });
            let inline = inline_paths(&rest).into_iter().map(|path| (false, path));
            for (public, full) in imported.chain(inline) {
                let Some(absolute) = self.absolute(&full, module) else { continue };
                let re_export = public && absolute.starts_with(module);
                if let Some(target) = self.defining(&absolute, 0)
                    && target != *module
                    && !re_export
                {
                    used.insert(self.0[&target].0.clone());
                }
            }
            imports.insert(path.clone(), used);
        }
        imports
    }

    /// The module that defines what an absolute path names; `None` for an item of another crate.
    fn defining(&self, absolute: &[String], depth: usize) -> Option<Vec<String>> {
        // The longest prefix that is a file.
        let module = (0..=absolute.len())
            .rev()
            .map(|length| absolute[..length].to_vec())
            .find(|prefix| self.0.contains_key(prefix))?;
        let name = absolute.get(module.len()).filter(|name| *name != "*");
        let Some(name) = name.filter(|_| depth < 8) else { return Some(module) };
        for statement in statements(&self.0[&module].1).0 {
            for (full, bound) in flatten(&statement.tree) {
                if bound == *name {
                    let next = self.absolute(&full, &module)?;
                    return self.defining(&next, depth + 1);
                }
            }
        }
        Some(module)
    }

    /// The path from the root of the crate; `None` for one that leads out of it.
    fn absolute(&self, path: &[String], module: &[String]) -> Option<Vec<String>> {
        let first = path.first()?.as_str();
        let (mut from, mut rest) = match first {
            "crate" => (vec![], &path[1..]),
            "self" => (module.to_vec(), &path[1..]),
            "super" => (module.to_vec(), path),
            _ => {
                // The name of a child module, as in `use child::Item`.
                let child = [module, &path[..1]].concat();
                return self.0.contains_key(&child).then(|| [module, path].concat());
            }
        };
        while rest.first().is_some_and(|part| part == "super") {
            from.pop();
            rest = &rest[1..];
        }
        Some([from, rest.to_vec()].concat())
    }
}

/// Whether a file holds tests and nothing else.
pub fn is_test(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().ends_with("tests.rs"))
        || path.parent().is_some_and(|folder| folder.ends_with("tests"))
        || path.ends_with("contract.rs")
        || path.components().any(|part| part.as_os_str() == "tests")
}

struct Use {
    public: bool,
    tree: String,
}

/// The `use` statements of some code, and the code without them.
fn statements(code: &str) -> (Vec<Use>, String) {
    let (mut found, mut rest, mut copied) = (Vec::new(), String::new(), 0);
    for (at, _) in code.match_indices("use ") {
        let start = code[..at].rfind('\n').map_or(0, |at| at + 1);
        let visibility = code[start..at].trim();
        if !(visibility.is_empty() || visibility.starts_with("pub")) {
            continue;
        }
        let Some(end) = code[at..].find(';') else { continue };
        let tree = code[at + 4..at + end].split_whitespace().collect::<Vec<_>>().join(" ");
        found.push(Use { public: !visibility.is_empty(), tree });
        rest.push_str(&code[copied..start]);
        copied = at + end;
    }
    rest.push_str(&code[copied..]);
    (found, rest)
}

/// Every path of two or more parts in code, such as `super::exec::run`.
fn inline_paths(code: &str) -> BTreeSet<Vec<String>> {
    let in_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    code.split(|c| !in_path(c))
        .filter(|word| word.contains("::") && !word.starts_with(':'))
        .map(|word| word.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect())
        .collect()
}

/// The paths of a use tree, each with the name that it brings into scope: `a::{b, c::d as e}` is `a::b`
/// called `b`, and `a::c::d` called `e`.
fn flatten(tree: &str) -> Vec<(Vec<String>, String)> {
    let parts = |path: &str| -> Vec<String> {
        path.split("::").map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned).collect()
    };
    let Some((prefix, rest)) = tree.split_once('{') else {
        let (path, name) = tree.split_once(" as ").map_or((tree, None), |(a, b)| (a, Some(b)));
        let path = parts(path);
        let name = name.map(str::to_owned).or_else(|| path.last().cloned());
        return name.map(|name| (path, name.trim().to_owned())).into_iter().collect();
    };
    let inner = rest.trim_end().strip_suffix('}').unwrap_or(rest);
    let prefix = parts(prefix);
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (index, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                for (path, name) in flatten(&inner[start..index]) {
                    if path == ["self"] {
                        found.push((prefix.clone(), prefix.last().cloned().unwrap_or(name)));
                    } else {
                        found.push(([prefix.clone(), path].concat(), name));
                    }
                }
                start = index + 1;
            }
            _ => {}
        }
    }
    found
}

/// Groups of files that import each other, each in order.
pub fn cycles(imports: &BTreeMap<PathBuf, BTreeSet<PathBuf>>) -> Vec<Vec<PathBuf>> {
    let reachable = |from: &PathBuf| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(path) = next.pop() {
            for used in imports.get(&path).into_iter().flatten() {
                if seen.insert(used.clone()) {
                    next.push(used.clone());
                }
            }
        }
        seen
    };
    let reach: BTreeMap<&PathBuf, BTreeSet<PathBuf>> =
        imports.keys().map(|path| (path, reachable(path))).collect();
    let mut groups = BTreeSet::new();
    for (path, seen) in &reach {
        if seen.contains(*path) {
            let group: Vec<PathBuf> =
                seen.iter().filter(|other| reach[*other].contains(*path)).cloned().collect();
            groups.insert(group);
        }
    }
    groups.into_iter().collect()
}

#[test]
fn a_use_tree_is_taken_apart() {
    let found: Vec<String> = flatten("crate::{a::{x, y as z}, b, self}")
        .iter()
        .map(|(path, name)| format!("{} as {name}", path.join("::")))
        .collect();
    assert_eq!(found, ["crate::a::x as x", "crate::a::y as z", "crate::b as b", "crate as crate"]);
}

#[test]
fn files_that_import_each_other_are_a_cycle() {
    let path = |name: &str| PathBuf::from(name);
    let of = |names: &[&str]| names.iter().map(|name| path(name)).collect::<BTreeSet<_>>();
    let imports = BTreeMap::from([
        (path("a"), of(&["b"])),
        (path("b"), of(&["c"])),
        (path("c"), of(&["b"])),
        (path("d"), of(&["a"])),
    ]);
    assert_eq!(cycles(&imports), [vec![path("b"), path("c")]]);
}

#[test]
fn paths_in_code_and_private_imports_of_children_are_dependencies() {
    let file = |name: &str, text: &str| (PathBuf::from(name), text.to_owned());
    let module = |path: &[&str]| path.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>();
    let modules = Modules(BTreeMap::from([
        (
            module(&[]),
            file("lib", "mod a;\nmod b;\nmod c;\npub use a::One;\nuse b::Two as Other;\n"),
        ),
        (module(&["a"]), file("a", "use std::fmt;\nfn run() { super::c::run::<crate::One>(); }\n")),
        (module(&["b"]), file("b", "use super::{One, fmt};\n")),
        (module(&["c"]), file("c", "fn run() -> super::Other { std::fmt::nothing() }\n")),
    ]));
    let of = |names: &[&str]| names.iter().map(PathBuf::from).collect::<BTreeSet<_>>();
    let expected =
        [("a", of(&["c"])), ("b", of(&["a", "lib"])), ("c", of(&["b"])), ("lib", of(&["b"]))];
    let expected = expected.map(|(name, used)| (PathBuf::from(name), used));
    assert_eq!(modules.imports(), BTreeMap::from(expected));
}
