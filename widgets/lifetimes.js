// The chart of a memory track: bytes over time on each device, a bar for each block of memory. Python's side is
// lifetimes/display/widget.py. What is selected is the trait `selected`, the id of a block.

import { Chart } from "./chart.js";
import { Filter, Tools } from "./chart_tools.js";
import { above, columns, counted, make, size } from "./common.js";
import { AXIS, BAR, HEAD, paintHead, paintRows, PANEL, ROW } from "./lifetimes_paint.js";
import { describe, shortly } from "./lifetimes_words.js";
import { onTop } from "./on_top.js";

const MOST_ROWS = 48; // unless names are unfolded

/**
 * @typedef {import("./on_top.js").Model} Model
 * @typedef {import("./lifetimes_words.js").Info} Info
 * @typedef {Record<string, any>} Columns typed arrays by name; see lifetimes/display/widget.py
 * @typedef {{ at: number[], level: number[], left: number[], tops: number[][] }} Steps the bytes of some blocks, of those
 *   left behind, and on top of these of the others by model
 * @typedef {{ label: string, line: string, owners: string[], deep: number, rank: number, size: string, peak: string, lives: number[], rows: number[][],
 *   model: number, device: number, open: boolean }} Lane
 * @typedef {import("./chart.js").Row & { lane: Lane, lives: number[], owners: string, first: undefined, begins: boolean, steps: Steps | null, heights: number[] }} LifeRow
 * @typedef {import("./chart.js").Spot<LifeRow>} Spot
 * @typedef {{ number: number, models: number[], lives: number[], steps: Steps, peak: number, peakAt: number, text: string }} Panel
 */

/** @extends {Chart<LifeRow>} */
export class LifetimesChart extends Chart {
  details = make("section", { class: "bls-life-details", "aria-label": "Selected block", hidden: true });
  /** What is searched for. @type {Set<number> | undefined} */
  found = undefined;
  /** @type {{ text: string, top: number, height: number }[]} */
  groups = [];
  /** @type {Map<number, LifeRow>} the row of each block that has a bar */
  placed = new Map();
  /** @type {Panel[]} */
  panels = [];
  chosen = -1; // the block that is selected
  most = 1; // bytes that are as high as a row
  /** Where the pointer is in bytes, px from the left. @type {number | undefined} */
  cursor = undefined;

  /** @param {Model} model @param {HTMLElement} el */
  constructor(model, el) {
    super(el, "bls-life", "bls-life", { head: "panels", base: "bars", frame: "chart", live: "said" });
    this.model = model;
    const info = this.info = /** @type {Info} */ (model.get("info"));
    const c = this.c = columns(model.get("data"), model.get("columns"));
    this.whole = this.to = info.end;
    this.ended = Float64Array.from(c.died, (ns) => (ns < 0 ? info.end : ns));
    this.rowOf = new Map(Array.from(c.id, (/** @type {number} */ id, /** @type {number} */ i) => [id, i]));
    /** @type {Lane[]} */
    this.lanes = info.lanes.map((lane) => ({
      ...lane, lives: [], rows: Array.from({ length: lane.deep }, () => []), model: 0, device: 0, open: false,
    }));
    for (let life = 0; life < c.id.length; life += 1) {
      const lane = this.lanes[c.lane[life]];
      [lane.model, lane.device] = [c.model[life], c.device[life]];
      lane.lives.push(life);
      lane.rows[c.row[life]].push(life);
    }
    const changed = () => {
      this.arrange();
      this.resize();
    };
    this.filters = { device: new Filter(this, info.devices.map(({ label }) => label), changed), model: new Filter(this, info.models, changed) };
    this.tools = new Tools(this, "block", "name, model, device, line or request ID", [["Home End", "the first, the last"]]);
    this.build(this.tools);
    this.arrange();
    const keys = "Arrow keys go from block to block, Enter selects, plus and minus zoom, Shift with arrows moves, 0 shows all.";
    this.start(this.frame, `${info.title}. ${keys}`, "chart of lifetimes", [this.frame]);
    const picked = () => this.showSelected();
    model.on("change:selected", picked);
    this.ends.push(() => model.off("change:selected", picked));
    this.showSelected();
  }

  // -- the elements ---------------------------------------------------------------------------------

