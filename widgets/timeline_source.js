// What is told of a request that was clicked: its phases, its inputs and outputs, and the code that sent it and
// that served it.

import { counted, duration, make, size } from "./common.js";
import { details } from "./timeline_words.js";

/** @typedef {import("./timeline_data.js").Session} Session */
/** @typedef {import("./timeline_data.js").Source} Source */
/** @typedef {import("./timeline_data.js").Tensor} Tensor */

const [BEFORE, AFTER] = [4, 5]; // lines around the one that sent
const BODY = 14; // lines of `execute`
const BYTES = /** @type {Record<string, number>} */ ({
  BOOL: 1, UINT8: 1, INT8: 1, UINT16: 2, INT16: 2, FP16: 2, BF16: 2, UINT32: 4, INT32: 4, FP32: 4, UINT64: 8, INT64: 8, FP64: 8,
});

/**
 * @param {Session} session @param {number} i
 * @param {string} colour of its model
 * @param {() => void} close
 */
export function requestCard(session, i, colour, close) {
  const { c, raw } = session;
  const model = raw.models[c.model[i]];
  const [title, ...lines] = details(session, i, colour);
  const sender = raw.sources[c.source[i] - 1];
  const own = raw.sources.find(({ execute, of: [name, version] }) => execute && name === model.of[0] && version === model.of[1]);
  const shapes = raw.shapes[c.shape[i]];
  const ended = raw.states[c.state[i]] === "ok";
  return make("div", { class: "bls-tl-request" },
    make("div", { class: "bls-tl-request-head" }, title,
      make("button", { type: "button", class: "bls-tl-close", title: "Close (Esc)", "aria-label": "Close", onclick: close }, "×")),
    make("div", { class: "bls-tl-request-parts" },
      make("div", { class: "bls-tl-request-facts" }, ...lines,
        tensors("inputs", shapes.length ? shapes : model.inputs, !shapes.length && model.batches ? c.rows[i] : 0, c.bytes_in[i]),
        ended && tensors("outputs", model.outputs, model.batches ? c.rows[i] : 0, c.bytes_out[i])),
      sender && code(sender, `sent by ${sender.title}, line ${c.line[i]}`, rowsOf(sender, c.line[i] - BEFORE, c.line[i] + AFTER, c.line[i]), chain(session, i)),
      ...served(session, i, own)),
    !sender && !own && make("div", { class: "bls-chart-dim" }, "The code of this request was not kept."));
}

/**
 * What goes in or comes out, as the configuration has it; a length that varies is worked out where bytes tell it.
 * @param {string} what @param {Tensor[]} declared @param {number} rows 0 where the model does not batch @param {number} bytes
 */
function tensors(what, declared, rows, bytes) {
  if (!declared.length) return null;
  const shape = (/** @type {Tensor} */ [, dtype, dims]) => {
    const whole = rows ? [rows, ...dims] : dims;
    const known = whole.filter((each) => each >= 0).reduce((product, each) => product * each, BYTES[dtype] ?? 0);
    const left = declared.length === 1 && known ? bytes / known : NaN;
    const solved = whole.filter((each) => each < 0).length === 1 && Number.isInteger(left);
    return `[${whole.map((each) => (each < 0 ? (solved ? left : "?") : each)).join(", ")}]`;
  };
  return make("table", { class: "bls-tl-tensors" },
    make("thead", {}, make("tr", {}, make("th", { colspan: 3 }, `${what}, ${size(bytes)}`))),
    make("tbody", {}, ...declared.map((each) => make("tr", {}, make("td", {}, each[0]), make("td", { class: "bls-chart-dim" }, each[1]),
      make("td", { class: "bls-chart-dim" }, shape(each))))));
}

/** The last line to show of a function that begins at a line. @param {string} text @param {number} begin */
function endOf(text, begin) {
  const lines = text.split("\n");
  const deep = (/** @type {string} */ line) => line.search(/\S/);
  const start = deep(lines[begin - 1] ?? "");
  let end = begin;
  while (end < lines.length && (!lines[end].trim() || deep(lines[end]) > start)) end += 1;
  while (end > begin && !lines[end - 1].trim()) end -= 1;
  return Math.min(end, begin + BODY);
}

/** The callers of the line that sent a request, outermost first. @param {Session} session @param {number} i */
function chain({ c, raw }, i) {
  const outer = (raw.stacks[c.stack[i] - 1] ?? []).slice(0, -1);
  return outer.length > 0 && make("div", { class: "bls-tl-chain" }, ...outer.map(([source, line, name]) => {
    const { text, title } = raw.sources[source - 1];
    return make("div", {}, make("span", { class: "bls-chart-dim" }, `${name || title}, line ${line}: `), make("code", {}, text.split("\n")[line - 1].trim()));
  }));
}

/**
 * The time by line of an execution, helpers included; of all executions of its model where it has too few samples.
 * @param {Session} session @param {number} i
 */
