//! The steps of a build, independent of the API that requested it. Pure.

use model::{Env, Made};

/// The limit of steps of a build.
pub const MAX_STEPS: usize = 500;
/// The limit of the total size of a build's instructions.
pub const MAX_SOURCE_BYTES: usize = 1 << 20;

/// The base of a build and its steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub base: Base,
    /// The user of the first step.
    pub user: String,
    pub cwd: String,
    pub steps: Vec<Step>,
    /// The line of each step, if it has one.
    pub lines: Vec<usize>,
    /// The command that is started with each sandbox.
    pub start: Option<String>,
    /// The command that succeeds once the start command is ready.
    pub ready: Option<String>,
    /// Warnings for the log, before the first step.
    pub remarks: Vec<String>,
}

/// The files that a build starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    /// The template or snapshot with this name.
    Template(String),
    /// The image with this name.
    Image(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Run {
        command: String,
        /// The user, if not the one that earlier steps chose.
        user: Option<String>,
    },
    /// Copies uploaded files, or those of an earlier stage.
    Copy(CopyStep),
    /// Sets variables for the following steps and for sandboxes.
    Env(Vec<(String, String)>),
    /// Sets a variable for the following steps only.
    Arg(String, String),
    /// Creates a directory and makes it the working directory of the following steps and of sandboxes.
    Workdir(String),
    /// Sets the user of the following steps and of sandboxes.
    User(String),
}

/// Where the files of a step are copied from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyFrom {
    /// The archive that was uploaded with this hash.
    Upload(String),
    /// An earlier stage, by its place in the Dockerfile.
    Stage(usize),
}

/// Copies files to a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyStep {
    pub from: CopyFrom,
    /// The path in the archive or stage; may be a glob pattern.
    pub source: String,
    pub target: String,
    /// The owner of the copies; root by default.
    pub owner: Option<String>,
    /// The permissions of the copies in octal digits; unchanged by default.
    pub mode: Option<String>,
    pub archives: CopiedArchives,
}

/// What happens to a file that is itself a tar archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopiedArchives {
    /// The archive is copied as it is.
    Keep,
    /// It is unpacked at the target.
    Extract,
}

impl Step {
    /// The step as a line of the log.
    pub fn summary(&self) -> String {
        match self {
            Step::Run { command, .. } => format!("RUN {command}"),
            Step::Copy(copy) => format!("COPY {} {}", copy.source, copy.target),
            // Values are left out: they may be secrets.
            Step::Env(pairs) => {
                let names: Vec<_> = pairs.iter().map(|(name, _)| name.as_str()).collect();
                format!("ENV {}", names.join(" "))
            }
            Step::Arg(name, _) => format!("ARG {name}"),
            Step::Workdir(path) => format!("WORKDIR {path}"),
            Step::User(name) => format!("USER {name}"),
        }
    }
}

/// The settings that earlier steps made for later ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepSettings {
    /// Variables of the build and of sandboxes.
    pub env: Env,
    /// Variables of the build only.
    pub args: Env,
    pub cwd: String,
    pub user: String,
}

impl StepSettings {
    /// Sets variables. Each may refer to earlier ones and to the sandbox's environment, `outside`.
    pub fn set(&mut self, pairs: &[(String, String)], outside: &Env) {
        for (name, value) in pairs {
            let value = expand(value, |name| {
                let own = self.env.get(name).or_else(|| self.args.get(name));
                own.or_else(|| outside.get(name)).cloned()
            });
            self.env.insert(name.clone(), value);
        }
    }

    /// The settings that the build gives to a sandbox.
    pub fn made(self, plan: &Plan) -> Made {
        // A sandbox keeps its own value of a setting that no step changed.
        Made {
            env: self.env,
            cwd: (self.cwd != plan.cwd).then_some(self.cwd),
            user: (self.user != plan.user).then_some(self.user),
            start: plan.start.clone(),
            ready: plan.ready.clone(),
        }
    }
}

/// Expands `$NAME`, `${NAME}`, `${NAME:-default}` and `${NAME:+replacement}` in a text; a backslash escapes a dollar.
pub fn expand(text: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['$', '\\']) {
        expanded.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        if rest[at..].starts_with('\\') {
            let kept = behind.strip_prefix('$');
            expanded.push_str(if kept.is_some() { "$" } else { "\\" });
            rest = kept.unwrap_or(behind);
            continue;
        }
        if let Some((inside, after)) = behind.strip_prefix('{').and_then(|it| it.split_once('}')) {
            let end = inside.find(|letter| !is_name(letter)).unwrap_or(inside.len());
            let found = value(&inside[..end]).filter(|found| !found.is_empty());
            match inside[end..].split_at_checked(2) {
                Some((":-", other)) => {
                    expanded.push_str(&found.unwrap_or_else(|| other.to_owned()))
                }
                Some((":+", then)) => expanded.push_str(if found.is_some() { then } else { "" }),
                _ => expanded.push_str(&found.unwrap_or_default()),
            }
            rest = after;
            continue;
        }
        let end = behind.find(|letter| !is_name(letter)).unwrap_or(behind.len());
        match &behind[..end] {
            "" => expanded.push('$'),
            name => expanded.push_str(&value(name).unwrap_or_default()),
        }
        rest = &behind[end..];
    }
    expanded.push_str(rest);
    expanded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_may_refer_to_those_before_them() {
        let check = |text: &str, expected: &str| {
            let value = |name: &str| (name == "A").then(|| "one".to_owned());
            assert_eq!(expand(text, value), expected, "{text}");
        };
        check("plain", "plain");
        check("$A:/bin", "one:/bin");
        check("x${A}y", "xoney");
        check("$B", "");
        check("${B:-two} ${A:-two}", "two one");
        check("${B:+two} ${A:+two}", " two");
        check(r"\$A a\b", r"$A a\b");
        check("5$ and $", "5$ and $");
        check("${A", "${A");
        let outside = Env::from([("PATH".to_owned(), "/bin".to_owned())]);
        let mut settings = StepSettings {
            env: Env::new(),
            args: Env::from([("V".to_owned(), "3".to_owned())]),
            cwd: "/".to_owned(),
            user: "root".to_owned(),
        };
        let pairs = [("A", "/a$V"), ("PATH", "$A:$PATH")];
        settings.set(&pairs.map(|(name, value)| (name.to_owned(), value.to_owned())), &outside);
        assert_eq!(settings.env["PATH"], "/a3:/bin");
    }
}
