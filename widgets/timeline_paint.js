// Draws sessions on a canvas: lanes, blocks, queues, marks, calls, the critical path.

import { duration } from "./common.js";
import { above, area } from "./timeline_data.js";

/** @typedef {import("./timeline_data.js").Session} Session */
/** @typedef {import("./timeline_data.js").Row} Row */
/** @typedef {import("./timeline_data.js").Curve} Curve */

/**
 * Where a lane is: `y` is its top, in px from the top of all lanes.
 * @typedef {{ y: number, height: number, waitsY: number, waitHeight: number, waitsHeight: number, blocksY: number,
 *   blockHeight: number, index: number }} LanePlace
 * @typedef {{ session: Session, number: number, y: number, height: number, workY: number, lanes: LanePlace[] }} Panel
 * @typedef {{ panels: Panel[], height: number }} Places
 * @typedef {{ fg: string, dim: string, line: string, paper: string, alarm: string, dark: boolean }} Theme
 * @typedef {{ from: number, to: number, width: number, height: number, top: number }} View
 * @typedef {{ spans: Set<number>, blocks: Row[][], waits: Row[][] } | null} Chosen
 * @typedef {{ span: Int32Array, behind: Int32Array, begin: Float64Array, end: Float64Array, phase: Uint8Array,
 *   phases: string[] } | null} Path
 */

const COLUMN = 2; // px that are drawn as one where blocks are too narrow
const WIDE = 3; // px from which on a block is drawn by itself
export const WORK_HEIGHT = 46;
const TITLE_HEIGHT = 30;

/**
 * Find a place for every lane.
 * @param {Session[]} sessions
 * @returns {Places}
 */
export function findPlaces(sessions) {
  let y = 0;
  const panels = sessions.map((session, number) => {
    const top = y;
    if (sessions.length > 1) y += TITLE_HEIGHT;
    const workY = y;
    y += WORK_HEIGHT;
    let model = -2;
    const lanes = session.raw.lanes.map((lane, index) => {
      const gap = lane.model === model ? 2 : 7;
      model = lane.model;
      const waitHeight = lane.waits ? Math.max(3, Math.min(7, 36 / lane.waits)) : 0;
      const waitsHeight = session.depth[index] ? 36 : lane.waits * waitHeight;
      const blockHeight = lane.kind === "idle" ? 12 : lane.rows === 1 ? 18 : Math.max(3, Math.min(13, 110 / lane.rows));
      const waitsY = y + gap;
      const blocksY = waitsY + waitsHeight + (waitsHeight ? 2 : 0);
      const height = blocksY + lane.rows * blockHeight + 5 - y;
      const place = { y, height, waitsY, waitHeight, waitsHeight, blocksY, blockHeight, index };
      y += height;
      return place;
    });
    y += 6;
    return { session, number, y: top, height: y - top, workY, lanes };
  });
  return { panels, height: y };
}

/**
 * The box of a span's run: its share of the row where it is one of a batch.
 * @param {Session} session
 * @param {LanePlace} place
 * @param {number} i
 * @returns {[number, number]} top and height
 */
export function blockBox(session, place, i) {
  const { c } = session;
  const onGpu = session.raw.lanes[place.index].kind === "gpu";
  const row = place.blocksY + (onGpu ? c.gpu_row[i] : c.row[i]) * place.blockHeight;
  const full = place.blockHeight - (session.raw.lanes[place.index].rows > 1 ? 1 : 0);
  if (onGpu || c.parts[i] < 2) return [row, full];
  const share = full / c.parts[i];
  return [row + c.part[i] * share, share >= 3 ? share - 1 : share];
}

/**
 * The top of a span's wait above the lane: the first to run is the lowest.
 * @param {LanePlace} place
 * @param {number} wait
 */
function waitTop(place, wait) {
  return place.waitsY + place.waitsHeight - (wait + 1) * place.waitHeight;
}

export class Painter {
  /** @param {CanvasRenderingContext2D} context */
  constructor(context) {
    this.context = context;
    /** @type {Map<string, CanvasPattern>} */
    this.patterns = new Map();
    /** @type {Theme} */
    this.theme = { fg: "#222", dim: "#777", line: "#ddd", paper: "#fff", alarm: "#d55e00", dark: false };
    /** @type {View} */
    this.view = { from: 0, to: 1, width: 1, height: 1, top: 0 };
    this.scale = 1;
    this.font = "11px sans-serif";
  }

  /** @param {number} time */
  x(time) {
    return (time - this.view.from) * this.scale;
  }

