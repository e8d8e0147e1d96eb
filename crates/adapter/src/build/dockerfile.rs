//! Parses Dockerfiles with the instructions that builds support. Pure.

use std::collections::BTreeSet;

use super::plan::{Base, CopiedArchives, CopyFrom, CopyStep, Plan, Step, expand};
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

/// The parameters of a build that its Dockerfile does not contain.
#[derive(Debug, Clone, Default)]
pub struct BuildInputs {
    /// The hash of the archive with the files for `COPY`, if files were uploaded.
    pub files: Option<String>,
    /// Values of `ARG` that replace those in the file.
    pub args: Env,
}

/// A parsed Dockerfile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dockerfile {
    /// The stages before the last, and the images that files are copied from, in an order in which they can be built.
    pub stages: Vec<BuildStage>,
    /// The last stage, which becomes the image.
    pub plan: Plan,
    pub record: ImageRecord,
}

/// A stage that others copy files from, or that only they are based on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildStage {
    pub name: String,
    pub plan: Plan,
}

impl Dockerfile {
    /// The stages that the last one needs files of, directly or not, by their places.
    pub fn needed(&self) -> BTreeSet<usize> {
        let mut needed = BTreeSet::new();
        let mut open = vec![&self.plan];
        while let Some(plan) = open.pop() {
            for step in &plan.steps {
                if let Step::Copy(CopyStep { from: CopyFrom::Stage(at), .. }) = step
                    && needed.insert(*at)
                {
                    open.push(&self.stages[*at].plan);
                }
            }
        }
        needed
    }

    /// The number of steps that are carried out.
    pub fn steps(&self) -> usize {
        let of_stages = self.needed().into_iter().map(|at| self.stages[at].plan.steps.len());
        of_stages.sum::<usize>() + self.plan.steps.len()
    }
}

/// What a Dockerfile says about its image that no step of the build needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageRecord {
    /// The words of the program; `None` if the base's is kept.
    pub entrypoint: Option<Vec<String>>,
    pub command: Option<Vec<String>>,
    pub labels: Vec<(String, String)>,
    /// Ports as in `80/tcp`.
    pub ports: Vec<String>,
}

/// The limit of stages, with the images that files are copied from.
const MAX_STAGES: usize = 32;

pub fn parse(text: &str, inputs: &BuildInputs) -> Result<Dockerfile, BadDockerfile> {
    let mut parser = DockerfileParser { inputs, globals: Env::new(), ended: vec![], current: None };
    for (line, text) in instructions(text) {
        parser.add(line, &text).map_err(|reason| BadDockerfile { line, reason })?;
    }
    let missing = || BadDockerfile { line: 1, reason: "FROM is missing".to_owned() };
    let last = parser.current.ok_or_else(missing)?;
    let stages =
        parser.ended.into_iter().map(|stage| BuildStage { name: stage.name, plan: stage.plan });
    let mut plan = last.plan;
    plan.start = match last.start {
        (Some(entrypoint), Some(command)) => Some(format!("{entrypoint} {command}")),
        (entrypoint, command) => entrypoint.or(command),
    };
    Ok(Dockerfile { stages: stages.collect(), plan, record: last.record })
}

struct DockerfileParser<'a> {
    inputs: &'a BuildInputs,
    /// The variables of `ARG` before the first `FROM`.
    globals: Env,
    ended: Vec<ParsedStage>,
    /// The stage since the last `FROM`.
    current: Option<ParsedStage>,
}

#[derive(Clone)]
struct ParsedStage {
    /// The name after `AS`, the number of the stage, or an image.
    name: String,
    /// The number among the stages of the Dockerfile; `None` for an image that files are copied from.
    number: Option<usize>,
    plan: Plan,
    record: ImageRecord,
    /// The variables of `ARG` and `ENV` until here, without those of the base.
    variables: Env,
    /// The words of `SHELL`.
    shell: Option<Vec<String>>,
    /// The shell commands of `ENTRYPOINT` and `CMD`.
    start: (Option<String>, Option<String>),
}

