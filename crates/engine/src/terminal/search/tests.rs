//! Searches in a store and in files that an earlier server left.

use base::{clock::Clock, event::Events};
use host::log::{Log, MIN_LIMIT_BYTES};
use model::{CommandEnd, Moment, Source, TerminalId, Timestamp};
use shell::{Keep, Output};
use store::{FinishCommand, Store};
use tokio_util::sync::CancellationToken;
use wire::RecordKind;

use super::*;
use crate::terminal::{directory, test_support};

const LIMITS: SearchBudget =
    SearchBudget { hits: 10, bytes: 1 << 20, time: Duration::from_secs(60) };

struct World {
    home: tempfile::TempDir,
    store: Store,
    clock: Clock,
    terminals: Terminals,
}

impl World {
    fn new() -> World {
        let home = tempfile::tempdir().unwrap();
        let clock = Clock::from_fn(|| {
            Moment::new(Timestamp::from_second(1_700_000_000).unwrap(), 1, Duration::ZERO)
        });
        let store = Store::open(home.path()).unwrap();
        let events = Events::new(clock.clone());
        let stop = CancellationToken::new();
        let leases = test_support::leases(home.path(), &store, &events, &clock, stop);
        let terminals = test_support::terminals(home.path(), &store, &events, leases);
        World { home, store, clock, terminals }
    }

    async fn terminal(&self, thread: &str) -> TerminalId {
        let first = test_support::first_use(thread, self.clock.now());
        self.store.open_chain(first).await.unwrap().thread.terminal_id
    }

    /// A command that has ended, with its output beside its receipt.
    async fn ran(&self, thread: &str, text: &str, stdout: &str, stderr: &str) -> Command {
        let mut command = self.command(thread, text, Source::Agent).await;
        command.stdout_bytes = stdout.len() as u64;
        command.stderr_bytes = stderr.len() as u64;
        let output = Outputs { stdout: stdout.into(), stderr: stderr.into() };
        self.finish(command, Some(output)).await
    }

    async fn command(&self, thread: &str, text: &str, source: Source) -> Command {
        let (at, terminal) = (self.clock.now().at, self.terminal(thread).await);
        let id = CommandId::fresh();
        let queued = Command::queued(id, terminal, text.into(), source, 0, at);
        let end = CommandEnd::Finished { exit_code: Some(0), signal: None };
        queued.start(at, 0).unwrap().end(end, at).unwrap()
    }

    async fn finish(&self, command: Command, output: Option<Outputs>) -> Command {
        let finish = FinishCommand { command, state: None, output, touch: None };
        self.store.finish_command(finish).await.unwrap().command
    }

    async fn search(&self, text: &str, limits: SearchBudget) -> SearchPage {
        let request = SearchRequest { text: text.into(), thread: None, before: None, limits };
        self.terminals.search(request).await.unwrap()
    }
}

/// The thread, whether the command matches, and the matching lines of each hit.
fn shown(page: &SearchPage) -> Vec<String> {
    let hit = |hit: &SearchHit| {
        let lines = hit
            .lines
            .iter()
            .map(|(source, line)| format!("{source:?} {} {}", line.offset, line.text));
        let command = hit.in_command.then(|| hit.command.text.clone());
        let parts: Vec<String> = command.into_iter().chain(lines).collect();
        format!("{}: {}", hit.thread_id, parts.join(" | "))
    };
    page.hits.iter().map(hit).collect()
}

#[tokio::test]
async fn commands_and_output_of_all_threads_are_found_newest_first() {
    let world = World::new();
    world.ran("a", "ls", "one\nred fish\n", "").await;
    world.ran("b", "echo FISH", "", "no Fish here\n").await;
    world.ran("b", "date", "today\n", "").await;
    let page = world.search("fish", LIMITS).await;
    assert_eq!(shown(&page), ["b: echo FISH | Stderr 0 no Fish here", "a: Stdout 4 red fish"]);
    assert_eq!((page.next, page.stopped, page.commands), (None, None, 3));
    assert_eq!(page.bytes, 13 + 13 + 6);
    let only = SearchRequest {
        text: "fish".into(),
        thread: Some("a".parse().unwrap()),
        before: None,
        limits: LIMITS,
    };
    let page = world.terminals.search(only).await.unwrap();
    assert_eq!(shown(&page), ["a: Stdout 4 red fish"]);
    assert_eq!(page.commands, 1);
}

