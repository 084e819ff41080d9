#!/usr/bin/python3
"""Runs targetcli's commands in one process, one after the other, each as a process of its own would.

    targetcli_server.py FOLDER

To start targetcli costs a guest a second of its processor, nearly all of it for the modules that it imports; its own
targetclid exists for the same reason. Here each call is a whole run of the program's main(), with a new shell and a new
view of the kernel's configuration.

FOLDER has two pipes. A request is a number of fields and these, each ended by a null character: the paths of the files
to take for standard input, output and error output, and targetcli's arguments. Its reply is the exit status, in a line.
"""

from __future__ import annotations

import gc
import importlib.machinery
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

PROGRAM = os.environ.get("TARGETCLI", "/usr/bin/targetcli")


def program() -> Callable[[], None]:
    """Import the program and return its main()."""
    loader = importlib.machinery.SourceFileLoader("targetcli_program", PROGRAM)
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module.main


def requests(pipe: int) -> Iterator[list[str]]:
    """Yield the fields of each request."""
    pending = b""
    while True:
        count, _, rest = pending.partition(b"\0")
        if rest.count(b"\0") >= int(count or 1):
            *fields, pending = rest.split(b"\0", int(count))
            yield [os.fsdecode(f) for f in fields]
        else:
            pending += os.read(pipe, 65536)


def attach(path: str, flags: int, fd: int) -> None:
    """Open a file as fd."""
    opened = os.open(path, flags)
    os.dup2(opened, fd)
    os.close(opened)


def call(main: Callable[[], None], streams: list[str], arguments: list[str]) -> int:
    """Run main() with these files and arguments; return the exit status."""
    for fd, path in enumerate(streams):
        attach(path, os.O_WRONLY | os.O_APPEND if fd else os.O_RDONLY, fd)
    sys.argv = [PROGRAM, *arguments]
    sys.stdin = open(0, closefd=False)  # nothing of the last one's is left
    try:
        main()
        status = 0
    except SystemExit as e:
        status = e.code & 0xFF if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    for fd in range(len(streams)):  # who reads them waits for their end
        attach(os.devnull, os.O_RDWR, fd)
    return status


def main() -> None:
    """Serve until the end of the guest."""
    # For reading and for writing, so that neither side waits for the other one, nor meets an end.
    pipes = [os.open(Path(sys.argv[1], name), os.O_RDWR) for name in ("requests", "replies")]
    own = os.dup(2)
    targetcli = program()
    gc.collect()
    gc.freeze()
    try:
        for stdin, stdout, stderr, *arguments in requests(pipes[0]):
            status = call(targetcli, [stdin, stdout, stderr], arguments)
            gc.collect()  # the tree that the call has made, and its connections
            os.write(pipes[1], f"{status}\n".encode())
    except BaseException:
        os.dup2(own, 2)  # to whom this program itself complains
        raise


if __name__ == "__main__":
    main()
