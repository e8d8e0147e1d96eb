//! A small reader of Dockerfiles: one stage, and what a build here can do. Pure.

use super::plan::{Base, Plan, Step, expand};
use crate::wrap::quote;
use model::Env;

/// A text that cannot be built, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct BadDockerfile {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

pub fn read(text: &str) -> Result<Plan, BadDockerfile> {
    let mut plan = None;
    let (mut entry, mut command) = (None, None);
    let mut args = Env::new();
    for (line, words) in instructions(text) {
        let bad = |reason: String| BadDockerfile { line, reason };
        let (name, rest) = words.split_once(char::is_whitespace).unwrap_or((&words, ""));
        let (name, rest) = (name.to_ascii_uppercase(), rest.trim());
        let known = |text: &str| expand(text, |name| args.get(name).cloned());
        if name == "FROM" {
            if plan.is_some() {
                return Err(bad("builds of several stages cannot be made here".to_owned()));
            }
            let image = rest.split_whitespace().find(|word| !word.starts_with("--"));
            let image = image.ok_or_else(|| bad("FROM names no image".to_owned()))?;
            plan = Some(empty(Base::Image(known(image))));
            continue;
        }
        if name == "ARG" {
            let (name, value) = rest.split_once('=').unwrap_or((rest, ""));
            let value = known(&split(value).map_err(&bad)?.concat());
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
                plan.steps.push(Step::Workdir(known(&split(rest).map_err(&bad)?.concat())))
            }
            "USER" => plan.steps.push(Step::User(known(rest))),
            "ENTRYPOINT" => entry = Some(shell(rest)),
            "CMD" => command = Some(shell(rest)),
            "COPY" | "ADD" => {
                let reason = format!(
                    "{name}: files cannot be sent to this server with an image; write them by RUN, \
                     or upload them into a sandbox and make a snapshot of it"
                );
                return Err(bad(reason));
            }
            "EXPOSE" | "LABEL" | "MAINTAINER" | "STOPSIGNAL" => {
                plan.remarks.push(format!("line {line}: {name} means nothing here"));
            }
            _ => return Err(bad(format!("{name} is not understood here"))),
        }
    }
    let missing = || BadDockerfile { line: 1, reason: "there is no FROM".to_owned() };
    let mut plan = plan.ok_or_else(missing)?;
    plan.start = match (entry, command) {
        (Some(entry), Some(command)) => Some(format!("{entry} {command}")),
        (entry, command) => entry.or(command),
    };
    Ok(plan)
}

/// A plan that has only a base; its steps run as they do in a Dockerfile.
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

/// The instructions with the lines they begin at, each as one line.
fn instructions(text: &str) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in text.lines().enumerate() {
        let plain = line.trim();
        if plain.is_empty() || plain.starts_with('#') {
            continue;
        }
        let (part, more) = match plain.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (plain, false),
        };
        match all.last_mut().filter(|_| goes_on) {
            Some((_, whole)) => whole.push_str(part),
            None => all.push((number + 1, part.to_owned())),
        }
        goes_on = more;
    }
    all
}

fn without_flags(mut rest: &str) -> &str {
    while rest.starts_with("--") {
        rest = rest.split_once(char::is_whitespace).map_or("", |(_, rest)| rest).trim_start();
    }
    rest
}

/// What a shell runs: the text, or the words of a list.
fn shell(rest: &str) -> String {
    match serde_json::from_str::<Vec<String>>(rest) {
        Ok(words) => words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" "),
        Err(_) => rest.to_owned(),
    }
}

/// `A=1 B="two words"`, or the older `A the rest`.
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

/// Words as a shell takes them apart: blanks between them, quotes and backslashes within.
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
            // What stands behind is taken as it is; a dollar stays one that is not expanded.
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
    fn what_an_image_of_a_client_looks_like_is_read() {
        let text = "# syntax\nFROM --platform=linux/amd64 python:3.12-slim\nARG V=2\n\
                    RUN apt-get update && \\\n    # within\n    echo 'a b'\nRUN [\"echo\", \"it's\"]\n\
                    ENV A=1 B='two words' C=\"$A\"\nENV OLD the rest\nWORKDIR '/my app'\nUSER me\n\
                    EXPOSE 80\nENTRYPOINT [\"sleep\", \"9\"]\nCMD [\"x\"]\n";
        let plan = read(text).unwrap();
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
        assert_eq!(plan.remarks, ["line 12: EXPOSE means nothing here"]);
    }

    #[test]
    fn what_cannot_be_built_is_refused_with_its_line() {
        let check = |text: &str, expected: &str| {
            let said = read(text).unwrap_err().to_string();
            assert!(said.starts_with(expected), "{text:?}: {said}");
        };
        check("", "line 1: there is no FROM");
        check("RUN true", "line 1: RUN comes before FROM");
        check("FROM a\n\nFROM b", "line 3: builds of several stages");
        check("FROM a\nCOPY a b", "line 2: COPY: files cannot be sent");
        check("FROM a\nVOLUME /x", "line 2: VOLUME is not understood");
        check("FROM a\nENV A='x", "line 2: a quote is not closed");
        check("FROM a\nENV A", "line 2: ENV names no value");
        check("FROM", "line 1: FROM names no image");
    }
}
