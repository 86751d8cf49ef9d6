// Paints the timeline: lanes, blocks, queues, marks, calls, the critical path.

import { fit, triangle } from "./axis.js";
import { above, duration } from "./common.js";
import { callsOf, selfTime } from "./timeline_data.js";
import { paintMarks, paintNotebook } from "./timeline_notebook.js";
import { turnOf } from "./timeline_words.js";

/** @typedef {import("./axis.js").Pen} Pen */
/** @typedef {import("./timeline.js").Timeline} Timeline */
/** @typedef {import("./timeline_data.js").Session} Session */
/** @typedef {import("./timeline_data.js").Strip} Strip */

const COLUMN = 2; // px that are painted as one where blocks are too narrow
const WIDE = 3; // px from which on a block is painted by itself

/** All that is seen. @param {Timeline} timeline @param {Pen} pen @param {number} from @param {number} to */
export function paintAll(timeline, pen, from, to) {
  const { sessions, chosen, lit, paths, theme } = timeline;
  for (const session of sessions) {
    const { raw, number } = session;
    if (raw.work - 30 > to || raw.bottom < from) continue;
    const painter = new Painter(timeline, pen, session);
    const path = lit && paths[number];
    const picked = chosen && chosen[number];
    painter.work(24 / timeline.most("working"), 14 / timeline.most("queued"));
    pen.globalAlpha = picked || path ? (theme.dark ? 0.3 : 0.25) : 1;
    const rows = session.rows.filter(({ top, height }) => top <= to && top + height >= from);
    painter.depths(from, to);
    const shown = rows.flatMap((row) => painter.row(row));
    if (!picked && !path) painter.locks();
    if (!picked && !path) painter.calls(shown);
    pen.globalAlpha = 1;
    if (picked) for (const row of rows) painter.row(row, picked);
    if (path) painter.path(path);
    else if (!picked) painter.ghosts();
    paintMarks(timeline, pen, session);
    painter.end(sessions.length > 1);
  }
}

/** What the pointer and the keys are at, with its callers and its calls. @param {Timeline} timeline @param {Pen} pen */
export function paintSpots(timeline, pen) {
  const { focus, hovered, theme } = timeline;
  for (const spot of [focus, hovered]) {
    if (!spot || spot.more) continue;
    const { session } = spot.row;
    const painter = new Painter(timeline, pen, session);
    pen.globalAlpha = 0.9;
    for (let i = spot.i, deep = 0; i >= 0 && deep < 50; i = session.c.parent[i], deep += 1) painter.call(i, 1.5, theme.fg);
    for (const i of callsOf(session, spot.i).subarray(0, 200)) painter.call(i, 1.5, theme.fg);
    pen.globalAlpha = 1;
    timeline.outline(pen, spot, spot === focus ? theme.brand : theme.fg);
  }
}

/** Paints one session. */
class Painter {
  /** @param {Timeline} timeline @param {Pen} pen @param {Session} session */
  constructor(timeline, pen, session) {
    this.timeline = timeline;
    this.pen = pen;
    this.session = session;
    this.c = session.c;
    this.theme = timeline.theme;
  }

  /** @param {number} time */
  x(time) {
    return this.timeline.x(time);
  }

  /** The colour of a request's model. @param {number} i */
  ink(i) {
    return this.timeline.ink(this.session.raw.models[this.c.model[i]]);
  }

  /** @param {string} colour */
  hatch(colour) {
    return this.timeline.hatch("/", colour);
  }

  /** @param {number} alpha @param {string | CanvasPattern} fill @param {number[]} box */
  fill(alpha, fill, [left, top, width, height]) {
    const { pen } = this;
    const was = pen.globalAlpha;
    pen.globalAlpha = was * alpha;
    pen.fillStyle = fill;
    pen.fillRect(left, top, width, height);
    pen.globalAlpha = was;
  }

