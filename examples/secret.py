"""A program needs a password that the agent must not see.

The agent runs a command that asks for a password, and hands that question to a person. The server types the answer into
the program that reads it, and keeps it nowhere: not in the answer to the agent, in no log, and in no recording.
"""

from __future__ import annotations

import threading

from stead import Stead, Terminal

# A program that reads a password from its terminal, as `sudo`, `ssh` and `git push` do.
COMMAND = """
read -r -s -p 'Password: ' password </dev/tty 2>/dev/tty
echo "signed in with ${#password} characters"
"""
SECRET = "correct horse"


def answer_as_a_person(client: Stead, handoff_id: str) -> None:
    """Answers as a person does in the web app, or with `stead handoff answer`."""
    client.handoffs.answer(handoff_id, secret=SECRET)


def ask(client: Stead, terminal: Terminal, after: int) -> None:
    """Waits until the command asks, and hands the question to a person."""
    for event in client.events(after=after):
        if event.type == "command_waiting" and event.data["terminal_id"] == terminal.terminal_id:
            break
    question = client.handoffs.ask(terminal.terminal_id, "secret", "The password of the registry")
    answer_as_a_person(client, question.handoff_id)
    settled = client.handoffs.get(question.handoff_id)
    print("the agent learns:", settled.status, settled.answer and settled.answer.text)


def last_event(client: Stead, terminal: Terminal) -> int:
    """Returns the id of the event after which nothing is missed."""
    for event in client.events(after=0):
        if event.type == "command_ended" and event.data["terminal_id"] == terminal.terminal_id and event.id:
            return event.id
    raise AssertionError("events do not end")


def main() -> None:
    with Stead.connect() as client:
        thread = client.thread("example-secret")
        thread.exec("true")
        terminal = thread.terminal()
        asking = threading.Thread(target=ask, args=(client, terminal, last_event(client, terminal)))
        asking.start()
        result = thread.exec(COMMAND, timeout=60)
        asking.join()
        print("the program says:", result.stdout.strip())
        print("the screen has it:", SECRET in terminal.screen(scrollback=1000))
        thread.delete()


if __name__ == "__main__":
    main()
