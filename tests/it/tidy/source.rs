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

/// The folders that hold the product's code.
pub fn product_folders() -> Vec<String> {
    let crates = crates().into_iter().map(|name| format!("crates/{name}/src"));
    std::iter::once("src".to_owned()).chain(crates).collect()
}

pub fn files(folder: &str) -> Vec<(PathBuf, String)> {
    let (mut folders, mut found) = (vec![root().join(folder)], Vec::new());
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                // Build output is not source.
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

    /// Which files each file imports from. An item re-exported by a parent is followed to the file that
    /// defines it; `mod` and `pub use` of children are the table of contents and no import. Where `all_paths`
    /// holds for a file, its children and the paths in its code count as well as its `use` of other files.
    pub fn imports(
        &self,
        all_paths: impl Fn(&Path) -> bool,
    ) -> BTreeMap<PathBuf, BTreeSet<PathBuf>> {
        let mut imports = BTreeMap::new();
        for (module, (path, code)) in &self.0 {
            let mut used = BTreeSet::new();
            for statement in statements(code) {
                for full in flatten(&statement.tree) {
                    let Some(absolute) = absolute(&full, module) else { continue };
                    let re_export = statement.public && absolute.starts_with(module);
                    if let Some(target) = self.defining(&absolute, 0)
                        && target != *module
                        && !re_export
                    {
                        used.insert(self.0[&target].0.clone());
                    }
                }
            }
            if all_paths(path) {
                let private = statements(code).into_iter().filter(|statement| !statement.public);
                let uses = private.flat_map(|statement| flatten(&statement.tree));
                for full in uses.chain(inline_paths(code)) {
                    let child = self.child_path(&full, module);
                    let Some(absolute) = child.or_else(|| absolute(&full, module)) else {
                        continue;
                    };
                    let target = self.defining(&absolute, 0).filter(|target| target != module);
                    used.extend(target.map(|target| self.0[&target].0.clone()));
                }
            }
            imports.insert(path.clone(), used);
        }
        imports
    }

    /// The module that defines what an absolute path names.
    fn defining(&self, absolute: &[String], depth: usize) -> Option<Vec<String>> {
        // The longest prefix that is a file.
        let module = (0..=absolute.len())
            .rev()
            .map(|length| absolute[..length].to_vec())
            .find(|prefix| self.0.contains_key(prefix))?;
        let Some(name) = absolute.get(module.len()) else { return Some(module) };
        if depth < 8 {
            for statement in statements(&self.0[&module].1) {
                for full in flatten(&statement.tree) {
                    if full.last() != Some(name) {
                        continue;
                    }
                    let relative = self.child_path(&full, &module);
                    if let Some(next) = relative.or_else(|| self::absolute(&full, &module)) {
                        return self.defining(&next, depth + 1);
                    }
                }
            }
        }
        Some(module)
    }

    /// A path that begins with the name of a child module, as in `pub use child::Item`.
    fn child_path(&self, full: &[String], module: &[String]) -> Option<Vec<String>> {
        let child = [module, &full[..1]].concat();
        self.0.contains_key(&child).then(|| [module, full].concat())
    }
}

/// Whether a file holds tests and nothing else.
pub fn is_test(path: &Path) -> bool {
    path.ends_with("tests.rs")
        || path.ends_with("contract.rs")
        || path.components().any(|part| part.as_os_str() == "tests")
}

struct Use {
    public: bool,
    tree: String,
}

fn statements(code: &str) -> Vec<Use> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let line = &code[code[..at].rfind('\n').map_or(0, |at| at + 1)..at];
        let visibility = line.trim();
        if !(visibility.is_empty() || visibility.starts_with("pub")) {
            continue;
        }
        let Some(end) = code[at..].find(';') else { continue };
        let tree = code[at + 4..at + end].split_whitespace().collect::<Vec<_>>().join(" ");
        found.push(Use { public: !visibility.is_empty(), tree });
    }
    found
}

/// The paths in code outside `use`, such as `child::function`.
fn inline_paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut in_use = false;
    for line in code.lines() {
        let trimmed = line.trim();
        let visibility = trimmed.split("use ").next().unwrap_or_default().trim();
        in_use |=
            trimmed.contains("use ") && (visibility.is_empty() || visibility.starts_with("pub"));
        if !in_use {
            let tokens = line.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
            for token in tokens.filter(|token| token.contains("::")) {
                let path: Vec<String> = token.split("::").map(str::to_owned).collect();
                if path.iter().all(|part| !part.is_empty()) {
                    found.push(path);
                }
            }
        }
        in_use &= !trimmed.ends_with(';');
    }
    found
}

/// The paths of a use tree: `a::{b, c::d as e}` is `a::b` and `a::c::d`.
fn flatten(tree: &str) -> Vec<Vec<String>> {
    let tree = tree.trim();
    let Some((prefix, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        let path: Vec<String> = path.trim().split("::").map(str::to_owned).collect();
        return if path == [""] { vec![] } else { vec![path] };
    };
    let inner = rest.strip_suffix('}').unwrap_or(rest);
    let prefix: Vec<String> = prefix
        .trim_end_matches("::")
        .split("::")
        .filter(|it| !it.is_empty())
        .map(str::to_owned)
        .collect();
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (index, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                for mut path in flatten(&inner[start..index]) {
                    if path == ["self"] {
                        path.clear();
                    }
                    found.push([prefix.clone(), path].concat());
                }
                start = index + 1;
            }
            _ => {}
        }
    }
    found
}

/// The path from the root of the crate; `None` for one that leads out of it.
fn absolute(path: &[String], module: &[String]) -> Option<Vec<String>> {
    let first = path.first()?.as_str();
    let (mut from, mut rest) = match first {
        "crate" => (vec![], &path[1..]),
        "self" => (module.to_vec(), &path[1..]),
        "super" => (module.to_vec(), path),
        _ => return None,
    };
    while rest.first().is_some_and(|part| part == "super") {
        from.pop();
        rest = &rest[1..];
    }
    Some([from, rest.to_vec()].concat())
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
    let found: Vec<String> =
        flatten("crate::{a::{x, y as z}, b, self}").iter().map(|path| path.join("::")).collect();
    assert_eq!(found, ["crate::a::x", "crate::a::y", "crate::b", "crate"]);
}

#[test]
fn paths_in_code_are_found() {
    let code = "pub use a::B;\nuse c::{\n    D,\n};\nlet x = child::make(super::other::Y);\n";
    let found: Vec<String> = inline_paths(code).iter().map(|path| path.join("::")).collect();
    assert_eq!(found, ["child::make", "super::other::Y"]);
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
