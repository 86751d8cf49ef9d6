"""Make the pictures of README.md and of notebook 10: screenshots of cell outputs in JupyterLab, in both themes.

    python docs/make_images.py [timeline lifetimes inspector debugger]
    python docs/make_images.py --records

The second command saves the records of the first two, which the manual shows instead of the screenshots, with zoom.
The first needs a headless Chromium, as the browser tests do (CONTRIBUTING.md). Both need a quiet machine.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

WIDTH = 1060  # of the page in pixels; the outputs are a little narrower

SCANNER = """\
%%tritonmodel scanner --instances 4 --input "IMAGE UINT8 [8, 8]" --output "SCAN UINT8 [8, 8]"
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.06)
        return [self.answer(request) for request in requests]

    def answer(self, request):
        image = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("SCAN", image)])
"""
PAGE = """\
%%tritonmodel page --decoupled --input "IMAGES UINT8 [-1, 8, 8]" --output "DIGITS INT32 [-1]"
import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        await asyncio.gather(*[self.read(request) for request in requests])

    async def read(self, request):
        images = pb_utils.get_input_tensor_by_name(request, "IMAGES").as_numpy()
        scans = await asyncio.gather(*[self.ask("scanner", "IMAGE", image, "SCAN") for image in images])
        features = np.stack(scans).reshape(-1, 64).astype(np.float32) / 16
        labels = await self.ask("digit_classifier", "FEATURES", features, "LABEL")
        response = pb_utils.InferenceResponse([pb_utils.Tensor("DIGITS", labels.ravel())])
        sender = request.get_response_sender()
        sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    async def ask(self, model, name, array, output):
        response = await pb_utils.InferenceRequest(
            model_name=model, inputs=[pb_utils.Tensor(name, array)], requested_output_names=[output]
        ).async_exec()
        return pb_utils.get_output_tensor_by_name(response, output).as_numpy()
"""
HEAD = "%load_ext bls_notebook\n%tritonrepo use ../model_repository\nimport numpy as np\n"
CELLS = {
    "timeline": [
        HEAD + "from sklearn.datasets import load_digits\nimages = load_digits().images.astype(np.uint8)\n"
        "%tritonrepo load digit_classifier",
        SCANNER,
        PAGE,
        "%blsprofile page IMAGES=images[:1] -n 4 --repeat 5",
    ],
    "lifetimes": [
        HEAD + "%config BLSNotebook.simulated_gpus = 1\nimport bls_notebook as bls\n"
        "signal = bls.cupy().sin(bls.cupy().arange(262_144, dtype='float32'))\n"
        "%tritonrepo load dlpack_add_sub leaky",
        "%bls leaky SIGNAL=signal NOISE=signal -q",
        "%%blsmemory\nfor _ in range(4):\n    %bls leaky SIGNAL=signal NOISE=signal -q",
    ],
    "inspector": [
        HEAD + "from sklearn.datasets import load_sample_image\nphoto = load_sample_image('flower.jpg')\n"
        "%tritonrepo load preprocess",
        "answer = %bls preprocess RAW_IMAGE=photo\n%blsinspect answer",
    ],
}


def main(names: list[str]) -> None:
    """Make the named pictures."""
    from playwright.sync_api import sync_playwright

    from tests.browser.lab import CHROMIUM_FLAGS, Lab, find_chromium

    lab = Lab(Path(tempfile.mkdtemp()))
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=find_chromium(), args=CHROMIUM_FLAGS)
            for name in names:
                (take_debugger if name == "debugger" else take)(lab, browser, name)
            browser.close()
    finally:
        lab.close()


def take(lab: Any, browser: Any, name: str) -> None:
    """Run the cells of a picture in JupyterLab, and save screenshots of the last output in both themes."""
    import json

    from tests.browser.lab import OpenNotebook, notebook_file

    file = lab.root / "notebooks" / f"{name}.ipynb"
    file.write_text(json.dumps(notebook_file(CELLS[name])), encoding="utf-8")
    page = browser.new_page(viewport={"width": WIDTH, "height": 1600}, device_scale_factor=1.5)
    notebook = OpenNotebook(lab, page, file.name)
    notebook.run()
    for theme in ("Light", "Dark"):
        notebook.theme(theme)
        page.wait_for_timeout(1500)
        # The whole last output, without the prompt on its left.
        shown = notebook.cell(len(CELLS[name]) - 1).locator(".jp-OutputArea-output").last
        shown.scroll_into_view_if_needed()
        box = shown.bounding_box()
        clip = {"x": box["x"] - 5, "y": box["y"] - 2, "width": box["width"] + 9, "height": box["height"] + 2}
        save(page.screenshot(clip=clip), HERE / "images" / f"{name}-{theme.lower()}.png")
    print(name, notebook.errors() or "fine")
    notebook.close()


def save_records() -> None:
    """Run the cells of the pictures in this process, and save what their last cells recorded."""
    import gzip
    import os

    from IPython.core.interactiveshell import InteractiveShell

    os.chdir(HERE.parent / "notebooks")
    shell = InteractiveShell.instance()
    for name in ("timeline", "lifetimes"):
        *cells, last = CELLS[name]
        file = HERE / "images" / f"{name}.json.gz"
        line, newline, body = last.partition("\n")
        for cell in (*cells, f"{line} --save {file}{newline}{body}"):
            shell.run_cell(cell).raise_error()
        # Without the paths of this machine.
        text = gzip.decompress(file.read_bytes()).decode().replace(f" --save {file}", "").replace(f"{HERE.parent}/", "")
        file.write_bytes(gzip.compress(text.encode(), mtime=0))


def take_debugger(lab: Any, browser: Any, name: str) -> None:
    """Stop at a breakpoint in a callee's callee, and save a screenshot of the notebook and the debugger's panel."""
    import json

    from tests.browser.lab import OpenNotebook, notebook_file
    from tests.course.exercises.exercise import source

    cells = [source("10_debugging", f"debug-{number}") for number in ("04", "05", "14")]
    call = '%bls checkout CURRENCY=["EUR", "USD"] PRICE=[2.0, 10.0] PACKS=[1, 2]'
    file = lab.root / "notebooks" / f"{name}.ipynb"
    file.write_text(json.dumps(notebook_file(["%load_ext bls_notebook", *cells, call])), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1240, "height": 620}, device_scale_factor=1.5)
    notebook = OpenNotebook(lab, page, file.name)
    notebook.run()
    page.locator(".jp-DebuggerBugButton").first.click()
    line = notebook.cell(3).locator(".cm-breakpoint-gutter .cm-gutterElement").nth(15)  # line 15, below a spacer
    line.click()
    line.locator(".cm-breakpoint-icon").wait_for()
    notebook.cell(4).locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    page.locator(".jp-DebuggerCallstackFrame").first.wait_for()
    for theme in ("Light", "Dark"):
        notebook.theme(theme)
        notebook.cell(3).scroll_into_view_if_needed()
        page.wait_for_timeout(1500)
        save(page.screenshot(), HERE / "images" / f"{name}-{theme.lower()}.png")
    page.keyboard.press("F9")
    notebook.close()


def save(png: bytes, file: Path) -> None:
    """Write a picture with 256 colors: they look the same and keep the file small."""
    from PIL import Image

    image = Image.open(io.BytesIO(png)).convert("RGB")
    image.quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)
    print(file.name, file.stat().st_size >> 10, "KiB")


if __name__ == "__main__":
    if sys.argv[1:] == ["--records"]:
        save_records()
    else:
        main(sys.argv[1:] or [*CELLS, "debugger"])
