//! Commands with state over an executor that can only run `sh -c`.

use std::process::{Command, Stdio};

use shell::State;
use shell::remote::{self, RemoteResult};

/// A provider that can run one command at a time and keeps nothing between them.
struct Executor {
    path: &'static str,
    state: State,
    commands: u32,
}

impl Executor {
    fn new(path: &'static str) -> Self {
        Self { path, state: State::default(), commands: 0 }
    }

    fn run_with(
        &mut self,
        text: &str,
        env: &[(Vec<u8>, Vec<u8>)],
        cwd: Option<&[u8]>,
    ) -> (RemoteResult, String) {
        use std::os::unix::ffi::OsStrExt;
        self.commands += 1;
        let mark = format!("mark{:020}x{}", self.commands, std::process::id());
        let (text, state) = (text.as_bytes(), &self.state);
        let command = remote::RemoteExec { text, state, env, cwd, mark: &mark, state_file: None };
        let script = remote::wrap(&command);
        let output = Command::new("/bin/sh")
            .arg("-c")
            .arg(std::ffi::OsStr::from_bytes(&script))
            .env_clear()
            .env("PATH", self.path)
            .env("HOME", "/tmp")
            .current_dir("/")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let ran = remote::read(&output.stdout, output.status.code().unwrap_or(-1), &mark);
        self.state.absorb(ran.state.clone());
        (ran, String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn run(&mut self, text: &str) -> (i32, String, String) {
        let (ran, stderr) = self.run_with(text, &[], None);
        (ran.exit_code, String::from_utf8_lossy(&ran.stdout).into_owned(), stderr)
    }
}

fn check(executor: &mut Executor, text: &str, code: i32, stdout: &str) {
    assert_eq!(executor.run(text), (code, stdout.to_owned(), String::new()), "{text}");
}

#[test]
fn a_shell_with_bash_keeps_its_state() {
    let mut executor = Executor::new("/usr/bin:/bin");
    check(&mut executor, "echo hi; (exit 3)", 3, "hi\n");
    check(&mut executor, "echo $?", 0, "3\n");
    check(
        &mut executor,
        "cd /usr; export E=$'a\\nb'; x='q r'; a=(1 'two 2'); f() { echo f:$1; }; alias hi='echo hi'",
        0,
        "",
    );
    check(
        &mut executor,
        "pwd; printf %s \"$E\"; echo; echo $x \"${a[1]}\"; f z; hi",
        0,
        "/usr\na\nb\nq r two 2\nf:z\nhi\n",
    );
    check(&mut executor, "umask 027; set -- p 'q r'; shopt -s nullglob; set -o pipefail", 0, "");
    check(
        &mut executor,
        "umask; echo \"$#:$2\"; echo x*nosuch*y; false | true",
        1,
        "0027\n2:q r\n\n",
    );
    check(&mut executor, "y=kept; exit 5", 5, "");
    check(&mut executor, "echo $y", 0, "kept\n");
    check(&mut executor, "return 7", 7, "");
    check(&mut executor, "unset E; printf 'no newline'", 0, "no newline");
    check(&mut executor, "echo ${E-gone}", 0, "gone\n");
    let (code, stdout, stderr) = executor.run("echo one\necho 'two");
    assert_eq!((code, stdout.as_str()), (2, "one\n"));
    assert!(stderr.contains("unexpected EOF"), "{stderr}");
    check(&mut executor, "echo alive", 0, "alive\n");
    let env = [(b"x".to_vec(), b"once".to_vec()), (b"Q".to_vec(), b"it's".to_vec())];
    let (ran, _) = executor.run_with("echo $x $Q; printenv Q; pwd", &env, Some(b"/tmp"));
    assert_eq!(ran.stdout, b"once it's\nit's\n/tmp\n");
    check(&mut executor, "echo $x ${Q-none}; pwd", 0, "q r none\n/usr\n");
    assert_eq!(executor.state.get("cwd"), b"/usr");
}

#[test]
fn a_shell_without_bash_keeps_the_state_that_sh_can_list() {
    let bin = std::env::temp_dir().join(format!("stead-remote-{}", std::process::id()));
    std::fs::create_dir_all(&bin).unwrap();
    for program in ["sh", "env", "sed", "printenv", "cat"] {
        let target = ["/bin", "/usr/bin"].iter().map(|dir| format!("{dir}/{program}"));
        let target = target.into_iter().find(|path| std::path::Path::new(path).exists()).unwrap();
        let _ = std::os::unix::fs::symlink(target, bin.join(program));
    }
    let path: &'static str = Box::leak(bin.to_str().unwrap().to_owned().into_boxed_str());
    let mut executor = Executor::new(path);
    check(&mut executor, "echo hi; (exit 3)", 3, "hi\n");
    check(&mut executor, "echo $?", 0, "3\n");
    check(&mut executor, "cd /usr; export E='a b'; x=\"q'r\"; umask 027; set -- p 'q r'", 0, "");
    check(
        &mut executor,
        "pwd; printenv E; echo $x; umask; echo \"$#:$2\"",
        0,
        "/usr\na b\nq'r\n0027\n2:q r\n",
    );
    check(&mut executor, "y=kept; exit 5", 5, "");
    check(&mut executor, "echo $y", 0, "kept\n");
    check(
        &mut executor,
        "f() { echo \"f $1\"; }; alias hi='echo hi'; readonly R=1; trap 'echo usr' USR1",
        0,
        "",
    );
    check(
        &mut executor,
        "f z; (R=2) 2>/dev/null || echo fixed; kill -USR1 $$",
        0,
        "f z\nfixed\nusr\n",
    );
    let (code, _, _) = executor.run("echo 'open");
    assert_ne!(code, 0);
    check(&mut executor, "echo $y alive", 0, "kept alive\n");
    let _ = std::fs::remove_dir_all(bin);
}

#[test]
fn every_kind_of_state_is_kept_over_plain_sh() {
    let mut executor = Executor::new("/usr/bin:/bin");
    check(
        &mut executor,
        concat!(
            "declare -A m=([k 1]='v 1'); readonly RO=ro; declare -i n=7; declare -u up=low; ",
            "declare -n ref=n; trap 'echo usr' USR1; pushd /usr >/dev/null; pushd /tmp >/dev/null; ",
            "f() { cat <<E\nhd $1\nE\n}; export -f f; shopt -s extglob globstar; IFS=,; ",
            "set -o pipefail; ulimit -S -c 0; complete -W 'a b' cmd; export PRIVATE=1; unset PRIVATE",
        ),
        0,
        "",
    );
    check(
        &mut executor,
        concat!(
            "echo \"${m[k 1]}\"; (RO=2) 2>/dev/null || echo fixed; n=n+1; echo $n $ref; up=abc; ",
            "echo $up; kill -USR1 $$; dirs | wc -w; f z; bash -c 'f y'; shopt -q extglob globstar && echo opts; ",
            "x=a,b; set -- $x; echo $#; complete -p cmd; echo ${PRIVATE-gone}; false | true || echo pf",
        ),
        0,
        "v 1\nfixed\n8 8\nABC\nusr\n3\nhd z\nhd y\nopts\n2\ncomplete -W 'a b' cmd\ngone\npf\n",
    );
    check(&mut executor, "exec true", 0, "");
    check(&mut executor, "echo ${m[k 1]}; popd >/dev/null; pwd", 0, "v 1\n/usr\n");
    check(&mut executor, "kill -9 $$", -1, "");
    check(&mut executor, "pwd; f x", 0, "/usr\nhd x\n");
}

#[test]
fn output_cannot_forge_the_mark() {
    let ran = remote::read(b"mark1 bash 9\nmark2 bash 4\n\x01set \nshopt \n", 1, "mark2");
    assert_eq!((ran.stdout.as_slice(), ran.exit_code), (&b"mark1 bash 9\n"[..], 4));
    let ran = remote::read(b"partial", 137, "mark");
    assert_eq!((ran.stdout.as_slice(), ran.exit_code), (&b"partial"[..], 137));
    assert!(ran.state.is_empty());
}

/// Each command has its own shell, which should be visible as little as possible.
#[test]
fn traps_options_and_limits_are_kept_between_shells() {
    let fresh = || Executor::new("/usr/bin:/bin");
    // An EXIT trap runs when a command exits its shell, and is set until it is removed.
    let mut executor = fresh();
    check(&mut executor, "trap 'echo bye' EXIT", 0, "");
    check(&mut executor, "echo hi", 0, "hi\n");
    check(&mut executor, "trap -p EXIT", 0, "trap -- 'echo bye' EXIT\n");
    check(&mut executor, "echo out; exit 4", 4, "out\nbye\n");
    check(&mut executor, "trap - EXIT", 0, "");
    check(&mut executor, "echo x; exit 1", 1, "x\n");
    // An ERR trap runs once for each failure.
    let mut executor = fresh();
    check(&mut executor, "trap 'echo err' ERR; false", 1, "err\n");
    check(&mut executor, "echo $?", 0, "1\n");
    check(&mut executor, "false", 1, "err\n");
    check(&mut executor, "f() { return 3; }; f", 3, "err\n");
    check(&mut executor, "true && false || true; trap -p ERR", 0, "trap -- 'echo err' ERR\n");
    check(&mut executor, "trap - ERR; false", 1, "");
    check(&mut executor, "false", 1, "");
    // A DEBUG trap runs for the client's commands alone.
    let mut executor = fresh();
    check(&mut executor, "trap 'echo D' DEBUG", 0, "");
    check(&mut executor, "echo hi", 0, "D\nhi\n");
    check(&mut executor, "(exit 3)", 3, "");
    check(&mut executor, "x=$?; exit 4", 4, "D\nD\n");
    check(&mut executor, "trap -p DEBUG; echo $x", 0, "D\ntrap -- 'echo D' DEBUG\nD\n3\n");
    check(&mut executor, "trap - DEBUG", 0, "D\n");
    check(&mut executor, "echo $x", 0, "3\n");
    // `errexit` stays on until it has ended a shell.
    let mut executor = fresh();
    check(&mut executor, "set -e; x=1", 0, "");
    check(&mut executor, "case $- in *e*) echo on;; esac; if false; then :; fi", 0, "on\n");
    check(&mut executor, "x=2; false; echo never", 1, "");
    check(&mut executor, "false; echo $x", 0, "2\n");
    // Builtins that the script uses are disabled, aliased, or parsed differently.
    let mut executor = fresh();
    check(&mut executor, "enable -n declare set shopt trap . source", 0, "");
    check(&mut executor, "v=1; (exit 3)", 3, "");
    check(&mut executor, "echo $? $v; type -t declare", 1, "3 1\n");
    check(&mut executor, "enable declare; enable -n | wc -l", 0, "5\n");
    let mut executor = fresh();
    check(
        &mut executor,
        "alias builtin=false .=false trap=false set=false exit=false case=false",
        0,
        "",
    );
    check(&mut executor, "x=5; (\\exit 3)", 3, "");
    check(&mut executor, "echo $? $x; alias | wc -l", 0, "3 5\n6\n");
    let mut executor = fresh();
    check(&mut executor, "set -k -a", 0, "");
    check(&mut executor, "v=1; printenv v; printenv w w=2", 0, "1\n2\n");
    // Limits and `SECONDS` are kept.
    let mut executor = fresh();
    check(&mut executor, "ulimit -S -n 300; ulimit -S -f 1; SECONDS=1000", 0, "");
    let limits = String::from_utf8_lossy(executor.state.get("limits")).into_owned();
    assert_eq!(limits.matches(" -f ").count(), 1, "{limits}");
    check(
        &mut executor,
        "ulimit -n; ulimit -f; [ $SECONDS -ge 1000 ] && echo late",
        0,
        "300\n1\nlate\n",
    );
    check(&mut executor, "ulimit -S -f unlimited; ulimit -f", 0, "unlimited\n");
    let began = executor.state.get("began").to_vec();
    check(&mut executor, "sleep 0.1", 0, "");
    assert_eq!(executor.state.get("began"), began, "the passing of time is not a change");
    check(&mut executor, "kill -9 $$", -1, "");
    check(&mut executor, "ulimit -n", 0, "300\n");
}
