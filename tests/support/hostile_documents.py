"""Documents of sources that mean harm: each function makes one. Small inputs whose parsers would make much of them."""


def deep_yaml(depth: int = 25_000) -> bytes:
    return b"openapi: 3.0.0\nx: " + b"[" * depth


def deep_block_yaml(depth: int = 2_000) -> bytes:
    return b"".join(b" " * level + b"- \n" for level in range(depth))


def merging_yaml(levels: int = 9, fan_out: int = 9) -> bytes:
    """Merge keys that lead to merge keys."""
    lines = [b"a0: &a0 {k: 1}"]
    for level in range(1, levels + 1):
        before = b", ".join([b"*a%d" % (level - 1)] * fan_out)
        lines.append(b"a%d: &a%d {<<: [%s], k%d: [%s]}" % (level, level, before, level, before))
    return b"\n".join(lines)


def aliases_yaml(levels: int = 12, fan_out: int = 9) -> bytes:
    """Aliases of aliases: a "billion laughs"."""
    lines = [b"a0: &a0 laugh"]
    for level in range(1, levels + 1):
        lines.append(b"a%d: &a%d [%s]" % (level, level, b", ".join([b"*a%d" % (level - 1)] * fan_out)))
    return b"\n".join(lines)


def alias_keys_yaml(count: int = 30_000) -> bytes:
    """One large anchor, merged over and over into the same mapping, which never grows."""
    members = b", ".join(b"k%d: 1" % number for number in range(2_000))
    return b"a: &a {%s}\nb: {<<: [%s]}" % (members, b", ".join([b"*a"] * count))


def long_numbers_yaml(digits: int = 2_000_000) -> bytes:
    return b"a: " + b"9" * digits + b"\nb: ." + b"9" * digits + b"\nc: 1e" + b"9" * digits


def many_anchors_yaml(count: int = 300_000) -> bytes:
    return b"[" + b",".join(b"&a%d 1" % number for number in range(count)) + b"]"


def many_documents_yaml(count: int = 300_000) -> bytes:
    return b"--- a\n" * count


def many_directives_yaml(count: int = 100_000) -> bytes:
    return b"".join(b"%%TAG !t%d! tag:x,%d:\n" % (number, number) for number in range(count)) + b"--- a\n"


def question_marks_yaml(count: int = 20_000) -> bytes:
    return b"? " * count


HOSTILE_YAML = {
    made.__name__: made
    for made in (
        *(deep_yaml, deep_block_yaml, merging_yaml, aliases_yaml, alias_keys_yaml, long_numbers_yaml),
        *(many_anchors_yaml, many_documents_yaml, many_directives_yaml, question_marks_yaml),
    )
}
