//! Recognizes commands that certainly leave a bash unchanged, so that its state need not be dumped after
//! them.
//!
//! Pure and conservative: a text that is not understood is not harmless. A harmless text is a list of
//! simple commands of literal words, each a program or one of the few builtins without side effects, in a
//! shell that runs nothing else by itself: no trap, no prompt hook, no function or alias of that name. The
//! state does not show builtins that were loaded from a file; the caller checks for those.

use std::collections::HashSet;

use super::quote;
use super::state::State;

/// Longer texts are not parsed: they run for longer than a dump takes.
const MAX_TEXT_BYTES: usize = 4 << 10;

/// Builtins and keywords of bash. [`has_no_effect`] recognizes the uses without side effects.
const BUILTINS_AND_KEYWORDS: &str = ". : [ ] alias bg bind break builtin caller case cd command compgen complete compopt \
    continue coproc declare dirs disown do done echo elif else enable esac eval exec exit export false fc \
    fg fi for function getopts hash help history if in jobs kill let local logout mapfile popd printf \
    pushd pwd read readarray readonly return select set shift shopt source suspend test then time times \
    trap true type typeset ulimit umask unalias unset until wait while";

/// Options under which a simple command may have side effects or end the shell.
const OPTIONS: [&[u8]; 9] = [
    b"set -o errexit",
    b"set -o keyword",
    b"set -o noexec",
    b"set -o onecmd",
    b"set -o posix",
    b"set -o xtrace",
    b"shopt -s autocd",
    b"shopt -s extdebug",
    b"shopt -s failglob",
];

/// Recognizes harmless commands in a shell with a given state.
#[derive(Debug)]
pub struct HarmlessFilter {
    /// Names that are functions or aliases.
    taken: HashSet<Vec<u8>>,
}

impl HarmlessFilter {
    /// Returns `None` if the shell may run something by itself beside a command, or if that is unknown.
    pub fn of(state: &State) -> Option<Self> {
        let whole = ["vars", "functions", "set", "shopt"].into_iter().all(|name| state.has(name));
        let quiet = state.get("traps").is_empty() && state.get("enable").is_empty();
        let option = |line: &[u8]| OPTIONS.contains(&line);
        if !whole
            || !quiet
            || state.lines("set").chain(state.lines("shopt")).any(option)
            || state.lines("vars").any(runs_by_itself)
        {
            return None;
        }
        let functions = state.lines("functions").filter_map(|line| {
            let name = line.strip_suffix(b" () ")?.trim_ascii_start();
            Some(name.strip_prefix(b"function ").unwrap_or(name).to_vec())
        });
        let aliases = state.lines("aliases").filter_map(|line| {
            let name = line.strip_prefix(b"alias ")?;
            let name = name.strip_prefix(b"-- ").unwrap_or(name);
            Some(name[..name.iter().position(|byte| *byte == b'=')?].to_vec())
        });
        let taken: HashSet<Vec<u8>> = functions.chain(aliases).collect();
        // The drive file itself calls it.
        (!taken.contains(&b"builtin"[..])).then_some(Self { taken })
    }

    /// Returns whether this text certainly changes nothing in the shell.
    pub fn accepts(&self, text: &[u8]) -> bool {
        text.len() <= MAX_TEXT_BYTES && Scan { text, at: 0 }.list(&self.taken).is_some()
    }
}

/// Returns whether a variable, by its line of `declare -p`, makes the shell run something by itself: at a
/// prompt, after a time, or when a coprocess exits.
fn runs_by_itself(line: &[u8]) -> bool {
    let Some(rest) = line.strip_prefix(b"declare -") else { return false };
    let Some(space) = rest.iter().position(|byte| *byte == b' ') else { return true };
    let rest = &rest[space + 1..];
    let equals = rest.iter().position(|byte| *byte == b'=').unwrap_or(rest.len());
    let (name, value) = rest.split_at(equals);
    match name {
        b"PROMPT_COMMAND" | b"TMOUT" => true,
        b"PS1" => value.first().is_some_and(|_| assigns(&quote::word(&value[1..]).0)),
        _ => name.ends_with(b"_PID"),
    }
}

/// Returns whether the expansion of this value may assign a variable or run a command.
fn assigns(value: &[u8]) -> bool {
    let has = |wanted: &[u8]| value.windows(wanted.len()).any(|window| window == wanted);
    let runs = [&b"`"[..], b"$(", b"$[", b"${ ", b"${|"].into_iter().any(has);
    runs || has(b"$") && [&b"="[..], b"++", b"--"].into_iter().any(has)
}