  /** How many requests are worked on, upwards, and how many wait, downwards. @param {number} up @param {number} down px for one */
  work(up, down) {
    const { pen, session, theme } = this;
    const base = session.raw.work + 28;
    pen.globalAlpha = 0.55;
    pen.fillStyle = theme.dim;
    this.timeline.area(pen, session.working, base, -up, true);
    pen.globalAlpha = 1;
    pen.fillStyle = this.hatch(theme.dim);
    this.timeline.area(pen, session.queued, base + 1, down, true);
    this.fill(1, theme.dim, [0, base, Math.max(0, this.x(session.wall)), 1]);
  }

  /** How many wait where they are too many to be told apart. @param {number} from @param {number} to */
  depths(from, to) {
    const { raw, depth } = this.session;
    raw.lanes.forEach((lane, number) => {
      const curve = depth[number];
      if (!curve || lane.top > to || lane.bottom < from) return;
      this.pen.fillStyle = this.hatch(this.timeline.ink(raw.models[lane.model]));
      this.timeline.area(this.pen, curve, lane.blocks - 2, -(lane.blocks - 2 - lane.top) / curve.most, true);
    });
  }

  /**
   * Paint a row, or some requests of it, and return those that are wide enough to be seen by themselves. Of the
   * others, the part of each few pixels that is covered, and the part of that in which their models were at work.
   * @param {Strip} row @param {Set<number>} [only]
   */
  row(row, only) {
    const { timeline, session, theme } = this;
    if (row.what === "notebook") {
      if (!only) paintNotebook(timeline, this.pen, row);
      return [];
    }
    const lane = session.raw.lanes[row.lane];
    const ink = timeline.ink(session.raw.models[lane.model]);
    const { top, height, what } = row;
    /** @type {number[]} */
    const shown = [];
    let [at, cover, own, wrong] = [0, 0, 0, false];
    const flush = () => {
      if (!cover) return;
      const part = Math.min(1, Math.max(cover / COLUMN, 0.25)) * (what === "wait" ? 0.6 : 0.3 + (0.7 * own) / cover);
      this.fill(part, what === "refused" ? this.hatch(ink) : ink, [at, top, COLUMN, height]);
      if (wrong) this.fill(1, theme.alarm, [at, top + height - 3, COLUMN, 3]);
      [cover, own, wrong] = [0, 0, false];
    };
    for (let k = above(row.end, timeline.from); k < row.of.length && row.begin[k] <= timeline.to; k += 1) {
      const i = row.of[k];
      if (only && !timeline.members(row, k).some((each) => only.has(each))) continue;
      const [left, right] = [this.x(row.begin[k]), this.x(row.end[k])];
      if (right - left >= WIDE) {
        flush();
        const [from, to] = [Math.max(left, -20), Math.min(right, timeline.width + 20)];
        if (what === "wait") this.wait(i, from, to, top, height, ink);
        else this.block(row, i, from, to);
        shown.push(i);
      } else {
        const column = Math.floor(left / COLUMN) * COLUMN;
        if (column !== at) flush();
        at = column;
        cover += Math.max(right - left, 1e-9);
        own += what === "run" ? session.own[i] * timeline.scale : right - left;
        wrong ||= what !== "wait" && this.c.error[i] > 0;
      }
    }
    flush();
    return what === "wait" ? [] : shown;
  }

  /** @param {number} i @param {number} left @param {number} right @param {number} top @param {number} height @param {string} ink */
  wait(i, left, right, top, height, ink) {
    const ready = this.x(this.c.queued[i]); // until here it was checked and handed over
    const lines = this.session.raw.lanes[this.c.lane[i]].loop ? "." : "/";
    this.fill(0.9, this.timeline.hatch(lines, ink), [left, top, right - left, height]);
    if (ready - left > 1) this.fill(0.9, ink, [left, top, ready - left, height]);
    this.fill(0.55, ink, [left, top + height - 1, right - left, 1]);
    this.fill(0.55, ink, [left, top, 1, height]);
  }

