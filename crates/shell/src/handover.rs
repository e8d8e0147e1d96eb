//! Handing a driver over to the next executable of its host: encoding its state, and restoring it.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;

use super::commands::CommandState;
use super::dump::DumpReader;
use super::executor::{Executor, LiveRun, ShellProcess};
use super::kind::Kind;
use super::machine::{HandedRun, Handover, Job, Machine, QueuedJob};
use super::output::{Keep, Output};
use super::paths::Paths;
use super::pipes::Pipe;
use super::procs::ForkMoment;
use super::spec::{Setup, Spec};
use super::state::State;
use super::status::Status;
use super::stdin::StdinPipe;
use super::streams::Streams;
use crate::image::Image;
use wire::{IfBusy, Outcome, Phase, StdinMode, decode_sections, encode_sections};

/// A function that returns an open descriptor by its number.
type Inherit<'a> = &'a dyn Fn(RawFd) -> io::Result<OwnedFd>;

/// Returns the state that the next executable needs.
pub fn image(executor: &Executor, machine: &Machine) -> Image {
    let mut image = Image::default();
    let (setup, snapshot, shell) = (&executor.setup, &executor.snapshot, executor.shell);
    image.put("terminal", setup.terminal.as_bytes());
    image.put_number("kind", kind_number(setup.kind));
    for word in &setup.program {
        image.put("program", word.clone());
    }
    image.put("env", pairs(&setup.env));
    image.put("cwd", setup.cwd.as_os_str().as_bytes());
    image.put("dir", setup.dir.as_os_str().as_bytes());
    if let Some(cgroup) = &setup.cgroup {
        image.put("cgroup", cgroup.as_os_str().as_bytes());
    }
    image.put("run", executor.paths.run.as_os_str().as_bytes());
    image.put_number("state_pipe", executor.dump.pipe.fd.as_raw_fd());
    image.put("dump", executor.dump.bytes.clone());
    image.put_number("pid", shell.pid);
    image.put_number("session", shell.session);
    image.put_number("generation", shell.generation);
    image.put_number("number", machine.number());
    image.put_number("status", snapshot.status);
    image.put_number("key", machine.key() as u64);
    image.put_number("pipe_number", executor.streams.pair_number);
    image.put_number("ends_with_program", u8::from(machine.ends_with_shell()));
    image.put("state", encode_sections(&snapshot.state.sections()));
    if let Some(history) = &snapshot.history {
        image.put("history", history.clone());
    }
    if let Some(typed) = snapshot.typed_count {
        image.put_number("typed", typed);
    }
    let commands = &executor.streams.commands;
    for command in commands.all() {
        if let Some(id) = commands.id(command.index) {
            image.put_image("command", &command_image(id, command));
        }
    }
    for queued in machine.queue().iter() {
        if let QueuedJob::Command { spec, .. } = queued {
            image.put_image("queued", &spec_image(spec));
        }
    }
    if let Some(run) = machine.run()
        && let Job::Command { spec, .. } = &run.job
        && let Some(live) = &executor.live
    {
        let mut running = spec_image(spec);
        running.put_number("number", run.number);
        running.put_number("tick", live.moment.tick);
        running.put_number("last_pid", live.moment.last_pid);
        running.put_number("elapsed_us", run.started.elapsed().as_micros() as u64);
        running.put_number("begun", u8::from(run.has_begun()));
        running.put_number("harmless", u8::from(run.harmless));
        if let Some(status) = run.status() {
            running.put_number("exit", status);
        }
        image.put_image("running", &running);
    }
    image
}

