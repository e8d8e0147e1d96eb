"""What the server reports, as plain data. Fields that a newer server adds are ignored."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Literal, TypeAlias, TypeVar

from ._errors import CommandFailed

StreamName: TypeAlias = Literal["stdout", "stderr"]
Json: TypeAlias = dict[str, Any]

_M = TypeVar("_M", bound="Model")


def parse_time(text: str) -> datetime:
    """Parses RFC 3339 in UTC. Digits after the microseconds are dropped."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    parsed = datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S")
    return parsed.replace(microsecond=int(fraction[:6].ljust(6, "0")), tzinfo=timezone.utc)


def _parsed(parse: Callable[[Any], Any], *, optional: bool = False) -> Any:
    """A field whose JSON value is converted."""
    metadata = {"parse": parse}
    return field(default=None, metadata=metadata) if optional else field(metadata=metadata)


Parsers: TypeAlias = dict[str, Callable[[Any], Any] | None]
_PARSERS: dict[type, Parsers] = {}


def _parsers(model: type) -> Parsers:
    """Returns the fields of a model, each with the function that converts it."""
    found = _PARSERS.get(model)
    if found is None:
        found = {one.name: one.metadata.get("parse") for one in dataclasses.fields(model)}
        _PARSERS[model] = found
    return found


class Model:
    """A dataclass that is read from JSON."""

    __slots__ = ()

    @classmethod
    def from_json(cls: type[_M], data: Mapping[str, Any]) -> _M:
        values = {}
        for name, parse in _parsers(cls).items():
            if name in data:
                value = data[name]
                values[name] = value if parse is None or value is None else parse(value)
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult(Model):
    """The receipt of a command: how it ended, what it wrote, and what it changed in its shell."""

    command_id: str
    #: `finished`, `running`, `timed_out`, `cancelled`, `lost` or `not_started`.
    status: str
    #: `None` unless the command exited.
    exit_code: int | None = None
    #: Name of the signal that ended the command, such as `TERM`.
    signal: str | None = None
    timed_out: bool
    #: Standard output as text; bytes that are not UTF-8 are replaced. `stdout_data` has them.
    stdout: str = ""
    stdout_base64: str | None = field(default=None, repr=False)
    stderr: str = ""
    stderr_base64: str | None = field(default=None, repr=False)
    #: Bytes written, including those that are not in this result.
    stdout_bytes: int
    stderr_bytes: int
    #: Whether output is missing here; `client.commands.output` reads it.
    truncated: bool
    duration_ms: int
    #: The limit that a failed command ran into: `out_of_memory`, `processes` or `disk_full`.
    limit_reached: str | None = None
    #: Whether the shell had to be restarted; its state was restored.
    shell_restarted: bool
    #: Whether the command waits for input on the terminal.
    waiting_for_input: bool
    terminal_id: str
    #: Version of the terminal's state after the command.
    version: int
    #: Working directory of the shell after the command.
    cwd: str
    #: Changes of the working directory and the environment.
    changes: Json

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ExecResult:
        # `super()` does not work in a class with slots: the decorator replaces it.
        result = Model.from_json.__func__(cls, data)  # type: ignore[attr-defined]
        for name in ("stdout", "stderr"):
            encoded = data.get(f"{name}_base64")
            if encoded is not None:
                object.__setattr__(result, name, base64.b64decode(encoded).decode(errors="replace"))
        assert isinstance(result, ExecResult)
        return result

    @property
    def ok(self) -> bool:
        """Whether the command exited with 0."""
        return self.exit_code == 0

    @property
    def running(self) -> bool:
        """Whether the command has not ended."""
        return self.status == "running"

    @property
    def stdout_data(self) -> bytes:
        """Standard output as bytes."""
        return self.stdout.encode() if self.stdout_base64 is None else base64.b64decode(self.stdout_base64)

    @property
    def stderr_data(self) -> bytes:
        """Standard error as bytes."""
        return self.stderr.encode() if self.stderr_base64 is None else base64.b64decode(self.stderr_base64)

    def check(self) -> ExecResult:
        """Returns the result if the command exited with 0; raises `CommandFailed` otherwise."""
        if not self.ok:
            raise CommandFailed(self)
        return self


@dataclass(frozen=True, slots=True)
class Started:
    """A command was accepted. It continues even if this program ends; `commands.attach` finds it again."""

    command_id: str
    terminal_id: str