function timeByLine({ c, raw }, i) {
  const lead = c.first[i];
  for (const all of [false, true]) {
    /** @type {Map<string, { source: number, line: number, ns: number, waits: number, count: number }>} */
    const lines = new Map();
    let [whole, unseen, samples] = [0, 0, 0];
    const executions = new Set();
    c.sample_span.forEach((/** @type {number} */ span, /** @type {number} */ k) => {
      if (all ? c.model[span] !== c.model[i] : span !== lead) return;
      const [stack, ns, count] = [raw.stacks[c.sample_stack[k] - 1] ?? [], c.sample_ns[k], c.sample_count[k]];
      executions.add(span);
      whole += ns;
      samples += count;
      if (!stack.length) unseen += ns;
      const keys = new Set(stack.map(([source, line]) => `${source}:${line}`));
      for (const key of keys) {
        const [source, line] = key.split(":").map(Number);
        const at = lines.get(key) ?? { source, line, ns: 0, waits: 0, count: 0 };
        lines.set(key, at);
        at.ns += ns;
        at.count += count;
        if (c.sample_waits[k]) at.waits += ns;
      }
    });
    if (samples < ENOUGH_SAMPLES || !whole) continue;
    const spent = [...executions].reduce((sum, span) => sum + c.ended[span] - c.started[span], 0);
    const shown = [...lines.values()].filter((at) => at.count >= LEAST_SAMPLES && at.ns >= SMALL_SHARE * whole);
    const of = all ? `all ${counted(executions.size, "sampled execution")}` : "this execution";
    const said = `time by line of ${of}, ${counted(samples, "sample")}`;
    return { shown, whole, spent, said: unseen >= SMALL_SHARE * whole ? `${said}; in ${percent(unseen / whole)} no line was seen` : said };
  }
  return null;
}

const [ENOUGH_SAMPLES, LEAST_SAMPLES, SMALL_SHARE] = [10, 3, 0.02]; // as in profiling/analysis/line_times.py
const percent = (/** @type {number} */ share) => `${Math.round(100 * share)}%`;

/** The code that served a request, each line with its share of the time. @param {Session} session @param {number} i @param {Source | undefined} own */
function served(session, i, own) {
  const { raw, c } = session;
  const times = timeByLine(session, i);
  const sampled = c.sample_span.some((/** @type {number} */ span) => c.model[span] === c.model[i]);
  const said = times?.said ?? (sampled ? "too few samples for time by line" : null);
  const beside = (/** @type {Source} */ source) => (/** @type {number} */ line, /** @type {string} */ text) => {
    const at = times?.shown.find((each) => raw.sources[each.source - 1] === source && each.line === line);
    if (!times || !at) return null;
    const wait = 2 * at.waits > at.ns ? (/\bawait\b/.test(text) ? "await, " : "waits, ") : "";
    return { share: at.ns / times.whole, words: `${percent(at.ns / times.whole)} ${wait}${duration((at.ns / times.whole) * times.spent)}` };
  };
  const end = own ? endOf(own.text, own.execute) : 0;
  const cards = own ? [code(own, `served by ${own.title}, from line ${own.execute}`, rowsOf(own, own.execute, end, own.execute, beside(own)), said && make("div", { class: "bls-chart-dim" }, said))] : [];
  const others = (times?.shown ?? []).filter(({ source, line }) => raw.sources[source - 1] !== own || line < own.execute || line > end);
  for (const source of new Set(others.map((at) => at.source))) {
    const text = raw.sources[source - 1];
    const lines = others.filter((at) => at.source === source).map(({ line }) => line).sort((a, b) => a - b);
    const runs = lines.reduce((/** @type {[number, number][]} */ found, line) => {
      const last = found[found.length - 1];
      if (last && line <= last[1] + 3) last[1] = line;
      else found.push([line, line]);
      return found;
    }, []);
    cards.push(code(text, `helpers in ${text.title}`, runs.flatMap(([from, to]) => rowsOf(text, from - 1, to + 1, 0, beside(text)))));
  }
  return cards;
}

/**
 * Lines of a source, one of them marked, with what stands beside them.
 * @param {Source} source @param {number} from @param {number} to @param {number} marked
 * @param {((line: number, text: string) => { share: number, words: string } | null) | null} [beside]
 */
function rowsOf(source, from, to, marked, beside = null) {
  const all = source.text.split("\n");
  const first = Math.max(1, from);
  return all.slice(first - 1, to).map((text, k) => {
    const time = beside?.(first + k, text);
    const share = time && make("span", { class: "bls-tl-time" }, time.words);
    if (share) share.style.setProperty("--share", percent(time.share));
    return make("div", { class: first + k === marked ? "bls-tl-here" : null },
      beside && (share || make("span", { class: "bls-tl-time" })), make("span", { class: "bls-tl-number" }, String(first + k)), text || " ");
  });
}

/** Lines of a source under a title. @param {Source} source @param {string} title @param {HTMLElement[]} rows @param {HTMLElement | false | null} [above] */
function code(source, title, rows, above) {
  const cell = cellOf(source);
  const line = rows.find((row) => row.classList.contains("bls-tl-here"));
  const show = cell && make("button", { type: "button", title: "Go to it in the notebook", onclick: () => goTo(cell, line?.lastChild?.textContent ?? "") }, "Show cell");
  return make("div", { class: "bls-tl-source" },
    make("div", { class: "bls-tl-source-head" }, title, show), above, make("pre", {}, ...rows));
}

/** The cell of the notebook that a source is of, where it is on the page. @param {Source} source */
function cellOf({ title, of: [model] }) {
  const cells = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell")]);
  const number = /^In \[(\d+)\]$/.exec(title);
  return cells.find((cell) => {
    if (number && !model) return cell.querySelector(".jp-InputPrompt")?.textContent?.trim() === `[${number[1]}]:`;
    const [, magic, name] = /^\s*(%%tritonmodel)\s+([^\s]+)/.exec(cell.querySelector(".cm-line")?.textContent ?? "") ?? [];
    return Boolean(magic && model && name === model);
  });
}

/** Bring a cell into view, and let its line stand out for a moment. @param {HTMLElement} cell @param {string} text */
function goTo(cell, text) {
  if (document.fullscreenElement) document.exitFullscreen();
  const line = [...cell.querySelectorAll(".cm-line")].find((each) => each.textContent === text) ?? cell;
  line.scrollIntoView({ block: "center" });
  line.animate([{ outline: "2px solid #e69f00" }, { outline: "2px solid transparent" }], 2500);
}
