"""The notebooks of the course link to each other, in order, and the index lists all of them."""

from __future__ import annotations

import json
import re

from tests.notebooks.twice import ROOT

LINK = re.compile(r"\[([^\]]+)\]\(([^)#]+\.ipynb)\)")


def markdown(name: str) -> list[str]:
    cells = json.loads((ROOT / "notebooks" / name).read_text("utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]


def test_the_links_lead_through_all_notebooks_in_order() -> None:
    files = {file.name for file in (ROOT / "notebooks").glob("*.ipynb")}
    chapters = sorted(files - {"index.ipynb"})
    titles = {target: title for title, target in LINK.findall("\n".join(markdown("index.ipynb")))}
    assert list(titles) == chapters, "the index lists every notebook, in order"
    assert [title[:3] for title in titles.values()] == [f"{name[:2]} " for name in chapters]
    for number, name in enumerate(chapters):
        texts = markdown(name)
        neighbors = [(word, chapters[at]) for word, at in (("Previous", number - 1), ("Next", number + 1))
                     if 0 <= at < len(chapters)]  # fmt: skip
        links = [f"{word}: [{titles[other]}]({other})" for word, other in neighbors]
        line = " · ".join([*links, "[Index](index.ipynb)"])
        assert texts[-1].splitlines()[-1] == line, f"the last line of {name}"
        assert {target for _, target in LINK.findall("\n".join(texts))} <= files, name


def test_no_two_notebooks_write_the_same_folder() -> None:
    # The notebooks are tested at the same time, and an export replaces its folder.
    owners: dict[str, str] = {}
    for file in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(file.read_text("utf-8"))["cells"]
        code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        for folder in set(re.findall(r"(?<![\w.])exported\w*(?=[\s/\"'])", code)):
            assert owners.setdefault(folder, file.name) == file.name, f"{folder}: in two notebooks"
    assert owners
