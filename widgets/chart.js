// What the charts do alike: a time axis that zooms and moves, rows in which the pointer and the keys find
// things, the tooltip, the theme. A chart itself says what is in its rows, paints it, and tells of it.

import { Axis, CLOSEST } from "./axis.js";
import { listen, wheel } from "./chart_pointer.js";
import { Tools } from "./chart_tools.js";
import { above, make, onTheme, own, ticks } from "./common.js";

/**
 * What lies side by side: things that do not overlap, `of` are their numbers. Keys pass by a row that is `quiet`.
 * One thing may stand for several, its `batches`; `first` is then which one stands for each.
 * @typedef {{ top: number, height: number, of: ArrayLike<number>, begin: ArrayLike<number>, end: ArrayLike<number>,
 *   quiet?: boolean, first?: ArrayLike<number>, batches?: Map<number, number[]> }} Row
 * @typedef {import("./axis.js").Pen} Pen
 */

const FAR = 6; // px beyond which nothing is at the pointer, to either side
const [LEAST, MOST] = [200, 640]; // px of the rows that are seen at a time in a notebook; more of them scroll

/** A thing in a row; `more` are so many that they cannot be told apart. @template {Row} R @typedef {{ row: R, i: number, more?: number }} Spot */

/** @template {Row} R */
export class Chart extends Axis {
  // What a chart has to have of its own.
  /** @type {R[]} */
  rows = [];
  headHeight = 0;
  rowsHeight = 0;
  /** Px left of the canvases, and within them left and right of the axis. @returns {number[]} @param {number} _width */
  margins(_width) { return [0, 0, 0]; }
  /** @param {Pen} _pen */
  paintHead(_pen) {}
  /** @param {Pen} _pen @param {number} _from @param {number} _to px that are seen */
  paintRows(_pen, _from, _to) {}
  /** @param {Pen} _pen */
  paintOver(_pen) {}
  /** @param {Spot<R>} _spot @returns {(Node | string)[]} */
  tipOf(_spot) { return []; }
  /** The pointer moved. @param {number} x @param {number} y */
  hover(x, y) {
    if (this.hovered) this.showTip(this.tipOf(this.hovered), x, y);
    else this.hideTip();
  }
  /** @param {Spot<R> | null} spot @param {number} _x @param {number} _y */
  click(spot, _x, _y) { this.setFocus(spot); }
  /** @param {Spot<R> | null} _spot */
  focused(_spot) {}
  /** Let stand out what has a text that passes; null for everything. How many there are. @param {((text: string) => boolean) | null} _test */
  seek(_test) { return 0; }
  /** What stands out, and where in it the focus is. @returns {{ all: any[], at: number }} */
  hits() { return { all: [], at: -1 }; }
  /** Go to one of these. @param {any} _hit */
  visit(_hit) {}
  /** What has been asked for is taken back, the last first. */
  escape() { this.tools?.escape(); }
  /** @type {Tools | null} */
  tools = null;
  /** @type {HTMLElement | null} what has the keys */
  plot = null;
  full = false; // it fills the screen
  /** @type {((range: { begin: number, end: number } | null, done?: boolean) => void) | null} */
  toRange = null;
  /** @type {Spot<R> | null} what the pointer is at */
  hovered = null;
  /** @type {Spot<R> | null} what the keys are at */
  focus = null;

  /**
   * @param {HTMLElement} el
   * @param {string} root the class of all of it
   * @param {string} prefix of the classes of its parts
   * @param {Record<string, string>} names of parts that have names of their own
   */
  constructor(el, root, prefix, names) {
    super(make("div", { class: `bls-chart ${root}` }));
    const part = (/** @type {string} */ name) => `bls-chart-${name} ${prefix}-${names[name] ?? name}`;
    const canvas = (/** @type {string} */ name) =>
      /** @type {HTMLCanvasElement} */ (make("canvas", { class: part(name), "aria-hidden": "true" }));
    this.head = canvas("head");
    this.base = canvas("base");
    this.over = canvas("over");
    this.stage = make("div", { class: part("stage") }, this.base, this.over);
    this.space = make("div", { class: part("space") }, this.stage);
    this.scroll = make("div", { class: part("scroll"), onscroll: () => this.draw() }, this.space);
    this.hint = make("div", { class: part("hint"), "aria-hidden": "true" });
    this.frame = make("div", { class: part("frame") }, this.head, this.scroll, this.hint);
    this.live = make("div", { class: part("live"), "aria-live": "polite" });
    this.tip = make("div", { class: `bls-chart ${part("tip")}`, role: "presentation", hidden: true });
    this.height = 0; // of the rows that are seen, px
    this.asked = this.timer = 0;
    this.stale = true;
    /** @type {(() => void)[]} */
    this.ends = [];
    el.append(this.root);
    document.body.append(this.tip); // a cell's output would cut it off
  }

