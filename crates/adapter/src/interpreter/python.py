# Runs cells of Python one after the other in one namespace.
# Requests are lines of JSON on standard input; events are lines of JSON on standard output.
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

events = os.fdopen(os.dup(1), "w", encoding="utf-8")
requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
lock = threading.RLock()
# The id of the current cell, the number of cells so far, whether values are separate events, and whether a cell runs.
cell_id, count, rich, busy = None, 0, False, False


def emit(kind, **fields):
    if rich and kind in ("stdout", "stderr"):
        fields["timestamp"] = time.time_ns()
    line = json.dumps(to_json({"type": kind, "for": cell_id, **fields}))
    with lock:
        events.write(line + "\n")
        events.flush()


def to_json(value):
    """Converts a value to types that JSON has."""
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, float):
        return value if value - value == 0 else None
    if value is None or isinstance(value, (bool, int)):
        return value
    return str(value).encode("utf-8", "replace").decode()


class Output:
    """A standard stream whose text is buffered briefly and then sent as events."""

    encoding, errors, closed, limit = "utf-8", "replace", False, 1 << 16

    def __init__(self, kind, number):
        self.kind, self.number, self.text = kind, number, ""
        # Child processes write to the descriptor, which is a pipe.
        self.reader, writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.dup2(writer, number)
        os.close(writer)
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, text):
        with lock:
            self.text += text
            if len(self.text) >= self.limit:
                self.flush()
        written.set()
        return len(text)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def flush(self):
        with lock:
            text, self.text = self.text, ""
            for start in range(0, len(text), self.limit):
                emit(self.kind, text=text[start : start + self.limit])

    def collect(self):
        """Reads the output of child processes, and sends all buffered text."""
        with lock:
            while True:
                try:
                    piece = os.read(self.reader, 1 << 16)
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


written = threading.Event()
outputs = sys.stdout, sys.stderr = Output("stdout", 1), Output("stderr", 2)


def collect():
    for output in outputs:
        output.collect()


def listen():
    while True:
        select.select([output.reader for output in outputs], [], [])
        collect()
        time.sleep(0.02)


def flush():
    while True:
        written.wait()
        time.sleep(0.02)
        written.clear()
        for output in outputs:
            output.flush()


os.register_at_fork(before=collect)
for work in listen, flush:
    threading.Thread(target=work, daemon=True).start()


def stop(_signal, _frame):
    if busy:
        raise KeyboardInterrupt


signal.signal(signal.SIGINT, stop)

MIME_TYPES = {
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
    """The text of a string literal without its quotes, as clients of E2B expect it."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def representations(value):
    """The representations of a value by format."""
    forms = {"text": unquoted(repr(value))}
    if isinstance(value, type):
        return forms
    bundle = {}
    if callable(getattr(value, "_repr_mimebundle_", None)):
        bundle = value._repr_mimebundle_() or {}
        bundle = bundle[0] if isinstance(bundle, tuple) else bundle
    for kind, mime in MIME_TYPES.items():
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
    """Sends values that are not the result of the cell."""
    for value in values:
        collect()
        if raw:
            names = {mime: kind for kind, mime in MIME_TYPES.items()}
            names["text/plain"] = "text"
            emit("result", **{names[mime]: form for mime, form in value.items() if mime in names})
        else:
            emit("result", **representations(value))


class Displays(importlib.abc.MetaPathFinder):
    """Replaces IPython.display.display, which only prints values outside an IPython shell."""

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
    """Removes leading empty lines and the indentation of the first line, as IPython does."""
    lines = code.split("\n")
    while len(lines) > 1 and not lines[0].strip():
        del lines[0]
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip(" \t"))]
    return "\n".join(line[len(indent) :] if line.startswith(indent) else line for line in lines)


def figures():
    """Sends the open figures of matplotlib."""
    plots = sys.modules.get("matplotlib.pyplot")
    for number in plots.get_fignums() if plots else ():
        import io

        figure, picture = plots.figure(number), io.BytesIO()
        figure.savefig(picture, format="png", bbox_inches="tight")
        emit("result", text=repr(figure), png=base64.b64encode(picture.getvalue()).decode())
        plots.close(figure)


def system(command):
    subprocess.run(command, shell=True, executable="/bin/bash")
    collect()


def python(code):
    """Replaces shell escapes and magic commands by calls."""
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
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        return compile(code, file, "exec", flags)
    except SyntaxError as error:
        try:
            return compile(python(code), file, "exec", flags)
        except SyntaxError:
            raise error from None


def evaluate(tree, file):
    mode = "eval" if isinstance(tree, ast.Expression) else "exec"
    value = eval(compile(tree, file, mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), namespace)
    own = getattr(value, "cr_code", None)
    if own and (own.co_filename, own.co_name) == (file, "<module>"):
        value = loop().run_until_complete(value)
    return value


def loop():
    """The event loop of top-level `await`, created on first use."""
    import asyncio

    if "loop" not in state:
        state["loop"] = asyncio.new_event_loop()
        asyncio.set_event_loop(state["loop"])
    return state["loop"]


def run(code):
    if not rich:
        exec(compile(code, "<stdin>", "exec"), namespace)
        return
    code, file = dedent(code), f"<cell {count}>"
    linecache.cache[file] = (len(code), None, code.splitlines(True), file)
    if code.startswith("%%bash"):
        return system(code.partition("\n")[2])
    tree = read(code, file)
    has_value = tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";")
    last = ast.Expression(tree.body.pop().value) if has_value else None
    evaluate(tree, file)
    value = evaluate(last, file) if last else None
    if value is not None:
        namespace["_"] = value
        collect()
        emit("result", is_main_result=True, **representations(value))
    collect()
    figures()


sys.meta_path.insert(0, Displays())
state, namespace = {}, {"__name__": "__main__", "__builtins__": builtins}
while True:
    line = requests.readline()
    if not line:
        break
    request = json.loads(line)
    rich, cell_id, before = request["rich"], request["for"], dict(os.environ)
    if rich:
        os.environ.setdefault("MPLBACKEND", "agg")
        namespace.update(display=display, __system__=system)
    count += 1
    try:
        os.environ.update(request.get("envs") or {})
        busy = True
        run(request["code"])
        busy = False
    except BaseException as error:
        busy = False
        collect()
        frames = error.__traceback__
        while frames and frames.tb_frame.f_code.co_filename == "<string>":
            frames = frames.tb_next
        text = "".join(traceback.format_exception(type(error), error, frames))
        emit("error", name=type(error).__name__, value=str(error), traceback=text)
    finally:
        for key in set(os.environ) - set(before):
            del os.environ[key]
        os.environ.update(before)
    collect()
    if rich:
        emit("number_of_executions", execution_count=count)
    emit("control", text="completed")
