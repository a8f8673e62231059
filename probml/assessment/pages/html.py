"""Tables and pages as HTML: escaped, with captions and headers that a screen reader can tell."""

import importlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from probml.errors import counted
from probml.numerics.process.libraries import pd

PICTURES = "probml.models.pictures.by_kind"  # imported when a page has a picture
MAX_TABLE_ROWS = 2000  # rows of a table in a page
MAX_NARROW_CHARACTERS = 40  # characters of a cell that is given room
FIRST = 25  # of a long table that are shown before one asks for the rest

STYLE = """
:root{color-scheme:light dark;--ink:#1a1a1a;--paper:#fff;--line:#c8c8c8;--soft:#f3f3f3;
--blue:#005a9c}
@media(prefers-color-scheme:dark){:root{--ink:#ececec;--paper:#16181c;--line:#4a4d52;--soft:#23262b;
--blue:#8cc4ff}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem 1.2rem 4rem;max-width:62rem;font:16px/1.5 system-ui,sans-serif;
color:var(--ink);background:var(--paper)}
h1{font-size:1.6rem;margin:.4rem 0}h2{font-size:1.2rem;margin:2.2rem 0 .4rem;
border-bottom:1px solid var(--line)}
a{color:var(--blue)}nav ul{display:flex;flex-wrap:wrap;gap:.3rem 1rem;list-style:none;padding:0}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem}
.scroll{overflow-x:auto}
table{border-collapse:collapse;margin:.5rem 0;font-size:.9rem}
caption{text-align:left;font-weight:600;padding:.2rem 0}
th,td{border-bottom:1px solid var(--line);padding:.22rem .7rem .22rem 0;text-align:left;
vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
td.long{min-width:14rem}
th button{font:inherit;font-weight:600;color:inherit;background:none;border:0;padding:0;
cursor:pointer;text-decoration:underline dotted}
:focus-visible{outline:3px solid var(--blue);outline-offset:2px}
figure{margin:.8rem 0;padding:.6rem;overflow-x:auto;border:1px solid var(--line);
width:fit-content;max-width:100%}
figcaption{font-size:.88rem}
pre{background:var(--soft);padding:.7rem;overflow-x:auto;font-size:.84rem}
details{margin:.5rem 0}summary{cursor:pointer;font-weight:600;padding:.2rem 0}
.warn{border-left:5px solid #d55e00;padding:.2rem .8rem;background:var(--soft)}
.good{border-left:5px solid #009e73;padding:.2rem .8rem;background:var(--soft)}
ul.warn{padding-left:2rem}
[role=tablist]{display:flex;flex-wrap:wrap;gap:.3rem}[role=tablist][hidden]{display:none}
[role=tab]{font:inherit;font-size:.88rem;color:inherit;background:none;padding:.15rem .6rem;
border:1px solid var(--line);border-radius:.3rem;cursor:pointer}
[role=tab][aria-selected=true]{border-color:var(--blue);box-shadow:inset 0 -3px var(--blue)}
@media print{nav,.skip,[role=tablist]{display:none}[role=tabpanel][hidden]{display:block}
body{max-width:none;font-size:11pt}
figure,tr{break-inside:avoid}h2,caption{break-after:avoid}
.scroll,figure{overflow:visible}}
"""