  /** @param {Strip} row @param {number} i @param {number} left @param {number} right */
  block({ what, top, height }, i, left, right) {
    const { c, pen, session, theme } = this;
    const ink = this.ink(i);
    const width = Math.max(1, right - left - 1); // a hair's breadth between neighbours
    const members = what === "run" ? session.batches.get(i) : undefined;
    if (what === "refused") this.fill(1, this.hatch(ink), [left, top, width, height]);
    else {
      const [waited, started] = [this.x(c.sent[i]), this.x(c.started[i])];
      if (what === "run" && !c.waits[i] && started - waited > 1.5) {
        this.fill(1, this.hatch(ink), [waited, top + height * 0.55, started - waited, height * 0.45]);
      }
      const alpha = pen.globalAlpha;
      pen.fillStyle = ink;
      pen.globalAlpha = alpha * 0.3;
      rounded(pen, left, top, width, height);
      pen.globalAlpha = alpha;
      const pieces = what === "gpu" ? [[-Infinity, Infinity]] : selfTime(session, i);
      let last = -9;
      for (const [begin, end] of pieces) {
        const [from, to] = [Math.max(this.x(begin), left), Math.min(this.x(end), left + width)];
        if (to < left || to <= last || from > right) continue;
        if (to - from < 0.5 && from - last < 0.5) continue; // thousands of calls in a few pixels
        rounded(pen, from, top, Math.max(0.5, to - from), height);
        last = to;
      }
      const inferred = Math.max(this.x(c.inferred[i]), left);
      // Execute is over; its answers are on their way.
      if (what === "run" && right - inferred > 2) this.fill(0.35, theme.paper, [inferred, top, left + width - inferred, height]);
    }
    if (members && height / members.length >= 3) {
      members.forEach((_, k) => k && this.fill(1, theme.paper, [left, top + (height * k) / members.length - 0.5, width, 1]));
    }
    this.marks(i, top, height);
    this.state(i, left, top, width, height);
    if (width > 26 && height >= 11 && pen.globalAlpha > 0.9) this.label(what, i, left, Math.min(left + width, this.timeline.width), top, height);
  }

  /** The worst state of a request, or of those of its batch. @param {number} i @param {number} left @param {number} top @param {number} width @param {number} height */
  state(i, left, top, width, height) {
    const { pen, theme } = this;
    const states = (this.session.batches.get(i) ?? [i]).map((each) => this.session.raw.states[this.c.state[each]]);
    if (states.every((state) => state === "ok")) return;
    const wrong = states.includes("error");
    pen.strokeStyle = wrong ? theme.alarm : theme.fg;
    pen.lineWidth = 1.5;
    pen.setLineDash(wrong ? [] : [3, 2]);
    pen.strokeRect(left + 0.75, top + 0.75, Math.max(1, width - 1.5), height - 1.5);
    pen.setLineDash([]);
    if (wrong) this.fill(1, theme.alarm, [left, top, Math.min(4, width), height]);
  }

  /** The responses of a stream. @param {number} i @param {number} top @param {number} height */
  marks(i, top, height) {
    const { c, pen, session, theme } = this;
    let last = -9;
    for (let k = session.marksAt[i]; k < session.marksAt[i + 1]; k += 1) {
      const at = Math.round(this.x(c.mark_ns[k]));
      if (c.mark_kind[k] !== 0 || at - last < 4 || at < 0 || at > this.timeline.width) continue;
      this.fill(1, theme.paper, [at - 1, top, 2, height]);
      pen.fillStyle = theme.fg;
      triangle(pen, at, top + 5, -5);
      last = at;
    }
  }