/// A word, and whether it has no quotes.
struct Word {
    text: Vec<u8>,
    bare: bool,
}

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    /// Parses the whole text. Returns `None` as soon as something is not understood.
    fn list(&mut self, taken: &HashSet<Vec<u8>>) -> Option<()> {
        self.skip(b" \t\n");
        loop {
            let command = self.command()?;
            let (name, arguments) = command.split_first()?;
            if !name.bare || taken.contains(&name.text) {
                return None;
            }
            let own = BUILTINS_AND_KEYWORDS
                .split_ascii_whitespace()
                .any(|known| known.as_bytes() == name.text);
            let harmless =
                if own { has_no_effect(&name.text, arguments) } else { is_program(&name.text) };
            if !harmless {
                return None;
            }
            match self.text[self.at..] {
                [] => return Some(()),
                [b'&', b'&', ..] | [b'|', b'|', ..] => self.at += 2,
                // `|&` does not begin a command.
                [b'|', ..] => self.at += 1,
                [b';' | b'\n', ..] => {
                    self.at += 1;
                    self.skip(b" \t\n");
                    if self.at == self.text.len() {
                        return Some(());
                    }
                }
                _ => return None,
            }
            self.skip(b" \t");
        }
    }

    /// Parses a simple command up to its separator. Returns its words, without redirections.
    fn command(&mut self) -> Option<Vec<Word>> {
        let mut words = Vec::new();
        loop {
            self.skip(b" \t");
            match self.text[self.at..] {
                [] | [b';' | b'\n' | b'&' | b'|', ..] => return Some(words),
                [b'0'..=b'2', b'<' | b'>', ..] => {
                    self.at += 1;
                    self.redirection()?;
                }
                [b'<' | b'>', ..] => self.redirection()?,
                _ => words.push(self.word()?),
            }
        }
    }

    /// Parses a redirection that ends with the command.
    fn redirection(&mut self) -> Option<()> {
        match self.text[self.at..] {
            [b'>', b'&', b'1' | b'2', ref rest @ ..] => {
                self.at += 3;
                return rest.first().is_none_or(|byte| is_blank_or_end(*byte)).then_some(());
            }
            [b'>', b'>', ..] => self.at += 2,
            [b'<' | b'>', ..] => self.at += 1,
            _ => return None,
        }
        self.skip(b" \t");
        // Also refuses `<<`, `>|`, `<>`, `<(` and `>&word`: none of these begins a word.
        (!self.word()?.text.is_empty()).then_some(())
    }

    fn word(&mut self) -> Option<Word> {
        let mut word = Word { text: Vec::new(), bare: true };
        let start = self.at;
        while let Some(&byte) = self.text.get(self.at) {
            match byte {
                b'\'' | b'"' => {
                    let rest = &self.text[self.at + 1..];
                    let quoted = &rest[..rest.iter().position(|next| *next == byte)?];
                    if quoted.iter().any(|inner| !is_literal(*inner, byte)) {
                        return None;
                    }
                    word.text.extend_from_slice(quoted);
                    word.bare = false;
                    self.at += quoted.len() + 2;
                }
                b'<' | b'>' if self.at > start => break,
                byte if is_blank_or_end(byte) => break,
                b'[' | b']' if self.at == start => {
                    self.at += 1;
                    let ends = self.text.get(self.at).is_none_or(|next| is_blank_or_end(*next));
                    return ends.then(|| Word { text: vec![byte], bare: true });
                }
                byte if is_plain(byte) => {
                    word.text.push(byte);
                    self.at += 1;
                }
                _ => return None,
            }
        }
        // A number before a redirection would be its descriptor.
        let descriptor = word.bare
            && matches!(self.text.get(self.at), Some(b'<' | b'>'))
            && word.text.iter().all(u8::is_ascii_digit);
        (self.at > start && !descriptor).then_some(word)
    }

    fn skip(&mut self, bytes: &[u8]) {
        let rest = &self.text[self.at..];
        self.at += rest.iter().take_while(|byte| bytes.contains(byte)).count();
    }
}

fn is_blank_or_end(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b';' | b'&' | b'|')
}

/// Returns whether an unquoted byte is literal, or a part of a file name pattern.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_./+,:=@%^-*?~".contains(&byte)
}

