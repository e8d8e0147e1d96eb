# Runs pieces of Python one after the other, each of which finds what those before it left.
# Requests come as lines of JSON; what happens goes out the same way.
import ast
import base64
import builtins
import codecs
import importlib.abc
import importlib.machinery
import json
import linecache
import os
import select
import signal
import subprocess
import sys
import threading
import time
import traceback

tell = os.fdopen(os.dup(1), "w", encoding="utf-8")
asked = os.fdopen(os.dup(0), "r", encoding="utf-8")
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
turn = threading.RLock()
# The piece that is at work, how many there were, and whether values are wanted beside output.
name, count, rich, busy = None, 0, False, False


def say(kind, **fields):
    if rich and kind in ("stdout", "stderr"):
        fields["timestamp"] = time.time_ns()
    line = json.dumps(plain({"type": kind, "for": name, **fields}))
    with turn:
        tell.write(line + "\n")
        tell.flush()


def plain(value):
    """What JSON can say of a value."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if value - value == 0 else None
    if value is None or isinstance(value, (bool, int)):
        return value
    return str(value).encode("utf-8", "replace").decode()


class Output:
    """What code prints, gathered for a moment."""

    encoding, errors, closed, most = "utf-8", "replace", False, 1 << 16

    def __init__(self, kind, number):
        self.kind, self.number, self.text = kind, number, ""
        # What other programs write goes the same way.
        self.beside, inside = os.pipe()
        os.set_blocking(self.beside, False)
        os.dup2(inside, number)
        os.close(inside)
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, text):
        with turn:
            self.text += text
            if len(self.text) >= self.most:
                self.flush()
        more.set()
        return len(text)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def flush(self):
        with turn:
            text, self.text = self.text, ""
            for start in range(0, len(text), self.most):
                say(self.kind, text=text[start : start + self.most])

    def gather(self):
        """Takes what others wrote, and says everything."""
        with turn:
            while True:
                try:
                    piece = os.read(self.beside, 1 << 16)
                except BlockingIOError:
                    break
                if not piece:
                    break
                self.write(self.decoder.decode(piece))
            self.flush()

    def isatty(self):
        return False

    def writable(self):
        return True

    def readable(self):
        return False

    def fileno(self):
        return self.number


more = threading.Event()
outputs = sys.stdout, sys.stderr = Output("stdout", 1), Output("stderr", 2)


def gather():
    for output in outputs:
        output.gather()


def listen():
    while True:
        select.select([output.beside for output in outputs], [], [])
        gather()
        time.sleep(0.02)


def flush():
    while True:
        more.wait()
        time.sleep(0.02)
        more.clear()
        for output in outputs:
            output.flush()


os.register_at_fork(before=gather)
for work in listen, flush:
    threading.Thread(target=work, daemon=True).start()


def stop(_signal, _frame):
    if busy:
        raise KeyboardInterrupt


signal.signal(signal.SIGINT, stop)

KINDS = {
    "html": "text/html",
    "markdown": "text/markdown",
    "svg": "image/svg+xml",
    "png": "image/png",
    "jpeg": "image/jpeg",
    "pdf": "application/pdf",
    "latex": "text/latex",
    "json": "application/json",
    "javascript": "application/javascript",
}


def unquoted(text):
    """A string's own text, as clients of E2B expect it."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def shown(value):
    """The forms in which a value can be shown."""
    forms = {"text": unquoted(repr(value))}
    if isinstance(value, type):
        return forms
    bundle = {}
    if callable(getattr(value, "_repr_mimebundle_", None)):
        bundle = value._repr_mimebundle_() or {}
        bundle = bundle[0] if isinstance(bundle, tuple) else bundle
    for kind, mime in KINDS.items():
        own = getattr(value, f"_repr_{kind}_", None)
        form = bundle.get(mime) if mime in bundle else own() if callable(own) else None
        form = form[0] if isinstance(form, tuple) else form
        if isinstance(form, (bytes, bytearray)):
            form = base64.b64encode(form).decode()
        if form is not None:
            forms[kind] = form
    if type(value).__name__ == "DataFrame" and callable(getattr(value, "to_dict", None)):
        forms["data"] = value.to_dict(orient="list")
    return forms


def display(*values, raw=False, **_options):
    """Shows values that are not the last one."""
    for value in values:
        gather()
        if raw:
            names = {mime: kind for kind, mime in KINDS.items()}
            names["text/plain"] = "text"
            say("result", **{names[mime]: form for mime, form in value.items() if mime in names})
        else:
            say("result", **shown(value))


