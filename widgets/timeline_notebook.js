// Paints what is the notebook's own on the timeline: what it waits for, and the moments that somebody named.

import { fit, triangle } from "./axis.js";
import { above, duration, make } from "./common.js";
import { nameOf } from "./timeline_words.js";

/** @typedef {import("./axis.js").Pen} Pen */
/** @typedef {import("./timeline.js").Timeline} Timeline */
/** @typedef {import("./timeline_data.js").Session} Session */
/** @typedef {import("./timeline_data.js").Strip} Strip */

const LABELLED = 60; // px of a wait from which on it is said for what
const NEAR = 5; // px

/** The lane of the notebook: in full colour where it does its own work, pale where it waits. @param {Timeline} timeline @param {Pen} pen @param {Strip} row */
export function paintNotebook(timeline, pen, { session, top, height, of, begin, end }) {
  const { theme } = timeline;
  const alpha = pen.globalAlpha;
  const x = (/** @type {number} */ time) => Math.max(-2, Math.min(timeline.x(time), timeline.width + 2));
  const fill = (/** @type {string} */ colour, /** @type {number} */ strength, /** @type {number} */ left, /** @type {number} */ right) => {
    pen.globalAlpha = alpha * strength;
    pen.fillStyle = colour;
    pen.fillRect(left, top, right - left, height);
    pen.globalAlpha = alpha;
  };
  fill(timeline.ink(session.raw.notebook), 1, x(0), x(session.wall));
  let [column, cover] = [-9, 0]; // what is narrower than a pixel is painted with what else is in it
  const flush = () => {
    if (cover) fill(theme.paper, 0.7 * Math.min(1, cover), column, column + 1);
    cover = 0;
  };
  for (let k = above(end, timeline.from); k < of.length && begin[k] <= timeline.to; k += 1) {
    const [left, right] = [x(begin[k]), x(end[k])];
    if (right - left >= 1.5) {
      flush();
      fill(theme.paper, 0.7, left, right);
      if (right - left < LABELLED || alpha < 0.9) continue;
      pen.font = theme.font;
      const from = Math.max(left, 0) + 5;
      const text = fit(pen, `waits for ${awaited(session, k, of[k])}`, right - from - 3, 10);
      if (text) timeline.write(pen, text, from, top + height / 2 + 0.5, { colour: theme.fg });
    } else {
      if (Math.floor(left) !== column) flush();
      column = Math.floor(left);
      cover += right - left;
    }
  }
  flush();
}

/** What the notebook waits for, one of the times that it does. @param {Session} session @param {number} k @param {number} i */
export function awaited(session, k, i) {
  const count = session.waited[k];
  return count > 1 ? `${count.toLocaleString("en")} requests` : nameOf(session, i);
}

/** Where a named moment is, and how far down its line goes: to who named it. @param {Timeline} timeline @param {Session} session @param {number} k */
function spotOfMark(timeline, { c, raw }, k) {
  const i = c.named_span[k];
  const [notebook] = raw.lanes;
  const bottom = i >= 0 ? c.y[c.first[i]] + c.height[c.first[i]] : notebook?.kind === "notebook" ? notebook.bottom : raw.bottom - 6;
  return { x: Math.round(timeline.x(c.named_ns[k])) + 0.5, top: raw.work + 4, bottom };
}

/** The moments that have names. @param {Timeline} timeline @param {Pen} pen @param {Session} session */
export function paintMarks(timeline, pen, session) {
  const { theme, width } = timeline;
  let free = -Infinity;
  let before = -9;
  session.raw.marks.forEach((name, k) => {
    const { x, top, bottom } = spotOfMark(timeline, session, k);
    if (x < 0 || x > width || x - before < 1) return;
    before = x;
    pen.strokeStyle = pen.fillStyle = theme.fg;
    pen.lineWidth = 1;
    pen.globalAlpha = 0.55;
    pen.beginPath();
    pen.moveTo(x, top);
    pen.lineTo(x, bottom);
    pen.stroke();
    pen.globalAlpha = 1;
    triangle(pen, x, top + 5, -5);
    pen.font = theme.font;
    const text = fit(pen, name, 160, 2);
    const wide = pen.measureText(text).width;
    const left = x + wide + 6 < width ? x + 5 : x - wide - 5;
    if (!text || left < free) return;
    free = left + wide + 8;
    timeline.write(pen, text, left, top + 3, { colour: theme.fg, halo: true });
  });
}

/** What is said of the moment at a point; nothing where there is none. @param {Timeline} timeline @param {number} x @param {number} y px from the top of all rows */
export function markTip(timeline, x, y) {
  for (const session of timeline.sessions) {
    const { raw, c, wall } = session;
    if (!(y >= raw.work && y < raw.work + 40)) continue;
    const k = raw.marks.findIndex((_, at) => Math.abs(spotOfMark(timeline, session, at).x - x) <= NEAR);
    if (k < 0) return [];
    const by = c.named_span[k] < 0 ? "the notebook" : nameOf(session, c.named_span[k]);
    return [
      make("b", {}, raw.marks[k]), make("div", {}, `at ${duration(c.named_ns[k])} of ${duration(wall)}`),
      make("div", { class: "bls-chart-dim" }, `marked by ${by}`),
    ];
  }
  return [];
}