impl ParsedStage {
    fn new(name: String, number: Option<usize>, image: String) -> Self {
        Self {
            name,
            number,
            plan: empty(Base::Image(image)),
            record: ImageRecord::default(),
            variables: Env::new(),
            shell: None,
            start: (None, None),
        }
    }

    fn expanded(&self, text: &str) -> String {
        expand(text, |name| self.variables.get(name).cloned())
    }
}

impl DockerfileParser<'_> {
    fn add(&mut self, line: usize, text: &str) -> Result<(), String> {
        let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let (name, rest) = (name.to_ascii_uppercase(), rest.trim());
        match name.as_str() {
            "FROM" => return self.from(rest),
            "ARG" => return self.arg(line, rest),
            "COPY" | "ADD" if self.current.is_some() => {
                let steps = self.copy(&name, rest)?;
                self.push(line, steps);
                return Ok(());
            }
            _ => {}
        }
        // Only images that are built with files record what their programs are.
        let records = self.inputs.files.is_some();
        let Some(stage) = &mut self.current else {
            return Err(format!("{name} comes before FROM"));
        };
        let mut ignored = false;
        let steps = match name.as_str() {
            "RUN" => vec![run(stage.shell.as_deref(), rest)?],
            "ENV" => {
                let pairs = pairs(rest)?;
                for (name, value) in &pairs {
                    let value = stage.expanded(value);
                    stage.variables.insert(name.clone(), value);
                }
                vec![Step::Env(pairs)]
            }
            "WORKDIR" => vec![Step::Workdir(split(rest)?.concat())],
            "USER" if rest.is_empty() => return Err("USER names no user".to_owned()),
            "USER" => vec![Step::User(rest.to_owned())],
            "ENTRYPOINT" => {
                stage.start.0 = Some(shell(rest));
                stage.record.entrypoint = Some(words(rest));
                // As in Docker, the command of the base belongs to the entry point of the base.
                stage.record.command.get_or_insert_default();
                vec![]
            }
            "CMD" => {
                stage.start.1 = Some(shell(rest));
                stage.record.command = Some(words(rest));
                vec![]
            }
            "LABEL" => {
                for (name, value) in pairs(rest)? {
                    let value = stage.expanded(&value);
                    stage.record.labels.push((name, value));
                }
                ignored = !records;
                vec![]
            }
            "EXPOSE" => {
                for port in stage.expanded(rest).split_whitespace() {
                    stage.record.ports.push(exposed(port)?);
                }
                ignored = !records;
                vec![]
            }
            "SHELL" => {
                let words = serde_json::from_str::<Vec<String>>(rest).ok();
                let words = words.filter(|words| !words.is_empty());
                stage.shell = Some(words.ok_or("SHELL needs a list of words in JSON")?);
                vec![]
            }
            "MAINTAINER" | "STOPSIGNAL" => {
                ignored = true;
                vec![]
            }
            _ => return Err(format!("{name} is not supported")),
        };
        if ignored {
            stage.plan.remarks.push(format!("line {line}: {name} is ignored"));
        }
        self.push(line, steps);
        Ok(())
    }

    /// Adds steps of a line to the current stage.
    fn push(&mut self, line: usize, steps: Vec<Step>) {
        if let Some(ParsedStage { plan, .. }) = &mut self.current {
            plan.lines.extend(steps.iter().map(|_| line));
            plan.steps.extend(steps);
        }
    }

    fn from(&mut self, rest: &str) -> Result<(), String> {
        if self.current.is_some() && self.inputs.files.is_none() {
            return Err(
                "more than one stage is not supported here; use stead image build".to_owned()
            );
        }
        if let Some(stage) = self.current.take() {
            self.end(stage)?;
        }
        let number = self.ended.iter().filter(|stage| stage.number.is_some()).count();
        let words: Vec<&str> =
            rest.split_whitespace().filter(|word| !word.starts_with("--")).collect();
        let (image, name) = match words[..] {
            [] => return Err("FROM names no image".to_owned()),
            [image] => (image, number.to_string()),
            [image, word, name] if word.eq_ignore_ascii_case("as") => {
                (image, name.to_ascii_lowercase())
            }
            _ => return Err("FROM is followed by an image, and AS with a name".to_owned()),
        };
        let image = expand(image, |name| self.globals.get(name).cloned());
        let stage = match self.stage_named(&image) {
            // What was done in the stage is done again in this one.
            Some(at) => ParsedStage { name, number: Some(number), ..self.ended[at].clone() },
            None if image == "scratch" => {
                return Err("FROM scratch is not supported: sandboxes need a shell".to_owned());
            }
            None => ParsedStage::new(name, Some(number), image),
        };
        self.current = Some(stage);
        Ok(())
    }

    fn end(&mut self, stage: ParsedStage) -> Result<(), String> {
        if self.ended.len() == MAX_STAGES {
            return Err(format!("a Dockerfile may have up to {MAX_STAGES} stages"));
        }
        self.ended.push(stage);
        Ok(())
    }

    /// The place of an earlier stage.
    fn stage_named(&self, name: &str) -> Option<usize> {
        let is_it =
            |stage: &ParsedStage| stage.number.is_some() && stage.name == name.to_ascii_lowercase();
        self.ended.iter().rposition(is_it)
    }

    /// The place of the stage that `--from` names: by its name or number, or an image.
    fn copied_stage(&mut self, name: &str) -> Result<usize, String> {
        let number = name.parse::<usize>().ok();
        let numbered = |stage: &ParsedStage| number.is_some() && stage.number == number;
        let known = self.stage_named(name).or_else(|| self.ended.iter().position(numbered));
        let image = |stage: &ParsedStage| stage.number.is_none() && stage.name == name;
        if let Some(at) = known.or_else(|| self.ended.iter().position(image)) {
            return Ok(at);
        }
        if number.is_some() {
            return Err(format!("there is no stage {name} before this one"));
        }
        self.end(ParsedStage::new(name.to_owned(), None, name.to_owned()))?;
        Ok(self.ended.len() - 1)
    }

    fn arg(&mut self, line: usize, rest: &str) -> Result<(), String> {
        for word in split(rest)? {
            let (name, default) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word.as_str(), None),
            };
            // A value that is known is not expanded again.
            let known = match default {
                Some(_) => self.inputs.args.get(name),
                None => self.inputs.args.get(name).or_else(|| self.globals.get(name)),
            };
            let value = known.map(|known| known.replace('$', "\\$"));
            let value = value.unwrap_or_else(|| default.unwrap_or_default().to_owned());
            let Some(stage) = &mut self.current else {
                let expanded = expand(&value, |name| self.globals.get(name).cloned());
                self.globals.insert(name.to_owned(), expanded);
                continue;
            };
            let expanded = stage.expanded(&value);
            stage.variables.insert(name.to_owned(), expanded);
            let step = Step::Arg(name.to_owned(), value);
            self.push(line, vec![step]);
        }
        Ok(())
    }

    fn copy(&mut self, name: &str, rest: &str) -> Result<Vec<Step>, String> {
        let Some(hash) = &self.inputs.files else {
            return Err(format!(
                "{name} is not supported: this server receives no files with a Dockerfile; write them \
                 with RUN, or upload them into a sandbox and create a snapshot of it"
            ));
        };
        let (mut owner, mut mode, mut stage) = (None, None, None);
        let rest = without_flags(rest, |flag| {
            match flag.split_once('=').unwrap_or((flag, "")) {
                ("--chown", value) => owner = Some(value.to_owned()),
                ("--chmod", value) if value.bytes().all(|byte| (b'0'..=b'7').contains(&byte)) => {
                    mode = Some(value.to_owned());
                }
                ("--chmod", value) => {
                    return Err(format!(
                        "{name} --chmod={value} is not supported; use octal digits"
                    ));
                }
                // Only concerns the cache of a builder with layers.
                ("--link", _) => {}
                ("--from", "") => return Err(format!("{name} --from names no stage")),
                ("--from", value) if name == "COPY" => stage = Some(value.to_owned()),
                (flag, _) => return Err(format!("{name} {flag} is not supported")),
            }
            Ok(())
        })?;
        let hash = hash.clone();
        refuse_here_document(name, rest)?;
        let mut sources = match serde_json::from_str::<Vec<String>>(rest) {
            Ok(words) => words,
            Err(_) => split(rest)?,
        };
        let target = sources.pop().filter(|_| !sources.is_empty());
        let mut target = target.ok_or_else(|| format!("{name} needs a source and a target"))?;
        if sources.len() > 1 && !target.ends_with('/') {
            target.push('/');
        }
        let archives = match name {
            "ADD" => CopiedArchives::Extract,
            _ => CopiedArchives::Keep,
        };
        let from = match stage {
            Some(stage) => CopyFrom::Stage(self.copied_stage(&stage)?),
            None => CopyFrom::Upload(hash),
        };
        let step = |source: String| {
            if name == "ADD" && (source.contains("://") || source.starts_with("git@")) {
                return Err("ADD of a URL is not supported; download it with RUN".to_owned());
            }
            let (from, target) = (from.clone(), target.clone());
            let (owner, mode) = (owner.clone(), mode.clone());
            Ok(Step::Copy(CopyStep { from, source, target, owner, mode, archives }))
        };
        sources.into_iter().map(step).collect()
    }
}

