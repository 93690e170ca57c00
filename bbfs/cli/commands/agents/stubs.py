"""The tools of a source as Python functions that run `bbfs call`, for agents that write programs.

Names and descriptions are a server's, which may be hostile: a name becomes an identifier of its own, and a description
a docstring of printable lines in which nothing ends the text.
"""

import keyword
import re
from collections.abc import Iterable, Iterator, Sequence

from bbfs.model.calls import Tool, ToolArgument
from bbfs.model.redaction import printable

MOST_TOOLS = 500
MOST_ARGUMENTS = 100
LONGEST_NAME = 64
LONGEST_LINE, MOST_LINES = 100, 30
"""Characters of a line of a docstring, and its lines from one description."""
_TYPES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
    "array": "list[Any]",
    "object": "dict[str, Any]",
}
_BEGINNING = '''"""The tools of {shown}, as functions. Each call runs `bbfs call`."""

import json
import subprocess
from typing import Any


def _call(tool: str, arguments: dict[str, Any], confirmed: bool) -> str:
    """Call a tool and return its text. Raise RuntimeError with what the tool or bbfs says."""
    given = json.dumps({{name: value for name, value in arguments.items() if value is not None}})
    command = ["bbfs", "call", *(["--yes"] if confirmed else []), "--json", "-", "--", {source!r}, tool]
    done = subprocess.run(command, input=given, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return done.stdout
'''


def module(source: str, tools: Sequence[Tool]) -> str:
    """Return a module with a function for each tool. source: how `bbfs call` names it."""
    names = _identifiers((tool.name for tool in tools[:MOST_TOOLS]), taken=("json", "subprocess", "Any"))
    parts = [_BEGINNING.format(shown=_line(source), source=source)]
    parts += ["\n".join(_function(name, tool)) for name, tool in zip(names, tools, strict=False)]
    return "\n\n".join(f"{part.rstrip()}\n" for part in parts)


def _function(name: str, tool: Tool) -> Iterator[str]:
    """Yield the lines of a function. A tool that may change something takes `confirmed`, which is false."""
    arguments = tool.arguments[:MOST_ARGUMENTS]
    named = list(zip(_identifiers((each.name for each in arguments), taken=("confirmed",)), arguments, strict=True))
    parameters = [f"{parameter}: {_annotation(each)}" for parameter, each in named if each.required]
    parameters += [f"{parameter}: {_annotation(each)} | None = None" for parameter, each in named if not each.required]
    if not tool.read_only:
        parameters.append("confirmed: bool = False")
    yield f"def {name}({'*, ' if parameters else ''}{', '.join(parameters)}) -> str:"
    yield '    """' + (_line(tool.title or tool.name) or "A tool.")
    yield from _text(tool.description)
    if not tool.read_only:
        yield "    It may change something: confirmed=True says that the user wants that."
    for parameter, each in named:
        about = next(_text(each.description), "").strip()
        choices = ", ".join(_line(choice) for choice in each.choices[:20])
        facts = ". ".join(fact for fact in (about.rstrip("."), choices and f"One of {choices}") if fact)
        yield f"    {parameter}: {facts or _line(each.type)}"
    yield '    """'
    given = ", ".join(f"{each.name!r}: {parameter}" for parameter, each in named)
    yield f"    return _call({tool.name!r}, {{{given}}}, {'False' if tool.read_only else 'confirmed'})"


def _annotation(argument: ToolArgument) -> str:
    """Return the Python type of an argument; Any for a type that cannot be told."""
    words = [each.partition(" ")[0] for each in argument.type.split(" or ")]
    return " | ".join(dict.fromkeys(_TYPES[word] for word in words)) if all(w in _TYPES for w in words) else "Any"


def _identifiers(names: Iterable[str], taken: Iterable[str]) -> list[str]:
    """Return an identifier for each name, all different. taken: those that mean something else."""
    found: list[str] = []
    used = {*taken}
    for name in names:
        plain = re.sub(r"\W", "_", name[:LONGEST_NAME], flags=re.ASCII).lstrip("_") or "unnamed"
        plain = f"n{plain}" if plain[0].isdigit() else plain
        plain = f"{plain}_" if keyword.iskeyword(plain) else plain
        chosen, number = plain, 1
        while chosen in used:
            number += 1
            chosen = f"{plain}_{number}"
        used.add(chosen)
        found.append(chosen)
    return found


def _text(description: str | None) -> Iterator[str]:
    """Yield the lines of a description, indented."""
    for line in (description or "")[: LONGEST_LINE * MOST_LINES].splitlines()[:MOST_LINES]:
        for start in range(0, len(line), LONGEST_LINE):
            if shown := _line(line[start : start + LONGEST_LINE]):
                yield f"    {shown}"


def _line(text: str) -> str:
    """Return a text in one line that means itself in a docstring."""
    return printable(text[:LONGEST_LINE]).strip().replace("\\", "\\\\").replace('"', '\\"')