  /** @param {View} view */
  look(view) {
    this.view = view;
    this.scale = view.width / (view.to - view.from);
  }

  /**
   * A fill of slanted lines.
   * @param {string} colour
   */
  hatch(colour) {
    const ratio = window.devicePixelRatio || 1;
    const key = `${colour} ${ratio}`;
    let pattern = this.patterns.get(key);
    if (!pattern) {
      const side = Math.round(6 * ratio);
      const tile = document.createElement("canvas");
      tile.width = tile.height = side;
      const pen = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
      pen.strokeStyle = colour;
      pen.lineWidth = 1.5 * ratio;
      pen.beginPath();
      for (const shift of [-side, 0, side]) {
        pen.moveTo(shift - 1, side + 1);
        pen.lineTo(shift + side + 1, -1);
      }
      pen.stroke();
      pattern = /** @type {CanvasPattern} */ (this.context.createPattern(tile, "repeat"));
      this.patterns.set(key, pattern);
      pattern.setTransform(new DOMMatrix([1 / ratio, 0, 0, 1 / ratio, 0, 0]));
    }
    return pattern;
  }

  /**
   * @param {Session} session
   * @param {number} model
   */
  ink(session, model) {
    const ink = session.raw.models[model];
    if (!ink) return this.theme.dim;
    return this.theme.dark ? ink.dark : ink.light;
  }

  /**
   * Draw everything that the view shows.
   * @param {Places} places
   * @param {{ ticks: number[], chosen: Chosen[], paths: Path[] | null }} what
   */
  paint(places, { ticks, chosen, paths }) {
    const { context, view, theme } = this;
    context.clearRect(0, 0, view.width, view.height);
    context.save();
    context.translate(0, -view.top);
    context.fillStyle = theme.line;
    for (const tick of ticks) context.fillRect(Math.round(this.x(tick)), view.top, 1, view.height);
    const most = {
      working: Math.max(1, ...places.panels.map((panel) => panel.session.working.most)),
      queued: Math.max(1, ...places.panels.map((panel) => panel.session.queued.most)),
    };
    for (const panel of places.panels) {
      if (panel.y > view.top + view.height || panel.y + panel.height < view.top) continue;
      const picked = chosen[panel.number];
      const path = paths?.[panel.number];
      this.paintWork(panel, most);
      context.globalAlpha = picked || path ? (theme.dark ? 0.3 : 0.25) : 1;
      const shown = this.paintLanes(panel, panel.session.blocks, panel.session.waits);
      if (!picked && !path && shown.length) this.paintCalls(panel, shown);
      context.globalAlpha = 1;
      if (picked) this.paintLanes(panel, picked.blocks, picked.waits);
      if (path) this.paintPath(panel, path);
      this.paintEnd(panel, places.panels.length > 1);
    }
    context.restore();
  }

  /**
   * How many requests are worked on, upwards, and how many wait, downwards.
   * @param {Panel} panel
   * @param {{ working: number, queued: number }} most
   */
  paintWork(panel, most) {
    const { theme } = this;
    const base = panel.workY + 28;
    this.context.globalAlpha = 0.55;
    this.paintCurve(panel.session.working, base, -24 / most.working, theme.dim);
    this.context.globalAlpha = 1;
    if (panel.session.queued.most) {
      this.paintCurve(panel.session.queued, base + 1, 14 / most.queued, this.hatch(theme.dim));
    }
    this.context.fillStyle = theme.dim;
    this.context.fillRect(0, base, Math.max(0, this.x(panel.session.wall)), 1);
  }

  /**
   * @param {Curve} curve
   * @param {number} base
   * @param {number} unit px for one; upwards if negative
   * @param {string | CanvasPattern} fill
   */
  paintCurve(curve, base, unit, fill) {
    const { context, view } = this;
    const first = Math.max(0, above(curve.at, view.from) - 1);
    const last = above(curve.at, view.to, first);
    context.beginPath();
    context.moveTo(-2, base);
    let height = base;
    const step = (/** @type {number} */ at, /** @type {number} */ level) => {
      context.lineTo(at, height);
      height = base + level * unit;
      context.lineTo(at, height);
    };
    if (last - first < 1500) {
      for (let k = first; k < last; k += 1) step(Math.max(-2, this.x(curve.at[k])), curve.level[k]);
    } else {
      let before = area(curve, view.from);
      for (let left = 0; left < view.width; left += COLUMN) {
        const now = area(curve, view.from + (left + COLUMN) / this.scale);
        step(left, ((now - before) * this.scale) / COLUMN);
        before = now;
      }
    }
    step(view.width + 2, 0);
    context.fillStyle = fill;
    context.fill();
  }