# a click, or Enter, on a heading sorts a table: numbers as numbers; tabs go by click, or by arrow
# keys, Home and End
SCRIPT = """
document.querySelectorAll('table.sortable').forEach(function(table){
table.querySelectorAll('th button').forEach(function(button,column){
button.addEventListener('click',function(){
var head=button.parentNode,up=head.getAttribute('aria-sort')!=='ascending',body=table.tBodies[0];
table.querySelectorAll('th').forEach(function(th){th.removeAttribute('aria-sort')});
head.setAttribute('aria-sort',up?'ascending':'descending');
Array.from(body.rows).sort(function(a,b){
var x=a.cells[column].textContent,y=b.cells[column].textContent,n=parseFloat(x)-parseFloat(y);
return (up?1:-1)*(isNaN(n)?x.localeCompare(y):n);}).forEach(function(row){body.appendChild(row)});
});});});
document.querySelectorAll('.tabs').forEach(function(group){
var tabs=Array.from(group.querySelectorAll('[role=tab]')),
panels=Array.from(group.querySelectorAll('[role=tabpanel]'));
function show(at,go){tabs.forEach(function(tab,i){tab.setAttribute('aria-selected',i===at);
tab.tabIndex=i===at?0:-1;panels[i].hidden=i!==at;});if(go)tabs[at].focus();}
tabs.forEach(function(tab,i){
tab.addEventListener('click',function(){show(i,true)});
tab.addEventListener('keydown',function(event){
var n=tabs.length,to={ArrowRight:(i+1)%n,ArrowLeft:(i+n-1)%n,Home:0,End:n-1}[event.key];
if(to!==undefined){event.preventDefault();show(to,true);}});});
group.querySelector('[role=tablist]').hidden=false;show(0,false);});
"""


# for a notebook, whose own styles of tables differ
CELLS = ("<style>.probml .scroll,.probml figure{overflow-x:auto;margin:.3em 0}"
         ".probml table{border-collapse:collapse;margin:.3em 0}"
         ".probml caption{text-align:left;font-weight:600}"
         ".probml th,.probml td{text-align:left;padding:.15em .8em .15em 0;vertical-align:top}"
         ".probml td.n,.probml th.n{text-align:right;font-variant-numeric:tabular-nums}</style>")


def noted(body: str) -> str:
    """What stands in a notebook."""
    return f'<div class="probml">{CELLS}{body}</div>'


def table(records: Sequence[Mapping[str, object]], caption: str, sortable: bool = False) -> str:
    """Records, each with the same keys, as a table; the first column heads its rows."""
    if not records:
        return ""
    columns = list(records[0])
    numeric = {name for name in columns
               if all(_is_number(r.get(name)) for r in records)}

    def heading(name: str) -> str:
        css_attr = ' class="n"' if name in numeric else ""
        text = escape(str(name).strip())
        text = f'<button type="button">{text}</button>' if sortable else text
        return f'<th scope="col"{css_attr}>{text}</th>'

    def cell(record: Mapping[str, object], name: str, first: bool) -> str:
        text = escape(format_cell(record.get(name)))
        if first:
            return f'<th scope="row">{text}</th>'
        css_class = "n" if name in numeric else "long" if len(text) > MAX_NARROW_CHARACTERS else ""
        return f'<td class="{css_class}">{text}</td>' if css_class else f"<td>{text}</td>"

    css_class = ' class="sortable"' if sortable else ""

    def part(subset: Sequence[Mapping[str, object]], text: str) -> str:
        rows = "".join("<tr>" + "".join(cell(record, name, i == 0)
                                        for i, name in enumerate(columns)) + "</tr>"
                       for record in subset)
        text = escape(text)
        return (f'<div class="scroll" tabindex="0" role="region" aria-label="{text}">'
                f"<table{css_class}><caption>{text}</caption><thead><tr>"
                f"{''.join(map(heading, columns))}</tr></thead><tbody>{rows}</tbody></table></div>")

    count = len(records)
    if count <= FIRST + 5:
        return part(records, caption)
    n_hidden = count - MAX_TABLE_ROWS
    further = counted(n_hidden, "further row is", "further rows are")
    remainder = f"<p>{further} not shown.</p>" if n_hidden > 0 else ""
    return part(records[:FIRST], f"{caption}: the first {FIRST} of {count:,}") + folded(
        f"All {count:,} rows", [part(records[:MAX_TABLE_ROWS], f"{caption}: all"), remainder])


