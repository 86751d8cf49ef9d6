from __future__ import annotations

from bls_notebook.display import render
from bls_notebook.records.statistics import DeviceRecord, DeviceTable
from tests.display.page import Page

MIB = 1 << 20
CPU = DeviceRecord("cpu", "x86_64, 16 cores", False, 400 * MIB, 0, 1600 * MIB, 16000 * MIB)
REAL = DeviceRecord("gpu:0", "NVIDIA H200", False, 10 * MIB, 20 * MIB, 70 * MIB, 1000 * MIB)
SIMULATED = DeviceRecord("gpu:1", "host memory stands in for it", True, 256 * MIB, 0, 0, 512 * MIB)
UNKNOWN = DeviceRecord("cpu", "arm64")


def test_text() -> None:
    lines = render(DeviceTable((CPU, REAL, SIMULATED))).text.splitlines()
    assert lines[0].split("  ")[0] == "device"
    assert "400 MiB" in lines[1]
    assert "10 MiB + 20 MiB cached" in lines[2]
    assert "70 MiB" in lines[2]
    assert lines[2].endswith("█········· 10%") or "10%" in lines[2]
    assert lines[3].startswith("gpu:1 (simulated)")
    assert lines[3].endswith("█████····· 50%")


def test_without_a_gpu_it_names_the_switch() -> None:
    shown = render(DeviceTable((CPU,)))
    for form in (shown.text, Page(shown.html).text):
        assert "bls.simulate_gpus(1)" in form or "%config BLSNotebook.simulated_gpus = 1" in form
    assert "simulate" not in render(DeviceTable((CPU, REAL))).text


def test_unknown_figures_of_a_device() -> None:
    shown = render(DeviceTable((UNKNOWN,)))
    assert "arm64" in shown.text
    assert "-1" not in shown.text
    assert "unknown" in Page(shown.html).text


def test_more_than_all_is_drawn_as_all() -> None:
    odd = DeviceRecord("gpu:0", "", False, 900, 900, 900, 1000)
    page = Page(render(DeviceTable((CPU, odd))).html)
    widths = [
        float(attributes["style"].removeprefix("width:").removesuffix("%"))
        for tag, attributes in page.tags
        if tag == "span" and str(attributes.get("style")).startswith("width")
    ]
    assert sum(widths[-3:]) <= 130  # the CPU's and this one's
    assert max(widths) <= 100
