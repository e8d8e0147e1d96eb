//! Words: comments that say something, and the terms of the field instead of a private dialect.
//!
//! `BANNED_WORDS` and `BANNED_PHRASES` are the terms that were replaced, mostly by *pause*, *poll interval*,
//! *timeout*, `MAX_…`, *report*, *quota*, *lock* and by a noun.

use super::source::{attributes, files, folders_of_tests, product_folders, root, texts};

/// Whole words, also as parts of identifiers such as `is_told`, in any case unless they contain upper-case letters.
const BANNED_WORDS: &[&str] = &[
    "AWAY", "LEAST", "LONGEST", "LOOK", "MOST", "WHILE", "anybody", "keeper", "keepers", "knock",
    "knocks", "manieth", "nobody", "said", "somebody", "stray", "strays", "told", "whoever",
    "whomever",
];

/// Names of types. They are ordinary words in comments.
const BANNED_TYPES: &[&str] =
    &["Asked", "Desk", "Heard", "Makes", "Pace", "Place", "Said", "Shown", "Told", "Turns"];

/// Phrases of whole words, also as parts of identifiers; single words also as parts of words. In lower case.
const BANNED_PHRASES: &[&str] = &[
    "bug of ours",
    "came into being",
    "come into being",
    "comes into being",
    "courteous",
    "courtesy",
    "for ever",
    "go on",
    "goes on",
    "hold still",
    "holds still",
    "let go of",
    "no such thing",
    "patience",
    "warden",
];

/// Where a banned word is allowed, with its reason.
const ALLOWED_WORDS: [(&str, &str, &str); 4] = [
    ("tests/isolation/probes.rs", "nobody", "an account of every Linux system"),
    ("tests/isolation/unprivileged.rs", "nobody", "an account of every Linux system"),
    ("tests/sdk/test_templates.py", "nobody", "an account of every Linux system"),
    ("web/tests/e2e/output.test.ts", "said", "English text that a terminal shows"),
];

/// Folders and files of text for people, and code in other languages than Rust.
const TEXTS: [&str; 14] = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "benches",
    "deploy",
    "docs",
    "examples",
    "packaging",
    "sdk",
    "tests",
    "web/src",
    "web/tests",
];

/// The fewest words of a comment on a private item; a shorter one repeats the name.
const MIN_COMMENT_WORDS: usize = 4;

/// Derives whose comments are texts of the API document, of MCP tools or of the command line.
const DOCUMENTED_DERIVES: [&str; 7] =
    ["ToSchema", "IntoParams", "Parser", "Args", "Subcommand", "ValueEnum", "JsonSchema"];

/// The files of folders except these checks, which list the words, with their paths from the root of the project.
fn checked(folders: Vec<String>) -> impl Iterator<Item = (String, String)> {
    folders.into_iter().flat_map(|folder| files(&folder)).filter_map(|(path, text)| {
        let inner = path.strip_prefix(root()).unwrap();
        (!inner.starts_with("tests/tidy")).then(|| (inner.display().to_string(), text))
    })
}

/// The words and identifiers of a text.
fn words(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty()).collect()
}

/// The words of a text, with identifiers split at `_`.
fn parts(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !c.is_alphanumeric());
    words.filter(|word| !word.is_empty()).collect()
}

/// The banned words and phrases of a text. The account `nobody:` of `/etc/passwd` is allowed.
pub fn banned(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let text = text.replace("nobody:", "");
    let words = parts(&text);
    for word in &words {
        let exact = BANNED_WORDS.contains(word);
        if exact || BANNED_WORDS.contains(&word.to_lowercase().as_str()) {
            found.push((*word).to_owned());
        }
    }
    let sentence = format!(" {} ", words.join(" ").to_lowercase());
    let is_found = |phrase: &&&str| match phrase.contains(' ') {
        true => sentence.contains(&format!(" {phrase} ")),
        false => sentence.contains(**phrase),
    };
    found.extend(BANNED_PHRASES.iter().filter(is_found).map(|phrase| (*phrase).to_owned()));
    found
}

