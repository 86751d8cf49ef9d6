// What is told of a request that was clicked: its phases, its inputs and outputs, and the code that sent it and
// that served it.

import { counted, make, size } from "./common.js";
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
  const ended = raw.states[c.state[i]] === "ok";
  return make("div", { class: "bls-tl-request" },
    make("div", { class: "bls-tl-request-head" }, title,
      make("button", { type: "button", class: "bls-tl-close", title: "Close (Esc)", "aria-label": "Close", onclick: close }, "×")),
    make("div", { class: "bls-tl-request-parts" },
      make("div", { class: "bls-tl-request-facts" }, ...lines,
        tensors("inputs", model.inputs, model.batches ? c.rows[i] : 0, c.bytes_in[i]),
        ended && tensors("outputs", model.outputs, model.batches ? c.rows[i] : 0, c.bytes_out[i])),
      sender && code(sender, `sent by ${sender.title}, line ${c.line[i]}`, c.line[i], c.line[i] - BEFORE, c.line[i] + AFTER),
      own && code(own, `served by ${own.title}, from line ${own.execute}`, own.execute, own.execute, endOf(own.text, own.execute)),
      !sender && !own && make("div", { class: "bls-chart-dim" }, "The code of this request was not kept.")));
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

/** Lines of a source, one of them marked. @param {Source} source @param {string} title @param {number} line @param {number} from @param {number} to */
function code(source, title, line, from, to) {
  const all = source.text.split("\n");
  const [first, last] = [Math.max(1, from), Math.min(all.length, to)];
  const rows = all.slice(first - 1, last).map((text, k) => make("div", { class: first + k === line ? "bls-tl-here" : null },
    make("span", { class: "bls-tl-number" }, String(first + k)), text || " "));
  const cell = cellOf(source);
  const show = cell && make("button", { type: "button", title: "Go to it in the notebook", onclick: () => goTo(cell, all[line - 1]) }, "Show cell");
  const more = all.length - last;
  return make("div", { class: "bls-tl-source" },
    make("div", { class: "bls-tl-source-head" }, title, show),
    make("pre", {}, ...rows),
    more > 0 && make("div", { class: "bls-chart-dim" }, `${counted(more, "line")} more`));
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