  /**
   * Begin, when all of it is on the page.
   * @param {HTMLElement} plot what has the keys @param {string} label @param {string} role in words
   * @param {HTMLElement[]} drags on what the pointer acts
   */
  start(plot, label, role, drags) {
    this.plot = plot;
    const attributes = { tabindex: "0", role: "application", "aria-roledescription": role, "aria-label": label };
    for (const [name, value] of Object.entries(attributes)) plot.setAttribute(name, value);
    plot.removeAttribute("aria-hidden");
    own(plot);
    plot.addEventListener("keydown", (event) => this.key(event));
    plot.addEventListener("blur", () => this.hideTip());
    this.frame.addEventListener("wheel", (event) => wheel(this, event), { passive: false });
    for (const element of drags) listen(this, element);
    const sizes = new ResizeObserver(() => this.resize());
    sizes.observe(this.frame);
    const dock = this.dock(); // a panel of its own, which it fills
    if (dock) sizes.observe(dock);
    const resized = () => this.resize();
    window.addEventListener("resize", resized);
    this.ends.push(() => sizes.disconnect(), onTheme(() => this.readTheme()), () => window.removeEventListener("resize", resized));
    this.readTheme();
    this.resize();
  }

  close() {
    cancelAnimationFrame(this.asked);
    clearTimeout(this.timer);
    for (const end of this.ends) end();
    this.tip.remove();
    this.root.remove();
  }

  // -- drawing ------------------------------------------------------------------------------------

  readTheme() {
    super.readTheme();
    this.tip.classList.toggle("bls-chart-dark", this.theme.dark);
    this.themed();
    this.draw();
  }

  /** The theme has changed. */
  themed() {}

  resize() {
    const wide = this.scroll.clientWidth;
    const [beside, left, right] = this.margins(wide);
    this.left = left;
    this.width = Math.max(60, wide - beside - left - right);
    this.canvasWidth = this.width + left + right;
    this.space.style.height = `${this.rowsHeight}px`;
    this.height = Math.min(this.rowsHeight, this.room());
    this.scroll.style.height = this.stage.style.height = `${this.height}px`;
    this.draw(true);
  }

  /** The panel of JupyterLab that shows this output alone, beside the notebook. @returns {HTMLElement | null} */
  dock() {
    return this.root.closest(".jp-LinkedOutputView");
  }

  /** Px for the rows: what the screen or the panel has left, or else a good part of what is seen of the notebook. */
  room() {
    const dock = this.dock();
    if (!this.full && !dock) return Math.max(LEAST, Math.min(MOST, window.innerHeight * 0.75));
    const { top } = this.root.getBoundingClientRect();
    const bottom = Math.max(...[...this.root.children].map((part) => part.getBoundingClientRect().bottom));
    const others = bottom + this.root.scrollTop - top - this.scroll.offsetHeight;
    if (this.full || !dock) return Math.max(LEAST, window.innerHeight - others - 12);
    return Math.max(LEAST, dock.clientHeight - others - 32);
  }

  /** @param {boolean} [now] */
  draw(now = false) {
    this.stale = true;
    if (now) this.paint();
    else this.drawOver();
  }

  drawOver() {
    this.asked ||= requestAnimationFrame(() => this.paint());
  }

  paint() {
    cancelAnimationFrame(this.asked);
    this.asked = 0;
    if (!this.scroll.clientWidth) return;
    const top = this.scroll.scrollTop;
    if (this.stale) {
      this.times = ticks(this.from, Math.min(this.to, this.whole), Math.max(2, this.width / 105));
      const pen = this.fresh(this.base, this.height);
      pen.translate(0, -top);
      this.grid(pen, top, this.height);
      this.paintRows(pen, top, top + this.height);
      this.paintHead(this.fresh(this.head, this.headHeight));
      this.stale = false;
    }
    const over = this.fresh(this.over, this.height);
    over.translate(0, -top);
    this.paintOver(over);
  }