@dataclass(frozen=True, slots=True)
class Output:
    """A part of the output of a command. No part ends inside a UTF-8 character, unless the output does."""

    stream: StreamName
    offset: int
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes from `start` to `end` are missing: the server no longer kept them when they were requested."""

    stream: StreamName
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Exited:
    """A command ended; always the last event."""

    result: ExecResult


ExecEvent: TypeAlias = Started | Output | Gap | Exited


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandInfo(Model):
    """A command in the history of a terminal."""

    command_id: str
    command: str
    #: `agent` for exec, `person` for typed commands.
    source: str
    status: str
    exit_code: int | None = None
    signal: str | None = None
    created_at: datetime = _parsed(parse_time)
    finished_at: datetime | None = _parsed(parse_time, optional=True)
    duration_ms: int | None = None
    stdout_bytes: int
    stderr_bytes: int
    version_before: int
    version: int | None = None
    offset_start: int | None = None
    offset_end: int | None = None
    cwd: str | None = None
    changes: Json
    shell_restarted: bool
    limit_reached: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalInfo(Model):
    """A terminal and its live state."""

    terminal_id: str
    thread_id: str
    lease_id: str
    #: Whether this is the default terminal of its thread.
    is_default: bool
    #: `live`, `exited` or `restorable`; the next use of a restorable terminal starts a shell from its state.
    status: str
    #: Program and arguments; empty for the shell.
    cmd: list[str]
    shell: str
    cols: int
    rows: int
    title: str
    cwd: str
    #: Changes of the environment since the start; `None` for a removed variable.
    env_delta: dict[str, str | None]
    version: int
    #: Number of attached clients, and the name of the one that has control.
    clients: int
    driver: str | None = None
    #: Offset after the last byte of output.
    offset: int
    exit_code: int | None = None
    signal: str | None = None
    created_at: datetime = _parsed(parse_time)
    updated_at: datetime = _parsed(parse_time)
    last_activity_at: datetime = _parsed(parse_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalState(Model):
    """The durable state of a terminal."""

    terminal_id: str
    version: int
    cwd: str
    env_delta: dict[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Version(Model):
    """One version of the state of a terminal."""

    version: int
    cwd: str
    #: What caused the version, such as a command.
    cause: Json
    at: datetime = _parsed(parse_time)
    #: Sections of the state that differ from the previous version.
    changed: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDetail(Model):
    """The content of one version of the state of a terminal."""

    terminal_id: str
    version: int
    cwd: str
    env: dict[str, str]
    #: Sections of the state as shell source.
    sections: dict[str, str]
    #: In a comparison: variables that only the other version exports.
    unset: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen(Model):
    """The screen of a terminal, as escape sequences that reproduce it in a terminal of the same size."""

    data: str
    offset: int
    cols: int
    rows: int
    #: `x` and `y` from 0, and whether the cursor is `visible`.
    cursor: Json
    title: str
    alt_screen: bool


@dataclass(frozen=True, slots=True)
class TerminalEvent:
    """An event of an attached terminal.

    `kind` is `snapshot` (the screen as escape sequences in `data`), `data` (output at `offset`), `resize`,
    `title`, `notice`, `gap`, `driver` or `exit`; `fields` has what the server sent with it.
    """

    kind: str
    data: bytes
    offset: int | None
    fields: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSandbox(Model):
    """The compute of a thread."""

    #: Name of the provider.
    type: str
    #: `running`, `paused`, `dead` or `none`.
    status: str
    session_id: str | None = None
    terminal_id: str
    lease_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadInfo(Model):
    """A thread with its messages and its compute."""

    thread_id: str
    project_id: str
    messages: list[Json]
    sandbox: ThreadSandbox = _parsed(ThreadSandbox.from_json)
    last_command: Json | None = None
    #: One command for each terminal that runs one or has queued one.
    current_commands: list[Json]
    #: Number of open hand-offs on its terminals.
    open_handoffs: int
    labels: dict[str, str]
    created_at: datetime = _parsed(parse_time)
    updated_at: datetime = _parsed(parse_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSummary(Model):
    """A thread in a list."""

    thread_id: str
    project_id: str
    terminal_id: str
    lease_id: str
    provider: str | None = None
    #: `type` and `status` of the compute.
    sandbox: Json
    last_command: Json | None = None
    #: One command for each terminal that runs one or has queued one.
    current_commands: list[Json]
    #: Number of open hand-offs on its terminals.
    open_handoffs: int
    clients: int
    driver: str | None = None
    labels: dict[str, str]
    created_at: datetime = _parsed(parse_time)
    updated_at: datetime = _parsed(parse_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffAnswer(Model):
    """The answer of a person, without a secret."""

    approve: bool | None = None
    #: One of the options.
    option: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoff(Model):
    """A request of an agent to a person."""

    handoff_id: str
    thread_id: str
    terminal_id: str
    #: `input`, `secret` or `approval`.
    kind: str
    reason: str
    options: list[str]
    #: `open`, `answered`, `declined` or `expired`.
    status: str
    #: `None` for a secret, and unless a person answered.
    answer: HandoffAnswer | None = _parsed(HandoffAnswer.from_json, optional=True)
    created_at: datetime = _parsed(parse_time)
    expires_at: datetime = _parsed(parse_time)
    settled_at: datetime | None = _parsed(parse_time, optional=True)

    @property
    def approved(self) -> bool:
        """Whether a person approved."""
        return self.answer is not None and self.answer.approve is True


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance(Model):
    """The compute that runs under a lease."""

    instance_id: str
    #: `running`, `paused` or `dead`.
    state: str
    started_at: datetime = _parsed(parse_time)
    metrics: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease(Model):
    """A durable claim on compute."""

    thread_id: str | None = None
    lease_id: str
    provider_name: str
    instance: Instance | None = _parsed(Instance.from_json, optional=True)
    #: Ids of the threads that use the lease.
    shared_by: list[str]
    reachable: bool
    unreachable_since: datetime | None = _parsed(parse_time, optional=True)
    #: Number of instances so far.
    generation: int
    running_s: float
    cost: float | None = None
    created_at: datetime = _parsed(parse_time)
    updated_at: datetime = _parsed(parse_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider(Model):
    """A kind of compute, and whether this server can use it."""

    name: str
    default: bool
    available: bool
    capabilities: Json | None = None
    #: What a suspended instance keeps: `filesystem`, `memory` or `none`.
    suspend: str | None = None
    #: Number of instances in the warm pool.
    ready: int | None = None
    #: What the machine lacks to use it.
    missing: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo(Model):
    """The metadata of a file or directory."""

    path: str
    name: str
    #: `file`, `directory`, `link` or `other`.
    type: str
    size: int
    modified_at: datetime | None = _parsed(parse_time, optional=True)
    #: Permission bits.
    mode: int | None = _parsed(lambda text: int(text, 8), optional=True)
    #: Target of a symbolic link.
    target: str | None = None
    #: Changes with each write; `write` takes it as `if_match`.
    etag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile(Model):
    """The result of a write."""

    path: str
    size: int
    etag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Match(Model):
    """A line that matches a search."""

    path: str
    #: From 1.
    line: int
    #: In bytes, from 1.
    column: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult(Model):
    """The result of a search."""

    items: list[Match] = _parsed(lambda items: [Match.from_json(one) for one in items])
    #: Number of files searched.
    files: int
    truncated: bool
    #: The limit that ended the search early.
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class FileEvent:
    """A change of files.

    `kind` is `created`, `modified`, `removed`, or, with the path that is watched: `ready` (all later changes
    are reported), `lost` (events may be missing; list the directory again) or `partial` (there are too many
    directories to watch all of them).
    """

    kind: str
    path: str


@dataclass(frozen=True, slots=True)
class Copied:
    """The result of a directory transfer."""

    files: int
    bytes: int
    #: Paths that are neither files nor directories, such as symbolic links. They are not copied.
    skipped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the server. `type` says what happened, `data` to which resources."""

    id: int | None
    type: str
    at: datetime | None
    data: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxInfo(Model):
    """A sandbox as the server reports it."""

    #: Also the id of its thread.
    sandbox_id: str
    name: str | None = None
    project_id: str
    thread_id: str
    terminal_id: str
    lease_id: str
    provider: str
    #: `running` (or starts on its next use), `paused`, `suspended`, `stopped` or `archived`.
    state: str
    #: The image, snapshot or template it started from; empty for the default.
    template: str
    #: The API it was created through: `stead`, `e2b` or `daytona`.
    origin: str
    labels: dict[str, str]
    #: Lifetime in seconds; `None` if it is unlimited.
    timeout_s: int | None = None
    #: What happens at the end of the lifetime: `suspend`, `pause` or `destroy`.
    on_timeout: str
    expires_at: datetime | None = _parsed(parse_time, optional=True)
    last_active_at: datetime | None = _parsed(parse_time, optional=True)
    created_at: datetime = _parsed(parse_time)
    updated_at: datetime = _parsed(parse_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortLink(Model):
    """A link that opens one port in a browser. Everyone who has its URL can use the port."""

    url: str
    expires_at: datetime = _parsed(parse_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(Model):
    """The saved files of a sandbox, from which others can be created."""

    name: str
    provider: str
    bytes: int
    created_at: datetime = _parsed(parse_time)
