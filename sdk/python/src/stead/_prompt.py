"""The prompt of a shell, as something to wait for."""

from __future__ import annotations

import enum


class Prompt(enum.Enum):
    """The type of `PROMPT`."""

    PROMPT = "the prompt"


#: The prompt of the shell, for `Terminal.wait_for`.
PROMPT = Prompt.PROMPT
