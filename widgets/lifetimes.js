// The chart of a memory track: bytes over time on each device, a bar for each block of memory.
//
// Ctrl or Cmd with the wheel zooms, dragging or Shift with the wheel moves, a click selects a block; every
// one of these has a key. What is selected is the trait `selected`, the id of a block.

import { columns, isDark, make, onTheme, size } from "./common.js";
import { onTop } from "./on_top.js";
import {
  arrow, AXIS, axis, drawBars, drawPanel, fillOf, fresh, grid, HEAD, nsOf, outline, PANEL, ROW, write, xOf, area,
} from "./lifetimes_draw.js";
import { lastBefore, layout, profile } from "./lifetimes_rows.js";
import { aliveTable, describe, holdersOf, shortly } from "./lifetimes_words.js";

const MOST_ROWS = 48;
const MOST_TABLE = 200; // rows
const TALLEST = 460; // of the part with the bars; more of them scroll
const LEAST_NS = 200;
const KEYS =
  "Arrow keys go from block to block, Enter selects, plus and minus zoom, Shift with arrows moves, 0 shows all.";

/**
 * @typedef {import("./on_top.js").Model} Model
 * @typedef {import("./lifetimes_words.js").Info} Info
 * @typedef {import("./lifetimes_rows.js").Row} Row
 * @typedef {{ row: Row, top: number }} Placed
 */

/** @param {{ model: Model, el: HTMLElement }} context */
function render({ model, el }) {
  const chart = new Chart(model, el);
  return () => chart.end();
}

class Chart {
  /** @param {Model} model @param {HTMLElement} el */
  constructor(model, el) {
    this.model = model;
    /** @type {Info} */
    this.info = model.get("info");
    this.c = columns(model.get("data"), model.get("columns"));
    this.c.words = this.info.words;
    this.c.models = this.info.models;
    this.hidden = { device: new Set(), model: new Set() };
    /** @type {Set<string>} */
    this.open = new Set();
    this.from = 0;
    this.to = this.info.end;
    this.focus = -1;
    this.rowOf = new Map(Array.from(this.c.id, (/** @type {number} */ id, /** @type {number} */ i) => [id, i]));
    this.asked = 0;
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
    this.panels = /** @type {HTMLCanvasElement} */ (make("canvas", { class: "bls-life-panels" }));
    this.bars = /** @type {HTMLCanvasElement} */ (make("canvas", { class: "bls-life-bars" }));
    this.space = make("div", { class: "bls-life-space" }, this.bars);
    this.scroll = make("div", { class: "bls-life-scroll", onscroll: () => this.draw() }, this.space);
    this.tip = make("div", { class: "bls-life-tip", role: "presentation", hidden: true });
    this.hint = make("div", { class: "bls-life-hint", hidden: true }, "Ctrl + scroll zooms");
    this.said = make("div", { class: "bls-life-said", "aria-live": "polite" });
    this.details = make("section", { class: "bls-life-details", "aria-label": "Selected block", hidden: true });
    this.chart = make(
      "div",
      {
        class: "bls-life-chart", tabindex: 0, role: "application", "data-lm-suppress-shortcuts": "true", "aria-roledescription": "chart of lifetimes",
        "aria-label": `${info.title}, ${info.facts.join(", ")}. ${KEYS}`,
        onpointerdown: (/** @type {PointerEvent} */ event) => this.pressed(event),
        onpointermove: (/** @type {PointerEvent} */ event) => this.moved(event),
        onpointerup: (/** @type {PointerEvent} */ event) => this.released(event),
        onpointerleave: () => this.leave(),
        ondblclick: (/** @type {MouseEvent} */ event) => this.zoomToBlock(this.at(event)?.life ?? -1),
        onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event),
        onblur: () => this.leave(),
      },
      this.panels, this.scroll, this.tip, this.hint,
    );
    this.chart.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    const legend = "│ handed on   ➝ copied or transferred   ▸ still alive at the end · click a block for its request and holders";
    this.root = make("div", { class: "bls-life" }, this.heading(), this.filters(), this.chart,
      make("div", { class: "bls-life-legend bls-life-dim", "aria-hidden": "true" }, legend),
      this.details, aliveTable(this.c, info, MOST_TABLE, (life) => this.goTo(life) ?? this.select(life)), this.said);
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
    /** @type {{ text: string, top: number, height: number }[]} */
    this.groups = [];
    /** @type {Placed[]} */
    this.rows = [];
    /** @type {Map<number, Placed>} */
    this.placed = new Map();
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
    const width = Math.max(this.chart.clientWidth, 320);
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
    if (!this.chart.clientWidth) return;
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
    const bytes = row.folded ? `≤ ${size(Math.max(...row.steps.map((step) => step[1])))}` : size(largest);
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

