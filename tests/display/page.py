"""A strict parser of the HTML of displays."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from typing import Any

from bls_notebook.display import render

VOID = {"br", "hr", "img", "input", "meta", "link"}


class Page(HTMLParser):
    """Parses a display, with every element closed in order; collects tags, text and styles."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.styles: list[str] = []
        self.feed(markup)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img":  # a figure or a picture: data, never an address
            source = dict(attrs)["src"] or ""
            assert re.match(
                r"data:image/svg\+xml;(charset=utf-8|base64),|data:image/(png|jpeg|gif|webp);base64,", source
            )
            self.tags.append((tag, dict(attrs)))
            return
        assert tag not in VOID
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names))
        self.open.append(tag)
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        (self.styles if "style" in self.open else self.words).append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)

    def find(self, tag: str, cls: str = "") -> list[dict[str, str | None]]:
        return [a for t, a in self.tags if t == tag and cls in (["", *(a.get("class") or "").split()])]


def as_text(value: Any, **given: Any) -> str:
    return render(value, **given).text


def as_html(value: Any, **given: Any) -> str:
    return render(value, **given).html


def svg_words(svg: str) -> list[str]:
    """Return the texts that a picture shows."""
    return ["".join(text.itertext()) for text in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
