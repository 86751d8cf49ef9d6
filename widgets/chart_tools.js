// What every chart can be asked in the same words and by the same keys: search, what is shown, fit, fill the
// screen, which keys there are.

import { counted, make } from "./common.js";

/** @typedef {import("./chart.js").Chart<any>} AnyChart */
/** @typedef {import("./axis.js").Ink} Ink */

const EVERY_KEY = [
  ["Ctrl + wheel, + −", "zoom"], ["drag, Shift + wheel, Shift + ← →", "pan"], ["double click, z", "zoom to it"],
  ["click, Enter", "tell about it"], ["/  n  N", "search, next, previous"],
  ["0", "show all"], ["right click, Create New View for Output", "dock it beside the notebook, in JupyterLab"], ["f", "fill the screen, and back"], ["Esc", "clear"],
];

/** The buttons above a chart; `bar` and `card` have their places in it. */
export class Tools {
  /**
   * @param {AnyChart} chart
   * @param {string} thing that is searched: "request"
   * @param {string} by what it is found
   * @param {string[][]} keys that this chart alone has, and what they do
   * @param {...HTMLElement} own buttons
   */
  constructor(chart, thing, by, keys, ...own) {
    this.chart = chart;
    this.thing = thing;
    this.query = /** @type {HTMLInputElement} */ (make("input", {
      type: "search", placeholder: "Search", "aria-label": `Search by ${by}`, title: `Search by ${by} (/)`,
      oninput: () => this.find(), onkeydown: (/** @type {KeyboardEvent} */ event) => this.queryKey(event),
    }));
    this.foundText = make("span", { class: "bls-chart-found" });
    this.fullButton = toggle("Full screen", "Full screen, and back (f)", () => this.fill());
    this.helpButton = toggle("?", "Keys and mouse (?)", () => this.help());
    const walk = ["← → ↑ ↓", `go from ${thing} to ${thing}`];
    const lines = [walk, ...EVERY_KEY, ...keys].flatMap(([key, what]) => [make("kbd", {}, key), make("span", { class: "bls-chart-dim" }, what)]);
    this.card = make("div", { class: "bls-chart-help", hidden: true }, make("b", {}, "Keys and mouse"), make("div", { class: "bls-chart-keys" }, ...lines));
    this.bar = make("span", { class: "bls-chart-tools" }, this.foundText, this.query, ...own,
      make("button", { type: "button", title: "Show all of it (0)", onclick: () => chart.fit() }, "Fit"), this.fullButton, this.helpButton);
    const left = () => {
      if (chart.full && document.fullscreenElement !== chart.root && !chart.root.hasAttribute("popover")) this.fill();
    };
    document.addEventListener("fullscreenchange", left);
    chart.ends.push(() => document.removeEventListener("fullscreenchange", left));
  }

  /** @returns {Record<string, (event: KeyboardEvent) => void>} */
  keys() {
    return {
      "/": () => this.query.focus(), n: () => this.next(1), N: () => this.next(-1), f: () => this.fill(), "?": () => this.help(),
    };
  }

  /** What Esc does when nothing is chosen: clear the search, else leave the screen. Whether there was anything to do. */
  escape() {
    if (this.query.value) this.clear();
    else if (this.chart.full) this.fill();
    else return false;
    return true;
  }

  /** @param {KeyboardEvent} event */
  queryKey(event) {
    event.stopPropagation();
    if (event.key === "Enter") this.next(event.shiftKey ? -1 : 1);
    if (event.key !== "Escape") return;
    event.preventDefault();
    this.clear();
    this.chart.plot?.focus();
  }

  clear() {
    this.query.value = "";
    this.find();
  }

  /** Let stand out what has the words of the search in one of its texts. */
  find() {
    const words = this.query.value.trim().toLowerCase();
    const count = this.chart.seek(words ? (text) => text.toLowerCase().includes(words) : null);
    this.foundText.textContent = words ? count.toLocaleString("en") : "";
    if (words) this.chart.say(`${counted(count, this.thing)} found`);
  }

  /** Go to the next thing that stands out. @param {number} step */
  next(step) {
    const { all, at } = this.chart.hits();
    if (all.length) this.chart.visit(all[at < 0 ? (step > 0 ? 0 : all.length - 1) : (at + step + all.length) % all.length]);
  }

  help() {
    this.card.hidden = !this.card.hidden;
    this.helpButton.setAttribute("aria-pressed", String(!this.card.hidden));
    this.chart.resize();
  }

  /** Fill the screen, or the page where a frontend does not let it; and back. */
  fill() {
    const { chart, chart: { root } } = this;
    const full = chart.full = !chart.full;
    root.classList.toggle("bls-chart-full", full);
    this.fullButton.setAttribute("aria-pressed", String(full));
    (full ? root : document.body).append(chart.tip); // what is not in it would be below it
    const page = () => {
      root.popover = "manual";
      root.showPopover();
    };
    if (full && document.fullscreenEnabled) root.requestFullscreen().catch(page);
    else if (full) page();
    else if (document.fullscreenElement === root) document.exitFullscreen();
    else root.removeAttribute("popover");
    chart.resize();
    chart.plot?.focus();
  }
}

/** Which of some names are shown: a click hides or shows one, with Shift it is shown alone. */
export class Filter {
  /** @param {AnyChart} chart @param {string[]} names @param {() => void} changed */
  constructor(chart, names, changed) {
    this.chart = chart;
    this.names = names;
    this.changed = changed;
    /** @type {Set<number>} */
    this.hidden = new Set();
    /** @type {Map<number, HTMLElement>} */
    this.chips = new Map();
  }

  /** @param {number} number of the name @param {Ink} [ink] */
  chip(number, ink) {
    const name = this.names[number];
    const swatch = ink && make("i", { class: "bls-chart-swatch" });
    if (swatch && ink) this.chart.chips.push([swatch, ink]);
    const chip = make("button", {
      type: "button", class: "bls-chart-chip", "aria-pressed": "true", title: `Show or hide ${name}; with Shift show it alone`,
      onclick: (/** @type {MouseEvent} */ event) => this.press(number, event.shiftKey),
    }, swatch, name);
    this.chips.set(number, chip);
    return chip;
  }

  /** @param {number} number @param {boolean} alone */
  press(number, alone) {
    const all = this.names.map((_, i) => i);
    if (alone) {
      const was = this.hidden.size === all.length - 1 && !this.hidden.has(number);
      this.hidden = new Set(was ? [] : all.filter((i) => i !== number));
    } else if (!this.hidden.delete(number)) this.hidden.add(number);
    this.told();
  }

  showAll() {
    this.hidden.clear();
    this.told();
  }

  told() {
    for (const [number, chip] of this.chips) chip.setAttribute("aria-pressed", String(!this.hidden.has(number)));
    this.changed();
  }
}

/** @param {string} sign @param {string} title @param {() => void} onclick */
function toggle(sign, title, onclick) {
  return make("button", { type: "button", "aria-pressed": "false", title, "aria-label": title.replace(/ \(.*/, ""), onclick }, sign);
}
