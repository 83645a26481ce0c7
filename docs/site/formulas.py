"""LaTeX becomes MathML while the site is built: a hook of MkDocs.

`$...$` and `$$...$$` are set by GitHub as well; here the browser sets them, without a script.
"""

import html
import re

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.pages import Page

#: What pymdownx.arithmatex makes of a formula.
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\s*\\[(\[](.+?)\\[)\]]\s*</\1>', re.DOTALL)
#: What the converter leaves out: the roles of some signs, and the space between log and x.
_MENDED = (
    ("<mi>&#x02032;</mi>", "<mo>&#x02032;</mo>"),  # a prime
    ("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>"),  # is distributed as
    ("<mi>&#x02016;</mi>", '<mo stretchy="false" lspace="0.2em" rspace="0.2em">&#x02016;</mo>'),
    ("<mo>&#x02016;</mo>", '<mo stretchy="false" lspace="0" rspace="0">&#x02016;</mo>'),
    ("<mo>&#x0007C;</mo>", '<mo stretchy="false" lspace="0" rspace="0">&#x0007C;</mo>'),
)
_SIGN = re.compile(r"(<mrow>|(?:\[|&#x0(?:0028|002C|003D);)</mo>)<mo>(&#x0(?:2212|002B);)")
_FUNCTION = re.compile(r"(<mi>(?:log|exp|sin|tanh|max|min)</mi>)(?=<m(?!o))")


def on_page_content(content: str, page: Page, **_: object) -> str:
    """Replace the formulas of a page."""

    def set_formula(found: re.Match[str]) -> str:
        latex, is_block = html.unescape(found[2]).strip(), found[1] == "div"
        mathml = convert(latex, display="block" if is_block else "inline")
        if "\\" in mathml:
            raise PluginError(f"{page.file.src_uri}: not all of this formula is known: {latex}")
        for left, mended in _MENDED:
            mathml = mathml.replace(left, mended)
        mathml = _SIGN.sub(r'\1<mo form="prefix">\2', mathml)
        mathml = _FUNCTION.sub(r'\1<mspace width="0.17em"/>', mathml)
        return f'<div class="formula">{mathml}</div>' if is_block else mathml

    return _FORMULA.sub(set_formula, content)
