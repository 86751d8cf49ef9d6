// The inspector: what Python has drawn, and above it what to ask next: which tensor, which slice, how fast a sound
// is. Every question goes to Python, which works it out where the tensor lies. See inspection/inspector_widget.py.

import { make } from "./common.js";
import { onTop } from "./on_top.js";

const MOST_AXES = 6;

/**
 * @typedef {import("./on_top.js").Model} Model
 * @typedef {{ tensors: [name: string, shape: number[]][], tensor: string, at: string, rate: number, sound: boolean,
 *   again: boolean, said: string }} State
 */

/** @param {{ model: Model, el: HTMLElement }} context */
function render({ model, el }) {
  const bar = make("div", { class: "bls-inspect-bar", role: "toolbar", "aria-label": "What to look into" });
  const said = make("div", { class: "bls-inspect-said", role: "status" });
  const shown = make("div");
  const root = make("div", { class: "bls-inspect" }, bar, said, shown);
  el.append(root);
  let number = 0;
  let focus = ""; // what had the focus when it was asked

  /** @param {Partial<State>} question */
  function ask(question) {
    const { tensor, at, rate } = /** @type {State} */ (model.get("state"));
    number += 1;
    focus = /** @type {HTMLElement | null} */ (bar.querySelector(":focus"))?.dataset.what ?? "";
    shown.classList.add("bls-inspect-busy");
    model.set("ask", { tensor, at, rate, ...question, number: `${Date.now()}.${number}` });
    model.save_changes();
  }

  /** @param {string} what @param {Record<string, any>} properties @param {(text: string) => void} changed */
  function field(what, properties, changed) {
    const input = /** @type {HTMLInputElement} */ (make("input", {
      ...properties, "data-what": what, "data-lm-suppress-shortcuts": "true", autocomplete: "off", spellcheck: "false",
    }));
    input.addEventListener("change", () => changed(input.value));
    // Enter in a cell's output would be the notebook's.
    input.addEventListener("keydown", (event) => event.stopPropagation());
    return input;
  }

  /** @param {State} state @param {number[]} shape */
  function axes(state, shape) {
    const plain = /^\[?([^\[\]]*)\]?$/.exec(state.at.trim())?.[1] ?? "";
    const parts = plain.split(",").map((part) => part.trim());
    const chosen = shape.map((_, axis) => parts[axis] && parts[axis] !== "..." ? parts[axis] : ":");
    return shape.slice(0, MOST_AXES).map((size, axis) => size < 2 ? null :
      make("label", { title: `Dimension ${axis} of ${size}: a number, or empty for all` }, `${axis}`, field(`axis${axis}`, {
        type: "number", min: -size, max: size - 1, placeholder: ":", "aria-label": `Dimension ${axis}, of ${size}`,
        value: /^-?\d+$/.test(chosen[axis]) ? chosen[axis] : "",
      }, (text) => {
        const next = chosen.map((part, i) => i === axis ? text.trim() || ":" : part);
        while (next.length && next[next.length - 1] === ":") next.pop();
        ask({ at: next.length ? `[${next.join(", ")}]` : "" });
      })));
  }

  function draw() {
    const state = /** @type {State} */ (model.get("state"));
    const one = state.tensors.length === 1 ? state.tensors[0][0] : state.tensor;
    const tensor = state.tensors.find(([name]) => name === one);
    const tab = (/** @type {string} */ text, /** @type {string} */ name) => make("button", {
      "aria-pressed": String(state.tensor === name), "data-what": `tab ${name}`, onclick: () => ask({ tensor: name, at: "" }),
    }, text);
    const tabs = state.tensors.length > 1 && make("span", { role: "group", "aria-label": "Tensors" },
      tab("all", ""), ...state.tensors.map(([name]) => tab(name, name)));
    const slice = tensor && tensor[1].some((size) => size > 1) && make("span", {},
      make("label", { title: "A slice, such as [0, :, :, 1]" }, "slice", field("slice", {
        type: "text", placeholder: `[${tensor[1].map(() => ":").join(", ")}]`, value: state.at, "aria-label": "Slice",
      }, (text) => ask({ tensor: tensor[0], at: text }))), ...axes(state, tensor[1]));
    const rate = state.sound && make("label", { title: "Samples a second of the sound" }, "samples a second",
      field("rate", { type: "number", min: 100, max: 1000000, value: state.rate || "", placeholder: "16000" },
        (text) => ask({ rate: Number(text) || 0 })));
    const again = state.again && make("button", { "data-what": "again", onclick: () => ask({}) }, "refresh");
    bar.hidden = false;
    bar.replaceChildren(...[tabs, slice, rate, again].filter((each) => each instanceof Node));
    said.textContent = state.said;
    said.hidden = !state.said;
    shown.innerHTML = model.get("html"); // of Python's making, where everything that is not ours is escaped
    shown.classList.remove("bls-inspect-busy");
    if (focus) /** @type {HTMLElement | null} */ (bar.querySelector(`[data-what="${CSS.escape(focus)}"]`))?.focus();
    focus = "";
  }

  const gone = () => { // the kernel: nobody answers any more
    bar.hidden = true;
    shown.classList.remove("bls-inspect-busy");
  };
  draw();
  model.on("change:answered", draw);
  model.on("comm_live_update", gone);
  return () => {
    model.off("change:answered", draw);
    model.off("comm_live_update", gone);
    root.remove();
  };
}

export default onTop(render);
