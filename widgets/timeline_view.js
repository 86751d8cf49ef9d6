// The timeline on the page: its parts, what it shows now, and drawing that again when something changes.

import { duration, isDark, make, onTheme, tickLabels, ticks } from "./common.js";
import { above, rangeFigures, search, subset } from "./timeline_data.js";
import { blockBox, findPlaces, Painter } from "./timeline_paint.js";
import { makeParts, own, RULER_HEIGHT } from "./timeline_parts.js";
import { counted, details, pathShares, rangeTable, spoken } from "./timeline_words.js";

/** @typedef {import("./timeline_data.js").Session} Session */
/** @typedef {import("./timeline_data.js").Row} Row */
/** @typedef {import("./timeline_paint.js").Panel} Panel */
/** @typedef {import("./timeline_paint.js").LanePlace} LanePlace */
/** @typedef {NonNullable<import("./timeline_paint.js").Path>} Path */
/** @typedef {{ panel: number, i: number, lane: number, queued?: boolean, more?: number }} Spot */
/**
 * @typedef {object} Listener
 * @property {(selection: any) => void} selected
 * @property {(focus: any) => void} focused
 * @property {() => boolean} pathWanted whether the critical path is there already
 */

const CLOSEST = 200; // ns that the view spans at least

export class TimelineView {
  /**
   * @param {HTMLElement} root
   * @param {Session[]} sessions
   * @param {Listener} listener
   * @param {boolean} [titled] whether a session alone has its name above it
   */
  constructor(root, sessions, listener, titled = true) {
    this.root = root;
    this.sessions = sessions;
    this.listener = listener;
    this.wall = Math.max(...sessions.map((session) => session.wall));
    this.from = 0;
    this.to = this.whole;
    this.width = 0;
    this.top = 0;
    this.places = findPlaces(sessions);
    /** @type {import("./timeline_paint.js").Chosen[]} */
    this.chosen = sessions.map(() => null);
    /** @type {number[][]} */
    this.found = sessions.map(() => []);
    /** @type {Path[]} */
    this.paths = [];
    this.lit = false;
    this.model = ""; // the one picked in the legend
    /** @type {Spot | null} */
    this.hovered = null;
    /** @type {Spot | null} */
    this.focus = null;
    /** @type {{ begin: number, end: number } | null} */
    this.selection = null;
    this.frames = 0; // drawn so far
    this.asked = 0;
    this.stale = true;
    this.height = 0;
    this.parts = makeParts(sessions, this.places, (name) => this.pickModel(this.model === name ? "" : name), titled);
    root.append(...this.parts.all);
    document.body.append(this.parts.tip); // a cell's output would cut it off
    this.painter = new Painter(context(this.parts.base));
    this.overlay = new Painter(context(this.parts.over));
    this.sizes = new ResizeObserver(() => this.resize());
    this.sizes.observe(this.parts.scroll);
    this.endTheme = onTheme(() => this.readTheme());
    this.readTheme();
    this.resize();
  }

  /** The end of the axis when all is shown: a little more than there is. */
  get whole() {
    return this.wall * 1.015;
  }

  close() {
    cancelAnimationFrame(this.asked);
    this.sizes.disconnect();
    this.endTheme();
    this.parts.tip.remove();
    this.root.remove();
  }

  // -- drawing ------------------------------------------------------------------------------------

  readTheme() {
    const style = getComputedStyle(this.root);
    const value = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
    const dark = isDark(this.root);
    for (const each of [this.root, this.parts.tip]) each.classList.toggle("bls-tl-dark", dark);
    const theme = {
      fg: style.color, dim: resolved(this.root, "--t-dim"), line: resolved(this.root, "--t-faint"),
      paper: resolved(this.root, "--t-paper"), alarm: value("--t-alarm") || "#d55e00", dark,
    };
    this.painter.theme = this.overlay.theme = theme;
    this.painter.patterns.clear();
    this.painter.font = this.overlay.font = `11px ${style.fontFamily}`;
    for (const { element, session, model } of this.parts.chips) element.style.background = this.painter.ink(session, model);
    this.fillCards();
    this.draw();
  }