  /**
   * Draw the blocks and waits of rows, and return the spans that are wide enough to be seen by themselves.
   * @param {Panel} panel
   * @param {Row[][]} blocks
   * @param {Row[][]} waits
   */
  paintLanes(panel, blocks, waits) {
    const { view } = this;
    const { session } = panel;
    /** @type {number[]} */
    const shown = [];
    for (const place of panel.lanes) {
      if (place.y > view.top + view.height || place.y + place.height < view.top) continue;
      const lane = session.raw.lanes[place.index];
      const ink = lane.model < 0 ? this.theme.dim : this.ink(session, lane.model);
      const depth = session.depth[place.index];
      if (depth && blocks === session.blocks) {
        this.paintCurve(depth, place.waitsY + place.waitsHeight, -place.waitsHeight / depth.most, this.hatch(ink));
      }
      waits[place.index]?.forEach((row, wait) => {
        const top = waitTop(place, row.n ? session.c.wait[row.span[0]] : wait);
        const height = place.waitHeight - 1;
        this.walk(
          row,
          (k, left, right) => this.paintWait(session, row.span[k], left, right, top, height, ink),
          (left, right, cover) => this.shade(left, right, top, height, cover * 0.6, ink),
        );
      });
      blocks[place.index].forEach((row) => {
        if (!row.n) return;
        const lead = row.span[0];
        const [top, height] = [
          place.blocksY + (lane.kind === "gpu" ? session.c.gpu_row[lead] : session.c.row[lead]) * place.blockHeight,
          place.blockHeight - (lane.rows > 1 ? 1 : 0),
        ];
        this.walk(
          row,
          (k, left, right) => {
            this.paintBlock(session, place, row.span[k], left, right, ink);
            shown.push(row.span[k]);
          },
          (left, right, cover, own, errors) => {
            this.shade(left, right, top, height, cover * (0.3 + 0.7 * own), lane.kind === "refused" ? this.hatch(ink) : ink);
            if (errors) {
              this.context.fillStyle = this.theme.alarm;
              this.context.fillRect(left, top + height - 3, Math.max(right - left, 2), 3);
            }
          },
        );
      });
    }
    return shown;
  }

  /**
   * Go along the part of a row that is in view: what is wide one by one, what is narrow by columns.
   * @param {Row} row
   * @param {(k: number, left: number, right: number) => void} one
   * @param {(left: number, right: number, cover: number, own: number, errors: number) => void} many
   */
  walk(row, one, many) {
    const { view, scale } = this;
    let k = Math.max(0, above(row.begin, view.from) - 1);
    if (k < row.n && row.end[k] < view.from) k += 1;
    // Neighbouring columns that look the same are one rectangle.
    let pendingLeft = 0;
    let pendingRight = -1;
    let pendingCover = 0;
    let pendingOwn = 0;
    let pendingErrors = 0;
    const flush = () => {
      if (pendingRight > pendingLeft) many(pendingLeft, pendingRight, pendingCover, pendingOwn, pendingErrors);
      pendingRight = -1;
    };
    while (k < row.n && row.begin[k] <= view.to) {
      const left = (row.begin[k] - view.from) * scale;
      const right = (row.end[k] - view.from) * scale;
      if (right - left >= WIDE) {
        flush();
        one(k, Math.max(left, -20), Math.min(right, view.width + 20));
        k += 1;
        continue;
      }
      const column = Math.floor(left / COLUMN) * COLUMN;
      let last = above(row.begin, view.from + (column + COLUMN) / scale, k + 1);
      if (last > k + 1 && (row.end[last - 1] - row.begin[last - 1]) * scale >= WIDE) last -= 1;
      const covered = row.before[last] - row.before[k];
      // In eighths: what the eye can tell apart, and few rectangles.
      const cover = Math.ceil(Math.min(1, Math.max((covered * scale) / COLUMN, 0.15)) * 8) / 8;
      const own = covered > 0 ? Math.ceil(((row.own[last] - row.own[k]) / covered) * 4) / 4 : 1;
      const errors = row.errors[last] > row.errors[k] ? 1 : 0;
      if (pendingRight !== column || pendingCover !== cover || pendingOwn !== own || pendingErrors !== errors) {
        flush();
        pendingLeft = column;
      }
      pendingRight = column + COLUMN;
      pendingCover = cover;
      pendingOwn = own;
      pendingErrors = errors;
      k = last;
    }
    flush();
  }

