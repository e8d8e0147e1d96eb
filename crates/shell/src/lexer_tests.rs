//! The parsers of shell text, checked against real shells.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::{prelude::*, test_runner::RngSeed};

use super::defined;
use super::harmless::HarmlessFilter;
use super::state::State;
use super::{bash, unclosed};

/// A scratch directory with a few files and programs.
struct Sandbox(PathBuf);

impl Sandbox {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("stead-lexer-{}-{number}", std::process::id()));
        for name in ["bin", "work/dir"] {
            fs::create_dir_all(dir.join(name)).unwrap();
        }
        for program in ["cat", "env", "id"] {
            let _ = std::os::unix::fs::symlink(
                Path::new("/usr/bin").join(program),
                dir.join("bin").join(program),
            );
        }
        fs::write(dir.join("work/f"), "x=9; cd /\n").unwrap();
        Self(dir)
    }

    /// Runs a script in a shell that has no rc files. Returns its output.
    fn run(&self, shell: &[&str], script: &[u8]) -> Vec<u8> {
        fs::write(self.0.join("script"), script).unwrap();
        let output = Command::new(shell[0])
            .args(&shell[1..])
            .arg(self.0.join("script"))
            .current_dir(self.0.join("work"))
            .env_clear()
            .env("PATH", self.0.join("bin"))
            .env("HOME", self.0.join("work"))
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .unwrap();
        output.stdout
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const BASH: [&str; 3] = ["/bin/bash", "--norc", "--noprofile"];

/// Prints everything that a harmless command must leave unchanged, between zero bytes.
const OBSERVE: &str = "\\builtin printf '\\0'; { \\builtin declare -p; \\builtin declare -fp; \
    \\builtin alias -p; \\builtin shopt -p; \\builtin set +o; \\builtin trap -p; \\builtin umask; \
    \\builtin pwd -P; \\builtin pwd -L; \\builtin ulimit -a; \\builtin dirs; \\builtin enable -a; \
    \\builtin complete -p; } 2>&1; \\builtin printf '\\0'\n";

/// Variables that change by themselves, or with every command.
fn is_volatile(line: &str) -> bool {
    let name = line.split(' ').nth(2).unwrap_or_default();
    let name = name.split('=').next().unwrap_or_default();
    line.starts_with("declare -")
        && (name.starts_with("BASH")
            || name.starts_with("EPOCH")
            || ["_", "PIPESTATUS", "LINENO", "RANDOM", "SRANDOM", "SECONDS", "LINES", "COLUMNS"]
                .contains(&name))
}

/// Generates the commands that set up a shell.
fn prelude() -> impl Strategy<Value = Vec<&'static str>> {
    let line = proptest::sample::select(vec![
        "x=1",
        "declare -A m=([k]=v)",
        "declare -i n=5",
        "declare -n ref=x",
        "readonly R=1",
        "export IFS=:",
        "unset IFS",
        "GLOBIGNORE='*'",
        "cat() { x=2; }",
        "function env { cd /; }",
        "alias id='x=3'",
        "alias true='x=4 '",
        "alias pwd='cd /; '",
        "alias -- -='cd -'",
        "command_not_found_handle() { x=5; }",
        "shopt -s lastpipe; set +m",
        "shopt -s extglob nullglob",
        "shopt -s failglob",
        "shopt -s autocd",
        "shopt -s xpg_echo",
        "shopt -s sourcepath nocasematch",
        "set -o pipefail",
        "set -f",
        "set -u",
        "set -a",
        "set -k",
        "set -C",
        "set -o posix",
        "trap 'x=6' DEBUG",
        "trap 'x=7' EXIT",
        "enable -n echo",
        "PS1='${n:=1}'",
    ]);
    proptest::collection::vec(line, 0..4)
}

