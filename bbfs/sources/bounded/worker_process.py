"""The program of a worker process: reads jobs from stdin, and writes each answer to stdout, until stdin ends.

`workers` starts it as `python -I -S worker_process.py SETTINGS`. Data, never code, crosses the pipes:

    request: a line of JSON {"job": name, "size": bytes, "seconds": of CPU time (above 0), "max_result": bytes,
        "options": {…}}, and the data
    answer: ANSWER (status, 1 if the worker ends now, bytes that follow), the result or JSON {"error": class, "text": …}
"""

import ctypes
import importlib
import json
import os
import resource
import signal
import struct
import sys
import types
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, BinaryIO

JOBS = {
    "document": ("bbfs.sources.documents.markdown", "job"),
    "html_markdown": ("bbfs.sources.documents.html_markdown", "job"),
    "notion": ("bbfs.sources.notion.markdown", "job"),
    "picture": ("bbfs.sources.documents.pictures.scaling", "job"),
    "yaml": ("bbfs.sources.api.yaml_document", "job"),
}
"""The module and function of each job: `job(data, options) -> bytes`, which raises TooLarge and ProtocolViolation."""
ANSWER = struct.Struct(">BBI")
DONE, REFUSED = 0, 1
_LARGE = 64 << 20
"""Bytes in memory. A worker that a job has made larger than this ends, so that idle ones are small."""
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_FILES = 32


def main(settings: Mapping[str, Any]) -> None:
    """Serve jobs until stdin ends.

    settings: `path` is the module search path, `memory` and `file_size` are limits in bytes. `serve` names a module
    with a protocol of its own: `serve(requests, answers)`. `network` leaves it the network.
    """
    _confine(settings["memory"], settings["file_size"], settings["network"])
    if os.getppid() != settings["parent"]:
        return  # it ended before the worker asked to end with it
    sys.dont_write_bytecode = True
    sys.path[:] = settings["path"]
    _skip_public_interface()
    _find_no_library()
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    if settings["serve"] is not None:
        importlib.import_module(settings["serve"]).serve(requests, answers)
        return
    while line := requests.readline():
        request = json.loads(line)
        data = requests.read(request["size"])
        if len(data) < request["size"] or not _answer(request, data, answers):
            break


def _confine(memory: int, file_size: int, network: bool) -> None:
    """Give up what no job needs. Where the kernel refuses a measure, the others still hold."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if not network:
        os.nice(10)
        # Root needs no user namespace for that, and would lose access to files of others in one.
        libc.unshare(_CLONE_NEWNET if os.geteuid() == 0 else _CLONE_NEWUSER | _CLONE_NEWNET)
    with suppress(OSError):  # the kernel may then end another process first
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    limits = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_NOFILE: _FILES,
        resource.RLIMIT_FSIZE: file_size,
        resource.RLIMIT_CORE: 0,
    }
    if not network:  # drivers for servers may have threads
        limits[resource.RLIMIT_NPROC] = 0
    for limit, value in limits.items():
        _, hard = resource.getrlimit(limit)
        lowest = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (lowest, lowest))


def _find_no_library() -> None:
    """Let `ctypes.util` find no library: its own function would start ldconfig and a compiler.

    It is not imported for that: its imports take longer than those of most jobs.
    """
    util = types.ModuleType("ctypes.util")
    util.__dict__["find_library"] = lambda _name: None
    sys.modules[util.__name__] = ctypes.__dict__["util"] = util


def _skip_public_interface() -> None:
    """Make `bbfs.sources` a package without contents: its `__init__` imports all of bbfs, and no job needs that."""
    package = types.ModuleType("bbfs.sources")
    package.__path__ = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    sys.modules[package.__name__] = package


def _answer(request: Mapping[str, Any], data: bytes, answers: BinaryIO) -> bool:
    """Do one job and write its answer. Return whether the worker goes on."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    signal.setitimer(signal.ITIMER_PROF, request["seconds"])  # CPU time of this process; SIGPROF then ends it
    resource.setrlimit(
        resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime + request["seconds"]) + 2, hard)
    )  # if a library has taken the timer
    status, result = _done(request, data)
    if len(result) > request["max_result"]:
        status, result = REFUSED, _error("TooLarge", f"becomes more than {request['max_result']} bytes")
    is_last = _resident() > _LARGE
    signal.setitimer(signal.ITIMER_PROF, 0)
    answers.write(ANSWER.pack(status, is_last, len(result)))
    answers.write(result)
    answers.flush()
    return not is_last


def _done(request: Mapping[str, Any], data: bytes) -> tuple[int, bytes]:
    from bbfs.model.errors import BbfsError, TooLarge  # noqa: PLC0415 - once the search path is set

    module, function = JOBS[request["job"]]
    try:
        return DONE, getattr(importlib.import_module(module), function)(data, request["options"])
    except BbfsError as error:
        return REFUSED, _error(type(error).__name__, str(error))
    except MemoryError:
        return REFUSED, _error(TooLarge.__name__, "takes too much memory to read")
    except RecursionError:
        return REFUSED, _error(TooLarge.__name__, "nested too deeply")
    except Exception as error:  # noqa: BLE001 - a library that stumbles over a document says nothing about bbfs
        return REFUSED, _error("ProtocolViolation", f"cannot be read ({type(error).__name__})")


def _resident() -> int:
    """Return the bytes of this process in memory. (`ru_maxrss` begins with the parent's bytes.)"""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _error(name: str, text: str) -> bytes:
    return json.dumps({"error": name, "text": text[:1000]}).encode()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