  /** @param {Spot<R>} spot */
  zoomTo(spot) {
    const [begin, end] = this.extent(spot);
    this.show(begin - (end - begin) * 0.15, end + (end - begin) * 0.15);
  }

  // -- what is where ------------------------------------------------------------------------------

  /** Where in a row a thing is, or what stands for it. @param {R} row @param {number} i */
  slot(row, i) {
    return Array.prototype.indexOf.call(row.of, row.first ? row.first[i] : i);
  }

  /** @param {R} row @param {number} k @returns {number[]} */
  members(row, k) {
    return row.batches?.get(row.of[k]) ?? [row.of[k]];
  }

  /** The place where keys find a thing. @param {number} i @param {(row: R) => boolean} [test] @returns {Spot<R> | null} */
  spotOf(i, test = () => true) {
    const row = this.rows.find((each) => !each.quiet && test(each) && this.slot(each, i) >= 0);
    return row ? { row, i } : null;
  }

  /** The rows are others: the focus stays on its thing. */
  refocus() {
    if (this.focus) this.focus = this.spotOf(this.focus.i);
  }

  /** @param {Spot<R>} spot @returns {[number, number]} */
  extent({ row, i }) {
    const k = this.slot(row, i);
    return [row.begin[k], row.end[k]];
  }

  /** The box of a spot: left, top, width, height. @param {Spot<R>} spot */
  box(spot) {
    const [begin, end] = this.extent(spot).map((time) => this.x(time));
    return [begin, spot.row.top, Math.max(2, end - begin), spot.row.height];
  }

  /** Draw a frame around a spot. @param {Pen} pen @param {Spot<R>} spot @param {string} colour */
  outline(pen, spot, colour) {
    const [left, top, width, height] = this.box(spot);
    const [from, to] = [Math.max(left, this.left - 3), Math.min(left + width, this.left + this.width + 3)];
    pen.strokeStyle = colour;
    pen.lineWidth = 2;
    if (to > from) pen.strokeRect(from - 1, top - 1, to - from + 1, height + 2);
  }

  /** @param {number} x @param {number} y px from the top of what is seen @returns {Spot<R> | null} */
  at(x, y) {
    const deep = y + this.scroll.scrollTop;
    const row = this.rows.find(({ top, height }) => deep >= top - 0.5 && deep < top + height + 0.5);
    if (!row || y < 0) return null;
    const [time, near] = [this.time(x), FAR / 2 / this.scale];
    const first = above(row.end, time - near);
    const last = above(row.begin, time + near);
    if (last <= first) return null;
    const best = nearest(row, time, first, Math.min(last, first + 50));
    const narrow = (row.end[best] - row.begin[best]) * this.scale < 2;
    const members = this.members(row, best);
    const which = Math.floor(((deep - row.top) / row.height) * members.length);
    const i = members[Math.max(0, Math.min(members.length - 1, which))];
    return { row, i, more: narrow && last - first > 3 ? last - first : 0 };
  }

  // -- keys ---------------------------------------------------------------------------------------

