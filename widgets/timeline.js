// The timeline of a profile: who ran when, who waited for whom. Python's side is profiling/timeline/widget.py,
// which says where everything stands; here it is shown, searched and selected.

import { Chart } from "./chart.js";
import { Filter, Tools } from "./chart_tools.js";
import { columns, counted, duration, make } from "./common.js";
import { onTop } from "./on_top.js";
import { readSession } from "./timeline_data.js";
import { awaited, markTip } from "./timeline_notebook.js";
import { paintAll, paintSpots } from "./timeline_paint.js";
import { requestCard } from "./timeline_source.js";
import { details, found, rangeFigures, rangeTable, spoken } from "./timeline_words.js";

/** @typedef {import("./on_top.js").Model} Model */
/** @typedef {import("./timeline_data.js").Session} Session */
/** @typedef {import("./timeline_data.js").Strip} Strip */
/** @typedef {import("./chart.js").Spot<Strip>} Spot */
/** @typedef {{ begin: number, end: number }} Range */

const KEYS = [
  ["drag on the axis, Shift + drag", "select a range"], ["[ ]", "begin and end a range at the request"],
  ["p", "go to its caller"], ["c", "critical path"],
];

/** @extends {Chart<Strip>} */
export class Timeline extends Chart {
  headHeight = 26;
  /** The requests of each session that are to stand out. @type {Set<number>[] | null} */
  chosen = null;
  /** @type {any[]} */
  paths = [];
  lit = false;
  wanted = false; // the critical path, which Python works out when it is asked for the first time
  /** What is searched for. @type {((text: string) => boolean) | null} */
  test = null;
  /** @type {Range | null} */
  range = null;
  /** What was clicked. @type {Spot | null} */
  told = null;
  pathButton = make("button", {
    type: "button", "aria-pressed": "false", onclick: () => this.light(!this.lit),
    title: "What the time was spent on: were it faster, all would be (c)",
  }, "Critical path");
  legend = make("div", { class: "bls-tl-legend" });
  below = make("div", { class: "bls-tl-below" });

  /** @param {Model} model @param {HTMLElement} el */
  constructor(model, el) {
    super(el, "bls-timeline", "bls-tl", { head: "ruler", space: "lanes" });
    this.model = model;
    this.sessions = /** @type {Session[]} */ (model.get("sessions").map(readSession));
    this.wall = Math.max(...this.sessions.map((session) => session.wall));
    this.whole = this.to = this.wall * 1.015;
    this.rows = this.sessions.flatMap((session) => session.rows);
    this.rowsHeight = Math.max(...this.sessions.map(({ raw }) => raw.bottom));
    const names = this.sessions.flatMap(({ raw }) =>
      raw.lanes.map((lane) => (raw.models[lane.model]?.name ?? lane.title).length + lane.label.length));
    this.labels = Math.round(Math.min(250, Math.max(168, 84 + 6.8 * Math.max(0, ...names))));
    this.root.style.setProperty("--t-labels", `${this.labels}px`);
    this.toRange = (/** @type {Range | null} */ range, done = true) => this.selectRange(range, done);
    this.filter = new Filter(this, [...new Set(this.sessions.flatMap(({ raw }) => raw.models.map(({ name }) => name)))], () => this.choose());
    this.tools = new Tools(this, "request", "model, request ID or error", KEYS, this.pathButton);
    this.build(this.tools);
    const total = this.sessions.reduce((sum, session) => sum + session.n, 0);
    const label = `Timeline of ${counted(total, "request")}. Arrow keys go from request to request, question mark lists the keys.`;
    this.start(this.over, label, "timeline", [this.over, this.head]);
    const came = () => this.pathsCame();
    model.on("change:paths", came);
    this.ends.push(() => model.off("change:paths", came));
    came();
  }

  // -- the elements -------------------------------------------------------------------------------

  /** @param {Tools} tools */
  build(tools) {
    this.legend.append(...this.makeLegend());
    this.head.title = "Drag to select a range";
    for (const session of this.sessions) this.space.append(...this.makeLabels(session));
    const [{ raw }] = this.sessions;
    const one = this.model.get("titled") && this.sessions.length === 1;
    const title = one && raw.name && make("span", { class: "bls-tl-title" }, raw.name);
    this.root.append(
      make("div", { class: "bls-tl-head" },
        ...(one ? [title || "", make("span", { class: "bls-tl-facts" }, raw.facts)] : [this.legend]),
        tools.bar),
      ...(one ? [this.legend] : []), this.frame, this.below, tools.card, this.live,
    );
  }

