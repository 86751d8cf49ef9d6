// The chart of a memory track: its elements, what stands where, what is drawn, what is selected.

import { columns, isDark, make, onTheme, size } from "./common.js";
import {
  area, arrow, AXIS, axis, drawBars, drawPanel, fillOf, fresh, grid, HEAD, outline, PANEL, ROW, write, xOf,
} from "./lifetimes_draw.js";
import { Input } from "./lifetimes_input.js";
import { layout, profile } from "./lifetimes_rows.js";
import { aliveTable, describe, holdersOf, shortly } from "./lifetimes_words.js";

const MOST_ROWS = 48;
const MOST_TABLE = 200; // rows
const TALLEST = 640; // of the part with the bars; more of them scroll
const LEAST_NS = 200; // that can be seen at once
const KEYS =
  "Arrow keys go from block to block, Enter selects, plus and minus zoom, Shift with arrows moves, 0 shows all.";

/**
 * @typedef {import("./on_top.js").Model} Model
 * @typedef {import("./lifetimes_words.js").Info} Info
 * @typedef {import("./lifetimes_draw.js").Panel & { lives: number[] }} DevicePanel
 * @typedef {import("./lifetimes_rows.js").Row} Row
 * @typedef {{ row: Row, top: number }} Placed
 */

export class Chart {
  panels = /** @type {HTMLCanvasElement} */ (make("canvas", { class: "bls-life-panels" }));
  bars = /** @type {HTMLCanvasElement} */ (make("canvas", { class: "bls-life-bars" }));
  space = make("div", { class: "bls-life-space" }, this.bars);
  scroll = make("div", { class: "bls-life-scroll", onscroll: () => this.draw() }, this.space);
  tip = make("div", { class: "bls-life-tip", role: "presentation", hidden: true });
  hint = make("div", { class: "bls-life-hint", hidden: true }, "Ctrl + scroll zooms");
  said = make("div", { class: "bls-life-said", "aria-live": "polite" });
  details = make("section", { class: "bls-life-details", "aria-label": "Selected block", hidden: true });
  root = make("div", { class: "bls-life" });
  stage = make("div", { class: "bls-life-chart" });

  hidden = { device: /** @type {Set<number>} */ (new Set()), model: /** @type {Set<number>} */ (new Set()) };
  /** Lanes that are unfolded. @type {Set<string>} */
  open = new Set();
  /** @type {{ text: string, top: number, height: number }[]} */
  groups = [];
  /** @type {Placed[]} */
  rows = [];
  /** @type {Map<number, Placed>} */
  placed = new Map();
  /** @type {DevicePanel[]} */
  devices = [];
  /** @type {number[]} */
  copies = [];
  high = 0; // pixels of all rows
  focus = -1; // the block that keys are at, and the one that is selected: rows among the columns
  chosen = -1;
  /** Where the pointer is in time. @type {number | undefined} */
  cursor = undefined;
  asked = 0;

  /** @param {Model} model @param {HTMLElement} el */
  constructor(model, el) {
    this.model = model;
    this.info = /** @type {Info} */ (model.get("info"));
    this.c = columns(model.get("data"), model.get("columns"));
    this.c.words = this.info.words;
    this.c.models = this.info.models;
    this.from = 0;
    this.to = this.info.end;
    this.rowOf = new Map(Array.from(this.c.id, (/** @type {number} */ id, /** @type {number} */ i) => [id, i]));
    this.input = new Input(this);
    this.build(el);
    this.arrange();
    const resized = new ResizeObserver(() => this.draw());
    resized.observe(this.root);
    const themed = onTheme(() => this.draw());
    const picked = () => this.showSelected();
    model.on("change:selected", picked);
    this.ends = [() => resized.disconnect(), themed, () => model.off("change:selected", picked)];
    this.showSelected();
  }

  end() {
    cancelAnimationFrame(this.asked);
    for (const end of this.ends) end();
  }

  // -- the elements ---------------------------------------------------------------------------------