  /** @param {Tools} tools */
  build(tools) {
    const { info, c, filters } = this;
    const used = new Set(c.device);
    const devices = info.devices.map((_, i) => used.has(i) && filters.device.chip(i));
    const models = info.models.map((_, i) => filters.model.chip(i, info.inks[i]));
    const dim = (/** @type {string} */ text) => make("span", { class: "bls-chart-dim" }, text);
    this.root.append(
      make("div", { class: "bls-life-filters" },
        make("span", { role: "group", "aria-label": "Devices" }, dim("devices"), ...devices),
        make("span", { role: "group", "aria-label": "Models" }, dim("made by"), ...models), tools.bar),
      this.frame,
      make("div", { class: "bls-life-legend bls-chart-dim", "aria-hidden": "true" },
        "higher: more bytes   │ passed to a model   ➝ copied or transferred   ▸ still alive at the end · click a block for its line, request and holders"),
      this.details, tools.card, this.live,
    );
  }

  // -- what is shown where ----------------------------------------------------------------------------

  /** Give each lane that is shown its rows: as many as it wants or, where they run short, one. */
  arrange() {
    const { c, info, filters: { device, model } } = this;
    const lanes = this.lanes.filter((lane) => !device.hidden.has(lane.device) && !model.hidden.has(lane.model));
    const whole = new Set();
    let left = MOST_ROWS - lanes.length;
    for (const lane of [...lanes].sort((a, b) => a.deep - b.deep)) { // those that want least come first
      if (lane.deep - 1 > left) continue;
      left -= lane.deep - 1;
      whole.add(lane);
    }
    if (whole.size < lanes.length) lanes.sort((a, b) => a.rank - b.rank);
    [this.groups, this.rows, this.placed] = [[], [], new Map()];
    let top = 0;
    lanes.forEach((lane, k) => {
      if (lane.model !== lanes[k - 1]?.model) {
        if (k) top += 4;
        this.groups.push({ text: info.models[lane.model], top, height: 0 });
        top += HEAD;
      }
      const bars = lane.open || whole.has(lane) || lane.deep === 1;
      for (const [k, lives] of (bars ? lane.rows : [lane.lives]).entries()) {
        const of = bars ? lives : []; // a band has nothing that can be pointed at
        const row = {
          top, height: ROW, of, begin: of.map((life) => c.born[life]), end: of.map((life) => this.ended[life]),
          lane, lives, owners: lane.owners[bars ? k + 1 : 0], first: undefined, begins: lives === lane.rows[0] || !bars, steps: bars ? null : this.profile(lives),
          heights: [],
        };
        this.rows.push(row);
        for (const life of of) this.placed.set(life, row);
        top += ROW;
      }
      const group = this.groups[this.groups.length - 1];
      group.height = top + 4 - group.top;
    });
    this.rowsHeight = top + 4;
    const bytes = (/** @type {LifeRow} */ { steps, lives }) => steps?.level ?? lives.map((life) => c.bytes[life]);
    this.most = this.rows.reduce((most, row) => bytes(row).reduce((best, each) => Math.max(best, each), most), 1);
    for (const row of this.rows) row.heights = row.steps?.level.map((level) => level && this.tall(level)) ?? [];
    this.panels = info.devices.flatMap((_, number) => {
      const lives = lanes.filter(({ device }) => device === number).flatMap((lane) => lane.lives);
      return lives.length ? [this.panelOf(number, lives)] : [];
    });
    this.headHeight = this.panels.length * PANEL + AXIS;
    this.refocus();
  }

  /** @param {number} number of a device @param {number[]} lives @returns {Panel} */
  panelOf(number, lives) {
    const models = [...new Set(lives.map((life) => this.c.model[life]))];
    const steps = this.profile(lives, models);
    const peak = steps.level.reduce((most, each) => Math.max(most, each), 0);
    const peakAt = steps.at[steps.level.indexOf(peak)];
    return { number, models, lives, steps, peak, peakAt, text: `${size(peak)}: ${this.alive(lives, peakAt)}` };
  }

  /** How high something is drawn, from 0 to 1: by the root, so that a hundredth can still be seen. @param {number} bytes */
  tall(bytes) {
    return Math.max(Math.sqrt(bytes / this.most), 0.15);
  }