  makeLegend() {
    const inks = new Map(this.sessions.flatMap(({ raw }) => raw.models.map((model) => [model.name, model])));
    const buttons = this.filter.names.map((name, i) => this.filter.chip(i, inks.get(name)));
    const signs = new Map(this.sessions.flatMap(({ raw }) => raw.signs));
    return [...buttons, ...[...signs].map(([kind, text]) =>
      make("span", {}, kind === "async" ? make("b", {}, "async ") : make("i", { class: `bls-tl-sign bls-tl-sign-${kind}` }), text))];
  }

  /** @param {any} ink */
  chip(ink) {
    const chip = make("i", { class: "bls-tl-chip" });
    if (ink) this.chips.push([chip, ink]);
    else chip.style.visibility = "hidden";
    return chip;
  }

  /** The names of a session and its lanes, beside them. @param {Session} session */
  makeLabels({ raw, number, queued }) {
    const put = (/** @type {HTMLElement} */ element, /** @type {number} */ y) => {
      element.style.top = `${y}px`;
      return element;
    };
    let last = -2;
    const lanes = raw.lanes.map((lane) => {
      const again = lane.model === last && "bls-tl-again";
      last = lane.model;
      const name = raw.models[lane.model]?.name ?? lane.title;
      const ink = lane.kind === "notebook" ? raw.notebook : raw.models[lane.model];
      return put(make("div", { class: "bls-tl-label", title: lane.name || name }, this.chip(ink),
        make("b", { class: again }, name), lane.label && make("span", { class: "bls-chart-dim" }, `· ${lane.label}${lane.count}`),
        lane.share && make("span", { class: "bls-tl-share", title: "part of the time that it is busy" }, lane.share)), lane.y);
    });
    const two = make("div", { class: "bls-tl-label bls-tl-two" }, make("div", {}, "at work"), queued.most > 0 && make("div", {}, "in a queue"));
    const scale = [[this.most("working"), 7], [0, 26], ...(queued.most > 0 ? [[this.most("queued"), 38]] : [])].map(([value, y]) =>
      put(make("div", { class: "bls-tl-scale" }, value.toLocaleString("en")), raw.work + y));
    const title = this.sessions.length > 1 && put(make("div", { class: "bls-tl-session" },
      make("b", {}, raw.name || `session ${number + 1}`), make("span", { class: "bls-tl-facts" }, raw.facts)), raw.work - 30);
    return [...(title ? [title] : []), put(two, raw.work + 13), ...scale, ...lanes];
  }

  /** The largest number in a curve of the sessions. @param {"working" | "queued"} name */
  most(name) {
    return Math.max(1, ...this.sessions.map((session) => session[name].most));
  }

  margins() {
    return [this.labels, 0, 0];
  }

  themed() {
    this.fillCards();
  }

  // -- drawing ------------------------------------------------------------------------------------

  /** @param {import("./axis.js").Pen} pen @param {number} from @param {number} to */
  paintRows(pen, from, to) {
    paintAll(this, pen, from, to);
  }

  /** @param {import("./axis.js").Pen} pen */
  paintHead(pen) {
    pen.fillStyle = this.theme.dim;
    for (const time of this.times) pen.fillRect(Math.round(this.x(time)), this.headHeight - 4, 1, 4);
    this.axis(pen, 11);
    this.paintRange(pen, 0.3, 3, this.headHeight);
  }

  /** @param {import("./axis.js").Pen} pen */
  paintOver(pen) {
    this.paintRange(pen, 0.1, 0, this.rowsHeight, true);
    paintSpots(this, pen);
  }

  /** @param {import("./axis.js").Pen} pen @param {number} alpha @param {number} top @param {number} bottom @param {boolean} [edges] */
  paintRange(pen, alpha, top, bottom, edges = false) {
    if (!this.range) return;
    const [left, right] = [this.x(this.range.begin), this.x(this.range.end)];
    pen.fillStyle = this.theme.brand;
    for (const [strength, x, width] of [[alpha, left, right - left], [0.7, left, 1], [0.7, right - 1, 1]]) {
      pen.globalAlpha = strength;
      if (strength === alpha || edges) pen.fillRect(x, top, width, bottom - top);
    }
    pen.globalAlpha = 1;
  }

  // -- choosing -----------------------------------------------------------------------------------