/// Generates text of words that change a shell, words that do not, and separators.
fn text() -> impl Strategy<Value = String> {
    let word = proptest::sample::select(vec![
        "true",
        "false",
        ":",
        "echo",
        "printf",
        "test",
        "[",
        "]",
        "pwd",
        "cat",
        "env",
        "id",
        "nosuch",
        "./f",
        "dir",
        "..",
        "2to3",
        "a",
        "b",
        "f",
        "x",
        "x=1",
        "x+=1",
        "m[k]=1",
        "-v",
        "-n",
        "-e",
        "-eq",
        "-R",
        "-o",
        "-a",
        "=",
        "!=",
        "1",
        "0",
        "%s",
        "%n",
        "%d",
        "%b",
        "%q",
        "%%",
        "'%s'",
        "'%n'",
        "\"%d\"",
        "'a b'",
        "\"a b\"",
        "'x[$(cd /)]'",
        "\"x[0]\"",
        "''",
        "\"\"",
        "'",
        "\"",
        "\\",
        "$x",
        "${x:=1}",
        "$((x=1))",
        "$(cd /)",
        "`cd /`",
        "*",
        "?",
        "~",
        "~+",
        "~-",
        "{a,b}",
        "[a]",
        "!",
        "%1",
        "-",
        "--",
        "#",
        "cd",
        "/",
        "export",
        "unset",
        "eval",
        "read",
        "exec",
        "set",
        "shift",
        "umask",
        "alias",
        "trap",
        "exit",
        "return",
        "source",
        ".",
        "command",
        "builtin",
        "time",
        "coproc",
        "if",
        "then",
        "fi",
        "{",
        "}",
        "[[",
        "]]",
        "((",
        "))",
        "(",
        ")",
        "f()",
        "é",
        "^a^b",
        "let",
        "declare",
        "hash",
        "kill",
        "wait",
        "ulimit",
        "shopt",
        "enable",
        "mapfile",
        "@",
        "+",
        ",",
    ]);
    let joint = proptest::sample::select(vec![
        " ",
        " ",
        " ",
        " ",
        " ",
        " ",
        " ",
        "",
        "",
        ";",
        "; ",
        "\n",
        " && ",
        " || ",
        " | ",
        "|",
        "&",
        " >out ",
        " >>out ",
        " 2>out ",
        " 2>&1 ",
        " >&2 ",
        " <f ",
        ">",
        "<",
        " 3>out ",
        " >|out ",
        " <<E\n",
        "\nE\n",
        " <<<",
        " &>out ",
        "\t",
        " {fd}>out ",
        " <(",
        "\\\n",
        "|&",
        " 1>&1 ",
    ]);
    let pairs = proptest::collection::vec((word, joint), 1..6);
    pairs.prop_map(|pairs| pairs.iter().flat_map(|(word, joint)| [*word, *joint]).collect())
}

/// Returns the parsed state of a shell after a prelude.
fn state(sandbox: &Sandbox, prelude: &[u8]) -> State {
    let mut script = prelude.to_vec();
    bash::dump(&mut script, b"/dev/stdout", b"", b"");
    bash::parse(&sandbox.run(&BASH, &script)).state
}