  /**
   * The bytes of some blocks together, each from its time on.
   * @param {number[]} lives @param {number[]} [models] whose bytes are to be known, from the bottom @returns {Steps}
   */
  profile(lives, models = []) {
    const { c } = this;
    const place = new Map(models.map((model, k) => [model, k]));
    const part = (/** @type {number} */ life) => (c.left[life] ? -1 : place.get(c.model[life]) ?? models.length);
    const events = lives.map((life) => [c.born[life], c.bytes[life], part(life)]);
    for (const life of lives) if (c.died[life] >= 0) events.push([c.died[life], -c.bytes[life], part(life)]);
    events.sort((a, b) => a[0] - b[0] || a[1] - b[1]); // a death comes before a birth at the same moment
    /** @type {Steps} */
    const steps = { at: [0], level: [0], left: [0], tops: models.map(() => [0]) };
    let [bytes, left] = [0, 0];
    const own = models.map(() => 0);
    for (const [ns, change, of] of events) {
      bytes += change;
      if (of < 0) left += change;
      else if (of < own.length) own[of] += change;
      const k = steps.at.length - (steps.at[steps.at.length - 1] === ns ? 1 : 0);
      [steps.at[k], steps.level[k], steps.left[k]] = [ns, bytes, left];
      own.reduce((below, each, m) => (steps.tops[m][k] = below + each), left);
    }
    return steps;
  }

  /** What of some blocks was alive at a time, the largest names first. @param {number[]} lives @param {number} ns */
  alive(lives, ns, most = 3) {
    const { c, info } = this;
    /** @type {Map<string, [number, number]>} */
    const sums = new Map();
    for (const life of lives) {
      if (c.born[life] > ns || (c.died[life] >= 0 && c.died[life] <= ns)) continue;
      const owner = info.models[c.model[life]];
      const name = (owner === "notebook" ? "" : `${owner}/`) + info.words[c.name_[life]];
      const [count, bytes] = sums.get(name) ?? [0, 0];
      sums.set(name, [count + 1, bytes + c.bytes[life]]);
    }
    const found = [...sums].sort((a, b) => b[1][1] - a[1][1]);
    const said = found.slice(0, most).map(([name, [count, bytes]]) => `${name}${count > 1 ? ` ×${count}` : ""} ${size(bytes)}`);
    if (found.length > most) said.push(`+${found.length - most} more`);
    return said.join(", ");
  }

  /** The selected block with what it was copied from and to, all the way; else what is searched for. */
  related() {
    const { c, chosen } = this;
    if (chosen < 0) return this.found;
    const found = new Set([chosen]);
    for (let life = c.source[chosen]; life >= 0 && !found.has(life); life = c.source[life]) found.add(life);
    for (let life = 0; life < c.id.length; life += 1) if (found.has(c.source[life])) found.add(life);
    return found;
  }

  /** @param {number} wide */
  margins(wide) {
    const alive = this.c.died.some((/** @type {number} */ ns) => ns < 0); // the owners are written to the right
    if (wide < 760) return [0, this.panels.length > 1 ? 150 : 120, alive ? 90 : 24];
    const shared = this.ended.some((_, life) => this.c.holder_at[life + 1] - this.c.holder_at[life] > 1);
    return [0, this.lanes.some(({ line }) => line) ? 250 : 180, alive ? (shared ? 190 : 150) : 24];
  }

  /** @param {import("./axis.js").Pen} pen */
  paintHead(pen) {
    paintHead(this, pen);
  }

  /** @param {import("./axis.js").Pen} pen @param {number} from @param {number} to */
  paintRows(pen, from, to) {
    paintRows(this, pen, from, to);
  }

  /** @param {import("./axis.js").Pen} pen */
  paintOver(pen) {
    const { theme } = this;
    pen.fillStyle = theme.dim;
    if (this.cursor !== undefined) pen.fillRect(this.cursor, 0, 1, this.rowsHeight);
    for (const [life, colour] of /** @type {[number, string][]} */ ([[this.chosen, theme.fg], [this.focus?.i ?? -1, theme.brand]])) {
      const row = this.placed.get(life);
      if (row) this.outline(pen, { row, i: life }, colour);
    }
  }

  /** @param {Spot} spot */
  box(spot) {
    const [left, top, width] = super.box(spot);
    return [left, top + (ROW - BAR) / 2, width, BAR];
  }

  // -- pointing and keys --------------------------------------------------------------------------------

  /** @param {number} x @param {number} y @returns {Spot | null} */
  at(x, y) {
    return x < this.left ? null : super.at(Math.min(x, this.left + this.width), y);
  }

  /** The row whose name, or band, is at a point and folds or unfolds by a click. @param {number} x @param {number} y */
  fold(x, y) {
    const deep = y + this.scroll.scrollTop;
    const row = y < 0 ? undefined : this.rows.find(({ top }) => deep >= top && deep < top + ROW);
    return row && row.begins && (row.steps || (row.lane.open && x < this.left)) && x <= this.left + this.width ? row : undefined;
  }

