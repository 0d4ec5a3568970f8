"""Write the page: ``python -m adrbench.report.page --spec JSON --output reports/<platform>/index.html``.

It reads ``figures/figures.json`` beside its output. The page needs no network and no other file to be read;
links lead to evidence, figures and data beside it. A content security policy allows the page's own two
scripts, by digest, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import jinja2
import vl_convert
from adrbench.evidence import write_text
from adrbench.report.command import run
from adrbench.report.figures.names import SUFFIXES
from adrbench.report.lookup import Document, Store
from adrbench.report.page.html import Html, Registry, attributes, inline, pair, words
from adrbench.report.page.view import PageView, build
from adrbench.report.site import Site, SiteSpec, load
from adrbench.report.tidy.names import columns
from markupsafe import Markup

FOLDER = Path(__file__).parent
VEGA_LITE = "6.4"
MARKS = {
    "passed": "✓", "failed": "✕", "undecided": "?", "better": "✓", "worse": "✕", "baseline": "–",
    "holds": "✓", "false": "✕", "moved": "↷", "imprecise": "≈", "unverified": "◌",
    "accepted": "✓", "proposed": "?", "blocked": "✕", "none": "◌",
}  # fmt: skip


def script_json(value: Any) -> Markup:
    """JSON for a data block: no sign in it can end the block."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign, code in (
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("&", "\\u0026"),
        ("\u2028", "\\u2028"),
        ("\u2029", "\\u2029"),
    ):
        text = text.replace(sign, code)
    return Markup(text)  # noqa: S704 (no markup sign is left)


def digest(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def chip(kind: str, text: Any) -> Markup:
    """A word with a colour and a sign: neither alone carries the meaning."""
    head = Markup('<span class="chip {}"><span aria-hidden="true">{}</span> {}</span>')
    return head.format(kind, MARKS.get(kind, "·"), text)


def page_data(view: PageView, registry: Registry) -> dict[str, Any]:
    """What the page's script reads: figures, sources of numbers, a few words."""
    spoken = ("figure.chart", "filter.empty", "claims.shown", "drawer.config", "page.title")
    texts = {key: words()[key] for key in spoken}
    platform = view.site.platform
    texts["page.title"] = {
        "en": words()["page.title"]["en"].format(platform=platform.title.en),
        "zh": words()["page.title"]["zh"].format(platform=platform.title.zh),
    }
    keep = ("name", "title", "rows", "specs")
    return {
        "figures": [{key: figure[key] for key in keep} for figure in view.figures if figure["reason"] is None],
        "config": view.config,
        "files": registry.files,
        "sources": registry.groups,
        "texts": texts,
    }


def import_store(site: Site) -> Store:
    """Imported documents by path, for the numbers of their table."""
    documents = {str(path): document for path, document in zip(site.spec.imported, site.imported, strict=True)}
    return Store({name: Document(name, Path(name), d.model_dump(mode="json")) for name, d in documents.items()})


def environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(site: Site, output: Path, figures: Path, bundle: str) -> str:
    """The page's HTML.

    Args:
        figures: ``figures.json``.
        bundle: Vega, Vega-Lite and Vega-Embed as one script.
    """
    registry = Registry(output)
    view = build(site, registry, figures)
    html = view.decisions[0].html
    script = (FOLDER / "page.js").read_text(encoding="utf-8")
    body = environment().get_template("body.html.j2").render(
        v=view,
        t=html.t,
        both=html.both,
        html=html,
        imports=Html(registry, import_store(site)),
        chip=chip,
        attributes=attributes,
        inline=inline,
        pair=pair,
        words=words(),
        link=registry.link,
        suffixes=SUFFIXES,
        tables=columns(),
    )  # fmt: skip
    for proof in view.proofs:
        registry.file(proof.path)
    policy = (
        f"default-src 'none'; script-src '{digest(bundle)}' '{digest(script)}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            title=words()["page.title"]["en"].format(platform=site.platform.title.en),
            policy=policy,
            root=registry.link("."),
            style=Markup((FOLDER / "page.css").read_text(encoding="utf-8")),  # noqa: S704 (our own file)
            body=Markup(body),  # noqa: S704 (rendered with autoescape)
            data=script_json(page_data(view, registry)),
            bundle=Markup(bundle),  # noqa: S704 (vl-convert's own)
            script=Markup(script),  # noqa: S704 (our own file)
        )
    )


def bundle_script() -> str:
    """Vega and friends from vl-convert's wheel, as one script without an end tag in it.

    Raises:
        ValueError: the bundle cannot be put into a page.
    """
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    if "</script" in script.lower() or "<!--" in script:
        raise ValueError("vl-convert's bundle holds a tag that would end the script; use another version")
    # As a classic script: its names stay inside.
    return "(function(){" + str(script) + "\n})();"


def write(spec: SiteSpec, output: Path) -> None:
    write_text(output, render(load(spec), output, output.parent / "figures" / "figures.json", bundle_script()))


if __name__ == "__main__":
    run("report page", write)
