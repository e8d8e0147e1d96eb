//! Options of shells: the lines that set those of bash, and the treatment of `errexit`.

/// What happens to the option `errexit` when a state is restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errexit {
    /// It is restored like any other option.
    Restore,
    /// It is off: it may have ended the previous shell, or it is set later.
    Off,
}

/// Every option of `set -o` in bash.
const OPTIONS: [&str; 27] = [
    "allexport",
    "braceexpand",
    "emacs",
    "errexit",
    "errtrace",
    "functrace",
    "hashall",
    "histexpand",
    "history",
    "ignoreeof",
    "interactive-comments",
    "keyword",
    "monitor",
    "noclobber",
    "noexec",
    "noglob",
    "nolog",
    "notify",
    "nounset",
    "onecmd",
    "physical",
    "pipefail",
    "posix",
    "privileged",
    "verbose",
    "vi",
    "xtrace",
];

/// Returns what `set +o` would print, from the names of the options that are on.
pub fn set(on: &[u8]) -> Vec<u8> {
    let line = |name: &&str| {
        let is_on = on.split(|byte| *byte == b':').any(|found| found == name.as_bytes());
        let verb: &[u8] = if is_on { b"set -o " } else { b"set +o " };
        [verb, name.as_bytes()].concat()
    };
    OPTIONS.iter().map(line).collect::<Vec<_>>().join(&b'\n')
}

/// Returns what `shopt -ps` would print, from the names of the options that are on.
pub fn shopt(on: &[u8]) -> Vec<u8> {
    let names = on.split(|byte| *byte == b':').filter(|name| !name.is_empty());
    names.map(|name| [b"shopt -s ", name].concat()).collect::<Vec<_>>().join(&b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_this_bash_is_known() {
        let run = |script: &str| {
            let output = std::process::Command::new("bash").args(["-c", script]).output().unwrap();
            output.stdout.trim_ascii_end().to_vec()
        };
        for change in ["", "set -f -u -o pipefail -C; shopt -s extglob; shopt -u cmdhist; "] {
            let listed = run(&format!("{change}echo $SHELLOPTS"));
            assert_eq!(set(&listed), run(&format!("{change}set +o")));
            let listed = run(&format!("{change}echo $BASHOPTS"));
            assert_eq!(shopt(&listed), run(&format!("{change}shopt -ps")));
        }
        assert_eq!(shopt(b""), b"");
    }
}