  /**
   * The name of a block: on its first piece of self time if that is wide, else behind it where it is narrow.
   * @param {string} what @param {number} i @param {number} left @param {number} right @param {number} top @param {number} height
   */
  label(what, i, left, right, top, height) {
    const { c, pen, session, theme } = this;
    const marks = c.mark_kind.subarray(session.marksAt[i], session.marksAt[i + 1]);
    if (marks.includes(0)) return; // the signs of responses are worth more
    const members = what === "run" ? session.batches.get(i) : undefined;
    const failed = (members ?? [i]).filter((each) => session.raw.states[c.state[each]] === "error").length;
    const name = members ? `batch of ${members.length}${failed ? `: ✗ ${failed === members.length ? "all" : failed}` : ""}` : (failed ? "✗ " : "") + (session.text(c.request[i]) || session.raw.models[c.model[i]].name);
    const gpu = what === "gpu";
    let from = Math.max(left, 0) + 5;
    const [first] = selfTime(session, i);
    const until = first && this.x(first[0]) <= from ? this.x(first[1]) : left;
    const solid = gpu || until > from + 24 || until >= right - 2;
    if (!solid) from = Math.max(from, until + 4);
    pen.font = theme.font;
    const room = (solid && !gpu ? Math.min(right, until) : right) - from - 3;
    const turn = c.turn_call[i] && what === "run" ? turnOf(session, i) : "";
    const longer = turn && [`${name}: ${turn}`, turn].find((each) => pen.measureText(each).width <= room);
    const fitted = fit(pen, longer || name, room, 6);
    if (!fitted) return;
    if (members) this.fill(0.85, theme.paper, [from - 3, top + 2, pen.measureText(fitted).width + 7, height - 4]);
    const colour = solid && !members ? this.timeline.ink(session.raw.models[c.model[i]].words) : theme.fg;
    this.timeline.write(pen, fitted, from, top + height / 2 + 0.5, { colour });
  }

  /** Where requests waited for Python's lock: crosses on their blocks, or in the queue. */
  locks() {
    const { c, theme } = this;
    c.lock_span.forEach((/** @type {number} */ i, /** @type {number} */ k) => {
      const [left, right] = [this.x(c.lock_from[k]), this.x(c.lock_to[k])];
      if (right - left < WIDE || right < 0 || left > this.timeline.width) return;
      const [top, height] = c.lock_queued[k] ? this.arrival(i) : this.run(i);
      const [colour, from] = c.lock_queued[k] ? [this.ink(i), 0] : [theme.paper, 0.6 * height]; // below its name
      this.fill(0.9, this.timeline.hatch("x", colour), [left, top + from, right - left, height - from]);
    });
  }

  /** Where calls could have been. */
  ghosts() {
    const { c, pen, theme } = this;
    pen.setLineDash([4, 3]);
    pen.lineWidth = 1.5;
    pen.strokeStyle = theme.fg;
    c.ghost_span.forEach((/** @type {number} */ i, /** @type {number} */ k) => {
      const [left, right] = [this.x(c.ghost_from[k]), this.x(c.ghost_to[k])];
      if (right < 0 || left > this.timeline.width) return;
      const [block, whole] = this.run(i);
      const height = (whole - 2) / c.ghost_parts[k]; // those of a lane may overlap
      const top = block + 1 + c.ghost_part[k] * height;
      this.fill(0.15, this.ink(i), [left, top, right - left, height]);
      pen.strokeRect(left + 0.75, top + 0.75, Math.max(1, right - left - 1.5), height - 1.5);
    });
    pen.setLineDash([]);
  }

  /** Lines from callers down to what they called. @param {number[]} shown */
  calls(shown) {
    if (shown.length > 400) return; // a thicket says nothing; the block under the pointer has its own lines
    this.pen.globalAlpha = shown.length > 150 ? 0.35 : 0.6;
    for (const lead of shown) for (const i of this.session.batches.get(lead) ?? [lead]) this.call(i, 1);
    this.pen.globalAlpha = 1;
  }

