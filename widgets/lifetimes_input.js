// Pointer, wheel and keys of the chart of lifetimes.

import { make, size } from "./common.js";
import { AXIS, HEAD, nsOf, PANEL, ROW, xOf } from "./lifetimes_draw.js";
import { lastBefore } from "./lifetimes_rows.js";
import { shortly } from "./lifetimes_words.js";

/**
 * @typedef {import("./lifetimes_chart.js").Chart} Chart
 * @typedef {import("./lifetimes_chart.js").DevicePanel} DevicePanel
 * @typedef {import("./lifetimes_chart.js").Placed} Placed
 * @typedef {import("./lifetimes_rows.js").Row} Row
 * @typedef {{ x: number, y: number, ns: number, life?: number, fold?: Row, row?: Row, panel?: DevicePanel }} Found
 */

export class Input {
  /** @type {{ x: number, from: number, to: number, moved: boolean } | undefined} */
  drag = undefined;
  hintEnds = 0;

  /** @param {Chart} chart */
  constructor(chart) {
    this.chart = chart;
    const { stage } = chart;
    stage.addEventListener("pointerdown", (event) => this.pressed(event));
    stage.addEventListener("pointermove", (event) => this.moved(event));
    stage.addEventListener("pointerup", (event) => this.released(event));
    stage.addEventListener("pointerleave", () => this.leave());
    stage.addEventListener("dblclick", (event) => chart.zoomToBlock(this.at(event).life ?? -1));
    stage.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    stage.addEventListener("keydown", (event) => this.key(event));
    stage.addEventListener("blur", () => this.leave());
  }

  // -- pointing -----------------------------------------------------------------------------------------

  /**
   * What is at a point: a block, a label that folds, or a panel.
   * @param {MouseEvent} event
   * @returns {Found}
   */
  at(event) {
    const { c, scale } = this.chart;
    const box = this.chart.stage.getBoundingClientRect();
    const found = { x: event.clientX - box.left, y: event.clientY - box.top, ns: nsOf(scale, event.clientX - box.left) };
    const panels = this.chart.devices.length * PANEL;
    const inside = found.x >= scale.left && found.x <= scale.width - scale.right;
    if (found.y < panels) return inside ? { ...found, panel: this.chart.devices[Math.floor(found.y / PANEL)] } : found;
    const y = found.y - panels - AXIS + this.chart.scroll.scrollTop;
    const placed = this.chart.rows.find(({ top }) => y >= top && y < top + ROW);
    if (!placed) return found;
    const { row } = placed;
    if (found.x < scale.left) return row.first && (row.folded || this.chart.open.has(row.lane.key)) ? { ...found, fold: row } : found;
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
    this.drag = { x: event.clientX, from: this.chart.from, to: this.chart.to, moved: false };
  }