/// The step of a `RUN`, with the words of `SHELL` if there was one.
fn run(shell: Option<&[String]>, rest: &str) -> Result<Step, String> {
    let command = without_flags(rest, |flag| match flag.split_once('=').unwrap_or((flag, "")) {
        ("--network", "default") | ("--security", "sandbox") => Ok(()),
        (flag, _) => Err(format!("RUN {flag} is not supported")),
    })?;
    if command.is_empty() {
        return Err("RUN names no command".to_owned());
    }
    refuse_here_document("RUN", command)?;
    let command = match (shell, serde_json::from_str::<Vec<String>>(command)) {
        (Some(shell), Err(_)) => {
            let words = shell.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ");
            format!("{words} {}", quote(command))
        }
        _ => self::shell(command),
    };
    Ok(Step::Run { command, user: None })
}

/// A port with its protocol.
fn exposed(port: &str) -> Result<String, String> {
    let (number, protocol) = port.split_once('/').unwrap_or((port, "tcp"));
    let is_range = number.split('-').all(|end| end.parse::<u16>().is_ok());
    match is_range && ["tcp", "udp"].contains(&protocol) {
        true => Ok(format!("{number}/{protocol}")),
        false => Err(format!("{port:?} is not a port")),
    }
}

fn refuse_here_document(name: &str, rest: &str) -> Result<(), String> {
    let is_one = |word: &str| {
        word.strip_prefix("<<").is_some_and(|rest| {
            rest.trim_start_matches('-')
                .starts_with(|it: char| it.is_alphabetic() || "\"'_".contains(it))
        })
    };
    match rest.split_whitespace().any(is_one) {
        true => Err(format!(
            "{name} with a here-document is not supported; join lines with a backslash"
        )),
        false => Ok(()),
    }
}