  /** @param {number} i @param {number} width @param {string} [colour] */
  call(i, width, colour) {
    const { c, pen } = this;
    const caller = c.parent[i];
    const at = Math.round(this.x(c.sent[i])) + 0.5;
    const [{ what, top: first, height: high }] = this.session.rows;
    if ((caller < 0 && what !== "notebook") || at < -3 || at > this.timeline.width + 3) return;
    const [from, fromHeight] = caller < 0 ? [first, high] : this.run(caller);
    const [top, height] = this.arrival(i);
    const down = top >= from;
    const end = down ? top : top + height;
    pen.strokeStyle = pen.fillStyle = colour ?? (caller < 0 ? this.timeline.ink(this.session.raw.notebook) : this.ink(caller));
    pen.lineWidth = width;
    pen.beginPath();
    pen.moveTo(at, down ? from + fromHeight : from);
    pen.lineTo(at, end + (down ? -4 : 4));
    pen.stroke();
    triangle(pen, at, end, down ? -4 : 4);
  }

  /** Top and height of where the batch of a request runs. @param {number} i */
  run(i) {
    const lead = this.c.first[i];
    return [this.c.y[lead], this.c.height[lead]];
  }

  /** Top and height of where a request arrives: its place in the queue, or its block if it hardly waited. @param {number} i */
  arrival(i) {
    const { c } = this;
    const { depth, top, blocks } = this.session.raw.lanes[c.lane[i]];
    return depth && c.waits[i] ? [top, blocks - 2 - top] : [c.from_y[i], c.from_height[i]];
  }

  /** @param {any} path */
  path(path) {
    const { theme, timeline } = this;
    const first = Math.max(0, above(path.begin, timeline.from) - 1);
    const last = above(path.begin, timeline.to);
    const stride = Math.max(1, Math.floor((last - first) / 5000));
    let before = -1;
    for (let k = first; k < last; k += stride) {
      const i = path.span[k];
      const phase = path.phases[path.phase[k]];
      const left = Math.max(this.x(path.begin[k]), -2);
      const width = Math.min(this.x(path.end[k]), timeline.width + 2) - left;
      if (i < 0) {
        before = -1;
        continue;
      }
      const [top, height] = ["queue", "compute_input"].includes(phase) ? this.arrival(i) : this.run(i);
      this.fill(1, phase === "queue" ? this.hatch(this.ink(i)) : this.ink(i), [left, top, Math.max(1, width), height]);
      const middle = top + height / 2;
      if (before >= 0 && stride === 1) this.fill(1, theme.fg, [left - 0.75, Math.min(before, middle), 1.5, Math.abs(before - middle)]);
      this.fill(1, theme.fg, [left, middle - 0.75, Math.max(0.5, width), 1.5]);
      before = middle;
    }
  }

  /** Where the session ends, and after how long if there is another one beside it. @param {boolean} labelled */
  end(labelled) {
    const { pen, session, theme, timeline } = this;
    const { raw } = session;
    const at = Math.round(this.x(session.wall));
    if (at < 0 || at > timeline.width) return;
    this.fill(0.6, theme.fg, [Math.min(at, timeline.width - 1), raw.work + 2, 1, raw.bottom - raw.work - 8]);
    if (!labelled) return;
    const text = duration(raw.wall);
    const font = `600 ${theme.font}`;
    pen.font = font;
    const { width } = pen.measureText(text);
    const left = at + 6 + width < timeline.width ? at + 5 : at - width - 5;
    timeline.write(pen, text, left, raw.work + 8, { colour: theme.fg, font, halo: true }); // it may be on the curve of those at work
  }
}

/** @param {Pen} pen @param {number} left @param {number} top @param {number} width @param {number} height */
function rounded(pen, left, top, width, height) {
  pen.beginPath();
  pen.roundRect(left, top, width, height, width > 6 && height > 6 ? 2 : 0);
  pen.fill();
}