  /** @param {PointerEvent} event */
  moved(event) {
    if (this.drag) {
      const by = event.clientX - this.drag.x;
      if (!this.drag.moved && Math.abs(by) > 4) {
        this.drag.moved = true;
        this.chart.stage.setPointerCapture(event.pointerId);
      }
      if (this.drag.moved) {
        const { scale } = this.chart;
        const ns = (by / (scale.width - scale.left - scale.right)) * (this.drag.to - this.drag.from);
        this.leave();
        this.chart.show(this.drag.from - ns, this.drag.to - ns);
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
    if (fold ?? row) this.chart.unfold(/** @type {Row} */ (fold ?? row));
    else if (event.clientY > this.chart.panels.getBoundingClientRect().bottom) this.chart.select(life ?? -1);
  }

  /** @param {MouseEvent} event */
  hover(event) {
    const found = this.at(event);
    const { c, info, scale } = this.chart;
    this.chart.cursor = found.panel || found.row ? found.ns : undefined;
    /** @type {(string | false)[]} */
    let lines = [];
    if (found.life !== undefined) lines = shortly(c, info, found.life);
    else if (found.panel) {
      const { steps, lives, device } = found.panel;
      const step = steps[Math.max(0, lastBefore(steps.length, (/** @type {number} */ i) => steps[i][0], found.ns))];
      lines = [`${size(step[1])} on ${device.label}`, this.chart.alive(lives, found.ns, 6)];
    } else if (found.row) {
      const { steps, lane } = found.row;
      const step = steps[Math.max(0, lastBefore(steps.length, (i) => steps[i][0], found.ns))];
      lines = [`${size(step[1])} in blocks of this row`, `${lane.lives.length.toLocaleString("en")} blocks; click to see each`];
    } else if (found.fold) lines = [found.fold.folded ? "Click to see each block" : "Click to fold"];
    this.chart.stage.style.cursor = found.life !== undefined || found.fold || found.row ? "pointer" : "";
    this.showTip(lines, found.x, found.y, scale.width);
    this.chart.draw();
  }

  /** @param {(string | false)[]} lines @param {number} x @param {number} y @param {number} width */
  showTip(lines, x, y, width) {
    const shown = lines.filter(Boolean);
    this.chart.tip.hidden = !shown.length;
    if (!shown.length) return;
    this.chart.tip.replaceChildren(...shown.map((line, i) => make("div", { class: i ? "bls-life-dim" : "" }, line)));
    const wide = this.chart.tip.offsetWidth;
    this.chart.tip.style.left = `${Math.max(4, x + 16 + wide > width ? x - wide - 12 : x + 16)}px`;
    this.chart.tip.style.top = `${y + 16}px`;
  }

  leave() {
    this.chart.tip.hidden = true;
    this.chart.cursor = undefined;
    this.chart.draw();
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    const across = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.chart.hint.hidden = true;
      this.chart.zoom(1.0018 ** event.deltaY, nsOf(this.chart.scale, this.at(event).x));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      if (this.chart.to - this.chart.from >= this.chart.info.end) return;
      event.preventDefault();
      this.chart.pan(across / (this.chart.scale.width - this.chart.scale.left - this.chart.scale.right));
    } else if (event.target === this.chart.panels) this.sayHint();
  }

  sayHint() {
    this.chart.hint.hidden = false;
    window.clearTimeout(this.hintEnds);
    this.hintEnds = window.setTimeout(() => (this.chart.hint.hidden = true), 1200);
  }

  // -- keys, selecting ----------------------------------------------------------------------------------

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = {
      "+": () => this.chart.zoom(0.5, this.middle()), "=": () => this.chart.zoom(0.5, this.middle()),
      "-": () => this.chart.zoom(2, this.middle()), "0": () => this.chart.show(0, this.chart.info.end),
      ArrowLeft: () => (event.shiftKey ? this.chart.pan(-0.2) : this.step(-1)),
      ArrowRight: () => (event.shiftKey ? this.chart.pan(0.2) : this.step(1)),
      ArrowUp: () => this.stepRow(-1), ArrowDown: () => this.stepRow(1),
      Home: () => this.goTo(this.order()[0] ?? -1), End: () => this.goTo(this.order().at(-1) ?? -1),
      Enter: () => this.chart.select(this.chart.focus), " ": () => this.chart.select(this.chart.focus),
      Escape: () => this.chart.select(-1),
    }[event.key];
    if (!act) return;
    // The notebook has shortcuts of its own for many of these.
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  middle() {
    return this.chart.focus < 0 ? (this.chart.from + this.chart.to) / 2 : this.chart.c.born[this.chart.focus];
  }

  /** Blocks that have a bar, row after row. */
  order() {
    return this.chart.rows.filter(({ row }) => !row.folded).flatMap(({ row }) => row.lives);
  }

  /** @param {number} by */
  step(by) {
    const all = this.order();
    const at = all.indexOf(this.chart.focus);
    this.goTo(all[at < 0 ? 0 : Math.min(Math.max(at + by, 0), all.length - 1)] ?? -1);
  }

  /** @param {number} by */
  stepRow(by) {
    const bars = this.chart.rows.filter(({ row }) => !row.folded);
    const at = bars.findIndex(({ row }) => row.lives.includes(this.chart.focus));
    if (at < 0) return this.step(0);
    const row = bars[Math.min(Math.max(at + by, 0), bars.length - 1)].row;
    const { born } = this.chart.c;
    const now = born[this.chart.focus];
    this.goTo(row.lives.reduce((best, life) => (Math.abs(born[life] - now) < Math.abs(born[best] - now) ? life : best)));
  }

  /** Bring a block into view, and say it. @param {number} life */
  goTo(life) {
    const placed = this.chart.placed.get(life);
    if (!placed) return;
    this.chart.focus = life;
    this.reveal(life);
    this.chart.said.textContent = shortly(this.chart.c, this.chart.info, life).join(". ");
    const top = this.chart.devices.length * PANEL + AXIS + placed.top - this.chart.scroll.scrollTop;
    const { scale } = this.chart;
    this.showTip(shortly(this.chart.c, this.chart.info, life), Math.max(xOf(scale, this.chart.c.born[life]), scale.left), top, scale.width);
    this.chart.draw();
  }

  /** @param {number} life */
  reveal(life) {
    const placed = /** @type {Placed} */ (this.chart.placed.get(life));
    const { scrollTop, clientHeight } = this.chart.scroll;
    if (placed.top < scrollTop) this.chart.scroll.scrollTop = placed.top - HEAD;
    if (placed.top + ROW > scrollTop + clientHeight) this.chart.scroll.scrollTop = placed.top + ROW - clientHeight;
    const end = this.chart.c.died[life] < 0 ? this.chart.info.end : this.chart.c.died[life];
    if (end < this.chart.from || this.chart.c.born[life] > this.chart.to) {
      const half = (this.chart.to - this.chart.from) / 2;
      this.chart.show(this.chart.c.born[life] - half, this.chart.c.born[life] + half);
    }
  }
}