  /** What keys do. @returns {Record<string, (event: KeyboardEvent) => void>} */
  keys() {
    const across = (/** @type {number} */ step) => (/** @type {KeyboardEvent} */ event) =>
      event.shiftKey ? this.pan((step * this.width) / 8) : this.walk(step);
    const zoom = (/** @type {number} */ factor) => () => {
      const [begin, end] = this.focus ? this.extent(this.focus) : [this.from, this.to];
      this.zoom(factor, Math.max(this.left, Math.min(this.left + this.width, this.x((begin + end) / 2))));
    };
    return {
      ArrowRight: across(1), ArrowLeft: across(-1), ArrowDown: () => this.climb(1), ArrowUp: () => this.climb(-1),
      "+": zoom(0.7), "=": zoom(0.7), "-": zoom(1 / 0.7), 0: () => this.fit(), z: () => this.focus && this.zoomTo(this.focus),
      Escape: () => this.escape(), ...this.tools?.keys(),
    };
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = this.keys()[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has keys of its own
    act(event);
  }

  /** The rows that keys go through, and where in them the focus is. */
  here() {
    const rows = this.rows.filter((row) => !row.quiet && row.of.length);
    const at = this.focus ? rows.indexOf(this.focus.row) : -1;
    return { rows, at };
  }

  /** Go to the next thing of the row. @param {number} step */
  walk(step) {
    const { rows, at } = this.here();
    if (at < 0 || !this.focus) {
      if (rows.length) this.setFocus({ row: rows[0], i: rows[0].of[0] });
      return;
    }
    const row = rows[at];
    const all = Array.from(row.of).flatMap((_, k) => this.members(row, k));
    const i = all[all.indexOf(this.focus.i) + step];
    if (i !== undefined) this.setFocus({ row, i });
    else this.beyond(step);
  }

  /** There is nothing more in the row. @param {number} step */
  beyond(step) {
    this.say(step > 0 ? "The last of this row" : "The first of this row");
  }

  /** Go to the row above or below, to what is nearest in time. @param {number} step */
  climb(step) {
    const { rows, at } = this.here();
    const row = rows[at + step];
    if (at < 0 || !this.focus) this.walk(1);
    else if (row) {
      const [begin, end] = this.extent(this.focus);
      const time = (Math.max(begin, this.from) + Math.min(end, this.to)) / 2;
      this.setFocus({ row, i: row.of[nearest(row, time, 0, row.of.length)] });
    }
  }

  /** @param {Spot<R> | null} spot */
  setFocus(spot) {
    this.focus = spot;
    if (spot) {
      this.reveal(spot);
      this.tipAt(spot);
    } else this.hideTip();
    this.focused(spot);
    this.drawOver();
  }

  /** Move so that a spot is in view. @param {Spot<R>} spot */
  reveal(spot) {
    const [begin, end] = this.extent(spot);
    if (end < this.from || begin > this.to || (end - begin) * this.scale < 1.5) {
      const span = Math.min(this.to - this.from, Math.max((end - begin) * 40, CLOSEST));
      this.show((begin + end - span) / 2, (begin + end + span) / 2);
    }
    const { top, height } = spot.row;
    const lowest = top + height + 4 - this.height;
    this.scroll.scrollTop = Math.max(lowest, Math.min(this.scroll.scrollTop, Math.max(0, top - 24)));
    this.draw(true);
  }

  /** @param {string} text */
  say(text) {
    this.live.textContent = text;
  }

  // -- the tooltip --------------------------------------------------------------------------------

  /** Show the tooltip of a spot below it. @param {Spot<R>} spot */
  tipAt(spot) {
    const [left, top, width, height] = this.box(spot);
    const [from, to] = [Math.max(left, this.left), Math.min(left + width, this.left + this.width)];
    this.showTip(this.tipOf(spot), (from + to) / 2, top + height - this.scroll.scrollTop);
  }

  /** @param {(Node | string)[]} lines @param {number} x @param {number} y px of what is seen of the rows */
  showTip(lines, x, y) {
    this.tip.hidden = !lines.length;
    if (!lines.length) return;
    this.tip.replaceChildren(...lines);
    const box = this.base.getBoundingClientRect();
    const { offsetWidth, offsetHeight } = this.tip;
    const [left, top] = [box.left + x + 12, box.top + y + 16];
    this.tip.style.left = `${Math.max(4, Math.min(left, window.innerWidth - offsetWidth - 4))}px`;
    // Below the pointer, or above it where the page ends.
    const room = top + offsetHeight < window.innerHeight;
    this.tip.style.top = `${room ? top : Math.max(4, top - 28 - offsetHeight)}px`;
  }

  hideTip() {
    this.tip.hidden = true;
  }
}

/** What is nearest to a time. @param {Row} row @param {number} time @param {number} first @param {number} last */
function nearest(row, time, first, last) {
  const away = (/** @type {number} */ k) => Math.max(0, row.begin[k] - time, time - row.end[k]);
  let best = first;
  for (let k = first; k < last; k += 1) if (away(k) < away(best)) best = k;
  return best;
}
