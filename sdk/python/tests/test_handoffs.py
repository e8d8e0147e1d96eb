"""Hand-offs: questions of agents, answers of people."""

from __future__ import annotations

import pytest
from harness import until

import stead
from stead import Stead


def test_a_person_answers_and_the_agent_gets_the_answer(client: Stead) -> None:
    client.thread("handoffs").exec("true")
    terminal = client.thread("handoffs").terminal().terminal_id
    asked = client.handoffs.ask(terminal, "approval", "Deploy?", options=["now", "later"], timeout=600)
    assert (asked.status, asked.thread_id, asked.answer) == ("open", "handoffs", None)
    assert client.handoffs.wait(asked.handoff_id, timeout=0.01).status == "open"
    assert [one.handoff_id for one in client.handoffs.list(status="open")] == [asked.handoff_id]
    assert client.thread("handoffs").info().open_handoffs == 1
    with pytest.raises(stead.BadRequest) as bad:
        client.handoffs.answer(asked.handoff_id, option="never")
    assert bad.value.errors[0].pointer == "/option"
    client.handoffs.answer(asked.handoff_id, option="later", text="after lunch")
    answered = client.handoffs.wait(asked.handoff_id)
    assert answered.approved and answered.answer == stead.HandoffAnswer(
        approve=True, option="later", text="after lunch"
    )
    with pytest.raises(stead.Conflict):
        client.handoffs.decline(asked.handoff_id)

    asked = client.handoffs.ask(terminal, "input", "Which branch?")
    declined = client.handoffs.decline(asked.handoff_id, text="ask later")
    assert declined.status == "declined" and declined.answer == stead.HandoffAnswer(text="ask later")
    assert client.handoffs.get(asked.handoff_id) == declined
    assert list(client.handoffs.list(status="open", thread_id="handoffs")) == []


def test_a_secret_is_refused_where_the_terminal_would_show_it(client: Stead) -> None:
    client.thread("secrets").exec("true")
    terminal = client.thread("secrets").terminal().terminal_id
    asked = client.handoffs.ask(terminal, "secret", "The password")

    def refused() -> stead.Conflict | None:
        with pytest.raises(stead.Conflict) as refusal:
            client.handoffs.answer(asked.handoff_id, secret="hunter2")
        # Until the shell is at its prompt again, nothing waits for input.
        return None if isinstance(refusal.value, stead.NotWaiting) else refusal.value

    refusal = until(refused, "the prompt")
    assert isinstance(refusal, stead.EchoOn)
    assert "hunter2" not in str(refusal)
    assert client.handoffs.get(asked.handoff_id).status == "open"