#[test]
fn code_uses_the_terms_of_the_field() {
    let mut wrong = Vec::new();
    let folders: Vec<_> = product_folders().into_iter().chain(folders_of_tests()).collect();
    for (path, text) in checked(folders) {
        for (number, line) in text.lines().enumerate() {
            let types = words(line.split("//").next().unwrap_or_default()).into_iter();
            let types = types.filter(|word| BANNED_TYPES.contains(word)).map(str::to_owned);
            for word in disallowed(&path, line).into_iter().chain(types) {
                wrong.push(format!("{path}:{}: {word}", number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "words of the dialect: {wrong:#?}");
}

#[test]
fn texts_use_the_terms_of_the_field() {
    let (mut wrong, mut read) = (Vec::new(), 0);
    for (path, text) in TEXTS.into_iter().flat_map(texts) {
        let path = path.strip_prefix(root()).unwrap().display().to_string();
        // These are generated from texts that are checked, or are the checks.
        if path.starts_with("docs/reference") || path.starts_with("tests/tidy") {
            continue;
        }
        read += 1;
        for (number, line) in text.lines().enumerate() {
            let line_number = number + 1;
            let found = disallowed(&path, line).into_iter();
            wrong.extend(found.map(|word| format!("{path}:{line_number}: {word}")));
        }
    }
    assert!(read > 100, "the texts were not found");
    assert!(wrong.is_empty(), "words of the dialect: {wrong:#?}");
}

/// The banned words and phrases of a line that are not allowed in its file.
fn disallowed(path: &str, line: &str) -> Vec<String> {
    let allowed = |word: &str| ALLOWED_WORDS.iter().any(|it| it.0 == path && it.1 == word);
    banned(line).into_iter().filter(|word| !allowed(word)).collect()
}

/// The line that encloses another one: the nearest line above with less indentation.
fn enclosing(lines: &[&str], index: usize) -> Option<usize> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let own = indent(lines[index]);
    let blank = |line: &str| line.trim().is_empty();
    (0..index).rev().find(|at| !blank(lines[*at]) && indent(lines[*at]) < own)
}

/// The comments on private items that have too few words, as line numbers and texts.
fn short_comments(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let is_doc = |index: usize| lines.get(index).is_some_and(|it| it.trim().starts_with("///"));
    let mut found = Vec::new();
    for start in (0..lines.len()).filter(|at| is_doc(*at) && (*at == 0 || !is_doc(at - 1))) {
        let end = (start..).find(|at| !is_doc(*at)).unwrap();
        let comment: Vec<&str> = lines[start..end]
            .iter()
            .flat_map(|line| line.trim().trim_start_matches('/').split_whitespace())
            .collect();
        if comment.len() >= MIN_COMMENT_WORDS {
            continue;
        }
        let Some(item) = (end..lines.len()).find(|at| {
            let line = lines[*at].trim();
            !line.starts_with('#') && attributes_end(&lines, end) <= *at
        }) else {
            continue;
        };
        let ancestors =
            || std::iter::successors(enclosing(&lines, item), |at| enclosing(&lines, *at));
        let derives = |at: usize| {
            let attributes = attributes(&lines, at);
            DOCUMENTED_DERIVES.iter().any(|name| attributes.contains(name))
        };
        let public = lines[item].trim().starts_with("pub ")
            || ancestors().any(|at| {
                ["pub enum", "pub trait"].iter().any(|it| lines[at].trim().starts_with(it))
            });
        let documented = attributes(&lines, item).contains("utoipa::path")
            || derives(item)
            || ancestors().any(derives);
        if !public && !documented {
            found.push((start + 1, comment.join(" ")));
        }
    }
    found
}

/// The first line after the attributes that begin at a line.
fn attributes_end(lines: &[&str], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0i32);
    while let Some(line) = lines.get(at) {
        if depth == 0 && !line.trim().starts_with("#[") {
            break;
        }
        for c in line.chars() {
            depth += match c {
                '[' | '(' | '{' => 1,
                ']' | ')' | '}' => -1,
                _ => 0,
            };
        }
        at += 1;
    }
    at
}

#[test]
fn comments_on_private_items_say_more_than_the_name() {
    let mut wrong = Vec::new();
    for (path, text) in checked(product_folders()) {
        let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for (line, comment) in short_comments(product) {
            wrong.push(format!("{path}:{line}: {comment}"));
        }
    }
    assert!(wrong.is_empty(), "comments of three words or fewer: {wrong:#?}");
}

#[test]
fn a_short_comment_is_found_on_a_private_item_alone() {
    let text = "/// Its id.\nstruct A {\n    /// The name.\n    name: String,\n}\n\n\
                /// Its id.\npub struct B;\n\n#[derive(ToSchema)]\nstruct C {\n    /// The name.\n    \
                name: String,\n}\n\n/// A long enough comment.\nstruct D;\n\n\
                #[derive(Subcommand)]\nenum E {\n    List {\n        /// The name.\n        name: String,\n    \
                },\n}\n";
    let found: Vec<usize> = short_comments(text).into_iter().map(|(line, _)| line).collect();
    assert_eq!(found, [1, 3]);
}

#[test]
fn a_banned_word_is_found_as_a_word() {
    let check = |text: &str, expected: &[&str]| assert_eq!(banned(text), expected, "{text}");
    check("const MOST: usize", &["MOST"]);
    check("at most 64; foremost, almost", &[]);
    check("Whoever has it is told.", &["Whoever", "told"]);
    check("the shell goes on", &["goes on"]);
    check("for every shell", &[]);
    check("lock_patience", &["patience"]);
    check("fn a_refusal_is_told_from_silence()", &["told"]);
    check("fn is_kept_for_ever() { MOST_BYTES }", &["MOST", "for ever"]);
}