/// Continues where another executable stopped.
pub fn resume(
    image: &Image,
    inherit: Inherit<'_>,
    now: Instant,
) -> io::Result<(Executor, Machine)> {
    let path = |name: &str| {
        image.bytes(name).map(|bytes| PathBuf::from(OsString::from_vec(bytes.to_vec())))
    };
    let need = || io::Error::from(io::ErrorKind::InvalidData);
    let setup = Setup {
        terminal: image.text("terminal").ok_or_else(need)?,
        kind: match image.number::<u8>("kind") {
            Some(2) => Kind::Zsh,
            Some(3) => Kind::Sh,
            _ => Kind::Bash,
        },
        program: image.all("program").map(<[u8]>::to_vec).collect(),
        env: unpair(image.bytes("env").unwrap_or_default()),
        cwd: path("cwd").ok_or_else(need)?,
        dir: path("dir").ok_or_else(need)?,
        cgroup: path("cgroup"),
    };
    let state = decode_sections(image.bytes("state").unwrap_or_default()).unwrap_or_default();
    let state_pipe = inherit(image.number("state_pipe").ok_or_else(need)?)?;
    let paths = Paths::at_run(path("run").ok_or_else(need)?, &setup);
    let mut streams = Streams::new(setup.dir.join("commands"))?;
    streams.pair_number = image.number("pipe_number").unwrap_or(1 << 32);
    for command in image.images("command") {
        adopt_command(&mut streams, &setup.dir, &command, inherit)?;
    }
    let dumped = image.bytes("dump").unwrap_or_default().to_vec();
    let dump = DumpReader::adopt(&paths, state_pipe, dumped, &streams.epoll)?;
    let state = State::from_sections(state);
    let mut executor = Executor::assemble(setup, paths, state, streams, dump)?;
    let pid = image.number("pid").unwrap_or(0);
    executor.shell = ShellProcess {
        pid,
        session: image.number("session").unwrap_or(pid),
        generation: image.number("generation").unwrap_or(1),
    };
    executor.snapshot.status = image.number("status").unwrap_or(0);
    executor.snapshot.history = image.bytes("history").map(<[u8]>::to_vec);
    executor.snapshot.typed_count = image.number("typed");
    let mut handover = Handover {
        number: image.number("number").unwrap_or(1 << 32),
        key: image.number::<u64>("key").map_or(0, |key| key as usize),
        ends_with_shell: image.number::<u8>("ends_with_program") == Some(1),
        queue: image.images("queued").filter_map(|spec| read_spec(&spec)).collect(),
        running: None,
    };
    if let Some(running) = image.images("running").next()
        && let Some(spec) = read_spec(&running)
    {
        let moment = ForkMoment {
            tick: running.number("tick").unwrap_or(u64::MAX),
            last_pid: running.number("last_pid").unwrap_or(0),
        };
        executor.live = Some(LiveRun::new(Some(spec.command.clone()), moment));
        let elapsed = Duration::from_micros(running.number("elapsed_us").unwrap_or(0));
        handover.running = Some(HandedRun {
            number: running.number("number").unwrap_or(0),
            spec: Box::new(spec),
            started: now.checked_sub(elapsed).unwrap_or(now),
            begun: running.number::<u8>("begun") == Some(1),
            harmless: running.number::<u8>("harmless") == Some(1),
            status: running.number("exit"),
        });
    }
    let machine = Machine::resume(executor.setup.kind.capabilities(), handover, now);
    Ok((executor, machine))
}

fn adopt_command(
    streams: &mut Streams,
    dir: &Path,
    image: &Image,
    inherit: Inherit<'_>,
) -> io::Result<()> {
    let Some(id) = image.text("id") else { return Ok(()) };
    let keep = Keep {
        head: image.number("keep_head").unwrap_or(0),
        tail: image.number("keep_tail").unwrap_or(0),
    };
    streams.commands.add(&id, keep);
    let dir = dir.join("commands");
    let Some(command) = streams.commands.get_mut(&id) else { return Ok(()) };
    for (nth, name) in ["out", "err"].into_iter().enumerate() {
        let path = dir.join(format!("{id}.{name}"));
        command.outputs[nth] = match image.bytes(name) {
            Some(bytes) => Output::remembered(path, keep, bytes.to_vec()),
            None => Output::open(path.clone()).unwrap_or_else(|_| Output::new(path, keep)),
        };
        let pipe = (image.number(&format!("{name}_pipe")), image.bytes(&format!("{name}_path")));
        if let (Some(fd), Some(path)) = pipe {
            let path = PathBuf::from(OsString::from_vec(path.to_vec()));
            command.pipes[nth] = Some(Pipe::adopt(path, inherit(fd)?));
        }
    }
    if let (Some(fd), Some(path)) = (image.number("stdin"), image.bytes("stdin_path")) {
        command.stdin = Some(StdinPipe {
            path: PathBuf::from(OsString::from_vec(path.to_vec())),
            fd: inherit(fd)?,
            pending: image.bytes("stdin_pending").unwrap_or_default().iter().copied().collect(),
            eof: image.number::<u8>("stdin_eof") == Some(1),
            accepted: image
                .all("stdin_taken")
                .filter_map(|id| String::from_utf8(id.to_vec()).ok())
                .collect(),
        });
    }
    command.phase = Phase::from(image.number::<u8>("phase").unwrap_or(3));
    command.forgotten = image.number::<u8>("forgotten") == Some(1);
    command.started_ms = image.number("started_ms").unwrap_or(0);
    command.started = (command.started_ms > 0).then(Instant::now);
    command.status = read_status(image, command);
    streams.watch(&id)
}

