"""For the site: formulas in TeX become MathML, which browsers set by themselves, without scripts
or fonts from elsewhere. A hook of MkDocs."""

import html
import re
from typing import Any

# what pymdownx.arithmatex makes of $…$ and $$…$$
INLINE = re.compile(r'<span class="arithmatex">\\\((?P<tex>.*?)\\\)</span>', re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\\\[(?P<tex>.*?)\\\]</div>', re.DOTALL)


def set_formulas(page: str) -> str:
    """HTML with its formulas as MathML."""
    from latex2mathml.converter import convert

    for pattern, display in ((INLINE, "inline"), (BLOCK, "block")):
        page = pattern.sub(lambda found, display=display: convert(
            html.unescape(found["tex"]).strip(), display=display), page)
    return page


def on_page_content(content: str, **kwargs: Any) -> str:
    """Formulas of every page."""
    return set_formulas(content)
