"""The file tools of a session. Each takes and returns text, and raises `Refused` if it fails."""

import base64
import fnmatch
import os
import shutil

NAMES = {}


class Refused(Exception):
    """The error message of a tool."""


def tool(function):
    NAMES[function.__name__] = function
    return function


def call(name, home, args):
    """Calls a tool. A relative path is in the directory of the session."""
    try:
        return NAMES[name](lambda path: os.path.join(home, path), args)
    except KeyError as error:
        raise Refused(f"argument {error} is missing") from error
    except OSError as error:
        raise Refused(f"{error.strerror}: {error.filename}") from error


def sizes(directory):
    """The disk usage of a directory."""
    yield os.lstat(directory).st_blocks * 512
    for path, names, others in os.walk(directory):
        for name in names + others:
            try:
                yield os.lstat(os.path.join(path, name)).st_blocks * 512
            except FileNotFoundError:
                pass


@tool
def read_file(at, args):
    with open(at(args["path"]), "rb") as file:
        file.seek(args.get("offset") or 0)
        data = file.read(args.get("length") or -1)
    if args.get("format") == "binary":
        return base64.b64encode(data).decode()
    return data.decode(errors="replace")


@tool
def write_file(at, args):
    modes = {"overwrite": "w", "append": "a"}
    if args.get("mode", "overwrite") not in modes:
        raise Refused(f"unknown mode {args['mode']}")
    with open(at(args["path"]), modes[args.get("mode", "overwrite")], encoding="utf-8", newline="") as file:
        file.write(args["content"])
    return "ok"


@tool
def list_directory(at, args):
    with os.scandir(at(args["path"])) as entries:
        found = sorted((entry.name, entry.is_dir()) for entry in entries)
    return "\n".join(f"[{'DIR' if is_dir else 'FILE'}] {name}" for name, is_dir in found)


@tool
def get_file_info(at, args):
    status = os.stat(at(args["path"]))
    is_dir = os.path.isdir(at(args["path"]))
    lines = [
        f"size: {status.st_size}",
        f"isDirectory: {str(is_dir).lower()}",
        f"isFile: {str(not is_dir).lower()}",
        f"permissions: {status.st_mode & 0o777:o}",
    ]
    return "\n".join(lines)


@tool
def create_directory(at, args):
    os.makedirs(at(args["path"]), exist_ok=True)
    return "ok"


@tool
def delete_file(at, args):
    if os.path.isdir(at(args["path"])) and not os.path.islink(at(args["path"])):
        shutil.rmtree(at(args["path"]))
    else:
        os.remove(at(args["path"]))
    return "ok"


@tool
def move_file(at, args):
    os.rename(at(args["source"]), at(args["destination"]))
    return "ok"


@tool
def edit_file(at, args):
    with open(at(args["path"]), encoding="utf-8", newline="") as file:
        text = file.read()
    for edit in args["edits"]:
        if edit["oldText"] not in text:
            raise Refused(f"the text is not there: {edit['oldText']}")
        text = text.replace(edit["oldText"], edit["newText"], 1)
    if not args.get("dryRun"):
        with open(at(args["path"]), "w", encoding="utf-8", newline="") as file:
            file.write(text)
    return "ok"


@tool
def search_files(at, args):
    without = [word for word in (args.get("excludePatterns") or "").split(",") if word]
    found = []
    for directory, names, files in os.walk(at(args["path"])):
        for name in sorted(names + files):
            matches = fnmatch.fnmatch(name, args["pattern"]) or args["pattern"] in name
            if matches and not any(fnmatch.fnmatch(name, word) for word in without):
                found.append(os.path.join(directory, name))
    return "\n".join(found) or "No matches found"


@tool
def read_multiple_files(at, args):
    texts = [f"{name}: {read_file(at, {'path': name})}\n---" for name in args["paths"]]
    return "\n".join(texts)