def _is_number(value: object) -> bool:
    """A number, or one as text, its standard error in parentheses; an empty cell."""
    try:
        float(str(value or 0).replace(",", "").partition(" (")[0])
    except ValueError:
        return False
    return True


def format_cell(value: object) -> str:
    """A table cell as text: numbers with four digits."""
    if isinstance(value, bool) or value is None:
        return "" if value is None else ("yes" if value else "no")
    if isinstance(value, float):
        return "" if value != value else f"{value:.4g}"
    return str(value)


def records_of(frame: "pd.DataFrame") -> list[dict[str, object]]:
    """A pandas table as records, its index first, where that says something."""
    flat = frame.copy()
    flat.columns = [" ".join(map(str, name)) if isinstance(name, tuple) else str(name)
                    for name in flat.columns]
    if type(flat.index).__name__ != "RangeIndex" or flat.index.name is not None:
        names = [str(name or "") or " " * i for i, name in enumerate(flat.index.names)]
        flat.index = flat.index.set_names([name if name not in flat.columns else f"{name} "
                                           for name in names])
        flat = flat.reset_index()
    return flat.to_dict("records")


def figure(picture: str, caption: str) -> str:
    """A picture, an SVG, with what it shows in words."""
    return f"<figure>{picture}<figcaption>{escape(caption)}</figcaption></figure>"


def picture(kind: str, title: str, words: str, *numbers: object) -> str:
    """A figure that the model library draws (`draw_for_page`); "" without matplotlib."""
    try:
        return figure(importlib.import_module(PICTURES).draw_for_page(kind, title, words, *numbers),
                      words)
    except ImportError:
        return ""


def folded(title: str, parts: Iterable[str], opened: bool = False) -> str:
    """Parts behind their title, which shows them; nothing where there is nothing in them."""
    body = "".join(parts)
    return (f"<details{' open' * opened}><summary>{escape(title)}</summary>{body}</details>"
            if body else "")


def tabs(name: str, pages: Sequence[tuple[str, str]], caption: str) -> str:
    """Parts of a page of which one is shown at a time, behind a list of their titles; one under the
    other in print, and where no script runs. One alone needs no list.

    Args:
        name: no other id of the page begins with it. pages: (title, what is shown).
    """
    if len(pages) < 2:
        return "".join(body for _, body in pages)
    heads = "".join(f'<button type="button" role="tab" id="{name}-tab-{i}" '
                    f'aria-controls="{name}-{i}">{escape(title)}</button>'
                    for i, (title, _) in enumerate(pages))
    bodies = "".join(f'<div role="tabpanel" tabindex="0" id="{name}-{i}" '
                     f'aria-labelledby="{name}-tab-{i}">{body}</div>'
                     for i, (_, body) in enumerate(pages))
    return (f'<div class="tabs"><div role="tablist" aria-label="{escape(caption)}" hidden>{heads}'
            f"</div>{bodies}</div>")


def section(name: str, title: str, parts: Iterable[str]) -> str:
    """A part of a page that its contents link to; nothing where there is nothing in it."""
    body = "".join(parts)
    return (f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">'
            f"{escape(title)}</h2>{body}</section>" if body else "")


def page(title: str, head: str, sections: Sequence[tuple[str, str, str]]) -> str:
    """A whole page, of itself: no network, no font, no picture from elsewhere.

    Args:
        sections: (id, title, what `section` made of it); empty ones are left out.
    """
    sections = [part for part in sections if part[2]]
    contents = "".join(f'<li><a href="#{name}">{escape(text)}</a></li>'
                       for name, text, _ in sections)
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>"
            f'<a class="skip" href="#main">skip to the main text</a><header>'
            f'<h1>{escape(title)}</h1>'
            f"{head}</header><nav aria-label=\"contents\"><ul>{contents}</ul></nav>"
            f'<main id="main">{"".join(body for *_, body in sections)}</main>'
            f"<script>{SCRIPT}</script></body></html>\n")
