"""Fuzz the parsers of strangers' bytes, guided by coverage: `run.py [--seconds N] [TARGET…]`, all by default.

Each target runs in a process of its own for so many seconds. Its corpus is kept in .fuzz/TARGET, and an input that it
fails on in .fuzz/TARGET-crash-…; `run.py --input FILE TARGET` runs that one. The exit status is 1 if any target failed.
"""

import argparse
import subprocess
import sys
from hashlib import sha1
from pathlib import Path

import atheris

KEPT = Path(__file__).parents[1] / ".fuzz"
SLOWEST = 5
"""Seconds for one input; the processor may have other work."""
MEMORY = 2048
"""MiB of a target's process."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("target", nargs="*")
    parser.add_argument("--seconds", type=int, default=600, help="for each target")
    parser.add_argument("--input", type=Path, help="run this input alone")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    with atheris.instrument_imports(include=["bbfs"]):
        import targets  # noqa: PLC0415 - the modules of bbfs are instrumented while they are imported
    unknown = set(options.target) - targets.TARGETS.keys()
    if unknown:
        parser.error(f"no target {sorted(unknown)}: {', '.join(targets.TARGETS)}")
    if options.input is not None:
        for name in options.target:
            targets.TARGETS[name].run(options.input.read_bytes())
        return 0
    if options.one:
        _fuzz(options.target[0], targets.TARGETS[options.target[0]], options.seconds, targets.LONGEST)
    failed: list[str] = []
    for name in options.target or targets.TARGETS:
        print(f"--- {name}", flush=True)
        command = [sys.executable, __file__, "--one", "--seconds", str(options.seconds), name]
        if subprocess.run(command, check=False).returncode != 0:
            failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "no target failed")
    return bool(failed)


def _fuzz(name: str, target: "targets.Target", seconds: int, longest: int) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Fuzz one target. libFuzzer ends the process."""
    corpus = KEPT / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    words = KEPT / f"{name}.words"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words))
    bounds = [f"-max_total_time={seconds}", f"-timeout={SLOWEST}", f"-rss_limit_mb={MEMORY}", f"-max_len={longest}"]
    places = [f"-dict={words}", f"-artifact_prefix={KEPT / name}-", str(corpus)]

    def run(data: bytes) -> None:
        try:
            target.run(data)
        except BaseException:
            kept = KEPT / f"{name}-crash-{sha1(data, usedforsecurity=False).hexdigest()}"
            kept.write_bytes(data)
            print(f"fails on {data!r}, kept in {kept}", flush=True)
            raise

    atheris.Setup([sys.argv[0], *bounds, "-print_final_stats=1", *places], run)
    atheris.Fuzz()


def _escaped(word: str) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02X}" for byte in word.encode())


if __name__ == "__main__":
    sys.exit(main())
