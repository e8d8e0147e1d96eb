"""An evaluation of Inspect AI: each sample has a sandbox of its own, and a script stands in for the model."""

from __future__ import annotations

import tempfile

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import sandbox


@solver
def count_words() -> Solver:
    """Stands in for an agent: runs a program in the sandbox of its sample and answers with the output."""

    async def solve(state: TaskState, _: Generate) -> TaskState:
        await sandbox().write_file("question.txt", state.input_text)
        state.output.completion = (await sandbox().exec(["wc", "-w", "question.txt"])).stdout
        return state

    return solve


def main() -> None:
    samples = [Sample(input="one two three", target="3"), Sample(input="four five", target="2")]
    task = Task(dataset=samples, solver=count_words(), scorer=includes(), sandbox="stead")
    with tempfile.TemporaryDirectory() as logs:
        [log] = eval(task, model=None, display="none", log_dir=logs)
    assert log.results, log.error
    print(log.status, "with accuracy", log.results.scores[0].metrics["accuracy"].value)


if __name__ == "__main__":
    main()