class Displays(importlib.abc.MetaPathFinder):
    """Lets IPython.display.display show values here: without a shell of IPython it would print them."""

    module = "IPython.core.display_functions"

    def find_spec(self, name, path, target=None):
        if name != self.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec and spec.loader:
            run = spec.loader.exec_module

            def patched(module):
                run(module)
                module.display = display

            spec.loader.exec_module = patched
        return spec


def dedent(code):
    """Code without the empty lines before it and the indentation of its first line, as in IPython."""
    lines = code.split("\n")
    while len(lines) > 1 and not lines[0].strip():
        del lines[0]
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip(" \t"))]
    return "\n".join(line[len(indent) :] if line.startswith(indent) else line for line in lines)


def figures():
    """Shows what was drawn."""
    plots = sys.modules.get("matplotlib.pyplot")
    for number in plots.get_fignums() if plots else ():
        import io

        figure, picture = plots.figure(number), io.BytesIO()
        figure.savefig(picture, format="png", bbox_inches="tight")
        say("result", text=repr(figure), png=base64.b64encode(picture.getvalue()).decode())
        plots.close(figure)


def system(command):
    subprocess.run(command, shell=True, executable="/bin/bash")
    gather()


def python(code):
    """Code whose lines for the shell are calls."""
    lines = []
    for line in code.split("\n"):
        word = line.lstrip()
        before = line[: len(line) - len(word)]
        if word.startswith("!"):
            line = f"{before}__system__({word[1:]!r})"
        elif word.startswith("%pip "):
            line = f"{before}__system__({'python3 -m ' + word[1:]!r})"
        elif word.startswith("%cd "):
            line = f"{before}__import__('os').chdir({os.path.expanduser(word[4:].strip())!r})"
        lines.append(line)
    return "\n".join(lines)


def read(code, file):
    how = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        return compile(code, file, "exec", how)
    except SyntaxError as error:
        try:
            return compile(python(code), file, "exec", how)
        except SyntaxError:
            raise error from None


def evaluate(tree, file):
    mode = "eval" if isinstance(tree, ast.Expression) else "exec"
    value = eval(compile(tree, file, mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), found)
    own = getattr(value, "cr_code", None)
    if own and (own.co_filename, own.co_name) == (file, "<module>"):
        value = loop().run_until_complete(value)
    return value


def loop():
    """Where what is awaited runs, from the first time on."""
    import asyncio

    if "loop" not in kept:
        kept["loop"] = asyncio.new_event_loop()
        asyncio.set_event_loop(kept["loop"])
    return kept["loop"]


def run(code):
    if not rich:
        exec(compile(code, "<stdin>", "exec"), found)
        return
    code, file = dedent(code), f"<cell {count}>"
    linecache.cache[file] = (len(code), None, code.splitlines(True), file)
    if code.startswith("%%bash"):
        return system(code.partition("\n")[2])
    tree = read(code, file)
    ends = tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";")
    last = ast.Expression(tree.body.pop().value) if ends else None
    evaluate(tree, file)
    value = evaluate(last, file) if last else None
    if value is not None:
        found["_"] = value
        gather()
        say("result", is_main_result=True, **shown(value))
    gather()
    figures()


sys.meta_path.insert(0, Displays())
kept, found = {}, {"__name__": "__main__", "__builtins__": builtins}
while True:
    line = asked.readline()
    if not line:
        break
    request = json.loads(line)
    rich, name, before = request["rich"], request["for"], dict(os.environ)
    if rich:
        os.environ.setdefault("MPLBACKEND", "agg")
        found.update(display=display, __system__=system)
    count += 1
    try:
        os.environ.update(request.get("envs") or {})
        busy = True
        run(request["code"])
        busy = False
    except BaseException as error:
        busy = False
        gather()
        frames = error.__traceback__
        while frames and frames.tb_frame.f_code.co_filename == "<string>":
            frames = frames.tb_next
        text = "".join(traceback.format_exception(type(error), error, frames))
        say("error", name=type(error).__name__, value=str(error), traceback=text)
    finally:
        for key in set(os.environ) - set(before):
            del os.environ[key]
        os.environ.update(before)
    gather()
    if rich:
        say("number_of_executions", execution_count=count)
    say("control", text="completed")
