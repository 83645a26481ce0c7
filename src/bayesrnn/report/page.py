"""The frame of a page: one HTML file that needs no other."""

from collections.abc import Sequence
from dataclasses import dataclass

from bayesrnn.report.marks import DARK_STYLE
from bayesrnn.report.text import escaped

_STYLE = f"""
:root {{ color-scheme: light dark; --ink: #23282d; --faint: #5c656d; --line: #d9dde1;
  --paper: #ffffff; --shade: #f3f5f7; --mark: #ffe9a8; }}
body {{ margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: var(--ink);
  background: var(--paper); font: 16px/1.5 system-ui, sans-serif; }}
h1 {{ font-size: 1.6rem; }} h2 {{ font-size: 1.2rem; margin-top: 2.2rem; }}
h3 {{ font-size: 1rem; margin: 1.4rem 0 0; overflow-wrap: anywhere; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 0.93rem; }}
th, td {{ padding: 0.3rem 0.7rem; border-bottom: 1px solid var(--line); }}
td {{ white-space: nowrap; }}
.left {{ text-align: left; }} .right {{ text-align: right; font-variant-numeric: tabular-nums; }}
.left:first-child {{ white-space: normal; overflow-wrap: anywhere; min-width: 6rem; }}
.best {{ font-weight: 700; }}
.note {{ color: var(--faint); font-size: 0.87rem; margin: 0.3rem 0; }}
.chart {{ display: block; max-width: 100%; height: auto; margin: 1rem 0; }}
pre {{ background: var(--shade); padding: 0.6rem 0.8rem; overflow-x: auto; font-size: 0.87rem; }}
mark {{ background: var(--mark); color: inherit; }}
@media (prefers-color-scheme: dark) {{
:root {{ --ink: #e4e7ea; --faint: #9aa4ad; --line: #3a4047; --paper: #15181c; --shade: #1f242a;
  --mark: #6b5300; }}
{DARK_STYLE}
}}
"""


# The page runs no script and fetches nothing, whatever text it shows.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True)
class Section:
    """A part of a page. The HTML is taken as it is: escape what comes from outside."""

    title: str
    html: str


def document(title: str, sections: Sequence[Section]) -> str:
    """The whole page: a heading with the sections below it, light or dark as the reader likes."""
    body = "\n".join(
        f"<section>\n<h2>{escaped(part.title)}</h2>\n{part.html}</section>" for part in sections
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escaped(f"bayesrnn: {title}")}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escaped(title)}</h1>
{body}
</body>
</html>
"""