proptest! {
    // The same texts in every run: a new counterexample is found by raising the number of cases, not by chance.
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(12) })]

    #[test]
    fn a_harmless_command_leaves_a_real_bash_unchanged(
        prelude in prelude(),
        texts in proptest::collection::vec(text(), 300),
    ) {
        let sandbox = Sandbox::new();
        let prelude = format!("shopt -s expand_aliases\n{}\n", prelude.join("\n"));
        let Some(filter) = HarmlessFilter::of(&state(&sandbox, prelude.as_bytes())) else { return Ok(()) };
        let harmless: Vec<&String> =
            texts.iter().filter(|text| filter.accepts(text.as_bytes())).collect();
        let mut script = format!("{prelude}{OBSERVE}");
        for text in &harmless {
            // In the form of a drive file.
            script.push_str(&format!("{{ {text}\n}} </dev/null >/dev/null 2>&1\n{OBSERVE}"));
        }
        let output = String::from_utf8_lossy(&sandbox.run(&BASH, script.as_bytes())).into_owned();
        let observed: Vec<String> = output
            .split('\0')
            .skip(1)
            .step_by(2)
            .map(|part| part.lines().filter(|line| !is_volatile(line)).collect::<Vec<_>>().join("\n"))
            .collect();
        for (nth, text) in harmless.iter().enumerate() {
            let after = observed.get(nth + 1);
            prop_assert_eq!(Some(&observed[nth]), after, "{:?} after {:?}", text, prelude);
        }
    }

    /// A text that ends inside a substitution can end the shell that sources it.
    #[test]
    fn a_text_that_bash_finds_unclosed_is_never_called_closed(
        texts in proptest::collection::vec(
            proptest::collection::vec(
                proptest::sample::select(vec![
                    "echo ", "a", " ", "$(", ")", "$((", "))", "(", "'", "\"", "\\", "#", " #", "\n",
                    "`", "${x", "}", "<(", "=(", "a=(", ";", "<<E\n", "\nE\n", "$'", "case a in ",
                    "a) ", ";; ", "esac", "|", "&&", "$x", "[[ ", " ]]",
                ]),
                1..10,
            ),
            20,
        ),
    ) {
        let sandbox = Sandbox::new();
        for text in texts.iter().map(|parts| parts.concat()) {
            // An unclosed `((` by itself is an error like any other.
            let substitutes = ["$(", "<(", ">(", "=("].iter().any(|open| text.contains(open));
            if !substitutes || unclosed::may_be(text.as_bytes()) {
                continue;
            }
            // The inner shell only parses the text, and reports an unclosed construct.
            fs::write(sandbox.0.join("work/text"), &text).unwrap();
            let script = b"/bin/bash -O extglob -n ./text 2>&1\n";
            let message = String::from_utf8_lossy(&sandbox.run(&BASH, script)).into_owned();
            let unclosed = message.contains("looking for matching `)'");
            prop_assert!(!unclosed, "{:?}: {}", text, message);
        }
    }

    /// The functions found in a text are the ones that a POSIX shell defines.
    #[test]
    fn the_functions_found_in_a_text_are_those_that_a_shell_defines(
        texts in proptest::collection::vec(
            proptest::collection::vec(
                proptest::sample::select(vec![
                    "f() { echo f; }", "g()\n{\n echo '}'\n}", "h () ( echo h )", "f() { echo again; }",
                    "k() { if true; then { :; }; fi; }", "p() { cat <<E\n}\nE\n}", "echo 'q() { :; }'",
                    "# r() { :; }", "if true; then s() { :; }; fi", "echo t '()' \\( \\)",
                    "u() { v() { :; }; }", "x=1", ": \"w() { :; }\"", "y() { echo \"}\" \\} '}'; } >&2",
                ]),
                1..5,
            ),
            8,
        ),
    ) {
        let sandbox = Sandbox::new();
        for parts in texts {
            let text = parts.join("\n");
            let found = defined::functions([text.as_bytes()]);
            let mut names: Vec<String> =
                found.iter().map(|one| String::from_utf8(one.name.clone()).unwrap()).collect();
            names.sort();
            let list = "\nfor n in f g h k p q r s t u v w y; do \
                command -V $n 2>/dev/null | while read -r l; do case $l in \
                *function*) echo \"is $n\";; esac; done; done\n";
            let run = |script: &str| {
                let output = sandbox.run(&["/bin/sh"], script.as_bytes());
                let output = String::from_utf8_lossy(&output).into_owned();
                let is = output.lines().filter_map(|line| Some(line.strip_prefix("is ")?.to_owned()));
                is.collect::<Vec<String>>()
            };
            let defined = run(&format!("{text}{list}"));
            // A nested function is defined only when the outer one is called.
            prop_assert_eq!(&names, &defined, "{:?}", text);
            let sources: Vec<String> = found
                .iter()
                .map(|one| String::from_utf8(one.source.clone()).unwrap())
                .collect();
            prop_assert_eq!(&run(&format!("{}{list}", sources.join("\n"))), &defined, "{:?}", text);
        }
    }
}
