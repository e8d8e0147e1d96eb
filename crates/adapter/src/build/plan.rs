//! The steps of a build, whichever API asked for it. Pure.

use model::{Env, Made};

/// Steps of a build.
pub const MAX_STEPS: usize = 500;
/// Bytes of all words of a build.
pub const MAX_SOURCE_BYTES: usize = 1 << 20;

/// The base of a build and its steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The files it starts from.
    pub base: Base,
    /// Who the first step runs as.
    pub user: String,
    pub cwd: String,
    pub steps: Vec<Step>,
    /// What is started with each sandbox.
    pub start: Option<String>,
    /// What succeeds once that is ready.
    pub ready: Option<String>,
    /// What the log says before the first step.
    pub remarks: Vec<String>,
}

/// The files a build starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    /// A template or a snapshot of this name.
    Template(String),
    /// An image of this name, or what the provider has where it has no such image.
    Image(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Run {
        command: String,
        /// The user, if not the one that earlier steps chose.
        user: Option<String>,
    },
    /// Copies files that were sent.
    Copy(CopyStep),
    /// Sets variables for the steps from here on, and for sandboxes.
    Env(Vec<(String, String)>),
    /// Sets variables for the steps from here on alone.
    Arg(String, String),
    /// Chooses a directory for the steps from here on, and for sandboxes; makes it.
    Workdir(String),
    /// Chooses a user for the same.
    User(String),
}

/// Files that were sent, and where they go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyStep {
    /// The hash they were sent under.
    pub hash: String,
    /// Their name in what was sent; may be a pattern.
    pub source: String,
    pub target: String,
    /// Whose they are to be, if not root's.
    pub owner: Option<String>,
    /// Their permissions in octal digits, if they are to have others.
    pub mode: Option<String>,
}

impl Step {
    /// As a line of the log.
    pub fn shown(&self) -> String {
        match self {
            Step::Run { command, .. } => format!("RUN {command}"),
            Step::Copy(copy) => format!("COPY {} {}", copy.source, copy.target),
            // Values may be secrets.
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

/// What the steps so far chose for those that follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// Variables that sandboxes have, too.
    pub env: Env,
    /// Variables of the build alone.
    pub args: Env,
    pub cwd: String,
    pub user: String,
}

impl Chosen {
    /// Sets variables; each may refer to those before it, and to what is outside of the build.
    pub fn set(&mut self, pairs: &[(String, String)], outside: &Env) {
        for (name, value) in pairs {
            let value = expand(value, |name| {
                let own = self.env.get(name).or_else(|| self.args.get(name));
                own.or_else(|| outside.get(name)).cloned()
            });
            self.env.insert(name.clone(), value);
        }
    }

    /// What a sandbox gets of the build.
    pub fn made(self, plan: &Plan) -> Made {
        // What no step chose is the sandbox's own choice.
        Made {
            env: self.env,
            cwd: (self.cwd != plan.cwd).then_some(self.cwd),
            user: (self.user != plan.user).then_some(self.user),
            start: plan.start.clone(),
            ready: plan.ready.clone(),
        }
    }
}

/// A text with `$NAME`, `${NAME}`, `${NAME:-else}` and `${NAME:+then}` replaced; a backslash keeps a dollar.
pub fn expand(text: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut all = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['$', '\\']) {
        all.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        if rest[at..].starts_with('\\') {
            let kept = behind.strip_prefix('$');
            all.push_str(if kept.is_some() { "$" } else { "\\" });
            rest = kept.unwrap_or(behind);
            continue;
        }
        if let Some((inside, after)) = behind.strip_prefix('{').and_then(|it| it.split_once('}')) {
            let end = inside.find(|letter| !is_name(letter)).unwrap_or(inside.len());
            let found = value(&inside[..end]).filter(|found| !found.is_empty());
            match inside[end..].split_at_checked(2) {
                Some((":-", other)) => all.push_str(&found.unwrap_or_else(|| other.to_owned())),
                Some((":+", then)) => all.push_str(if found.is_some() { then } else { "" }),
                _ => all.push_str(&found.unwrap_or_default()),
            }
            rest = after;
            continue;
        }
        let end = behind.find(|letter| !is_name(letter)).unwrap_or(behind.len());
        match &behind[..end] {
            "" => all.push('$'),
            name => all.push_str(&value(name).unwrap_or_default()),
        }
        rest = &behind[end..];
    }
    all.push_str(rest);
    all
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
        let mut chosen = Chosen {
            env: Env::new(),
            args: Env::from([("V".to_owned(), "3".to_owned())]),
            cwd: "/".to_owned(),
            user: "root".to_owned(),
        };
        let pairs = [("A", "/a$V"), ("PATH", "$A:$PATH")];
        chosen.set(&pairs.map(|(name, value)| (name.to_owned(), value.to_owned())), &outside);
        assert_eq!(chosen.env["PATH"], "/a3:/bin");
    }
}
