//! Shells that start again.

use host::wire::{Event, Shell};

use crate::bench::Bench;
use crate::support::Host;

/// Everything the host told between two commands, but for what belongs to commands.
fn told(bench: &Bench) -> Vec<String> {
    let sections = |event: &Event| match event {
        Event::StateChanged { changed, removed, .. } => {
            let names = changed
                .iter()
                .map(|(name, bytes)| format!("{name}: {:?}", String::from_utf8_lossy(bytes)));
            Some(names.chain(removed.iter().cloned()).collect::<Vec<_>>().join(", "))
        }
        _ => None,
    };
    bench.session.events.iter().filter_map(sections).collect()
}

fn starts_again_quietly(shell: Shell, setting: &str) {
    let host = Host::start();
    let mut bench = Bench::new(&host, shell);
    bench.run(setting);
    bench.run("true");
    for end in ["exit 3", "kill -9 $$", "exec true"] {
        assert!(bench.run(end).shell_restarted, "{end}");
        let spec = bench.spec(b"echo alive");
        bench.submit(&spec);
        let ran = bench.done(&spec.command);
        assert_eq!(ran.text(), (0, "alive\n", ""), "{end}");
        let changed: Vec<_> = ran.changed.iter().filter(|(name, _)| name != "status").collect();
        assert!(changed.is_empty(), "{end}: {changed:?}");
        assert_eq!(told(&bench), Vec::<String>::new(), "{end}");
    }
    bench.close();
}

#[test]
fn bash_starts_again_and_nothing_has_changed() {
    starts_again_quietly(Shell::Bash, "cd /usr; export A=1; b=(1 2); f() { :; }; trap : USR1");
}

#[test]
fn zsh_starts_again_and_nothing_has_changed() {
    starts_again_quietly(Shell::Zsh, "cd /usr; export A=1; b=(1 2); f() { :; }; trap : USR1");
}

#[test]
fn sh_starts_again_and_nothing_has_changed() {
    starts_again_quietly(Shell::Sh, "cd /usr; export A=1; b=2; trap : USR1; set -- x y");
}

#[test]
fn a_persons_own_start_up_file_that_ends_the_shell_is_left_out() {
    for (shell, file) in [(Shell::Bash, ".bashrc"), (Shell::Zsh, ".zshrc")] {
        let host = Host::start();
        let home = host.dir.0.join("home");
        std::fs::create_dir_all(&home).unwrap();
        std::fs::write(home.join(file), "broken=yes\nexit 1\n").unwrap();
        let mut bench = Bench::new(&host, shell);
        assert_eq!(bench.run("echo ${broken-works}").text(), (0, "works\n", ""), "{file}");
        bench.session.see("start-up files");
        bench.run("kept=1");
        bench.run("kill -9 $$");
        assert_eq!(bench.run("echo $kept").text(), (0, "1\n", ""), "{file}");
        bench.close();
    }
}
