"""The stylesheet: scoped, small, at home in JupyterLab and readable without its variables.

Colours come from JupyterLab, else from VS Code, else are middle tones that read on white and on black:
a page that sets neither may be light under a dark system, so the system's preference is not asked.
"""

from __future__ import annotations

from functools import cache

# Three times the class: JupyterLab's own rule for code in outputs has two classes and two elements.
_SCOPE = ".bls-out.bls-out.bls-out"

_BASE = """
{--b-fg:var(--jp-ui-font-color1,var(--vscode-foreground,currentcolor));
--b-dim:var(--jp-ui-font-color2,var(--vscode-descriptionForeground,#767676));
--b-line:var(--jp-border-color2,rgba(128,128,128,.32));
--b-red:var(--jp-error-color1,var(--vscode-errorForeground,#d64545));
--b-green:var(--jp-success-color1,#2f8f4e);
--b-amber:var(--jp-warn-color1,#b9770e);
--b-blue:var(--jp-brand-color1,#3b7dd8);
--b-mono:var(--jp-code-font-family,ui-monospace,Menlo,Consolas,monospace);
font:13px/1.5 var(--jp-ui-font-family,system-ui,sans-serif);color:var(--b-fg);padding:2px 0}
.bls-head{display:flex;flex-wrap:wrap;align-items:baseline;gap:0 10px}
.bls-facts{color:var(--b-dim)}
.bls-name,code{font-family:var(--b-mono);font-size:12.5px;background:none;color:inherit;padding:0;white-space:inherit;unicode-bidi:isolate;overflow-wrap:break-word}
.bls-name{font-weight:600}
.bls-head>.bls-name{font-size:14px}
.bls-dim,.bls-time{color:var(--b-dim)}
.bls-time{font-variant-numeric:tabular-nums;white-space:nowrap}
.bls-chip{display:inline-block;font:11px/16px var(--b-mono);padding:0 5px;border:1px solid transparent;border-radius:3px;background:rgba(128,128,128,.14);color:inherit;white-space:nowrap}
.bls-gpu{color:var(--b-blue);background:none;border-color:currentColor}
.bls-simulated{border-style:dashed}
.bls-state{font-size:11px;letter-spacing:.04em;white-space:nowrap;color:var(--b-dim)}
.bls-state::before{content:"";display:inline-block;width:7px;height:7px;margin-right:5px;border-radius:50%;box-sizing:border-box;border:1.5px solid currentColor}
.bls-ready{color:var(--b-green)}
.bls-ready::before{background:currentColor}
.bls-unavailable{color:var(--b-red)}
.bls-loading,.bls-unloading{color:var(--b-amber)}
.bls-warn{display:inline-block;width:.7em;color:var(--b-amber);font-weight:600}
.bls-warnings{list-style:none;margin:6px 0 2px;padding:0}
.bls-warnings li{white-space:pre-line;margin:2px 0;padding:0 0 0 9px;border-left:3px solid var(--b-amber)}
.bls-warnings b{color:var(--b-amber);font-weight:600;margin-right:4px}
pre{font:12.5px/1.5 var(--b-mono);color:inherit;background:none;border:0;padding:0;margin:4px 0;white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere}
summary{cursor:pointer;color:var(--b-dim)}
details{margin:4px 0 0}
"""

_TABLE = """
.bls-scroll{overflow-x:auto;margin:4px 0 2px}
table{display:table;width:auto;margin:0;border:0;border-collapse:collapse;table-layout:auto;font-size:13px;color:inherit}
caption{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
tr,tbody tr:nth-child(odd),tbody tr:nth-child(even){background:none}
tbody tr:hover{background:rgba(128,128,128,.1)}
th,td{line-height:1.5;vertical-align:baseline;padding:3px 18px 3px 0;border:0;border-bottom:1px solid var(--b-line);font-weight:400;white-space:nowrap;background:none;max-width:none}
tbody:last-child tr:last-child>*,tbody th[scope=rowgroup]{border-bottom:0}
.bls-groups tr:not(:last-child)>*{border-bottom:0}
thead th,th[scope=rowgroup]{color:var(--b-dim);font-size:11.5px}
thead th{padding-top:0}
.bls-num{text-align:right;font-variant-numeric:tabular-nums}
.bls-value,.bls-wide{max-width:46em;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.bls-fit{display:inline-grid;grid-template-columns:minmax(0,max-content);min-width:10em;max-width:100%;vertical-align:baseline}
.bls-wrap{white-space:pre-line;min-width:14em;max-width:46em;overflow-wrap:anywhere}
.bls-gap>*{color:var(--b-dim);font-size:11.5px}
.bls-bad>*{color:var(--b-red)}
"""

_ERROR = """
.bls-error{border-left:3px solid var(--b-red);padding:1px 0 1px 12px;margin:6px 0 4px}
.bls-title{color:var(--b-red)!important;font-weight:600}
.bls-message{font-size:13px;margin:3px 0}
.bls-chain{font-family:var(--b-mono);font-size:12.5px}
.bls-chain b{color:var(--b-red)}
.bls-where{color:var(--b-dim);margin-top:6px}
.bls-where b{color:var(--b-fg)}
.bls-code{display:block;margin:2px 0 0;border-left:1px solid var(--b-line);white-space:pre;overflow-x:auto}
.bls-code span{display:block;padding:0 10px;min-width:max-content}
.bls-code i{font-style:normal;color:var(--b-dim)}
.bls-code .bls-fails{background:rgba(214,69,69,.15);box-shadow:inset 2px 0 var(--b-red)}
.bls-code .bls-fails i{color:var(--b-red)}
.bls-hint{white-space:pre-line;margin-top:6px}
.bls-hint b{font-weight:600}
"""

