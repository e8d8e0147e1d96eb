# Runs pieces of Python one after the other, each of which finds what those before it left.
# Requests come as lines of JSON; what happens goes out the same way.
import builtins
import json
import os
import signal
import sys
import traceback

tell = os.fdopen(os.dup(1), "w", encoding="utf-8")
# What other programs write to the standard output goes beside.
os.dup2(2, 1)
asked = os.fdopen(os.dup(0), "r", encoding="utf-8")
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
signal.signal(signal.SIGINT, signal.default_int_handler)
name = None


def say(kind, **fields):
    tell.write(json.dumps({"type": kind, "for": name, **fields}) + "\n")
    tell.flush()


class Output:
    encoding, errors, closed = "utf-8", "replace", False

    def __init__(self, kind, number):
        self.kind, self.number = kind, number

    def write(self, text):
        if text:
            say(self.kind, text=text)
        return len(text)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def flush(self):
        pass

    def isatty(self):
        return False

    def writable(self):
        return True

    def readable(self):
        return False

    def fileno(self):
        return self.number


sys.stdout, sys.stderr = Output("stdout", 1), Output("stderr", 2)
found = {"__name__": "__main__", "__builtins__": builtins}
while True:
    try:
        line = asked.readline()
    except KeyboardInterrupt:
        continue
    if not line:
        break
    request = json.loads(line)
    name, before = request["for"], dict(os.environ)
    try:
        os.environ.update(request.get("envs") or {})
        exec(compile(request["code"], "<stdin>", "exec"), found)
    except BaseException as error:
        frames = error.__traceback__.tb_next if error.__traceback__ else None
        text = "".join(traceback.format_exception(type(error), error, frames))
        say("error", name=type(error).__name__, value=str(error), traceback=text)
    finally:
        for key in set(os.environ) - set(before):
            del os.environ[key]
        os.environ.update(before)
    say("control", text="completed")