  /** @param {HTMLElement} el */
  build(el) {
    const { info } = this;
    const attributes = {
      tabindex: "0", role: "application", "aria-roledescription": "chart of lifetimes",
      "aria-label": `${info.title}, ${info.facts.join(", ")}. ${KEYS}`,
      "data-lm-suppress-shortcuts": "true", // or the notebook's own keys would act as well
    };
    for (const [name, value] of Object.entries(attributes)) this.stage.setAttribute(name, value);
    this.stage.append(this.panels, this.scroll, this.tip, this.hint);
    const legend =
      "│ handed on   ➝ copied or transferred   ▸ still alive at the end · click a block for its request and holders";
    const shown = [
      this.heading(), this.filters(), this.stage,
      make("div", { class: "bls-life-legend bls-life-dim", "aria-hidden": "true" }, legend), this.details,
      aliveTable(this.c, info, MOST_TABLE, (life) => {
        this.input.goTo(life);
        this.select(life);
      }),
      this.said,
    ];
    this.root.append(...shown.filter((each) => each !== null));
    el.append(this.root);
  }

  heading() {
    const { info } = this;
    const button = (/** @type {string} */ text, /** @type {string} */ title, /** @type {() => void} */ act) =>
      make("button", { title, "aria-label": title, onclick: act }, text);
    return make(
      "header", {},
      make("div", { class: "bls-life-top" },
        make("b", {}, info.title),
        make("span", { class: "bls-life-dim" }, info.facts.join(" · ")),
        make("span", { class: "bls-life-buttons" },
          button("−", "Zoom out (-)", () => this.zoom(2)),
          button("+", "Zoom in (+)", () => this.zoom(0.5)),
          button("all", "Show all (0)", () => this.show(0, info.end)))),
      info.warnings.length > 0 && make("div", { class: "bls-life-warnings", role: "list" },
        ...info.warnings.map((text) => make("div", { role: "listitem" }, make("b", {}, "warning"), ` ${text}`))),
    );
  }

  filters() {
    const { info, c } = this;
    const used = new Set(c.device);
    const devices = info.devices
      .map((device, i) => this.toggle("device", i, device.label))
      .filter((_, i) => used.has(i));
    const models = info.models.map((name, i) => this.toggle("model", i, name));
    return make("div", { class: "bls-life-filters" },
      make("span", { role: "group", "aria-label": "Devices" }, make("span", { class: "bls-life-dim" }, "devices"), ...devices),
      make("span", { role: "group", "aria-label": "Models" }, make("span", { class: "bls-life-dim" }, "made by"), ...models));
  }

  /** @param {"device" | "model"} kind @param {number} number @param {string} text */
  toggle(kind, number, text) {
    const swatch = kind === "device" && make("i", { class: "bls-life-swatch", "data-device": number });
    return make("button", {
      class: "bls-life-chip", "aria-pressed": "true", title: `Show or hide ${text}; with Shift show it alone`,
      onclick: (/** @type {MouseEvent} */ event) => this.filter(kind, number, event.shiftKey),
      "data-kind": kind, "data-number": number,
    }, swatch, text);
  }

  /** @param {"device" | "model"} kind @param {number} number @param {boolean} alone */
  filter(kind, number, alone) {
    const all = (kind === "device" ? this.info.devices : this.info.models).map((_, i) => i);
    const hidden = this.hidden[kind];
    if (alone) {
      const was = hidden.size === all.length - 1 && !hidden.has(number);
      this.hidden[kind] = new Set(was ? [] : all.filter((i) => i !== number));
    } else if (!hidden.delete(number)) hidden.add(number);
    for (const chip of this.root.querySelectorAll(`[data-kind="${kind}"]`)) {
      const shown = !this.hidden[kind].has(Number(/** @type {HTMLElement} */ (chip).dataset.number));
      chip.setAttribute("aria-pressed", String(shown));
    }
    this.arrange();
  }

  // -- what is shown where ----------------------------------------------------------------------------

  arrange() {
    const { c, info, hidden } = this;
    const shown = (/** @type {number} */ life) => !hidden.device.has(c.device[life]) && !hidden.model.has(c.model[life]);
    [this.groups, this.rows, this.placed] = [[], [], new Map()];
    let top = 0;
    for (const group of layout(c, info.words, shown, this.open, MOST_ROWS)) {
      const height = HEAD + group.rows.length * ROW + 4;
      this.groups.push({ text: info.models[group.model], top, height });
      group.rows.forEach((row, i) => {
        const placed = { row, top: top + HEAD + i * ROW };
        this.rows.push(placed);
        if (!row.folded) for (const life of row.lives) this.placed.set(life, placed);
      });
      top += height;
    }
    this.high = top;
    /** @type {number[][]} */
    const byDevice = info.devices.map(() => []);
    for (let life = 0; life < c.id.length; life += 1) if (shown(life)) byDevice[c.device[life]].push(life);
    this.devices = byDevice.flatMap((lives, i) => (lives.length ? [this.panelOf(i, lives)] : []));
    this.copies = Array.from(this.placed.keys()).filter((life) => this.placed.has(c.source[life]));
    this.draw();
  }