  /**
   * @param {number} left
   * @param {number} right
   * @param {number} top
   * @param {number} height
   * @param {number} strength
   * @param {string | CanvasPattern} fill
   */
  shade(left, right, top, height, strength, fill) {
    const { context } = this;
    const alpha = context.globalAlpha;
    context.globalAlpha = alpha * strength;
    context.fillStyle = fill;
    context.fillRect(left, top, right - left, height);
    context.globalAlpha = alpha;
  }

  /**
   * @param {Session} session
   * @param {number} i
   * @param {number} left
   * @param {number} right
   * @param {number} top
   * @param {number} height
   * @param {string} ink
   */
  paintWait(session, i, left, right, top, height, ink) {
    const { context } = this;
    const alpha = context.globalAlpha;
    context.fillStyle = this.hatch(ink);
    context.globalAlpha = alpha * 0.9;
    context.fillRect(left, top, right - left, height);
    const ready = this.x(session.c.queued[i]); // until here it was checked and handed over
    context.fillStyle = ink;
    if (ready - left > 1) context.fillRect(left, top, ready - left, height);
    context.globalAlpha = alpha * 0.55;
    context.fillRect(left, top + height - 1, right - left, 1);
    context.fillRect(left, top, 1, height);
    context.globalAlpha = alpha;
  }

  /**
   * @param {Session} session
   * @param {LanePlace} place
   * @param {number} i
   * @param {number} left
   * @param {number} right
   * @param {string} ink
   */
  paintBlock(session, place, i, left, right, ink) {
    const { context, theme, view } = this;
    const { c, raw } = session;
    const lane = raw.lanes[place.index];
    const colour = lane.kind === "gpu" ? this.ink(session, c.model[i]) : ink;
    const [row, full] = blockBox(session, place, session.first[i]);
    const members = session.batches.get(i);
    const height = members ? place.blockHeight - (lane.rows > 1 ? 1 : 0) : full;
    const alpha = context.globalAlpha;
    const width = Math.max(1, right - left - 1); // a hair's breadth between neighbours
    if (lane.kind === "refused") {
      context.fillStyle = this.hatch(colour);
      context.fillRect(left, row, width, height);
    } else {
      const waited = this.x(c.sent[i]);
      if (c.wait[i] < 0 && lane.kind === "instance" && this.x(c.started[i]) - waited > 1.5) {
        context.fillStyle = this.hatch(colour);
        context.fillRect(waited, row + height * 0.55, this.x(c.started[i]) - waited, height * 0.45);
      }
      context.fillStyle = colour;
      context.globalAlpha = alpha * 0.3;
      box(context, left, row, width, height);
      context.globalAlpha = alpha;
      if (lane.kind === "gpu") box(context, left, row, width, height);
      else this.paintOwn(session, i, left, left + width, row, height);
      const inferred = this.x(c.inferred[i]);
      if (right - inferred > 2 && lane.kind === "instance") {
        context.fillStyle = theme.paper; // execute is over; its answers are on their way
        context.globalAlpha = alpha * 0.35;
        context.fillRect(Math.max(inferred, left), row, left + width - Math.max(inferred, left), height);
        context.globalAlpha = alpha;
      }
    }
    if (members && height / members.length >= 3) {
      context.fillStyle = theme.paper;
      for (let k = 1; k < members.length; k += 1) {
        context.fillRect(left, row + (height * k) / members.length - 0.5, width, 1);
      }
    }
    this.paintMarks(session, i, row, height);
    const state = raw.states[c.state[i]];
    if (state !== "ok") {
      context.strokeStyle = context.fillStyle = state === "error" ? theme.alarm : theme.fg;
      context.lineWidth = 1.5;
      if (state !== "error") context.setLineDash([3, 2]);
      context.strokeRect(left + 0.75, row + 0.75, Math.max(1, width - 1.5), height - 1.5);
      context.setLineDash([]);
      if (state === "error") context.fillRect(left, row, Math.min(4, width), height);
    }
    if (width > 26 && height >= 11) {
      this.paintLabel(session, i, left, Math.min(left + width, view.width), row, height, colour, lane.kind === "gpu");
    }
  }

