"""A conversation of AutoGen: the code blocks of a scripted assistant run in a sandbox."""

from __future__ import annotations

import asyncio
import re

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from stead.adapters.autogen import SteadCodeExecutor

FENCE = "`" * 3
# Stands in for a model.
REPLY = f"""First the numbers:
{FENCE}bash
seq 5 > numbers
{FENCE}
Then their sum:
{FENCE}python
print(sum(int(line) for line in open("numbers")))
{FENCE}
"""


async def main() -> None:
    blocks = [CodeBlock(code, language) for language, code in re.findall(f"{FENCE}(\\w+)\n(.*?){FENCE}", REPLY, re.S)]
    async with SteadCodeExecutor(timeout=60) as executor:
        result = await executor.execute_code_blocks(blocks, CancellationToken())
        print(f"{len(blocks)} blocks, exit code {result.exit_code}: {result.output}", end="")


if __name__ == "__main__":
    asyncio.run(main())