/// A plan with a base and no steps, with the user and the directory that Dockerfiles start with.
pub fn empty(base: Base) -> Plan {
    Plan {
        base,
        user: "root".to_owned(),
        cwd: "/".to_owned(),
        steps: vec![],
        lines: vec![],
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

/// Reads the flags before the words of an instruction. Returns the words.
fn without_flags(
    mut rest: &str,
    mut read: impl FnMut(&str) -> Result<(), String>,
) -> Result<&str, String> {
    while rest.starts_with("--") {
        let (flag, words) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        read(flag)?;
        rest = words.trim_start();
    }
    Ok(rest)
}

/// The words of a program in exec form (a JSON list), or the shell that runs it.
fn words(rest: &str) -> Vec<String> {
    let shell = || vec!["/bin/sh".to_owned(), "-c".to_owned(), rest.to_owned()];
    serde_json::from_str(rest).unwrap_or_else(|_| shell())
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

    fn text(words: &[&str]) -> Option<Vec<String>> {
        Some(words.iter().map(|word| (*word).to_owned()).collect())
    }

    fn run(command: &str) -> Step {
        Step::Run { command: command.to_owned(), user: None }
    }

    #[test]
    fn the_dockerfile_of_a_client_is_parsed() {
        let text = "# syntax\nFROM --platform=linux/amd64 python:3.12-slim\nARG V=2\n\
                    RUN apt-get update && \\\n    # within\n    echo 'a b'\nRUN [\"echo\", \"it's\"]\n\
                    ENV A=1 B='two words' C=\"$A\"\nENV OLD the rest\nWORKDIR '/my app'\nUSER me\n\
                    EXPOSE 80\nENTRYPOINT [\"sleep\", \"9\"]\nCMD [\"x\"]\n";
        let plan = parse(text, &BuildInputs::default()).unwrap().plan;
        assert_eq!(plan.base, Base::Image("python:3.12-slim".to_owned()));
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
        assert_eq!(plan.lines, [3, 4, 7, 8, 9, 10, 11]);
        assert_eq!(plan.start.as_deref(), Some("'sleep' '9' 'x'"));
        assert_eq!(plan.remarks, ["line 12: EXPOSE is ignored"]);
    }

    #[test]
    fn a_dockerfile_with_files_is_parsed() {
        let dockerfile = "ARG BASE=alpine\nFROM $BASE:3\nARG V=1 W\nENV D=/srv/$V\nWORKDIR $D\n\
                    COPY --chown=app:app --chmod=755 a.py b.py lib/\nCOPY [\"a b\", \"/c d\"]\nADD files.tar.gz /\n\
                    SHELL [\"/bin/bash\", \"-c\"]\nRUN echo it\nLABEL version=\"$V\" who=me\nEXPOSE 80 53/udp\n\
                    ENTRYPOINT run it\n";
        let args = Env::from([("V".to_owned(), "$2".to_owned())]);
        let inputs = BuildInputs { files: Some("hash".to_owned()), args };
        let Dockerfile { plan, record, stages } = parse(dockerfile, &inputs).unwrap();
        assert_eq!(stages, []);
        assert_eq!(plan.base, Base::Image("alpine:3".to_owned()));
        let copy = |source: &str, target: &str| CopyStep {
            from: CopyFrom::Upload("hash".to_owned()),
            source: source.to_owned(),
            target: target.to_owned(),
            owner: None,
            mode: None,
            archives: CopiedArchives::Keep,
        };
        let owned = |source| {
            let (owner, mode) = (Some("app:app".to_owned()), Some("755".to_owned()));
            Step::Copy(CopyStep { owner, mode, ..copy(source, "lib/") })
        };
        let added = CopyStep { archives: CopiedArchives::Extract, ..copy("files.tar.gz", "/") };
        let expected = [
            Step::Arg("V".to_owned(), "\\$2".to_owned()),
            Step::Arg("W".to_owned(), String::new()),
            Step::Env(vec![("D".to_owned(), "/srv/$V".to_owned())]),
            Step::Workdir("$D".to_owned()),
            owned("a.py"),
            owned("b.py"),
            Step::Copy(copy("a b", "/c d")),
            Step::Copy(added),
            run("'/bin/bash' '-c' 'echo it'"),
        ];
        assert_eq!(plan.steps, expected);
        assert_eq!(
            record.labels,
            [("version", "$2"), ("who", "me")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
        assert_eq!(record.ports, ["80/tcp", "53/udp"]);
        assert_eq!(record.entrypoint, text(&["/bin/sh", "-c", "run it"]));
        assert_eq!(record.command, text(&[]));
        assert!(plan.remarks.is_empty());
    }

    #[test]
    fn stages_are_based_on_others_and_copy_files_of_others() {
        let dockerfile = "ARG V=1\nFROM base:$V AS Common\nARG V\nENV E=$V\nRUN common\nCMD [\"one\"]\n\
                    FROM other\nARG V=3\nRUN unneeded\nFROM common AS make\nRUN make $E\n\
                    FROM make AS test\nRUN test\n\
                    FROM common\nCOPY --from=make /out /bin/\nCOPY --from=tools:2 /a /b /c\nCOPY --from=1 d e\n";
        let inputs = BuildInputs { files: Some("hash".to_owned()), args: Env::new() };
        let parsed = parse(dockerfile, &inputs).unwrap();
        let names: Vec<_> = parsed.stages.iter().map(|stage| stage.name.as_str()).collect();
        assert_eq!(names, ["common", "1", "make", "test", "tools:2"]);
        assert_eq!(parsed.needed(), BTreeSet::from([1, 2, 4]));
        assert_eq!(parsed.steps(), 2 + 4 + 7);
        let common = [
            Step::Arg("V".to_owned(), "1".to_owned()),
            Step::Env(vec![("E".to_owned(), "$V".to_owned())]),
            run("common"),
        ];
        let make = &parsed.stages[2].plan;
        assert_eq!(make.base, Base::Image("base:1".to_owned()));
        assert_eq!(make.steps, [&common[..], &[run("make $E")]].concat());
        assert_eq!(make.lines, [3, 4, 5, 11]);
        let copy = |at, source: &str, target: &str| {
            Step::Copy(CopyStep {
                from: CopyFrom::Stage(at),
                source: source.to_owned(),
                target: target.to_owned(),
                owner: None,
                mode: None,
                archives: CopiedArchives::Keep,
            })
        };
        let copies = [
            copy(2, "/out", "/bin/"),
            copy(4, "/a", "/c/"),
            copy(4, "/b", "/c/"),
            copy(1, "d", "e"),
        ];
        assert_eq!(parsed.plan.steps, [&common[..], &copies].concat());
        // The program of the stage that the last one is based on.
        assert_eq!(parsed.record.command, text(&["one"]));
        assert_eq!(parsed.plan.start.as_deref(), Some("'one'"));
    }

    #[test]
    fn an_unsupported_dockerfile_is_refused_with_the_line_number() {
        let refused = |text: &str, files: Option<&str>, expected: &str| {
            let inputs = BuildInputs { files: files.map(str::to_owned), args: Env::new() };
            let error = parse(text, &inputs).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text:?}: {error}");
        };
        let check = |text, expected| refused(text, Some("hash"), expected);
        check("", "line 1: FROM is missing");
        check("RUN true", "line 1: RUN comes before FROM");
        check("FROM scratch", "line 1: FROM scratch is not supported");
        refused("FROM a\n\nFROM b", None, "line 3: more than one stage is not supported here");
        check("FROM a b", "line 1: FROM is followed by an image, and AS");
        check("FROM a\nCOPY --from=1 a b", "line 2: there is no stage 1 before this one");
        check("FROM a AS b\nADD --from=b a c", "line 2: ADD --from is not supported");
        refused("FROM a\nCOPY a b", None, "line 2: COPY is not supported");
        check("FROM a\nCOPY a", "line 2: COPY needs a source and a target");
        check("FROM a\n\nCOPY --from= a b", "line 3: COPY --from names no stage");
        check("FROM a\nADD https://a/b /", "line 2: ADD of a URL is not supported");
        check("FROM a\nRUN --mount=type=cache,target=/x y", "line 2: RUN --mount is not supported");
        check("FROM a\nRUN <<EOF\ntrue\nEOF", "line 2: RUN with a here-document");
        check("FROM a\nVOLUME /x", "line 2: VOLUME is not supported");
        check("FROM a\nEXPOSE x", "line 2: \"x\" is not a port");
        check("FROM a\nENV A='x", "line 2: a quote is not closed");
        check("FROM a\nENV A", "line 2: ENV names no value");
        check("FROM", "line 1: FROM names no image");
    }
}
