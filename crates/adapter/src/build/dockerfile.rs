//! Parses Dockerfiles with one stage and the instructions that builds support. Pure.

use super::plan::{Base, Plan, Step, expand};
use crate::wrap::quote;
use model::Env;

/// A Dockerfile that cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct BadDockerfile {
    /// The line number, from 1.
    pub line: usize,
    pub reason: String,
}

pub fn parse(text: &str) -> Result<Plan, BadDockerfile> {
    let mut plan = None;
    let (mut entrypoint, mut command) = (None, None);
    let mut args = Env::new();
    for (line, words) in instructions(text) {
        let bad = |reason: String| BadDockerfile { line, reason };
        let (name, rest) = words.split_once(char::is_whitespace).unwrap_or((&words, ""));
        let (name, rest) = (name.to_ascii_uppercase(), rest.trim());
        let expanded = |text: &str| expand(text, |name| args.get(name).cloned());
        if name == "FROM" {
            if plan.is_some() {
                return Err(bad("multi-stage builds are not supported".to_owned()));
            }
            let image = rest.split_whitespace().find(|word| !word.starts_with("--"));
            let image = image.ok_or_else(|| bad("FROM names no image".to_owned()))?;
            plan = Some(empty(Base::Image(expanded(image))));
            continue;
        }
        if name == "ARG" {
            let (name, value) = rest.split_once('=').unwrap_or((rest, ""));
            let value = expanded(&split(value).map_err(&bad)?.concat());
            args.insert(name.to_owned(), value.clone());
            if let Some(plan) = &mut plan {
                plan.steps.push(Step::Arg(name.to_owned(), value));
            }
            continue;
        }
        let plan = plan.as_mut().ok_or_else(|| bad(format!("{name} comes before FROM")))?;
        match name.as_str() {
            "RUN" => {
                let command = shell(without_flags(rest));
                plan.steps.push(Step::Run { command, user: None });
            }
            "ENV" => plan.steps.push(Step::Env(pairs(rest).map_err(&bad)?)),
            "WORKDIR" => {
                plan.steps.push(Step::Workdir(expanded(&split(rest).map_err(&bad)?.concat())))
            }
            "USER" => plan.steps.push(Step::User(expanded(rest))),
            "ENTRYPOINT" => entrypoint = Some(shell(rest)),
            "CMD" => command = Some(shell(rest)),
            "COPY" | "ADD" => {
                let reason = format!(
                    "{name} is not supported: this server receives no files with a Dockerfile; write them \
                     with RUN, or upload them into a sandbox and create a snapshot of it"
                );
                return Err(bad(reason));
            }
            "EXPOSE" | "LABEL" | "MAINTAINER" | "STOPSIGNAL" => {
                plan.remarks.push(format!("line {line}: {name} is ignored"));
            }
            _ => return Err(bad(format!("{name} is not supported"))),
        }
    }
    let missing = || BadDockerfile { line: 1, reason: "FROM is missing".to_owned() };
    let mut plan = plan.ok_or_else(missing)?;
    plan.start = match (entrypoint, command) {
        (Some(entrypoint), Some(command)) => Some(format!("{entrypoint} {command}")),
        (entrypoint, command) => entrypoint.or(command),
    };
    Ok(plan)
}

/// A plan with a base and no steps, with the user and the directory that Dockerfiles start with.
pub fn empty(base: Base) -> Plan {
    Plan {
        base,
        user: "root".to_owned(),
        cwd: "/".to_owned(),
        steps: vec![],
        start: None,
        ready: None,
        remarks: vec![],
    }
}

/// The instructions with their line numbers. Continued lines are joined.
fn instructions(text: &str) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (number, line) in text.lines().enumerate() {
        let plain = line.trim();
        if plain.is_empty() || plain.starts_with('#') {
            continue;
        }
        let (part, is_continued) = match plain.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (plain, false),
        };
        match all.last_mut().filter(|_| continues) {
            Some((_, whole)) => whole.push_str(part),
            None => all.push((number + 1, part.to_owned())),
        }
        continues = is_continued;
    }
    all
}