  /**
   * The pieces in which a model was at work itself; between them its calls were under way.
   * @param {Session} session
   * @param {number} i
   * @param {number} left
   * @param {number} right
   * @param {number} top
   * @param {number} height
   */
  paintOwn(session, i, left, right, top, height) {
    const { context } = this;
    const { ownAt, ownFrom, ownTo, first } = session;
    const lead = first[i];
    let last = -1;
    for (let k = ownAt[lead]; k < ownAt[lead + 1]; k += 1) {
      const from = Math.max(this.x(ownFrom[k]), left);
      const to = Math.min(this.x(ownTo[k]), right);
      if (to < left || to <= last || from > right) continue;
      if (to - from < 0.5 && from - last < 0.5) continue; // thousands of calls in a few pixels
      box(context, from, top, Math.max(0.5, to - from), height);
      last = to;
    }
  }

  /**
   * @param {Session} session
   * @param {number} i
   * @param {number} top
   * @param {number} height
   */
  paintMarks(session, i, top, height) {
    const { context, theme } = this;
    const { c, marksAt } = session;
    let last = -9;
    for (let k = marksAt[i]; k < marksAt[i + 1]; k += 1) {
      const at = Math.round(this.x(c.mark_ns[k]));
      if (c.mark_kind[k] !== 0 || at - last < 4 || at < 0 || at > this.view.width) continue;
      context.fillStyle = theme.paper;
      context.fillRect(at - 1, top, 2, height);
      context.fillStyle = theme.fg;
      context.beginPath();
      context.moveTo(at, top + 5);
      context.lineTo(at - 3, top);
      context.lineTo(at + 3, top);
      context.fill();
      last = at;
    }
  }

  /**
   * @param {Session} session
   * @param {number} i
   * @param {number} left
   * @param {number} right
   * @param {number} top
   * @param {number} height
   * @param {string} colour
   * @param {boolean} onGpu
   */
  paintLabel(session, i, left, right, top, height, colour, onGpu) {
    const { context, theme } = this;
    const { c } = session;
    if (session.marksAt[i + 1] > session.marksAt[i]) return; // the marks are worth more
    const members = onGpu ? undefined : session.batches.get(i);
    const text = members ? `batch of ${members.length}` : session.text(c.request[i]) || session.raw.models[c.model[i]].name;
    if (context.globalAlpha < 0.9) return;
    context.font = this.font;
    context.textBaseline = "middle";
    // On its first piece of own work if that is wide, else behind it where it is narrow.
    let from = Math.max(left, 0) + 5;
    const k = session.ownAt[session.first[i]];
    const begins = k < session.ownAt[session.first[i] + 1] && this.x(session.ownFrom[k]) <= from;
    const until = begins ? this.x(session.ownTo[k]) : left;
    const solid = onGpu || until > from + 24 || until >= right - 2;
    if (!solid) from = Math.max(from, until + 4);
    const room = (solid && !onGpu ? Math.min(right, until) : right) - from - 3;
    const fitted = fit(context, text, room);
    if (!fitted) return;
    if (members) {
      context.fillStyle = theme.paper;
      context.globalAlpha = 0.85;
      box(context, from - 3, top + 2, context.measureText(fitted).width + 7, height - 4);
      context.globalAlpha = 1;
    }
    context.fillStyle = solid && !members ? readable(colour) : theme.fg;
    context.fillText(fitted, from, top + height / 2 + 0.5);
  }

  /**
   * Lines from callers down to what they called.
   * @param {Panel} panel
   * @param {number[]} shown
   */
  paintCalls(panel, shown) {
    if (shown.length > 400) return; // a thicket says nothing; the block under the pointer has its own lines
    const { context } = this;
    context.globalAlpha = shown.length > 150 ? 0.35 : 0.6;
    for (const lead of shown) {
      for (const i of panel.session.batches.get(lead) ?? [lead]) this.paintCall(panel, i, 1);
    }
    context.globalAlpha = 1;
  }

  /**
   * @param {Panel} panel
   * @param {number} i
   * @param {number} width
   * @param {string} [colour]
   */
  paintCall(panel, i, width, colour) {
    const { session } = panel;
    const { c } = session;
    const caller = c.parent[i];
    if (caller < 0) return;
    const { context } = this;
    const at = Math.round(this.x(c.sent[i])) + 0.5;
    if (at < -3 || at > this.view.width + 3) return;
    const [from, fromHeight] = blockBox(session, panel.lanes[c.lane[caller]], session.first[caller]);
    const [top, height] = this.arrival(panel, i);
    const down = top >= from;
    const begin = down ? from + fromHeight : from;
    const end = down ? top : top + height;
    const tip = down ? -4 : 4;
    context.strokeStyle = context.fillStyle = colour ?? this.ink(session, c.model[caller]);
    context.lineWidth = width;
    context.beginPath();
    context.moveTo(at, begin);
    context.lineTo(at, end + tip);
    context.stroke();
    context.beginPath();
    context.moveTo(at, end);
    context.lineTo(at - 3, end + tip);
    context.lineTo(at + 3, end + tip);
    context.fill();
  }

