"""The Python client of Stead: durable shells and sandboxes for AI agents.

>>> from stead import Stead
>>> with Stead.connect() as client:
...     client.thread("hello").exec("echo hello").stdout
'hello\\n'

`Stead` is for ordinary programs, `AsyncStead` has the same methods for asyncio.
"""

from ._async._client import AsyncStead
from ._async._commands import AsyncCommand
from ._async._files import AsyncFiles
from ._async._sandboxes import AsyncSandbox
from ._async._terminals import AsyncTerminal
from ._async._threads import AsyncPorts, AsyncThread
from ._errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Busy,
    CommandFailed,
    Conflict,
    ConnectionFailed,
    EchoOn,
    FieldError,
    FileConflict,
    Forbidden,
    Gone,
    InternalError,
    KeyReused,
    LeasePaused,
    NotDriver,
    NotFound,
    NotRunning,
    NotSupported,
    NotWaiting,
    OutcomeUnknown,
    QuotaExceeded,
    RateLimited,
    SteadError,
    StreamEnded,
    Timeout,
    Unauthorized,
    Unavailable,
    Unreachable,
    VersionConflict,
)
from ._models import (
    CommandInfo,
    Copied,
    Event,
    ExecEvent,
    ExecResult,
    Exited,
    FileEvent,
    FileInfo,
    Gap,
    Handoff,
    HandoffAnswer,
    Instance,
    Lease,
    Match,
    Output,
    PortLink,
    Provider,
    SandboxInfo,
    Screen,
    SearchResult,
    Snapshot,
    Started,
    TerminalEvent,
    TerminalInfo,
    TerminalState,
    ThreadInfo,
    ThreadSandbox,
    ThreadSummary,
    Version,
    VersionDetail,
    WrittenFile,
)
from ._prompt import PROMPT
from ._retry import RetryPolicy
from ._sync._client import Stead
from ._sync._commands import Command
from ._sync._files import Files
from ._sync._sandboxes import Sandbox
from ._sync._terminals import Terminal
from ._sync._threads import Ports, Thread

__all__ = [
    "PROMPT",
    "AlreadyExists",
    "ApiError",
    "AsyncCommand",
    "AsyncFiles",
    "AsyncPorts",
    "AsyncSandbox",
    "AsyncStead",
    "AsyncTerminal",
    "AsyncThread",
    "BadRequest",
    "Busy",
    "Command",
    "CommandFailed",
    "CommandInfo",
    "Conflict",
    "ConnectionFailed",
    "Copied",
    "EchoOn",
    "Event",
    "ExecEvent",
    "ExecResult",
    "Exited",
    "FieldError",
    "FileConflict",
    "FileEvent",
    "FileInfo",
    "Files",
    "Forbidden",
    "Gap",
    "Gone",
    "Handoff",
    "HandoffAnswer",
    "Instance",
    "InternalError",
    "KeyReused",
    "Lease",
    "LeasePaused",
    "Match",
    "NotDriver",
    "NotFound",
    "NotRunning",
    "NotSupported",
    "NotWaiting",
    "OutcomeUnknown",
    "Output",
    "PortLink",
    "Ports",
    "Provider",
    "QuotaExceeded",
    "RateLimited",
    "RetryPolicy",
    "Sandbox",
    "SandboxInfo",
    "Screen",
    "SearchResult",
    "Snapshot",
    "Started",
    "Stead",
    "SteadError",
    "StreamEnded",
    "Terminal",
    "TerminalEvent",
    "TerminalInfo",
    "TerminalState",
    "Thread",
    "ThreadInfo",
    "ThreadSandbox",
    "ThreadSummary",
    "Timeout",
    "Unauthorized",
    "Unavailable",
    "Unreachable",
    "Version",
    "VersionConflict",
    "VersionDetail",
    "WrittenFile",
]

# Tracebacks name errors as users import them.
for _name in __all__:
    _value = globals()[_name]
    if isinstance(_value, type) and issubclass(_value, Exception):
        _value.__module__ = __name__