  /** @param {number} device @param {number[]} lives */
  panelOf(device, lives) {
    const steps = profile(this.c, lives);
    const top = steps.reduce((best, each) => (each[1] > best[1] ? each : best));
    const last = steps[steps.length - 1];
    const text = `${size(top[1])}: ${this.alive(lives, top[0])}`;
    return { device: this.info.devices[device], steps, peak: top[1], peakAt: top[0], left: last[2], peakText: text, lives };
  }

  /**
   * What of some blocks was alive at a time, the largest names first.
   * @param {number[]} lives @param {number} ns
   */
  alive(lives, ns, most = 3) {
    const { c, info } = this;
    /** @type {Map<string, [number, number]>} */
    const sums = new Map();
    for (const life of lives) {
      if (c.born[life] > ns || (c.died[life] >= 0 && c.died[life] <= ns)) continue;
      const owner = info.models[c.model[life]];
      const name = (owner === "notebook" ? "" : `${owner}/`) + info.words[c.name_[life]];
      const sum = sums.get(name) ?? [0, 0];
      sums.set(name, [sum[0] + 1, sum[1] + c.bytes[life]]);
    }
    const found = [...sums].sort((a, b) => b[1][1] - a[1][1]);
    const said = found.slice(0, most).map(([name, [count, bytes]]) => `${name}${count > 1 ? ` ×${count}` : ""} ${size(bytes)}`);
    if (found.length > most) said.push(`+${found.length - most} more`);
    return said.join(", ");
  }

  get scale() {
    const width = Math.max(this.stage.clientWidth, 320);
    const narrow = width < 760;
    return { width, left: narrow ? 120 : 180, right: narrow ? 90 : 150, from: this.from, to: this.to, end: this.info.end };
  }

  theme() {
    const style = getComputedStyle(this.root);
    const of = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
    const dark = isDark(this.root);
    return {
      dark, text: style.color, dim: of("--life-dim"), line: of("--life-line"), paper: of("--life-paper"),
      band: of("--life-band"), brand: of("--life-brand"), alarm: this.info.alarm[dark ? "dark" : "light"],
      font: `12px ${style.fontFamily}`,
    };
  }

  // -- drawing ------------------------------------------------------------------------------------------

  draw() {
    this.asked ||= requestAnimationFrame(() => {
      this.asked = 0;
      this.paint();
    });
  }

  paint() {
    if (!this.stage.clientWidth) return;
    const [scale, theme] = [this.scale, this.theme()];
    for (const swatch of /** @type {NodeListOf<HTMLElement>} */ (this.root.querySelectorAll("[data-device]"))) {
      const ink = this.info.devices[Number(swatch.dataset.device)];
      swatch.style.background = theme.dark ? ink.dark : ink.light;
    }
    const high = this.devices.length * PANEL + AXIS;
    const top = fresh(this.panels, scale.width, high);
    grid(top, scale, high - AXIS, theme);
    this.devices.forEach((panel, i) => drawPanel(top, scale, panel, i * PANEL, theme));
    top.fillStyle = theme.line;
    top.fillRect(scale.left, high - AXIS, scale.width - scale.left - scale.right, 1);
    axis(top, scale, high - AXIS, theme);
    this.space.style.height = `${this.high}px`;
    const view = Math.min(this.high, TALLEST);
    this.scroll.style.height = `${view}px`;
    const context = fresh(this.bars, scale.width, view);
    context.translate(0, -this.scroll.scrollTop);
    this.paintRows(context, scale, theme, this.scroll.scrollTop, this.scroll.scrollTop + view);
    if (this.cursor !== undefined) {
      const x = Math.round(xOf(scale, this.cursor));
      top.fillStyle = context.fillStyle = theme.dim;
      top.fillRect(x, 0, 1, high - AXIS);
      context.fillRect(x, 0, 1, this.high);
    }
  }