  resize() {
    const labels = parseFloat(getComputedStyle(this.root).getPropertyValue("--t-labels")) || 168;
    const room = Math.max(60, this.parts.scroll.clientWidth - labels);
    this.height = this.parts.scroll.clientHeight;
    this.width = room;
    const ratio = window.devicePixelRatio || 1;
    for (const [canvas, height] of /** @type {[HTMLCanvasElement, number][]} */ ([[this.parts.base, this.height], [this.parts.over, this.height], [this.parts.ruler, RULER_HEIGHT]])) {
      canvas.width = Math.round(room * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${room}px`;
      canvas.style.height = `${height}px`;
      context(canvas).setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    this.parts.stage.style.height = `${this.height}px`;
    this.draw(true);
  }

  /** @param {boolean} [now] */
  draw(now = false) {
    this.stale = true;
    if (now) this.paint();
    else this.asked ||= requestAnimationFrame(() => this.paint());
  }

  drawOver() {
    this.asked ||= requestAnimationFrame(() => this.paint());
  }

  paint() {
    cancelAnimationFrame(this.asked);
    this.asked = 0;
    if (!this.width || !this.painter) return;
    const view = { from: this.from, to: this.to, width: this.width, height: this.height, top: this.parts.scroll.scrollTop };
    this.painter.look(view);
    this.overlay.look(view);
    if (this.stale) {
      const times = ticks(Math.max(0, this.from), Math.min(this.to, this.whole), this.width / 100);
      this.painter.paint(this.places, { ticks: times, chosen: this.chosen, paths: this.lit ? this.paths : null });
      this.paintRuler(times);
      this.frames += 1;
      this.stale = false;
    }
    this.paintOver();
  }

  /** @param {number[]} times */
  paintRuler(times) {
    const pen = context(this.parts.ruler);
    const { theme } = this.painter;
    pen.clearRect(0, 0, this.width, RULER_HEIGHT);
    pen.font = this.painter.font;
    pen.textBaseline = "middle";
    pen.fillStyle = theme.dim;
    tickLabels(times).forEach((label, k) => {
      const at = Math.round(this.painter.x(times[k]));
      const width = pen.measureText(label).width;
      pen.fillRect(at, RULER_HEIGHT - 4, 1, 4);
      const left = Math.max(0, at - width / 2);
      if (left + width <= this.width) pen.fillText(label, left, 11);
    });
    if (this.from > 0 || this.to < this.whole) { // where we are in all of it
      pen.globalAlpha = 0.2;
      pen.fillRect(0, 0, this.width, 3);
      pen.globalAlpha = 0.8;
      const left = (this.from / this.whole) * this.width;
      pen.fillRect(left, 0, Math.max(3, ((this.to - this.from) / this.whole) * this.width), 3);
      pen.globalAlpha = 1;
    }
    if (this.selection) {
      pen.fillStyle = this.brand();
      pen.globalAlpha = 0.3;
      const left = this.painter.x(this.selection.begin);
      pen.fillRect(left, 3, this.painter.x(this.selection.end) - left, RULER_HEIGHT - 3);
      pen.globalAlpha = 1;
    }
  }

  brand() {
    return resolved(this.root, "--t-brand");
  }

  paintOver() {
    const { overlay } = this;
    const pen = overlay.context;
    pen.clearRect(0, 0, this.width, this.height);
    pen.save();
    pen.translate(0, -this.parts.scroll.scrollTop);
    if (this.selection) {
      const left = overlay.x(this.selection.begin);
      const right = overlay.x(this.selection.end);
      pen.fillStyle = this.brand();
      pen.globalAlpha = 0.1;
      pen.fillRect(left, 0, right - left, this.places.height);
      pen.globalAlpha = 0.7;
      pen.fillRect(left, 0, 1, this.places.height);
      pen.fillRect(right - 1, 0, 1, this.places.height);
      pen.globalAlpha = 1;
    }
    for (const spot of [this.focus, this.hovered]) {
      if (!spot || spot.more) continue;
      const panel = this.places.panels[spot.panel];
      const { session } = panel;
      pen.globalAlpha = 0.9;
      for (let i = spot.i, depth = 0; i >= 0 && depth < 50; i = session.c.parent[i], depth += 1) overlay.paintCall(panel, i, 1.5, overlay.theme.fg);
      const lead = session.first[spot.i];
      const calls = session.calls.subarray(session.callsAt[lead], Math.min(session.callsAt[lead + 1], session.callsAt[lead] + 200));
      for (const i of calls) overlay.paintCall(panel, i, 1.5, overlay.theme.fg);
      pen.globalAlpha = 1;
      const place = panel.lanes[spot.lane];
      const [top, height] = spot.queued ? overlay.arrival(panel, spot.i) : blockBox(session, place, spot.i);
      const [begin, end] = this.extent(spot);
      const left = overlay.x(begin);
      pen.strokeStyle = spot === this.focus ? this.brand() : overlay.theme.fg;
      pen.lineWidth = 2;
      pen.strokeRect(left - 1, top - 1, Math.max(2, overlay.x(end) - left) + 1, height + 2);
    }
    pen.restore();
  }

  // -- what is where ------------------------------------------------------------------------------

  /**
   * From when to when a spot is drawn.
   * @param {Spot} spot
   * @returns {[number, number]}
   */
  extent(spot) {
    const { c, raw } = this.sessions[spot.panel];
    const lane = raw.lanes[spot.lane];
    if (spot.queued) return [c.sent[spot.i], c.started[spot.i]];
    if (lane.kind === "gpu") return [c.started[spot.i], c.started[spot.i] + c.device_ns[spot.i]];
    return [lane.kind === "refused" ? c.sent[spot.i] : c.started[spot.i], c.ended[spot.i]];
  }

  /** @param {number} x px from the left of the plot */
  time(x) {
    return this.from + (x / this.width) * (this.to - this.from);
  }

  /**
   * The request at a place of the plot.
   * @param {number} x
   * @param {number} y px from the top of what is visible
   * @returns {Spot | null}
   */
  at(x, y) {
    const deep = y + this.parts.scroll.scrollTop;
    for (const panel of this.places.panels) {
      for (const place of panel.lanes) {
        if (deep < place.y || deep >= place.y + place.height) continue;
        const { session } = panel;
        if (deep < place.blocksY - 1 && session.waits[place.index].length) {
          const wait = Math.floor((place.waitsY + place.waitsHeight - deep) / place.waitHeight);
          const row = session.waits[place.index][wait];
          const spot = row && this.inRow(panel, place, row, x);
          return spot ? { ...spot, queued: true } : null;
        }
        const row = session.blocks[place.index][Math.floor((deep - place.blocksY) / place.blockHeight)];
        const spot = row && this.inRow(panel, place, row, x);
        const members = spot && session.batches.get(spot.i);
        if (spot && members && session.raw.lanes[place.index].kind === "instance") {
          const [top] = blockBox(session, place, members[0]);
          spot.i = members[Math.max(0, Math.min(members.length - 1, Math.floor(((deep - top) / place.blockHeight) * members.length)))];
        }
        return spot;
      }
    }
    return null;
  }

  /**
   * @param {Panel} panel
   * @param {LanePlace} place
   * @param {Row} row
   * @param {number} x
   * @returns {Spot | null}
   */
  inRow(panel, place, row, x) {
    const near = ((this.to - this.from) / this.width) * 2.5;
    const time = this.time(x);
    const first = above(row.end, time - near);
    const last = above(row.begin, time + near, first);
    if (last <= first) return null;
    let best = first;
    const away = (/** @type {number} */ k) => Math.max(0, row.begin[k] - time, time - row.end[k]);
    for (let k = first; k < Math.min(last, first + 50); k += 1) if (away(k) < away(best)) best = k;
    const narrow = (row.end[best] - row.begin[best]) * this.painter.scale < 2;
    return { panel: panel.number, lane: place.index, i: row.span[best], more: narrow && last - first > 3 ? last - first : 0 };
  }

  // -- moving -------------------------------------------------------------------------------------

  /**
   * Show a range.
   * @param {number} from
   * @param {number} to
   */
  show(from, to) {
    const span = Math.max(CLOSEST, Math.min(to - from, this.whole));
    let begin = (from + to) / 2 - span / 2;
    begin = Math.max(0, Math.min(begin, this.whole - span));
    this.from = begin;
    this.to = begin + span;
    this.draw();
  }

  /**
   * @param {number} factor above 1 to see more, below 1 to see less
   * @param {number} [x] what stays in place, px
   */
  zoom(factor, x = this.width / 2) {
    const span = Math.max(CLOSEST, Math.min((this.to - this.from) * factor, this.whole));
    const time = this.time(x);
    const from = time - (x / this.width) * span;
    this.show(from, from + span);
  }

  /** @param {number} px */
  pan(px) {
    const shift = (px / this.width) * (this.to - this.from);
    this.show(this.from + shift, this.to + shift);
  }

  fit() {
    this.show(0, this.whole);
  }

  // -- choosing -----------------------------------------------------------------------------------

  /** @param {string} query */
  find(query) {
    this.model = "";
    this.found = this.sessions.map((session) => search(session, query));
    const total = this.found.reduce((sum, spans) => sum + spans.length, 0);
    this.parts.foundText.textContent = query.trim() ? total.toLocaleString("en") : "";
    if (query.trim()) this.say(`${counted(total, "request")} found`);
    this.choose(query.trim() ? this.found : null);
  }

  /** @param {string} name */
  pickModel(name) {
    this.model = name;
    this.parts.query.value = "";
    this.parts.foundText.textContent = "";
    this.found = this.sessions.map(({ c, n, raw }) => {
      const at = raw.models.findIndex((model) => model.name === name);
      return Array.from({ length: n }, (_, i) => i).filter((i) => c.model[i] === at);
    });
    this.choose(name ? this.found : null);
    if (name) this.say(`${name}: ${counted(this.found.flat().length, "request")}`);
  }

  /** @param {number[][] | null} found */
  choose(found) {
    this.chosen = this.sessions.map((session, number) => {
      if (!found) return null;
      const spans = new Set(found[number]);
      const cut = (/** @type {Row[][]} */ rows) => rows.map((lane) => lane.map((row) => subset(session, row, spans)));
      return { spans, blocks: cut(session.blocks), waits: cut(session.waits) };
    });
    for (const button of this.parts.legend.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(button.getAttribute("data-model") === this.model));
    }
    this.draw();
  }

  /** Go to the next request that was found. @param {number} step */
  nextFound(step) {
    const all = this.found.flatMap((spans, panel) => spans.map((i) => ({ panel, i })));
    if (!all.length) return;
    const at = all.findIndex(({ panel, i }) => this.focus?.panel === panel && this.focus.i === i);
    const { panel, i } = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : (at + step + all.length) % all.length];
    this.setFocus({ panel, i, lane: this.sessions[panel].c.lane[i] });
  }

  /** @param {Path[]} paths */
  setPaths(paths) {
    this.paths = paths;
  }

  /** @param {boolean} on */
  light(on) {
    if (on && !this.paths.length && !this.listener.pathWanted()) {
      this.say("The critical path is being worked out");
      return;
    }
    this.lit = on;
    this.parts.pathButton.setAttribute("aria-pressed", String(on));
    this.fillCards();
    this.draw();
  }

  /** @param {{ begin: number, end: number } | null} range @param {boolean} [done] */
  select(range, done = true) {
    this.selection = range && { begin: Math.max(0, Math.min(range.begin, range.end)), end: Math.min(this.wall, Math.max(range.begin, range.end)) };
    if (this.selection && this.selection.end <= this.selection.begin) this.selection = null;
    this.draw();
    if (!done) return;
    this.fillCards();
    if (!this.selection) {
      this.listener.selected({});
      return;
    }
    const { begin, end } = this.selection;
    const figures = this.sessions.map((session) => rangeFigures(session, begin, end));
    const requests = figures.reduce((sum, each) => sum + each.requests, 0);
    this.say(`Selected ${duration(begin)} to ${duration(end)}: ${counted(requests, "request")}`);
    this.listener.selected({ begin, end, sessions: figures });
  }

  /** @param {Spot | null} spot @param {boolean} [tell] */
  setFocus(spot, tell = true) {
    this.focus = spot;
    if (!spot) {
      this.hideTip();
      this.listener.focused({});
      this.drawOver();
      return;
    }
    this.reveal(spot);
    this.showTip(spot);
    const session = this.sessions[spot.panel];
    if (tell) this.say(`${this.sessions.length > 1 ? `${session.raw.name}: ` : ""}${spoken(session, spot.i)}`);
    this.listener.focused({ session: spot.panel, id: session.c.id[spot.i] });
  }

  /** Move the view so that a spot is in it. @param {Spot} spot */
  reveal(spot) {
    const [begin, end] = this.extent(spot);
    if (end < this.from || begin > this.to || (end - begin) * this.painter.scale < 1.5) {
      const span = Math.min(this.to - this.from, Math.max((end - begin) * 40, CLOSEST));
      const middle = (begin + end) / 2;
      this.show(middle - span / 2, middle + span / 2);
    }
    const place = this.places.panels[spot.panel].lanes[spot.lane];
    if (place.y < this.parts.scroll.scrollTop) this.parts.scroll.scrollTop = place.y;
    const over = place.y + place.height - this.parts.scroll.scrollTop - (this.height);
    if (over > 0) this.parts.scroll.scrollTop += over;
    this.draw(true);
  }

  /** @param {string} text */
  say(text) {
    this.parts.live.textContent = text;
  }

  // -- words --------------------------------------------------------------------------------------

  /** @param {Spot} spot */
  showTip(spot, x = -1, y = -1) {
    const { session } = this.places.panels[spot.panel];
    const ink = (/** @type {number} */ model) => this.painter.ink(session, model);
    this.parts.tip.replaceChildren(...(spot.more
      ? [make("div", {}, `${counted(spot.more, "request")} of `, make("b", {}, session.raw.models[session.c.model[spot.i]].name), " here"), make("div", { class: "bls-tl-dim" }, "zoom in to tell them apart")]
      : /** @type {HTMLElement[]} */ (details(session, spot.i, ink).filter(Boolean))));
    this.parts.tip.hidden = false;
    const stage = this.parts.stage.getBoundingClientRect();
    const place = this.places.panels[spot.panel].lanes[spot.lane];
    const [begin, end] = this.extent(spot);
    const middle = (Math.max(begin, this.from) + Math.min(end, this.to)) / 2;
    const left = stage.left + (x < 0 ? this.painter.x(middle) : x);
    const top = stage.top + (y < 0 ? place.y + place.height - this.parts.scroll.scrollTop : y);
    const { offsetWidth, offsetHeight } = this.parts.tip;
    this.parts.tip.style.left = `${Math.max(4, Math.min(left + 12, window.innerWidth - offsetWidth - 4))}px`;
    // Below the pointer, or above it where the page ends.
    const below = top + 16 + offsetHeight < window.innerHeight;
    this.parts.tip.style.top = `${below ? top + 16 : Math.max(4, top - offsetHeight - 12)}px`;
    this.drawOver();
  }

  hideTip() {
    this.parts.tip.hidden = true;
  }

  fillCards() {
    const cards = [];
    const ink = (/** @type {string} */ name) => {
      for (const session of this.sessions) {
        const at = session.raw.models.findIndex((model) => model.name === name);
        if (at >= 0) return this.painter.ink(session, at);
      }
      return "transparent";
    };
    if (this.lit) cards.push(this.pathWords(ink));
    if (this.selection) {
      const { begin, end } = this.selection;
      const rows = this.sessions.map((session) => ({ name: session.raw.name, figures: rangeFigures(session, begin, end), span: end - begin }));
      this.parts.rangeCard.replaceChildren(
        make("div", { class: "bls-tl-card-head" }, "Selected",
          make("span", { class: "bls-tl-dim" }, `${duration(begin)} to ${duration(end)}, ${duration(end - begin)}`),
          own(make("button", { type: "button", onclick: () => this.show(begin, end) }, "Zoom to it")),
          own(make("button", { type: "button", onclick: () => this.select(null) }, "Clear"))),
        rangeTable(rows, ink));
      cards.push(this.parts.rangeCard);
    }
    if (this.parts.helpButton.getAttribute("aria-pressed") === "true") cards.push(this.helpWords());
    this.parts.below.replaceChildren(...cards);
  }

  /** @param {(name: string) => string} ink */
  pathWords(ink) {
    const lines = this.sessions.flatMap((session, number) => {
      const path = this.paths[number];
      if (!path) return [];
      const shares = pathShares(session, path).filter(([, ns]) => ns >= session.wall / 200);
      const bar = make("div", { class: "bls-tl-shares" });
      for (const [what, ns] of shares) {
        const part = make("i", { title: `${what}: ${duration(ns)}` });
        part.style.flexGrow = String(ns);
        part.style.background = ink(what.replace(/ \((?:queue|input|output)\)$/, ""));
        if (part.style.background === "transparent") part.style.background = "var(--t-line)";
        bar.append(part);
      }
      const words = shares.slice(0, 6).map(([what, ns]) => `${what} ${duration(ns)}`).join(", ");
      return [make("div", {}, this.sessions.length > 1 ? make("b", {}, `${session.raw.name}: `) : null, words), bar];
    });
    this.parts.pathCard.replaceChildren(
      make("div", { class: "bls-tl-card-head" }, "Critical path", make("span", { class: "bls-tl-dim" }, "what the time was spent on, step by step")),
      ...lines);
    this.say(`Critical path. ${this.parts.pathCard.innerText}`);
    return this.parts.pathCard;
  }

  helpWords() {
    const rows = [
      ["Ctrl + wheel, + −", "zoom"], ["drag, Shift + wheel, Shift + ← →", "pan"], ["double click, Enter", "zoom to a request"],
      ["drag on the axis, Shift + drag", "select a range"], ["[ ]", "begin and end a range at the request"],
      ["← → ↑ ↓", "go from request to request"], ["p", "go to its caller"], ["/  n  N", "search, next, previous"],
      ["c", "critical path"], ["0", "show all"], ["Esc", "clear"],
    ];
    this.parts.helpCard.replaceChildren(make("div", { class: "bls-tl-card-head" }, "Keys and mouse"),
      make("div", { class: "bls-tl-keys" }, ...rows.flatMap(([keys, what]) => [make("kbd", {}, keys), make("span", { class: "bls-tl-dim" }, what)])));
    return this.parts.helpCard;
  }
}

/** @param {HTMLCanvasElement} canvas */
function context(canvas) {
  return /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
}

/**
 * The value of a colour property as a canvas takes it.
 * @param {HTMLElement} element
 * @param {string} name
 */
function resolved(element, name) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  element.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}
