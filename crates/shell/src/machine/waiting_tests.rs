//! Single histories: what a command, a key or a redraw waits for.

use std::time::{Duration, Instant};

use super::tests::spec;
use super::*;

#[test]
fn a_timeout_begins_when_the_shell_can_run_a_command() {
    let capabilities = ShellCapabilities { edits_lines: true, keys: 4, redraws: true };
    let mut machine = Machine::new(capabilities);
    let mut now = Instant::now();
    let mut later = |millis| {
        now += Duration::from_millis(millis);
        now
    };
    let prompt = |shown| {
        MachineEvent::Answer(Answer::Prompt(PromptProbe { files: true, shown, unread: false }))
    };
    let finished =
        |actions: &[Action]| actions.iter().any(|action| matches!(action, Action::Finish { .. }));
    machine.step(later(0), MachineEvent::Exec(spec(0, Some(Duration::from_millis(200)))));
    assert!(!finished(&machine.step(later(300), MachineEvent::Tick)), "there is no shell yet");
    machine.launched(later(0));
    machine.step(later(300), MachineEvent::Ready);
    machine.step(later(0), MachineEvent::DumpRead { complete: true });
    machine.step(later(0), prompt(false));
    assert!(!finished(&machine.step(later(300), MachineEvent::Tick)), "no prompt was drawn yet");
    assert!(
        machine.deadline().is_some_and(|due| due > later(0)),
        "the machine polls without a pause"
    );
    let actions = machine.step(later(0), prompt(true));
    assert!(actions.iter().any(|action| matches!(action, Action::Start { .. })), "{actions:?}");
}

#[test]
fn a_timeout_does_not_count_while_an_idle_shell_draws_its_prompt() {
    let capabilities = ShellCapabilities { edits_lines: true, keys: 4, redraws: true };
    let mut machine = Machine::new(capabilities);
    let now = Instant::now();
    let late = now + Duration::from_millis(300);
    let prompt = |shown| {
        MachineEvent::Answer(Answer::Prompt(PromptProbe { files: true, shown, unread: false }))
    };
    machine.launched(now);
    machine.step(now, MachineEvent::Ready);
    machine.step(now, MachineEvent::DumpRead { complete: true });
    machine.step(now, MachineEvent::Typed(b"x"));
    machine.step(now, MachineEvent::Exec(spec(0, Some(Duration::from_millis(200)))));
    machine.step(now, prompt(false));
    let actions = machine.step(late, MachineEvent::Tick);
    assert!(!actions.iter().any(|action| matches!(action, Action::Finish { .. })), "{actions:?}");
    let actions = machine.step(late, prompt(true));
    assert!(actions.iter().any(|action| matches!(action, Action::Start { .. })), "{actions:?}");
}

#[test]
fn a_command_waits_until_the_host_has_read_what_precedes_it() {
    let capabilities = ShellCapabilities { edits_lines: true, keys: 4, redraws: true };
    let now = Instant::now();
    let prompt = |unread| {
        MachineEvent::Answer(Answer::Prompt(PromptProbe { files: true, shown: true, unread }))
    };
    let has_started =
        |actions: Actions| actions.iter().any(|action| matches!(action, Action::Start { .. }));
    let waiting = || {
        let mut machine = Machine::new(capabilities);
        machine.launched(now);
        machine.step(now, MachineEvent::Ready);
        machine.step(now, MachineEvent::DumpRead { complete: true });
        machine.step(now, MachineEvent::Exec(spec(0, None)));
        assert!(!has_started(machine.step(now, prompt(true))));
        machine
    };
    // However late the host is scheduled, it reads first.
    let late = now + Duration::from_millis(300);
    let mut machine = waiting();
    assert!(!has_started(machine.step(late, prompt(true))));
    machine.step(late, MachineEvent::Printed(b"$ "));
    assert!(has_started(machine.step(late, prompt(false))));
    // A program in the background prints without end.
    let mut machine = waiting();
    for _ in 0..20 {
        machine.step(now, MachineEvent::Printed(b"y"));
    }
    assert!(has_started(machine.step(now, prompt(true))));
    // A host that cannot read does not stop the command.
    let mut machine = waiting();
    assert!(has_started(machine.step(now + Duration::from_secs(2), prompt(true))));
}

#[test]
fn no_key_is_typed_before_the_shell_has_read_a_persons_line() {
    let capabilities = ShellCapabilities { edits_lines: true, keys: 4, redraws: true };
    let now = Instant::now();
    let probes = |actions: Actions, wanted| {
        actions
            .iter()
            .any(|action| matches!(action, Action::ProbePrompt(scope) if *scope == wanted))
    };
    let entered = || {
        let mut machine = Machine::new(capabilities);
        machine.launched(now);
        machine.step(now, MachineEvent::Ready);
        machine.step(now, MachineEvent::DumpRead { complete: true });
        machine.step(now, MachineEvent::Typed(b"read x\r"));
        machine
    };
    // The kernel is late to pass the line on, and the shell is still at its prompt.
    let late = now + Duration::from_millis(300);
    let mut machine = entered();
    assert!(probes(machine.step(late, MachineEvent::Tick), ProbeScope::Unsettled));
    machine.step(late, MachineEvent::Printed(b"\r\n"));
    let due = machine.deadline().unwrap();
    assert!(probes(machine.step(due, MachineEvent::Tick), ProbeScope::Full));
    // A shell without an echo is not waited for any longer.
    let mut machine = entered();
    let late = now + Duration::from_secs(1);
    assert!(probes(machine.step(late, MachineEvent::Tick), ProbeScope::Full));
}

#[test]
fn a_prompt_is_redrawn_as_soon_as_a_slow_shell_is_back_at_it() {
    let capabilities = ShellCapabilities { edits_lines: true, keys: 4, redraws: true };
    let mut machine = Machine::new(capabilities);
    let mut due = Instant::now();
    machine.launched(due);
    machine.step(due, MachineEvent::Ready);
    machine.step(due, MachineEvent::DumpRead { complete: true });
    machine.step(due, MachineEvent::Answer(Answer::Completed { prompt_changed: true }));
    let mut types = |shown, wanted| {
        due += Duration::from_secs(1);
        let probes = machine.step(due, MachineEvent::Tick);
        let probed = probes.iter().any(|it| matches!(it, Action::ProbeRedraw { stale: true }));
        assert!(probed, "{probes:?}");
        let actions =
            machine.step(due, MachineEvent::Answer(Answer::Redraw { wanted: true, shown }));
        let typed = actions.iter().any(|action| matches!(action, Action::TypeRedraw));
        assert_eq!(typed, wanted, "{actions:?}");
    };
    types(false, false);
    types(false, false);
    types(true, true);
}

#[test]
fn a_timeout_counts_while_a_person_uses_the_shell() {
    let capabilities = ShellCapabilities { edits_lines: true, keys: 4, redraws: true };
    let mut machine = Machine::new(capabilities);
    let now = Instant::now();
    machine.launched(now);
    machine.step(now, MachineEvent::Ready);
    machine.step(now, MachineEvent::DumpRead { complete: true });
    machine.step(now, MachineEvent::Typed(b"vi\r"));
    machine.step(now, MachineEvent::Exec(spec(0, Some(Duration::from_millis(200)))));
    let actions = machine.step(now + Duration::from_millis(200), MachineEvent::Tick);
    assert!(actions.iter().any(|action| matches!(action, Action::Finish { .. })), "{actions:?}");
}