  /**
   * @param {CanvasRenderingContext2D} context @param {any} scale @param {any} theme
   * @param {number} from @param {number} to pixels that are seen
   */
  paintRows(context, scale, theme, from, to) {
    const { c, info } = this;
    const right = scale.width - scale.right;
    this.groups.forEach((group, i) => {
      if (group.top > to || group.top + group.height < from) return;
      if (i % 2 === 0) {
        context.fillStyle = theme.band;
        context.fillRect(0, group.top, scale.width, group.height);
      }
      const look = { colour: theme.text, font: `600 ${theme.font}`, align: /** @type {CanvasTextAlign} */ ("right") };
      write(context, group.text, scale.left - 10, group.top + 14, { ...look, most: scale.left - 14 });
    });
    context.save();
    context.translate(0, from);
    grid(context, scale, to - from, theme);
    context.restore();
    const fills = info.devices.map((device) => fillOf(context, device, theme.dark));
    const related = this.related();
    const lit = (/** @type {number} */ life) => !related || related.has(life);
    const seen = this.rows.filter((placed) => placed.top + ROW >= from && placed.top <= to);
    for (const { row, top } of seen) {
      context.save();
      context.beginPath();
      context.rect(scale.left, top - 1, right - scale.left + 8, ROW + 2);
      context.clip();
      if (row.folded) {
        context.fillStyle = fills[row.lane.device];
        context.globalAlpha = related ? 0.4 : 1;
        area(context, scale, row.steps, 1, top + ROW - 2, ROW - 4, Math.max(...row.steps.map((step) => step[1])));
        context.fill();
      } else drawBars(context, scale, row, top, c, fills[row.lane.device], theme, lit);
      context.restore();
      this.label(context, scale, row, top, theme);
      this.holder(context, right, row, top, theme, scale.right);
    }
    this.paintLinks(context, scale, theme, from, to, related);
    for (const [life, colour] of [[this.chosen, theme.text], [this.focus, theme.brand]]) {
      const placed = this.placed.get(/** @type {number} */ (life));
      if (!placed) continue;
      const end = c.died[life] < 0 ? info.end : c.died[life];
      if (end < scale.from || c.born[life] > scale.to) continue;
      const [x0, x1] = [Math.max(xOf(scale, c.born[life]), scale.left), Math.min(xOf(scale, end), right)];
      outline(context, x0, x1, placed.top, /** @type {string} */ (colour));
    }
  }

  /** @param {CanvasRenderingContext2D} context @param {any} scale @param {Row} row @param {number} top @param {any} theme */
  label(context, scale, row, top, theme) {
    if (!row.first) return;
    const { c } = this;
    const { lane } = row;
    const sizes = lane.lives.map((life) => c.bytes[life]);
    const largest = sizes.reduce((most, each) => Math.max(most, each), 0);
    const most = row.folded ? Math.max(...row.steps.map((step) => step[1])) : largest;
    const bytes = `${row.folded || sizes.some((each) => each !== largest) ? "≤ " : ""}${size(most)}`;
    const fold = row.folded ? "▸ " : this.open.has(lane.key) ? "▾ " : "";
    const many = row.folded || this.open.has(lane.key) ? ` ×${lane.lives.length.toLocaleString("en")}` : "";
    const right = { font: theme.font, align: /** @type {CanvasTextAlign} */ ("right") };
    write(context, bytes, scale.left - 10, top + ROW / 2, { ...right, colour: theme.dim });
    const room = scale.left - 24 - context.measureText(bytes).width;
    const x = scale.left - 18 - context.measureText(bytes).width;
    write(context, `${fold}${lane.label}${many}`, x, top + ROW / 2, { ...right, colour: theme.text, most: room });
  }

  /** @param {CanvasRenderingContext2D} context @param {number} right @param {Row} row @param {number} top @param {any} theme @param {number} room */
  holder(context, right, row, top, theme, room) {
    const { c, info } = this;
    const left = row.lives.filter((life) => c.died[life] < 0);
    if (!left.length) return;
    const bytes = left.reduce((sum, life) => sum + c.bytes[life], 0);
    const [first] = holdersOf(c, info, left[0]);
    const text = left.length > 1 ? `${left.length.toLocaleString("en")} left, ${size(bytes)}` : first?.who ?? "no holder found";
    const colour = left.some((life) => c.left[life]) ? theme.alarm : theme.dim;
    write(context, text, right + 12, top + ROW / 2, { colour, font: theme.font, most: room - 14 });
  }