  /**
   * Where a request arrives: its place in the queue, or its block if it hardly waited.
   * @param {Panel} panel
   * @param {number} i
   * @returns {[number, number]}
   */
  arrival(panel, i) {
    const { session } = panel;
    const place = panel.lanes[session.c.lane[i]];
    if (session.c.wait[i] < 0) return blockBox(session, place, i);
    if (session.depth[place.index]) return [place.waitsY, place.waitsHeight];
    return [waitTop(place, session.c.wait[i]), place.waitHeight - 1];
  }

  /**
   * @param {Panel} panel
   * @param {NonNullable<Path>} path
   */
  paintPath(panel, path) {
    const { context, theme, view } = this;
    const { session } = panel;
    const first = Math.max(0, above(path.begin, view.from) - 1);
    const last = above(path.begin, view.to, first);
    const stride = Math.max(1, Math.floor((last - first) / 5000));
    let before = -1;
    for (let k = first; k < last; k += stride) {
      const i = path.span[k];
      const left = Math.max(this.x(path.begin[k]), -2);
      const right = Math.min(this.x(path.end[k]), view.width + 2);
      if (i < 0) {
        before = -1;
        continue;
      }
      const queued = path.phases[path.phase[k]] === "queue";
      const input = path.phases[path.phase[k]] === "compute_input";
      const place = panel.lanes[session.c.lane[i]];
      const [top, height] = queued || input ? this.arrival(panel, i) : blockBox(session, place, session.first[i]);
      context.fillStyle = queued ? this.hatch(this.ink(session, session.c.model[i])) : this.ink(session, session.c.model[i]);
      context.fillRect(left, top, Math.max(1, right - left), height);
      context.fillStyle = theme.fg;
      const middle = top + height / 2;
      if (before >= 0 && Math.abs(before - middle) > 2 && stride === 1) {
        context.fillRect(left - 0.75, Math.min(before, middle), 1.5, Math.abs(before - middle));
      }
      context.fillRect(left, middle - 0.75, Math.max(0.5, right - left), 1.5);
      before = middle;
    }
  }

  /**
   * Where the session ends, and after how long if there is another one to compare it with.
   * @param {Panel} panel
   * @param {boolean} labelled
   */
  paintEnd(panel, labelled) {
    const { context, theme, view } = this;
    const at = Math.round(this.x(panel.session.wall));
    if (at < 0 || at > view.width) return;
    context.fillStyle = theme.fg;
    context.globalAlpha = 0.6;
    context.fillRect(Math.min(at, view.width - 1), panel.workY + 2, 1, panel.y + panel.height - panel.workY - 8);
    context.globalAlpha = 1;
    if (!labelled) return;
    const text = duration(panel.session.raw.wall);
    context.font = `600 ${this.font}`;
    context.textBaseline = "middle";
    const { width } = context.measureText(text);
    const left = at + 6 + width < view.width ? at + 5 : at - width - 5;
    // It may stand on the curve of those at work: a rim of paper keeps it apart.
    context.strokeStyle = theme.paper;
    context.lineWidth = 4;
    context.lineJoin = "round";
    context.strokeText(text, left, panel.workY + 8);
    context.fillText(text, left, panel.workY + 8);
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} left
 * @param {number} top
 * @param {number} width
 * @param {number} height
 */
function box(context, left, top, width, height) {
  if (width > 6 && height > 6) {
    context.beginPath();
    context.roundRect(left, top, width, height, 2);
    context.fill();
  } else {
    context.fillRect(left, top, width, height);
  }
}

/**
 * As much of a text as there is room for; nothing if that is next to nothing.
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} room
 */
function fit(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  const kept = Math.floor(room / 6.2) - 1;
  return kept >= 7 ? `${text.slice(0, kept)}…` : "";
}

/**
 * Black or white, whichever reads better on a colour.
 * @param {string} colour #rrggbb
 */
export function readable(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => {
    const part = parseInt(colour.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  const light = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  return (light + 0.05) ** 2 > 1.05 * 0.05 ? "#111111" : "#ffffff"; // the greater contrast, as WCAG counts it
}