fn without_flags(mut rest: &str) -> &str {
    while rest.starts_with("--") {
        rest = rest.split_once(char::is_whitespace).map_or("", |(_, rest)| rest).trim_start();
    }
    rest
}

/// The shell command of an instruction in shell form or in exec form (a JSON list).
fn shell(rest: &str) -> String {
    match serde_json::from_str::<Vec<String>>(rest) {
        Ok(words) => words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" "),
        Err(_) => rest.to_owned(),
    }
}

/// Parses `A=1 B="two words"`, or the legacy form `A the rest`.
fn pairs(rest: &str) -> Result<Vec<(String, String)>, String> {
    let words = split(rest)?;
    if words.first().is_some_and(|word| !word.contains('=')) {
        let (name, value) = rest.split_once(char::is_whitespace).ok_or("ENV names no value")?;
        return Ok(vec![(name.to_owned(), value.trim().to_owned())]);
    }
    let pair = |word: String| {
        let (name, value) = word.split_once('=').ok_or(format!("{word:?} has no value"))?;
        Ok((name.to_owned(), value.to_owned()))
    };
    words.into_iter().map(pair).collect()
}

/// Splits a text into words as a shell does, with quotes and backslashes.
fn split(text: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, None);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quoted, letter) {
            (None, letter) if letter.is_whitespace() => words.extend(word.take()),
            (None, '\'' | '"') => {
                quoted = Some(letter);
                word.get_or_insert_default();
            }
            (Some(quote), letter) if quote == letter => quoted = None,
            // A backslash takes the next character literally. Before a dollar it stays, for `expand`.
            (None | Some('"'), '\\') if letters.peek() != Some(&'$') => {
                word.get_or_insert_default().extend(letters.next());
            }
            (Some('\''), '$') => word.get_or_insert_default().push_str("\\$"),
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    if quoted.is_some() {
        return Err("a quote is not closed".to_owned());
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dockerfile_of_a_client_is_parsed() {
        let text = "# syntax\nFROM --platform=linux/amd64 python:3.12-slim\nARG V=2\n\
                    RUN apt-get update && \\\n    # within\n    echo 'a b'\nRUN [\"echo\", \"it's\"]\n\
                    ENV A=1 B='two words' C=\"$A\"\nENV OLD the rest\nWORKDIR '/my app'\nUSER me\n\
                    EXPOSE 80\nENTRYPOINT [\"sleep\", \"9\"]\nCMD [\"x\"]\n";
        let plan = parse(text).unwrap();
        assert_eq!(plan.base, Base::Image("python:3.12-slim".to_owned()));
        let run = |command: &str| Step::Run { command: command.to_owned(), user: None };
        let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let expected = [
            Step::Arg("V".to_owned(), "2".to_owned()),
            run("apt-get update && echo 'a b'"),
            run("'echo' 'it'\\''s'"),
            Step::Env([("A", "1"), ("B", "two words"), ("C", "$A")].map(pair).to_vec()),
            Step::Env(vec![pair(("OLD", "the rest"))]),
            Step::Workdir("/my app".to_owned()),
            Step::User("me".to_owned()),
        ];
        assert_eq!(plan.steps, expected);
        assert_eq!(plan.start.as_deref(), Some("'sleep' '9' 'x'"));
        assert_eq!(plan.remarks, ["line 12: EXPOSE is ignored"]);
    }

    #[test]
    fn an_unsupported_dockerfile_is_refused_with_the_line_number() {
        let check = |text: &str, expected: &str| {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text:?}: {error}");
        };
        check("", "line 1: FROM is missing");
        check("RUN true", "line 1: RUN comes before FROM");
        check("FROM a\n\nFROM b", "line 3: multi-stage builds");
        check("FROM a\nCOPY a b", "line 2: COPY is not supported");
        check("FROM a\nVOLUME /x", "line 2: VOLUME is not supported");
        check("FROM a\nENV A='x", "line 2: a quote is not closed");
        check("FROM a\nENV A", "line 2: ENV names no value");
        check("FROM", "line 1: FROM names no image");
    }
}