_MESSAGE = """
.bls-mark{display:inline-block;width:12px;font-weight:600;color:var(--b-dim)}
.bls-words{white-space:pre-line}
.bls-more{padding-left:22px;white-space:pre-line}
.bls-done{color:var(--b-green)}
.bls-warning{color:var(--b-amber)}
.bls-wrong{color:var(--b-red)}
"""

_CONFIG = """
.bls-pbtxt{border-left:1px solid var(--b-line);padding:0 0 0 12px}
.bls-key{color:var(--jp-mirror-editor-property-color,#3b7dd8)}
.bls-str{color:var(--jp-mirror-editor-string-color,#c2553f)}
.bls-lit{color:var(--jp-mirror-editor-number-color,#2f8f4e)}
.bls-com{color:var(--b-dim)}
"""

_STATISTICS = """
{--b-bar:var(--b-blue)}
.bls-stack,.bls-bar{display:inline-flex;width:110px;height:10px;border-radius:2px;overflow:hidden;background:rgba(128,128,128,.14);vertical-align:baseline}
.bls-stack span,.bls-bar span{display:block;height:100%;min-width:1px}
.bls-bar span,.bls-infer{background:var(--b-bar)}
.bls-queue{background:repeating-linear-gradient(135deg,var(--b-amber) 0 2px,rgba(128,128,128,.3) 2px 4px)}
.bls-input{background:#7fb2e5}
.bls-output{background:var(--b-green)}
.bls-key{display:inline-block;width:9px;height:9px;border-radius:2px;margin-right:5px}
.bls-histogram{display:inline-flex;align-items:flex-end;gap:1px;height:18px;vertical-align:text-bottom}
.bls-histogram span{width:6px;background:var(--b-bar);border-radius:1px 1px 0 0}
.bls-bucket{display:flex;align-items:center;gap:8px;font-variant-numeric:tabular-nums;line-height:1.35}
.bls-bound{min-width:4.5em;text-align:right;color:var(--b-dim)}
td .bls-wrong{color:var(--b-red);font-weight:600}
.bls-stats th,.bls-stats td{padding-right:14px}
th[scope=rowgroup] .bls-name{color:var(--b-fg);margin-right:4px}
.bls-family{padding:10px 0 1px;font-size:12px;white-space:normal;max-width:60em}
.bls-label{margin-right:10px}
"""

_DEVICES = """
.bls-usage{display:flex;width:150px;height:9px;border-radius:2px;overflow:hidden;background:rgba(128,128,128,.18)}
.bls-usage span{height:100%}
.bls-ours{background:var(--b-blue);min-width:2px}
.bls-kept{background:var(--b-blue);opacity:.45}
.bls-others{background:rgba(128,128,128,.6)}
"""

_FIGURE = """
.bls-figure{display:block;max-width:100%;height:auto;margin:6px 0 2px;mix-blend-mode:multiply}
&dark .bls-figure{filter:invert(.9333) hue-rotate(180deg);mix-blend-mode:lighten}
"""

_SESSION = """
.bls-tiles{display:flex;flex-wrap:wrap;gap:4px 26px;margin:5px 0 8px}
.bls-tile{display:flex;flex-direction:column;line-height:1.35}
.bls-tile>.bls-dim{font-size:11.5px}
.bls-tile>b{font-size:17px;font-weight:500;font-variant-numeric:tabular-nums}
.bls-faster{color:var(--b-green)}
.bls-slower{color:var(--b-red)}
.bls-verdict{font-size:17px;line-height:1.4;max-width:56em;margin:4px 0}
.bls-verdict code{font-size:15.5px;font-weight:600}
.bls-advice{max-width:66em;margin:6px 0 8px;padding:1px 0 1px 10px;border-left:3px solid var(--b-green)}
.bls-advised th,.bls-advised td{font-weight:700}
"""

# Who says that a page is dark: JupyterLab, VS Code, Colab.
_DARK = ("[data-jp-theme-light=false]", ".vscode-dark", "html[theme=dark]")

_SHEETS = {
    "table": _TABLE, "error": _ERROR, "message": _MESSAGE, "config": _CONFIG, "statistics": _STATISTICS,
    "devices": _DEVICES, "figure": _FIGURE, "session": _SESSION,
}  # fmt: skip


@cache
def stylesheet(*names: str) -> str:
    """Return the rules that every display needs, then those of the named parts."""
    return "".join(_scoped(sheet) for sheet in (_BASE, *(_SHEETS[name] for name in names)))


def _scoped(sheet: str) -> str:
    rules = [rule for rule in sheet.replace("\n", "").split("}") if rule]
    return "".join(f"{_selectors(rule.split('{')[0])}{{{rule.split('{', 1)[1]}}}" for rule in rules)


def _selectors(selectors: str) -> str:
    if selectors.startswith("&dark "):
        return ",".join(f"{_SCOPE}:is({dark} *) {selectors[6:]}" for dark in _DARK)
    return ",".join(f"{_SCOPE} {each}" if each else _SCOPE for each in selectors.split(","))
