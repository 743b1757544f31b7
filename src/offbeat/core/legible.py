"""Text of somebody else's, made fit to be shown: nothing in it can move a cursor or hide what stands beside it."""

import unicodedata


def legible(text: object) -> str:
    """On one line, with every control character written out: `\\x1b[31m` instead of red."""
    text = str(text)
    if text.isprintable():
        return text
    return "".join(_written(c) for c in text)


def _written(c: str) -> str:
    if c.isprintable() or unicodedata.category(c) == "Zs":
        return c
    if c in "\n\r\t":
        return " "
    code = ord(c)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
