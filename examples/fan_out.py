"""One sandbox is forked ten times in mid-work, each fork tries something else, and the best fork is kept.

A fork has the files of the original, and its shell has the directory, the variables and the functions. The attempts run
at the same time and cannot disturb each other: `/workspace` belongs to the project and is shared, all other files are
copied.
"""

from __future__ import annotations

import asyncio

from stead import AsyncSandbox, AsyncStead

FORKS = 10
# What the agent has done so far: files, a directory, a variable, a function.
PREPARATION = """
mkdir -p ~/job && cd ~/job && echo 50 > goal
export RESULT=distance
attempt() { echo $(( ($1 * $1 - $(cat goal)) ** 2 )) > $RESULT; cat $RESULT; }
"""


async def attempt(original: AsyncSandbox, number: int) -> tuple[int, AsyncSandbox]:
    """Forks the sandbox and returns how far from the goal the attempt ended there, and the fork."""
    fork = await original.fork(labels={"example": "fan-out", "attempt": str(number)})
    result = await fork.exec(f"attempt {number}")
    return int(result.check().stdout), fork


async def main() -> None:
    async with AsyncStead.connect() as client:
        original = await client.sandboxes.create(labels={"example": "fan-out"})
        (await original.exec(PREPARATION)).check()
        attempts = await asyncio.gather(*(attempt(original, number) for number in range(1, FORKS + 1)))
        distance, best = min(attempts, key=lambda found: found[0])
        await asyncio.gather(*(fork.delete() for _, fork in attempts if fork is not best), original.delete())
        print(f"{len(attempts)} attempts, best: {best.info.labels['attempt']}")
        kept = await best.exec("cat $RESULT")
        print(f"kept, with its files and its shell: {kept.stdout.strip() == str(distance)}")
        await best.delete()


if __name__ == "__main__":
    asyncio.run(main())