/// Returns whether a byte is literal within these quotes, in every locale.
fn is_literal(byte: u8, quote: u8) -> bool {
    let control = byte < b' ' && byte != b'\n' && byte != b'\t' || byte == 0x7f;
    !control && (quote == b'\'' || !b"$`\\!".contains(&byte))
}

/// Returns whether this can be the name of a program.
fn is_program(name: &[u8]) -> bool {
    let starts = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'/');
    name.first().is_some_and(starts)
        && name.iter().all(|byte| starts(byte) || matches!(byte, b'+' | b'-'))
}

/// Returns whether this builtin has no side effects with these arguments.
fn has_no_effect(name: &[u8], arguments: &[Word]) -> bool {
    match name {
        b":" | b"true" | b"false" | b"echo" => true,
        b"pwd" => arguments.is_empty(),
        b"printf" => arguments.first().is_some_and(|format| only_prints(&format.text)),
        // `-v` and `-R` evaluate the subscript of their operand.
        b"test" | b"[" => !arguments.iter().any(|word| matches!(&word.text[..], b"-v" | b"-R")),
        _ => false,
    }
}

/// Returns whether a format of `printf` only prints: `-v` and `%n` set variables.
fn only_prints(format: &[u8]) -> bool {
    let mut parts = format.split(|byte| *byte == b'%');
    let begins = parts.next().is_some_and(|first| !first.starts_with(b"-"));
    let mut after_percent = false;
    begins
        && parts.all(|part| {
            let digits = |byte: &&u8| matches!(**byte, b'0'..=b'9' | b'.' | b'-');
            let conversion = part.iter().find(|byte| !digits(byte));
            // An empty part is the first half of `%%`, whose second begins nothing.
            let prints = after_percent
                || conversion.map_or(part.is_empty(), |byte| b"sdiuxXocbq".contains(byte));
            after_percent = part.is_empty() && !after_percent;
            prints
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn state(changes: &[(&str, &str)]) -> State {
        let mut state = State::default();
        for (name, text) in [
            ("vars", "declare -- PS1=\"\\${chroot:+(\\$chroot)}\\\\u\\$ \"\ndeclare -x A=\"1\"\n"),
            ("functions", "ls () \n{ \n    cd /\n}\n"),
            ("aliases", "alias grep='grep --color'\nalias -- -='cd -'"),
            ("set", "set +o errexit\nset -o monitor"),
            ("shopt", "shopt -s extglob"),
        ] {
            state.set(name, text.into());
        }
        for (name, text) in changes {
            state.set(name, (*text).into());
        }
        state
    }

    /// Returns one text per line; `\n` stands for a newline.
    fn texts(lines: &str) -> impl Iterator<Item = String> {
        lines.lines().map(|line| line.replace("\\n", "\n"))
    }

    #[test]
    fn commands_that_only_run_programs_or_print_are_harmless() {
        let filter = HarmlessFilter::of(&state(&[])).unwrap();
        let harmless = r#":
true
false\n
  echo a b  
echo 'it $x `y` \ !' "a b"'c'd
echo %n -v -x=1 'ü'
printf '%s' a
printf '%5.2d%%n %q' 1 2
pwd
test -f /etc/passwd
[ 1 -eq 2 ]
[ -n 'x' ] && echo yes || echo no
git status --short
/bin/ls -la /tmp ~/x *.rs a?
make -j4 CC=gcc 2>&1 | tail -n 5
cargo build >/tmp/log 2>&1; cat </tmp/log >> /tmp/b
\n\nid\n\nwhoami;\n
g++ -O2 x.cc
./run.sh
python3 -c 'import os\nos.chdir("/")'
ls2
nosuchprogram
2to3 x
cat 2> /dev/null x"#;
        for text in texts(harmless) {
            assert!(filter.accepts(text.as_bytes()), "{text:?}");
        }
    }

    #[test]
    fn whatever_may_do_more_is_not() {
        let filter = HarmlessFilter::of(&state(&[])).unwrap();
        let more = r#"
 
\n
;
ls
grep x
x=1
x=1 true
a=b=c true
a[0]=1
echo $x
echo `x`
echo "$x"
echo "\a"
echo \a
echo 'a
echo "a
echo {a,b}
echo [a]
echo ü
ü
(true)
{ true; }
! true
true &
true & true
true |& cat
true ;; true
true &&
true ||
true |
true && ; x
printf
printf -v x y
printf '-v' x y
printf -- -v
printf %n x
printf '%5n' x
printf 'a%%%n' x
printf '%(%s)T'
test -v 'a[b=1]'
[ -v x ]
[ -R x ]
pwd -P
[[ a ]]
]
(( x = 1 ))
if true; then true; fi
for x in a; do :; done
time true
coproc cat
function f
f() { :; }
f () true
cat <<E\nE\n
cat <<<x
cat <(ls2)
cat >|x
cat <>x
cat >& x
cat >&x
cat <&3
cat 3>x
cat 12>x
exec 3<x
true {fd}>x
true {v}<x
true >
true > ; cd /
true 2>&1x
true >&1cd /
true >'' x
true # no
'cd' /
"cd" /
c'd' /
\cd /
%1
-
~/x
*
@
true\ncd /
true; cd /
true && cd /
true | cd /
true | read x"#;
        for text in texts(more).chain(["true\r".into(), "echo 'a\u{1}b'".into()]) {
            assert!(!filter.accepts(text.as_bytes()), "{text:?}");
        }
        assert!(!filter.accepts(&[b"echo ".as_slice(), &[b'x'; MAX_TEXT_BYTES]].concat()));
    }

    #[test]
    fn a_shell_in_which_something_runs_by_itself_has_no_filter() {
        for change in [
            ("traps", "trap -- 'x=1' USR1"),
            ("traps", "trap -- 'x=1' DEBUG"),
            ("enable", "enable -n echo"),
            ("set", "set -o errexit"),
            ("set", "set -o posix"),
            ("shopt", "shopt -s autocd"),
            ("shopt", "shopt -s checkwinsize\nshopt -s failglob"),
            ("vars", "declare -- PROMPT_COMMAND=\"x\"\n"),
            ("vars", "declare -a PROMPT_COMMAND=([0]=\"x\")\n"),
            ("vars", "declare -x TMOUT=\"3\"\n"),
            ("vars", "declare -- PS1=\"\\${n:=1}\"\n"),
            ("vars", "declare -- PS1=\"\\$((n++)) \"\n"),
            ("vars", "declare -- PS1=$'\\n$(x)'\n"),
            ("vars", "declare -- PS1=\"\\`x\\`\"\n"),
            ("vars", "declare -- COPROC_PID=\"12\"\n"),
            ("functions", "builtin () \n{ \n    :\n}\n"),
            ("aliases", "alias builtin='x'"),
        ] {
            assert!(HarmlessFilter::of(&state(&[change])).is_none(), "{change:?}");
        }
        assert!(HarmlessFilter::of(&State::default()).is_none());
        let filter =
            HarmlessFilter::of(&state(&[("functions", "function a/b () \n{ \n:\n}\nf.x () \n")]))
                .unwrap();
        for text in ["a/b", "f.x", "true; f.x 1"] {
            assert!(!filter.accepts(text.as_bytes()), "{text:?}");
        }
    }

    #[test]
    fn every_word_that_this_bash_knows_itself_is_known() {
        let output = std::process::Command::new("bash")
            .args(["-c", "compgen -b; compgen -k"])
            .output()
            .unwrap();
        let filter = HarmlessFilter { taken: HashSet::new() };
        let idle = ["echo", ":", "true", "false", "pwd", "test", "["];
        for word in String::from_utf8(output.stdout).unwrap().lines() {
            assert_eq!(filter.accepts(word.as_bytes()), idle.contains(&word), "{word}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_fail(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = HarmlessFilter { taken: HashSet::new() }.accepts(&bytes);
        }

        /// A command with side effects is found whatever precedes or follows it.
        #[test]
        fn nothing_hides_a_command(
            before in "((true|ls -l|echo 'a;b'|cat <x >y 2>&1|[ a = b ])( ?; ?| && | \\|\\| | ?\\| ?|\n)){0,3}",
            command in "(cd /|x=1|read x|eval y|f\\(\\) \\{ :; \\}|exec >x|unset a|\\. f)",
            after in "(( ?; ?| && |\n)(true|id)){0,2}",
        ) {
            let text = format!("{before}{command}{after}");
            let harmless = HarmlessFilter { taken: HashSet::new() }.accepts(text.as_bytes());
            prop_assert!(!harmless, "{:?}", text);
        }
    }
}