  /**
   * @param {CanvasRenderingContext2D} context @param {any} scale @param {any} theme @param {number} from
   * @param {number} to @param {Set<number> | undefined} related
   */
  paintLinks(context, scale, theme, from, to, related) {
    const { c } = this;
    const inside = (/** @type {number} */ ns) => ns >= scale.from && ns <= scale.to;
    const wanted = this.copies.filter((life) => {
      if (related && !(related.has(life) && related.has(c.source[life]))) return false;
      const tops = [life, c.source[life]].map((each) => /** @type {Placed} */ (this.placed.get(each)).top);
      return inside(c.born[life]) && Math.max(...tops) + ROW >= from && Math.min(...tops) <= to;
    });
    if (wanted.length > 150) return; // a thicket says nothing; selecting a block shows its own
    for (const life of wanted) {
      const source = c.source[life];
      const start = Math.max(c.born[source], c.born[life] - c.transfer[life], scale.from);
      const y = (/** @type {number} */ each) => /** @type {Placed} */ (this.placed.get(each)).top + ROW / 2;
      arrow(context, xOf(scale, start), y(source), xOf(scale, c.born[life]), y(life), c.how[life] === 2, theme.text);
    }
  }

  /** The selected block with what it was copied from and to, all the way; nothing if none is. */
  related() {
    const { c, chosen } = this;
    if (chosen < 0) return undefined;
    const found = new Set([chosen]);
    for (let life = c.source[chosen]; life >= 0 && !found.has(life); life = c.source[life]) found.add(life);
    for (let life = 0; life < c.id.length; life += 1) if (found.has(c.source[life])) found.add(life);
    return found;
  }

  /** @param {Row} row */
  unfold(row) {
    if (!this.open.delete(row.lane.key)) this.open.add(row.lane.key);
    this.arrange();
  }

  // -- moving -------------------------------------------------------------------------------------------

  /** @param {number} factor @param {number} [at] ns that stays where it is */
  zoom(factor, at = (this.from + this.to) / 2) {
    const { end } = this.info;
    const middle = Math.min(Math.max(at, 0), end);
    const span = Math.min(Math.max((this.to - this.from) * factor, Math.min(LEAST_NS, end)), end);
    const from = middle - ((middle - this.from) / (this.to - this.from)) * span;
    this.show(from, from + span);
  }

  /** @param {number} share of what is seen */
  pan(share) {
    const by = share * (this.to - this.from);
    this.show(this.from + by, this.to + by);
  }

  /** @param {number} from @param {number} to */
  show(from, to) {
    const span = Math.min(to - from, this.info.end);
    this.from = Math.min(Math.max(from, 0), this.info.end - span);
    this.to = this.from + span;
    this.draw();
  }

  /** @param {number} life */
  zoomToBlock(life) {
    if (life < 0) return;
    const { c, info } = this;
    const end = c.died[life] < 0 ? info.end : c.died[life];
    const margin = Math.max((end - c.born[life]) * 0.15, LEAST_NS);
    this.show(c.born[life] - margin, end + margin);
  }

  /** @param {number} life its row among the columns, -1 for none */
  select(life) {
    const id = life < 0 ? 0 : this.c.id[life];
    if (this.model.get("selected") !== id) {
      this.model.set("selected", id);
      this.model.save_changes();
    }
    this.showSelected();
  }

  showSelected() {
    const life = this.rowOf.get(this.model.get("selected")) ?? -1;
    this.chosen = life;
    this.details.hidden = life < 0;
    if (life >= 0) {
      const close = make("button", { class: "bls-life-close", title: "Close (Esc)", "aria-label": "Close", onclick: () => this.select(-1) }, "×");
      const go = (/** @type {number} */ other) => {
        this.select(other);
        if (this.placed.has(other)) this.input.reveal(other);
      };
      this.details.replaceChildren(close, ...describe(this.c, this.info, life, go).filter((child) => child !== false));
      this.said.textContent = `Selected: ${shortly(this.c, this.info, life).join(". ")}`;
    }
    this.draw();
  }
}