  keys() {
    const bound = (/** @type {"begin" | "end"} */ which) => () => {
      if (!this.focus) return;
      const { row: { session: { c } }, i } = this.focus;
      const whole = { begin: c.sent[i], end: c.ended[i] };
      this.selectRange({ ...(this.range ?? whole), [which]: whole[which] });
    };
    return {
      ...super.keys(),
      Home: () => this.show(0, this.to - this.from), End: () => this.show(this.whole - (this.to - this.from), this.whole),
      Enter: () => this.focus && this.tell(this.focus), " ": () => this.focus && this.tell(this.focus),
      p: () => this.toCaller(), c: () => this.light(!this.lit), "[": bound("begin"), "]": bound("end"),
    };
  }

  escape() {
    if (this.told) this.tell(null);
    else if (this.focus) this.setFocus(null);
    else if (this.range) this.selectRange(null);
    else if (this.filter.hidden.size) this.filter.showAll();
    else if (!this.tools?.escape() && this.lit) this.light(false);
  }

  toCaller() {
    if (!this.focus) return;
    const { session } = this.focus.row;
    const caller = session.c.parent[this.focus.i];
    if (caller < 0) this.say(session.raw.sender === "notebook" ? "The notebook sent it" : `Sent by ${session.raw.sender}`);
    else this.setFocus(this.spot(session, caller));
  }

  /** @param {Session} session @param {number} i */
  spot(session, i) {
    return this.spotOf(i, (row) => row.session === session && row.lane === session.c.lane[i]);
  }

  /** @param {number} step */
  beyond(step) {
    this.say(step > 0 ? "The last of this lane" : "The first of this lane");
  }

  /** @param {Spot | null} spot @param {number} x */
  click(spot, x, y = 0) {
    if (spot?.more) this.zoom(0.2, x);
    else if (y < 0) this.selectRange(null);
    else {
      this.setFocus(spot);
      this.tell(spot);
    }
  }

  /** Tell all about a request below the lanes. @param {Spot | null} spot */
  tell(spot) {
    this.told = spot;
    this.fillCards();
    if (spot) this.hideTip();
    else this.plot?.focus({ preventScroll: true });
  }

  /** @param {number} x @param {number} y */
  hover(x, y) {
    const lines = this.hovered || !this.sessions.some(({ raw }) => raw.marks.length) ? [] : markTip(this, x, y + this.scroll.scrollTop);
    if (lines.length) this.showTip(lines, x, y);
    else super.hover(x, y);
  }

  /** @param {((text: string) => boolean) | null} test */
  seek(test) {
    this.test = test;
    this.choose();
    return this.found;
  }

  /** What is searched for, of the models that are shown, stands out. */
  choose() {
    const { filter, test } = this;
    const hidden = new Set([...filter.hidden].map((i) => filter.names[i]));
    this.chosen = test || hidden.size ? this.sessions.map((session) => found(session, test, hidden)) : null;
    if (hidden.size) this.say(`${counted(this.found, "request")} shown`);
    this.draw();
  }

  get found() {
    return (this.chosen ?? []).reduce((sum, spans) => sum + spans.size, 0);
  }

  hits() {
    const all = (this.chosen ?? []).flatMap((spans, number) => [...spans].map((i) => ({ session: this.sessions[number], i })));
    return { all, at: all.findIndex(({ session, i }) => this.focus?.row.session === session && this.focus.i === i) };
  }

  /** @param {{ session: Session, i: number }} hit */
  visit({ session, i }) {
    this.setFocus(this.spot(session, i));
  }

  /** @param {string} trait @param {any} value */
  send(trait, value) {
    this.model.set(trait, value);
    this.model.save_changes();
  }

  /** @param {Range | null} range @param {boolean} [done] */
  selectRange(range, done = true) {
    const [begin, end] = range ? [Math.max(0, Math.min(range.begin, range.end)), Math.min(this.wall, Math.max(range.begin, range.end))] : [0, 0];
    this.range = end > begin ? { begin, end } : null;
    this.draw();
    if (!done) return;
    this.fillCards();
    const figures = this.range ? this.sessions.map((session) => rangeFigures(session, begin, end)) : [];
    this.send("selection", this.range ? { begin, end, sessions: figures } : {});
    const requests = figures.reduce((sum, each) => sum + each.requests, 0);
    if (this.range) this.say(`Selected ${duration(begin)} to ${duration(end)}: ${counted(requests, "request")}`);
  }