fn kind_number(kind: Kind) -> u8 {
    match kind {
        Kind::Bash => 1,
        Kind::Zsh => 2,
        Kind::Sh => 3,
    }
}

fn command_image(id: &str, command: &CommandState) -> Image {
    let mut image = Image::default();
    image.put("id", id.as_bytes());
    let keep = command.outputs[0].keep();
    image.put_number("keep_head", keep.head);
    image.put_number("keep_tail", keep.tail);
    for ((name, output), pipe) in
        ["out", "err"].into_iter().zip(&command.outputs).zip(&command.pipes)
    {
        match output.memory() {
            Some(bytes) => image.put(name, bytes),
            None => output.store_length(),
        }
        if let Some(pipe) = pipe {
            image.put_number(&format!("{name}_pipe"), pipe.fd.as_raw_fd());
            image.put(&format!("{name}_path"), pipe.path.as_os_str().as_bytes());
        }
    }
    if let Some(stdin) = &command.stdin {
        image.put_number("stdin", stdin.fd.as_raw_fd());
        image.put("stdin_path", stdin.path.as_os_str().as_bytes());
        image.put("stdin_pending", stdin.pending.iter().copied().collect::<Vec<u8>>());
        image.put_number("stdin_eof", u8::from(stdin.eof));
        for id in &stdin.accepted {
            image.put("stdin_taken", id.as_bytes());
        }
    }
    image.put_number("phase", command.phase.number());
    image.put_number("forgotten", u8::from(command.forgotten));
    image.put_number("started_ms", command.started_ms);
    if let Some(status) = &command.status {
        image.put_number("outcome", status.outcome.number());
        if let Some(code) = status.exit_code {
            image.put_number("exit_code", code);
        }
        if let Some(signal) = status.signal {
            image.put_number("signal", signal);
        }
        image.put_number("duration_us", status.duration.as_micros() as u64);
        image.put_number("restarted", u8::from(status.shell_restarted));
    }
    image
}

fn read_status(image: &Image, command: &CommandState) -> Option<Status> {
    Some(Status {
        outcome: Outcome::from(image.number::<u8>("outcome")?),
        exit_code: image.number("exit_code"),
        signal: image.number("signal"),
        duration: Duration::from_micros(image.number("duration_us").unwrap_or(0)),
        stdout_bytes: command.outputs[0].written(),
        stderr_bytes: command.outputs[1].written(),
        shell_restarted: image.number::<u8>("restarted") == Some(1),
        changes: Default::default(),
    })
}

fn spec_image(spec: &Spec) -> Image {
    let mut image = Image::default();
    image.put("command", spec.command.as_bytes());
    image.put("text", spec.text.clone());
    if let Some(timeout) = spec.timeout {
        image.put_number("timeout_us", timeout.as_micros() as u64);
    }
    image.put_number("stdin", spec.stdin.number());
    image.put("stdin_data", spec.stdin_data.clone());
    image.put("env", pairs(&spec.env));
    if let Some(cwd) = &spec.cwd {
        image.put("cwd", cwd.clone());
    }
    image.put_number("keep_head", spec.keep.head);
    image.put_number("keep_tail", spec.keep.tail);
    image
}

fn read_spec(image: &Image) -> Option<Spec> {
    Some(Spec {
        command: image.text("command")?,
        text: image.bytes("text")?.to_vec(),
        timeout: image.number("timeout_us").map(Duration::from_micros),
        stdin: StdinMode::from(image.number::<u8>("stdin").unwrap_or(0)),
        stdin_data: image.bytes("stdin_data").unwrap_or_default().to_vec(),
        env: unpair(image.bytes("env").unwrap_or_default()),
        cwd: image.bytes("cwd").map(<[u8]>::to_vec),
        if_busy: IfBusy::Wait,
        keep: Keep {
            head: image.number("keep_head").unwrap_or(0),
            tail: image.number("keep_tail").unwrap_or(0),
        },
    })
}

/// Encodes variables as `K=V`, each ended by NUL.
fn pairs(env: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    env.iter().flat_map(|(name, value)| [name, b"=".as_slice(), value, b"\0"].concat()).collect()
}

fn unpair(bytes: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    bytes
        .split(|byte| *byte == 0)
        .filter_map(|pair| {
            let equals = pair.iter().position(|byte| *byte == b'=')?;
            Some((pair[..equals].to_vec(), pair[equals + 1..].to_vec()))
        })
        .collect()
}