  // -- pointing -----------------------------------------------------------------------------------------

  /**
   * What is at a point: a block, a label that folds, or a panel.
   * @param {MouseEvent} event
   * @returns {{ x: number, y: number, ns: number, life?: number, fold?: Row, panel?: any, row?: Row }}
   */
  at(event) {
    const { c, scale } = this;
    const box = this.chart.getBoundingClientRect();
    const found = { x: event.clientX - box.left, y: event.clientY - box.top, ns: nsOf(scale, event.clientX - box.left) };
    const panels = this.devices.length * PANEL;
    const inside = found.x >= scale.left && found.x <= scale.width - scale.right;
    if (found.y < panels) return inside ? { ...found, panel: this.devices[Math.floor(found.y / PANEL)] } : found;
    const y = found.y - panels - AXIS + this.scroll.scrollTop;
    const placed = this.rows.find(({ top }) => y >= top && y < top + ROW);
    if (!placed) return found;
    const { row } = placed;
    if (found.x < scale.left) return row.first && (row.folded || this.open.has(row.lane.key)) ? { ...found, fold: row } : found;
    if (row.folded) return inside ? { ...found, row } : found;
    if (!inside) {
      const open = row.lives[row.lives.length - 1];
      return c.died[open] < 0 ? { ...found, life: open } : found;
    }
    // A block of less than 4 pixels can be hit beside it.
    const reach = ((scale.to - scale.from) / (scale.width - scale.left - scale.right)) * 4;
    const i = lastBefore(row.lives.length, (k) => c.born[row.lives[k]], found.ns + reach);
    const close = row.lives.slice(Math.max(0, i - 1), i + 1).reverse();
    const life = close.find((each) => c.born[each] <= found.ns && (c.died[each] < 0 || c.died[each] > found.ns))
      ?? close.find((each) => c.died[each] < 0 || c.died[each] + reach >= found.ns);
    return { ...found, life };
  }

  /** @param {PointerEvent} event */
  pressed(event) {
    if (event.button !== 0) return;
    this.drag = { x: event.clientX, from: this.from, to: this.to, moved: false };
  }

  /** @param {PointerEvent} event */
  moved(event) {
    if (this.drag) {
      const by = event.clientX - this.drag.x;
      if (!this.drag.moved && Math.abs(by) > 4) {
        this.drag.moved = true;
        this.chart.setPointerCapture(event.pointerId);
      }
      if (this.drag.moved) {
        const { scale } = this;
        const ns = (by / (scale.width - scale.left - scale.right)) * (this.drag.to - this.drag.from);
        this.leave();
        this.show(this.drag.from - ns, this.drag.to - ns);
        return;
      }
    }
    this.hover(event);
  }

  /** @param {PointerEvent} event */
  released(event) {
    const moved = this.drag?.moved;
    const pressed = this.drag;
    this.drag = undefined;
    if (!pressed || moved) return;
    const { life, fold, row } = this.at(event);
    if (fold ?? row) this.unfold(/** @type {Row} */ (fold ?? row));
    else if (event.clientY > this.panels.getBoundingClientRect().bottom) this.select(life ?? -1);
  }

  /** @param {Row} row */
  unfold(row) {
    if (!this.open.delete(row.lane.key)) this.open.add(row.lane.key);
    this.arrange();
  }

  /** @param {MouseEvent} event */
  hover(event) {
    const found = this.at(event);
    const { c, info, scale } = this;
    this.cursor = found.panel || found.row ? found.ns : undefined;
    /** @type {(string | false)[]} */
    let lines = [];
    if (found.life !== undefined) lines = shortly(c, info, found.life);
    else if (found.panel) {
      const { steps, lives, device } = found.panel;
      const step = steps[Math.max(0, lastBefore(steps.length, (/** @type {number} */ i) => steps[i][0], found.ns))];
      lines = [`${size(step[1])} on ${device.label}`, this.alive(lives, found.ns, 6)];
    } else if (found.row) {
      const { steps, lane } = found.row;
      const step = steps[Math.max(0, lastBefore(steps.length, (i) => steps[i][0], found.ns))];
      lines = [`${size(step[1])} in blocks of this row`, `${lane.lives.length.toLocaleString("en")} blocks; click to see each`];
    } else if (found.fold) lines = [found.fold.folded ? "Click to see each block" : "Click to fold"];
    this.chart.style.cursor = found.life !== undefined || found.fold || found.row ? "pointer" : "";
    this.showTip(lines, found.x, found.y, scale.width);
    this.draw();
  }