  /** @param {Spot | null} spot */
  focused(spot) {
    const session = spot?.row.session;
    this.send("focus", session ? { session: session.number, id: session.c.id[spot.i] } : {});
    if (!session) return;
    const waits = spot.row.what === "notebook" && `${session.raw.lanes[spot.row.lane].name} waits for ${awaited(session, this.slot(spot.row, spot.i), spot.i)}`;
    this.say(`${this.sessions.length > 1 ? `${session.raw.name}: ` : ""}${waits || spoken(session, spot.i)}`);
  }

  /** @param {Spot} spot */
  tipOf(spot) {
    const { row: { session, what }, i, more } = spot;
    const model = session.raw.models[session.c.model[i]];
    if (what === "notebook") {
      const k = this.slot(spot.row, i);
      const [begin, end] = this.extent(spot);
      return [make("div", {}, make("b", {}, session.raw.lanes[spot.row.lane].name), ` waits for ${awaited(session, k, i)}`), make("div", { class: "bls-chart-dim" }, duration(end - begin))];
    }
    if (!more) return details(session, i, this.ink(model));
    return [
      make("div", {}, `${counted(more, "request")} of `, make("b", {}, model.name), " here"),
      make("div", { class: "bls-chart-dim" }, "zoom in to tell them apart"),
    ];
  }

  // -- below the lanes ----------------------------------------------------------------------------

  pathsCame() {
    this.paths = this.model.get("paths").map((/** @type {any} */ raw) => ({ ...raw, ...columns(raw.data, raw.columns) }));
    if (this.paths.length && (this.wanted || this.model.get("lit"))) this.light(true);
    this.wanted = false;
  }

  /** @param {boolean} on */
  light(on) {
    if (on && !this.paths.length) {
      this.wanted = true;
      this.send("wants_paths", true);
      this.say("The critical path is being worked out");
      return;
    }
    this.lit = on;
    this.pathButton.setAttribute("aria-pressed", String(on));
    this.fillCards();
    if (on) this.say(`Critical path. ${/** @type {HTMLElement} */ (this.below.firstChild).innerText}`);
    this.draw();
  }

  fillCards() {
    const card = (/** @type {string} */ name, /** @type {string} */ title, /** @type {(Node | string)[]} */ beside, /** @type {Node[]} */ lines) =>
      make("div", { class: `bls-tl-card bls-tl-card-${name}` }, make("div", { class: "bls-tl-card-head" }, title, ...beside), ...lines);
    const dim = (/** @type {string} */ text) => make("span", { class: "bls-chart-dim" }, text);
    const cards = [];
    if (this.lit) cards.push(card("path", "Critical path", [dim("what the time was spent on, step by step")], this.pathLines()));
    if (this.range) {
      const { begin, end } = this.range;
      const rows = this.sessions.map((session) => ({ name: session.raw.name, span: end - begin, figures: rangeFigures(session, begin, end) }));
      const beside = [
        dim(`${duration(begin)} to ${duration(end)}, ${duration(end - begin)}`),
        make("button", { type: "button", onclick: () => this.show(begin, end) }, "Zoom to it"),
        make("button", { type: "button", onclick: () => this.selectRange(null) }, "Clear"),
      ];
      cards.push(card("range", "Selected", beside, [rangeTable(rows, (name) => this.inkOf(name))]));
    }
    if (this.told) {
      const { row: { session }, i } = this.told;
      cards.unshift(requestCard(session, i, this.ink(session.raw.models[session.c.model[i]]), () => this.tell(null)));
    }
    this.below.replaceChildren(...cards);
    if (this.full) this.resize();
  }

  /** @param {string} name of a model */
  inkOf(name) {
    const found = this.sessions.flatMap(({ raw }) => raw.models).find((model) => model.name === name);
    return found ? this.ink(found) : "var(--c-line)";
  }

  pathLines() {
    return this.paths.flatMap(({ shares }, number) => {
      const bar = make("div", { class: "bls-tl-shares" });
      for (const [what, model, ns] of shares) {
        const part = make("i", { title: `${what}: ${duration(ns)}` });
        part.style.flexGrow = String(ns);
        part.style.background = this.inkOf(model);
        bar.append(part);
      }
      const words = shares.slice(0, 6).map((/** @type {any[]} */ [what, , ns]) => `${what} ${duration(ns)}`).join(", ");
      const name = this.sessions.length > 1 && make("b", {}, `${this.sessions[number].raw.name}: `);
      return [make("div", {}, name, words), bar];
    });
  }
}

export default onTop(({ model, el }) => {
  const timeline = new Timeline(model, el);
  return () => timeline.close();
});
