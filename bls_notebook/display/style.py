"""The stylesheet: scoped, small, at home in JupyterLab and readable without its variables.

Colours come from JupyterLab, else from VS Code, else are middle tones that read on white and on black:
a page that sets neither may be light under a dark system, so the system's preference is not asked.

Styles are global to a page: each display's rules reach every other one. So every display comes with the common
rules, the same ones in the same order; and a part's classes begin with the part's name, so that they are in no
other part, and its rules weigh more than the common ones, whichever came last.
"""

from __future__ import annotations

from functools import cache

# Three times the class: JupyterLab's own rule for code in outputs has two classes and two elements.
_SCOPE = ".bls-out.bls-out.bls-out"
_PART = f"{_SCOPE}.bls-out"

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
.bls-stub{color:var(--b-amber);background:none;border:1px dashed currentColor}
.bls-remote{color:var(--b-blue);background:none;border:1px solid currentColor}
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
th,td{line-height:1.5;vertical-align:baseline;padding:3px clamp(9px,1.3vw,18px) 3px 0;border:0;border-bottom:1px solid var(--b-line);font-weight:400;white-space:nowrap;background:none;max-width:none}
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
.bls-error-title{color:var(--b-red)!important;font-weight:600}
.bls-error-message{font-size:13px;margin:3px 0}
.bls-error-chain{font-family:var(--b-mono);font-size:12.5px}
.bls-error-chain b{color:var(--b-red)}
.bls-error-where{color:var(--b-dim);margin-top:6px}
.bls-error-where b{color:var(--b-fg)}
.bls-error-code{display:block;margin:2px 0 0;border-left:1px solid var(--b-line);white-space:pre;overflow-x:auto}
.bls-error-code span{display:block;padding:0 10px;min-width:max-content}
.bls-error-code i{font-style:normal;color:var(--b-dim)}
.bls-error-code .bls-error-fails{background:rgba(214,69,69,.15);box-shadow:inset 2px 0 var(--b-red)}
.bls-error-code .bls-error-fails i{color:var(--b-red)}
.bls-error-hint{white-space:pre-line;max-width:74em;margin:6px 0;padding:1px 0 1px 10px;border-left:3px solid var(--b-green)}
.bls-error-hint b{font-weight:600;color:var(--b-green);margin-right:4px}
.bls-error-hint code{background:rgba(128,128,128,.14);border-radius:3px;padding:1px 4px}
.bls-error-more{margin-top:3px}
"""

_MESSAGE = """
.bls-message-mark{display:inline-block;width:12px;font-weight:600;color:var(--b-dim)}
.bls-message-words{white-space:pre-line;max-width:calc(100% - 24px)}
.bls-message-more{padding-left:22px;white-space:pre-line}
.bls-message-done{color:var(--b-green)}
.bls-message-warning{color:var(--b-amber)}
.bls-message-wrong{color:var(--b-red)}
"""

_CHANGES = """
.bls-changes-lines{border-left:1px solid var(--b-line);padding:0 0 0 12px}
.bls-changes-lines>span{display:block}
.bls-changes-came{color:var(--b-green);background:rgba(47,143,78,.1)}
.bls-changes-went{color:var(--b-red);background:rgba(214,69,69,.1)}
"""

_FINDINGS = """
.bls-findings-list{border-top:1px solid var(--b-line);margin:6px 0 4px;max-width:1100px}
.bls-findings-list details{margin:0;border-bottom:1px solid var(--b-line)}
.bls-findings-list summary{display:flex;align-items:baseline;padding:4px 0;color:var(--b-fg);list-style:none}
.bls-findings-list summary::-webkit-details-marker{display:none}
.bls-findings-list summary:hover{background:rgba(128,128,128,.1)}
.bls-findings-list summary::after{content:"\\203A";color:var(--b-dim);margin:0 8px 0 auto}
.bls-findings-list details[open]>summary::after{transform:rotate(90deg)}
.bls-findings-mark{flex:0 0 62px;font-size:11px;letter-spacing:.04em}
.bls-findings-note .bls-findings-mark,.bls-findings-tally-note{color:var(--b-dim)}
.bls-findings-error .bls-findings-mark,.bls-findings-tally-error{color:var(--b-red)}
.bls-findings-warning .bls-findings-mark,.bls-findings-tally-warning{color:var(--b-amber)}
.bls-findings-said{flex:1;min-width:0;overflow-wrap:anywhere}
.bls-findings-said>.bls-name{margin-right:5px}
.bls-findings-where{display:inline-block;color:var(--b-dim);font:11.5px var(--b-mono);margin-left:5px}
.bls-findings-more{display:grid;grid-template-columns:max-content 1fr;gap:1px 10px;margin:0 24px 8px 62px;max-width:80ch;overflow-wrap:anywhere}
.bls-findings-good{color:var(--b-green);font-weight:600}
"""

_CONFIG = """
.bls-config-text{border-left:1px solid var(--b-line);padding:0 0 0 12px}
.bls-config-key{color:var(--jp-mirror-editor-property-color,#3b7dd8)}
.bls-config-str{color:var(--jp-mirror-editor-string-color,#c2553f)}
.bls-config-lit{color:var(--jp-mirror-editor-number-color,#2f8f4e)}
.bls-config-com{color:var(--b-dim)}
"""

_STATS = """
.bls-stats th,.bls-stats td{padding-right:clamp(8px,1vw,14px)}
.bls-stats-stack{display:inline-flex;width:clamp(50px,8vw,110px);height:10px;border-radius:2px;overflow:hidden;background:rgba(128,128,128,.14);vertical-align:baseline}
.bls-stats-stack span{display:block;height:100%;min-width:1px}
.bls-stats-queue{background:repeating-linear-gradient(135deg,var(--b-amber) 0 2px,rgba(128,128,128,.3) 2px 4px)}
.bls-stats-input{background:#7fb2e5}
.bls-stats-infer{background:var(--b-blue)}
.bls-stats-output{background:var(--b-green)}
.bls-stats-key{display:inline-block;width:9px;height:9px;border-radius:2px;margin-right:5px}
.bls-stats-histogram{display:inline-flex;align-items:flex-end;gap:1px;height:18px;vertical-align:text-bottom}
.bls-stats-histogram span{width:6px;background:var(--b-blue);border-radius:1px 1px 0 0}
.bls-stats-wrong{color:var(--b-red);font-weight:600}
"""

_METRICS = """
.bls-metrics-family{padding:10px 0 1px;font-size:12px;white-space:normal;max-width:60em}
.bls-metrics-family .bls-name{color:var(--b-fg);margin-right:4px}
.bls-metrics-label{margin-right:10px}
.bls-metrics-bar{display:inline-flex;width:110px;height:10px;border-radius:2px;overflow:hidden;background:rgba(128,128,128,.14);vertical-align:baseline}
.bls-metrics-bar span{display:block;height:100%;min-width:1px;background:var(--b-blue)}
"""

_DEVICES = """
.bls-devices-usage{display:flex;width:clamp(70px,11vw,150px);height:9px;border-radius:2px;overflow:hidden;background:rgba(128,128,128,.18)}
.bls-devices-usage span{height:100%}
.bls-devices-hardware{white-space:normal;min-width:8em}
.bls-devices-ours{background:var(--b-blue);min-width:2px}
.bls-devices-kept{background:var(--b-blue);opacity:.45}
.bls-devices-others{background:rgba(128,128,128,.6)}
"""

_PROGRESS = """
.bls-progress-line{display:flex;align-items:center;gap:10px;color:var(--b-dim);max-width:760px}
.bls-progress-words{font-variant-numeric:tabular-nums;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.bls-progress-bar{flex:0 0 160px;height:6px;border-radius:3px;overflow:hidden;background:rgba(128,128,128,.18)}
.bls-progress-bar>*{display:block;height:100%;border-radius:3px;background:var(--b-blue)}
.bls-progress-bar>i{width:100%;opacity:.45;background:repeating-linear-gradient(115deg,var(--b-blue) 0 8px,transparent 8px 16px)}
"""

_STREAM = """
.bls-stream-name{margin-top:4px}
.bls-stream-text{white-space:pre-wrap;overflow-wrap:anywhere;max-width:74em;font-size:14px;margin:3px 0 8px;padding:1px 0 1px 12px;border-left:3px solid var(--b-blue)}
"""

_LATENCY = """
.bls-latency-histogram{max-width:720px;margin:0 0 6px}
"""

_FIGURE = """
.bls-figure{display:block;width:100%;max-width:1240px;margin:6px 0 2px}
&dark .bls-figure{filter:invert(.9333) hue-rotate(180deg);mix-blend-mode:lighten}
"""

_SESSION = """
.bls-session-tiles{display:flex;flex-wrap:wrap;gap:4px 26px;margin:5px 0 8px}
.bls-session-tile{display:flex;flex-direction:column;line-height:1.35}
.bls-session-tile>.bls-dim{font-size:11.5px}
.bls-session-tile>b{font-size:17px;font-weight:500;font-variant-numeric:tabular-nums}
.bls-session-faster{color:var(--b-green)}
.bls-session-slower{color:var(--b-red)}
.bls-session-verdict{font-size:17px;line-height:1.4;max-width:56em;margin:4px 0}
.bls-session-verdict code{font-size:15.5px;font-weight:600}
.bls-session-advice{max-width:66em;margin:6px 0 8px;padding:1px 0 1px 10px;border-left:3px solid var(--b-green)}
.bls-session-remarks{white-space:normal;min-width:7em}
.bls-session-errors{list-style:none;margin:6px 0 2px;padding:0;max-width:66em}
.bls-session-errors li{margin:2px 0;padding:0 0 0 9px;border-left:3px solid var(--b-red);overflow-wrap:anywhere}
.bls-session-errors b{color:var(--b-red);font-weight:600;margin-right:4px}
.bls-session-advised th,.bls-session-advised td{font-weight:700}
"""

_SEEN = """
.bls-seen-row{display:flex;flex-wrap:wrap;align-items:center;gap:4px 6px;margin:2px 0;white-space:normal;max-width:40em}
.bls-seen-row>.bls-dim,.bls-seen-figures{font-size:11.5px;color:var(--b-dim)}
.bls-seen-picture{display:block;margin:0;max-width:100%;border:1px solid var(--b-line);border-radius:2px;background:rgba(128,128,128,.14)}
.bls-seen-pixels{image-rendering:pixelated}
.bls-seen-figures{font-variant-numeric:tabular-nums}
.bls-seen-boxes{display:flex;flex-wrap:wrap;align-items:flex-start;gap:10px 22px;margin:4px 0 6px}
.bls-seen-box{min-width:0;max-width:min(100%,680px)}
.bls-seen-box>.bls-dim{font-size:11.5px;max-width:46em}
.bls-seen-side{width:224px}
.bls-seen-wide{flex:1 1 380px}
.bls-seen-bars{display:flex;align-items:flex-end;gap:1px;height:84px;width:280px;max-width:100%;border-bottom:1px solid var(--b-line)}
.bls-seen-bars>span{flex:1;background:var(--b-blue);border-radius:1px 1px 0 0}
.bls-seen-axis{display:flex;justify-content:space-between;width:280px;max-width:100%;font-size:11.5px;font-variant-numeric:tabular-nums}
.bls-seen-tensor{border-top:1px solid var(--b-line);padding:6px 0 4px}
.bls-seen-sound{display:block;width:100%;max-width:420px;height:36px}
.bls-seen-text{max-height:340px;overflow:auto}
.bls-seen-bad{color:var(--b-amber);font-weight:600}
"""

_TRIED = """
.bls-tried-remedy{color:var(--b-dim)}
.bls-tried-remedy code{color:var(--b-fg)}
.bls-tried-next{margin:2px 0 4px;padding:1px 0 1px 12px;border-left:3px solid var(--b-blue)}
"""

_DRILL = """
.bls-drill-item{max-width:1100px;padding:2px 0 2px 12px;margin:6px 0;border-left:3px solid var(--b-line);white-space:pre-line;overflow-wrap:anywhere}
.bls-drill-bad{border-color:var(--b-red)}
.bls-drill-odd{border-color:var(--b-amber)}
.bls-drill-at code{margin-left:8px}
"""

_GUESS = """
.bls-guess-choice{display:inline-block;margin:2px 4px 2px 2px;padding:1px 10px;border:1px solid var(--b-line);border-radius:12px}
.bls-guess-image{max-width:100%}
"""

# Who says that a page is dark: JupyterLab, VS Code, Colab.
_DARK = ("[data-jp-theme-light=false]", ".vscode-dark", "html[theme=dark]")

_COMMON = (_BASE, _TABLE)
_PARTS = {
    "error": _ERROR, "message": _MESSAGE, "config": _CONFIG, "changes": _CHANGES, "stats": _STATS,
    "findings": _FINDINGS,
    "metrics": _METRICS, "devices": _DEVICES, "progress": _PROGRESS, "figure": _FIGURE, "stream": _STREAM,
    "latency": _LATENCY, "session": _SESSION, "seen": _SEEN,
    "guess": _GUESS, "tried": _TRIED, "drill": _DRILL,
}  # fmt: skip


@cache
def stylesheet(*names: str) -> str:
    """Return the rules that every display comes with, then those of the named parts."""
    common = (_scoped(sheet, _SCOPE) for sheet in _COMMON)
    return "".join([*common, *(_scoped(_PARTS[name], _PART) for name in names)])


def _scoped(sheet: str, scope: str) -> str:
    rules = [rule for rule in sheet.replace("\n", "").split("}") if rule]
    return "".join(f"{_selectors(rule.split('{')[0], scope)}{{{rule.split('{', 1)[1]}}}" for rule in rules)


def _selectors(selectors: str, scope: str) -> str:
    if selectors.startswith("&dark "):
        return ",".join(f"{scope}:is({dark} *) {selectors[6:]}" for dark in _DARK)
    return ",".join(f"{scope} {each}" if each else scope for each in selectors.split(","))