#[tokio::test]
async fn a_search_that_reached_a_limit_says_which_and_is_continued() {
    let world = World::new();
    for number in 0..200 {
        world.ran("a", &format!("echo {number}"), "fish\n", "").await;
    }
    let check = async |limits: SearchBudget, expected: SearchLimit| {
        let mut found = Vec::new();
        let mut before = None;
        loop {
            let request = SearchRequest { text: "echo".into(), thread: None, before, limits };
            let page = world.terminals.search(request).await.unwrap();
            found.extend(page.hits.iter().map(|hit| hit.command.text.clone()));
            before = page.next;
            if before.is_none() {
                break;
            }
            assert_eq!(page.stopped, Some(expected));
        }
        let all: Vec<String> = (0..200).rev().map(|number| format!("echo {number}")).collect();
        assert_eq!(found, all, "{expected:?}");
    };
    check(SearchBudget { hits: 70, ..LIMITS }, SearchLimit::Hits).await;
    check(SearchBudget { hits: 1000, bytes: 90, ..LIMITS }, SearchLimit::Bytes).await;
    check(SearchBudget { hits: 1000, time: Duration::ZERO, ..LIMITS }, SearchLimit::Time).await;
}

#[tokio::test]
async fn long_output_is_read_from_the_files_of_its_host() {
    let world = World::new();
    let text = format!("{}needle\n{}", "a\n".repeat(1_000_000), "b\n".repeat(1_000_000));
    let mut command = world.command("a", "make", Source::Agent).await;
    command.stdout_bytes = text.len() as u64;
    let commands = directory(world.home.path(), &command.terminal_id).join("commands");
    std::fs::create_dir_all(&commands).unwrap();
    let keep = Keep { head: 8 << 20, tail: 8 << 20 };
    let mut output = Output::new(commands.join(format!("{}.out", command.command_id)), keep);
    output.append(text.as_bytes());
    output.settle();
    world.finish(command, None).await;
    let page = world.search("needle", LIMITS).await;
    assert_eq!(shown(&page), ["a: Stdout 2000000 needle"]);
    assert_eq!(page.bytes, text.len() as u64);
}

#[tokio::test]
async fn output_of_a_typed_command_is_read_from_the_log_of_its_terminal() {
    let world = World::new();
    let mut command = world.command("a", "cat notes", Source::Person).await;
    let log = directory(world.home.path(), &command.terminal_id).join("log");
    std::fs::create_dir_all(&log).unwrap();
    let began = u64::try_from(world.clock.now().at.as_millisecond()).unwrap();
    let mut writer = Log::open(log, MIN_LIMIT_BYTES, 0, (80, 24)).unwrap();
    let earlier = b"$ cat needle\r\n";
    writer.append(RecordKind::Output, began - 1, earlier);
    writer.append(RecordKind::Output, began, b"a \x1b[1mneedle\x1b[m\r\n");
    command.offset_end = Some(writer.end());
    writer.append(RecordKind::Output, began + 2, b"$ needle");
    drop(writer);
    world.finish(command, None).await;
    let page = world.search("needle", LIMITS).await;
    assert_eq!(shown(&page), [format!("a: Terminal {} a needle", earlier.len())]);
}

#[tokio::test]
async fn a_search_waits_for_others_no_longer_than_it_may_take() {
    let world = World::new();
    let searches = &world.terminals.0.searches;
    let running = u32::try_from(searches.available_permits()).unwrap();
    let running = searches.acquire_many(running).await.unwrap();
    let limits = SearchBudget { time: Duration::ZERO, ..LIMITS };
    let request = SearchRequest { text: "x".into(), thread: None, before: None, limits };
    let refused = world.terminals.search(request).await;
    assert!(matches!(refused, Err(TerminalError::TooManySearches)), "{refused:?}");
    drop(running);
    assert_eq!(world.search("x", limits).await.hits, []);
}
