"""Web pages that need no other file and no script: what `mpcourse grade` and `mpcourse progress` write."""

from collections.abc import Sequence
from html import escape

_STYLE = """
:root { color-scheme: light dark; font-family: system-ui, sans-serif; line-height: 1.45 }
body { margin: 2rem auto; max-width: 75rem; padding: 0 1rem }
table { border-collapse: collapse; font-size: .9rem }
th, td { border: 1px solid #8888; padding: .2rem .5rem; text-align: left; vertical-align: top }
.scroll { overflow-x: auto }
pre { white-space: pre-wrap; margin: .3rem 0 }
"""


def page(title: str, parts: Sequence[str], style: str = "") -> str:
    """Return a page, light or dark as the reader's system is.

    title: plain text, also its heading. parts: of its body, in HTML. style: further CSS.
    """
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}{style}</style>"
    )
    body = "\n".join([f"<h1>{escape(title)}</h1>", *parts])
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><main>\n{body}\n</main></body></html>\n'


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], name: str) -> str:
    """Return a table that scrolls sideways where it is wider than the page.

    heads: plain text. rows: of cells in HTML. name: what screen readers call it.
    """
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = "\n".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return (
        f'<div class="scroll" role="region" aria-label="{escape(name)}" tabindex="0">'
        f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def cells(values: Sequence[object]) -> list[str]:
    """Return a row's cells, each with the text of a value."""
    return [f"<td>{escape(str(value))}</td>" for value in values]
