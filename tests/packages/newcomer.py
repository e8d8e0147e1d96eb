"""The first minute of a person: installs by the script, then types the lines of the README.

    newcomer.py script RELEASE      prints what to run inside a clean root, for a release in the directory RELEASE
    newcomer.py check OUTPUT        compares what it printed with the README
"""

import pathlib
import shlex
import sys

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/book"))
from pages import Page  # noqa: E402
from session import line_matches, matches, typed  # noqa: E402

MARK = "@step "
# Prints the lines of the server's start once they are whole, or after half a minute what it printed until then.
SERVE = """\
( {command} >~/serve.log 2>&1 & )
for _ in $(seq 300); do grep -q '^data: ' ~/serve.log && break; sleep 0.1; done
cat ~/serve.log"""


def steps():
    """Returns the commands of the README with their expected output."""
    blocks = [block for block in Page(ROOT / "README.md").blocks if block.language == "console"]
    return [step for block in blocks for step in typed(block.text)]


def script(release):
    lines = [f"sh {shlex.quote(release)}/install.sh --from {shlex.quote(release)}", 'PATH="$HOME/.local/bin:$PATH"', "cd"]
    for number, (command, _) in enumerate(steps()):
        lines.append(f"echo '{MARK}{number}'")
        lines.append(SERVE.format(command=command) if command.startswith("stead serve") else command)
    # Control groups of sandboxes outlive the processes of this root.
    lines += [f"echo '{MARK}{len(steps())}'", 'kill "$(cat ~/.stead/lock)"', "stead namespace end ~/.stead"]
    return "\n".join(lines)


def check(output):
    """Yields each command that did not print what the README says."""
    printed = {}
    for part in ("\n" + output).split(f"\n{MARK}")[1:]:
        number, *lines = part.splitlines()
        printed[int(number)] = lines
    for number, (command, expected) in enumerate(steps()):
        lines, expected = printed.get(number, []), [line for line in expected if line]
        if command.startswith("stead serve"):
            right = all(any(line_matches(one, line) for line in lines) for one in expected)
        else:
            right = matches(expected, lines)
        if not right:
            yield f"`{command}` printed {lines} instead of {expected}"


def main():
    verb, given = sys.argv[1:]
    if verb == "script":
        print(script(given))
        return
    output = pathlib.Path(given).read_text(errors="replace")
    if wrong := list(check(output)):
        sys.exit("\n".join([*wrong, "--- everything that was printed ---", output]))


main()