  /** @param {number} x @param {number} y */
  hover(x, y) {
    const fold = this.fold(x, y);
    const inside = x >= this.left && x <= this.left + this.width;
    const panel = inside && y < 0 ? this.panels[Math.floor((y + this.headHeight) / PANEL)] : undefined;
    const ns = this.time(x);
    const bytes = (/** @type {Steps} */ steps) => size(steps.level[Math.max(0, above(steps.at, ns) - 1)]);
    this.cursor = panel || (inside && fold) ? Math.round(x) : undefined;
    let lines = this.hovered ? this.tipOf(this.hovered) : [];
    if (panel) lines = tip([`${bytes(panel.steps)} on ${this.info.devices[panel.number].label}`, this.alive(panel.lives, ns, 6)]);
    else if (fold?.steps && inside) lines = tip([`${bytes(fold.steps)} in blocks of this row`, `${counted(fold.lives.length, "block")}; click to see each`]);
    else if (fold) lines = tip([fold.steps ? "Click to see each block" : "Click to fold"]);
    this.frame.style.cursor = this.hovered || fold ? "pointer" : "";
    this.showTip(lines, x, y);
    this.draw();
  }

  /** @param {Spot | null} spot @param {number} x @param {number} y */
  click(spot, x, y) {
    const fold = this.fold(x, y);
    if (fold) {
      fold.lane.open = !fold.lane.open;
      this.arrange();
      this.resize();
    } else if (y >= 0) this.select(spot ? spot.i : -1);
  }

  keys() {
    const select = () => this.select(this.focus?.i ?? -1);
    const first = (/** @type {number} */ k) => {
      const life = this.here().rows.at(k)?.lives.at(k);
      if (life !== undefined) this.setFocus(this.spotOf(life));
    };
    return {
      ...super.keys(), Home: () => first(0), End: () => first(-1), Enter: select, " ": select,
    };
  }

  escape() {
    if (this.chosen >= 0) this.select(-1);
    else this.tools?.escape();
  }

  /** @param {((text: string) => boolean) | null} test */
  seek(test) {
    const { c, info } = this;
    const all = [...this.ended.keys()];
    this.found = test ? new Set(all.filter((life) => shortly(c, info, life).some(test))) : undefined;
    this.draw();
    return this.found?.size ?? 0;
  }

  hits() {
    const all = [...(this.found ?? [])].filter((life) => this.placed.has(life));
    return { all, at: all.indexOf(this.focus?.i ?? -1) };
  }

  /** @param {number} life */
  visit(life) {
    this.setFocus(this.spotOf(life));
  }

  /** Go on in the next row. @param {number} step */
  beyond(step) {
    const { rows, at } = this.here();
    const row = rows[at + step];
    if (row) this.setFocus({ row, i: row.of[step > 0 ? 0 : row.of.length - 1] });
  }

  /** @param {Spot | null} spot */
  focused(spot) {
    if (spot) this.say(shortly(this.c, this.info, spot.i).join(". "));
  }

  /** @param {Spot} spot */
  tipOf({ i }) {
    return tip(shortly(this.c, this.info, i));
  }

  // -- selecting ----------------------------------------------------------------------------------------

  /** @param {number} life its row among the columns, -1 for none */
  select(life) {
    const id = life < 0 ? 0 : this.c.id[life];
    if (this.model.get("selected") !== id) {
      this.model.set("selected", id);
      this.model.save_changes();
    }
    this.showSelected();
  }

  /** Select a block and bring it into view. @param {number} life */
  go(life) {
    this.select(life);
    const row = this.placed.get(life);
    if (row) this.reveal({ row, i: life });
  }

  showSelected() {
    const life = this.rowOf.get(this.model.get("selected")) ?? -1;
    this.chosen = life;
    this.details.hidden = life < 0;
    if (life >= 0) {
      const close = make("button", { class: "bls-life-close", title: "Close (Esc)", "aria-label": "Close", onclick: () => this.select(-1) }, "×");
      this.details.replaceChildren(close, ...describe(this.c, this.info, life, (other) => this.go(other)));
      this.say(`Selected: ${shortly(this.c, this.info, life).join(". ")}`);
    }
    this.draw();
  }
}

/** @param {string[]} lines */
function tip(lines) {
  return lines.map((line, i) => make("div", { class: i ? "bls-chart-dim" : "bls-life-first" }, line));
}

export default onTop(({ model, el }) => {
  const chart = new LifetimesChart(model, el);
  return () => chart.close();
});
