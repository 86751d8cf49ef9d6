"""The figures of bls_call.py as text."""

from __future__ import annotations

from typing import Any

KIB = 1024


def human(microseconds: float) -> str:
    if microseconds >= 1e6:
        return f"{microseconds / 1e6:.2f} s"
    if microseconds >= 1e3:
        return f"{microseconds / 1e3:.2f} ms"
    return f"{microseconds:.2f} µs" if microseconds < 10 else f"{microseconds:.1f} µs"


def ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}x" if value < 100 else f"{value:,.0f}x"


def mark(met: bool | None) -> str:
    return {True: "  ok", False: "  MISSED", None: ""}[met]


def table(result: dict[str, Any]) -> str:
    """Return the figures as a text table."""
    about = result["machine"]
    lines = [
        f"{about['cpu']}, {about['cores']} cores, {about['system']}, Python {about['python']}, "
        f"NumPy {about['numpy']}" + (", quick run" if result["quick"] else ""),
        f"tritonserver {about['tritonserver']} with NumPy {about['tritonserver_numpy']}"
        if "tritonserver" in about
        else "tritonserver: not measured",
        "",
        f"{'median (p99)':<34}{'tritonserver':>22}{'in-kernel':>22}{'direct call':>12}"
        f"{'server/kernel':>15}{'kernel/direct':>15}  target",
    ]
    for row in result["calls_us"]:
        cells = []
        for side in ("tritonserver", "in-kernel"):
            got = row.get(side)
            cells.append("-" if got is None else f"{human(got['median'])} ({human(got['p99'])})")
        target = "" if row["target_times_faster"] is None else f"{row['target_times_faster']:g}x"
        lines.append(
            f"{row['case']:<34}{cells[0]:>22}{cells[1]:>22}{human(row['direct']['median']):>12}"
            f"{ratio(row['server_over_kernel']):>15}{ratio(row['kernel_over_direct']):>15}  "
            f"{target}{mark(row['target_met'])}"
        )
    got = result["redefinition_ms"]
    server = human(got["tritonserver"]["median"] * 1e3) if "tritonserver" in got else "-"
    lines.append(
        f"{'redefine to first answer':<34}{server:>22}{human(got['in-kernel']['median'] * 1e3):>22}{'':>12}"
        f"{ratio(got['server_over_kernel']):>15}{'':>15}  <{got['target_ms']:g} ms{mark(got['target_met'])}"
    )
    folder = human(got["in-kernel, from its folder"]["median"] * 1e3)
    lines.append(f"{'  the same, from its folder':<34}{'':>22}{folder:>22}")
    got = result["memory_of_a_model"]
    server = "-" if "tritonserver" not in got else f"{got['tritonserver']['proportional_kib'] / KIB:.1f} MiB"
    lines.append(
        f"{'memory a model':<34}{server:>22}{got['in-kernel']['resident_kib']:>18.0f} KiB{'':>12}"
        f"{ratio(got['server_over_kernel']):>15}"
    )
    if "tritonserver" in got:
        lines.append(f"{'  resident in full':<34}{got['tritonserver']['resident_kib'] / KIB:>18.1f} MiB")
    built = result["calls_us"][0]["direct, built"]["median"]
    lines += ["", f"A direct call that also creates its request and reads the response, 64 B: {human(built)}"]
    return "\n".join(lines)
