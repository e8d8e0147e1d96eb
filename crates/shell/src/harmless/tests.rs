//! Texts that the filter must accept, and texts that it must refuse.

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
fn commands_that_may_change_the_shell_are_not_harmless() {
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
fn a_shell_with_a_trap_or_a_hook_has_no_filter() {
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
fn every_builtin_and_keyword_of_the_installed_bash_is_listed() {
    let output =
        std::process::Command::new("bash").args(["-c", "compgen -b; compgen -k"]).output().unwrap();
    let filter = HarmlessFilter { taken: HashSet::new() };
    let idle = ["echo", ":", "true", "false", "pwd", "test", "["];
    for word in String::from_utf8(output.stdout).unwrap().lines() {
        assert_eq!(filter.accepts(word.as_bytes()), idle.contains(&word), "{word}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_filter_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let _ = HarmlessFilter { taken: HashSet::new() }.accepts(&bytes);
    }

    /// A command with side effects is found whatever precedes or follows it.
    #[test]
    fn a_command_with_side_effects_is_always_found(
        before in "((true|ls -l|echo 'a;b'|cat <x >y 2>&1|[ a = b ])( ?; ?| && | \\|\\| | ?\\| ?|\n)){0,3}",
        command in "(cd /|x=1|read x|eval y|f\\(\\) \\{ :; \\}|exec >x|unset a|\\. f)",
        after in "(( ?; ?| && |\n)(true|id)){0,2}",
    ) {
        let text = format!("{before}{command}{after}");
        let harmless = HarmlessFilter { taken: HashSet::new() }.accepts(text.as_bytes());
        prop_assert!(!harmless, "{:?}", text);
    }
}
