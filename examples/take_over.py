"""A second program watches the agent's terminal and takes over when the agent needs an answer.

The agent's command asks a question on its terminal. The watcher learns from the server's events that the command waits
for input, reads the screen, and types the answer into the same terminal; the agent's command continues. A person does
the same in the web app or with `stead attach`.
"""

from __future__ import annotations

import threading

from stead import Stead, Terminal

# A program that asks its terminal, as `ssh`, `sudo` and installers do.
COMMAND = """
read -r -p 'Deploy to production? [yes/no] ' answer </dev/tty 2>/dev/tty
echo "deploying: $answer"
"""


def watch(client: Stead, terminal: Terminal, after: int) -> None:
    """Waits until a command of the terminal waits for input, and answers it."""
    for event in client.events(after=after):
        if event.type == "command_waiting" and event.data["terminal_id"] == terminal.terminal_id:
            print("watcher sees:", terminal.screen().splitlines()[-1].strip())
            terminal.type("yes\r")
            return


def last_event(client: Stead, terminal: Terminal) -> int:
    """Returns the id of the event after which a watcher misses nothing."""
    for event in client.events(after=0):
        if event.type == "command_ended" and event.data["terminal_id"] == terminal.terminal_id and event.id:
            return event.id
    raise AssertionError("events do not end")


def main() -> None:
    with Stead.connect() as client:
        thread = client.thread("example-take-over")
        thread.exec("echo ready")
        terminal = thread.terminal()
        watcher = threading.Thread(target=watch, args=(client, terminal, last_event(client, terminal)))
        watcher.start()
        result = thread.exec(COMMAND, timeout=60)
        watcher.join()
        print("agent sees:", result.stdout.strip())
        thread.delete()


if __name__ == "__main__":
    main()