  /** @param {(string | false)[]} lines @param {number} x @param {number} y @param {number} width */
  showTip(lines, x, y, width) {
    const shown = lines.filter(Boolean);
    this.tip.hidden = !shown.length;
    if (!shown.length) return;
    this.tip.replaceChildren(...shown.map((line, i) => make("div", { class: i ? "bls-life-dim" : "" }, line)));
    const wide = this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(4, x + 16 + wide > width ? x - wide - 12 : x + 16)}px`;
    this.tip.style.top = `${y + 16}px`;
  }

  leave() {
    this.tip.hidden = true;
    this.cursor = undefined;
    this.draw();
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    const across = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.hint.hidden = true;
      this.zoom(1.0018 ** event.deltaY, nsOf(this.scale, this.at(event).x));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      if (this.to - this.from >= this.info.end) return;
      event.preventDefault();
      this.pan(across / (this.scale.width - this.scale.left - this.scale.right));
    } else if (event.target === this.panels) this.sayHint();
  }

  sayHint() {
    this.hint.hidden = false;
    clearTimeout(this.hintEnds);
    this.hintEnds = setTimeout(() => (this.hint.hidden = true), 1200);
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

  // -- keys, selecting ----------------------------------------------------------------------------------

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = {
      "+": () => this.zoom(0.5, this.middle()), "=": () => this.zoom(0.5, this.middle()),
      "-": () => this.zoom(2, this.middle()), "0": () => this.show(0, this.info.end),
      ArrowLeft: () => (event.shiftKey ? this.pan(-0.2) : this.step(-1)),
      ArrowRight: () => (event.shiftKey ? this.pan(0.2) : this.step(1)),
      ArrowUp: () => this.stepRow(-1), ArrowDown: () => this.stepRow(1),
      Home: () => this.goTo(this.order()[0] ?? -1), End: () => this.goTo(this.order().at(-1) ?? -1),
      Enter: () => this.select(this.focus), " ": () => this.select(this.focus),
      Escape: () => this.select(-1),
    }[event.key];
    if (!act) return;
    // The notebook has shortcuts of its own for many of these.
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  middle() {
    return this.focus < 0 ? (this.from + this.to) / 2 : this.c.born[this.focus];
  }

  /** Blocks that have a bar, row after row. */
  order() {
    return this.rows.filter(({ row }) => !row.folded).flatMap(({ row }) => row.lives);
  }

  /** @param {number} by */
  step(by) {
    const all = this.order();
    const at = all.indexOf(this.focus);
    this.goTo(all[at < 0 ? 0 : Math.min(Math.max(at + by, 0), all.length - 1)] ?? -1);
  }

  /** @param {number} by */
  stepRow(by) {
    const bars = this.rows.filter(({ row }) => !row.folded);
    const at = bars.findIndex(({ row }) => row.lives.includes(this.focus));
    if (at < 0) return this.step(0);
    const row = bars[Math.min(Math.max(at + by, 0), bars.length - 1)].row;
    const { born } = this.c;
    const now = born[this.focus];
    this.goTo(row.lives.reduce((best, life) => (Math.abs(born[life] - now) < Math.abs(born[best] - now) ? life : best)));
  }

  /** Bring a block into view, and say it. @param {number} life */
  goTo(life) {
    const placed = this.placed.get(life);
    if (!placed) return;
    this.focus = life;
    this.reveal(life);
    this.said.textContent = shortly(this.c, this.info, life).join(". ");
    const top = this.devices.length * PANEL + AXIS + placed.top - this.scroll.scrollTop;
    const { scale } = this;
    this.showTip(shortly(this.c, this.info, life), Math.max(xOf(scale, this.c.born[life]), scale.left), top, scale.width);
    this.draw();
  }

  /** @param {number} life */
  reveal(life) {
    const placed = /** @type {Placed} */ (this.placed.get(life));
    const { scrollTop, clientHeight } = this.scroll;
    if (placed.top < scrollTop) this.scroll.scrollTop = placed.top - HEAD;
    if (placed.top + ROW > scrollTop + clientHeight) this.scroll.scrollTop = placed.top + ROW - clientHeight;
    const end = this.c.died[life] < 0 ? this.info.end : this.c.died[life];
    if (end < this.from || this.c.born[life] > this.to) {
      const half = (this.to - this.from) / 2;
      this.show(this.c.born[life] - half, this.c.born[life] + half);
    }
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
        if (this.placed.has(other)) this.reveal(other);
      };
      this.details.replaceChildren(close, ...describe(this.c, this.info, life, go).filter((child) => child !== false));
      this.said.textContent = `Selected: ${shortly(this.c, this.info, life).join(". ")}`;
    }
    this.draw();
  }
}

export default onTop(render);
