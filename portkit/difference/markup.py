"""Text from strangers, made safe to show: on a terminal, and in a page."""

from __future__ import annotations

from html import escape


class Markup(str):
    """HTML that is safe to put into a page: made by `tag`, or a constant of this package."""

    __slots__ = ()


def plain(text: str) -> str:
    """The text with control characters, and those that turn its direction, written out."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def tag(name: str, *children: str, **attributes: str | None) -> Markup:
    """An element. Children and attributes that are no `Markup` are escaped; a trailing `_` of a name falls off, other
    `_` become `-`; an attribute of None is left out.
    """
    said = "".join(f' {k.rstrip("_").replace("_", "-")}="{_safe(v)}"' for k, v in attributes.items() if v is not None)
    return Markup(f"<{name}{said}>{''.join(_safe(c) for c in children)}</{name}>")


def _safe(text: str) -> str:
    return text if isinstance(text, Markup) else escape(plain(text))
