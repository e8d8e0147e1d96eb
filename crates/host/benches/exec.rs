//! The cost of commands in the host: round trips, and a flood of output.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../tests/shell/bench.rs"]
#[allow(dead_code)]
mod bench;
#[path = "../tests/it/support.rs"]
#[allow(dead_code)]
mod support;

use std::time::{Duration, Instant};

use bench::Bench;
use support::Host;
use wire::{Event, Request, Shell};

fn main() {
    let host = Host::start();
    let mut bench = Bench::new(&host, Shell::Bash);
    bench.run("true");
    round_trips("bash, nothing changes", &mut bench, 1000, ":");
    round_trips("bash, a variable changes", &mut bench, 500, "n=$((n+1))");
    round_trips("bash, a program runs", &mut bench, 300, "/bin/true");
    states("bash, its whole state", &mut bench, 300);
    bench.run("for i in {1..400}; do eval \"f$i() { echo $i; }; v$i=$i\"; done");
    round_trips("bash, 400 functions and variables", &mut bench, 300, ":");
    let mut zsh = Bench::new(&host, Shell::Zsh);
    zsh.run("true");
    round_trips("zsh", &mut zsh, 300, ":");
    fresh(300);
    flood(&host);
}

fn round_trips(what: &str, bench: &mut Bench, count: usize, text: &str) {
    let mut times: Vec<Duration> = (0..count)
        .map(|_| {
            let spec = bench.spec(text.as_bytes());
            let begun = Instant::now();
            bench.submit(&spec);
            bench.until(|event| {
                matches!(event, Event::Done { command, .. } if *command == spec.command)
                    .then_some(())
            });
            let took = begun.elapsed();
            let command = spec.command;
            bench.session.ok(|seq| Request::ExecForget { seq, command });
            bench.session.events.clear();
            bench.session.output.clear();
            took
        })
        .collect();
    report(what, &mut times);
}

fn states(what: &str, bench: &mut Bench, count: usize) {
    let mut times: Vec<Duration> = (0..count)
        .map(|_| {
            let terminal = bench.terminal.clone();
            let begun = Instant::now();
            let answer = bench.session.ask(|seq| Request::State { seq, terminal });
            assert!(matches!(answer, Event::StateReply { .. }), "{answer:?}");
            begun.elapsed()
        })
        .collect();
    report(what, &mut times);
}

fn fresh(count: usize) {
    let mut times: Vec<Duration> = (0..count)
        .map(|_| {
            let begun = Instant::now();
            std::process::Command::new("bash").args(["-c", ":"]).status().unwrap();
            begun.elapsed()
        })
        .collect();
    report("a new bash for each command", &mut times);
}

fn flood(host: &Host) {
    let mut bench = Bench::new(host, Shell::Bash);
    bench.run("true");
    let mut spec = bench.spec(b"head -c 100000000 /dev/zero");
    spec.keep = (1 << 20, 1 << 20);
    let begun = Instant::now();
    bench.submit(&spec);
    bench.until(|event| {
        matches!(event, Event::Done { command, .. } if *command == spec.command).then_some(())
    });
    let took = begun.elapsed();
    println!("100 MB of output: {took:?}, {:.0} MB/s", 100.0 / took.as_secs_f64());
}

fn report(what: &str, times: &mut [Duration]) {
    times.sort();
    let at = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)];
    println!("{what}: p50 {:?}, p99 {:?} ({} times)", at(50), at(99), times.len());
}
