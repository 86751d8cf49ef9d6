// A session in the browser: its columns, and the rows of what they hold.

import { columns } from "./common.js";

/**
 * @typedef {{ kind: string, label: string, name: string, model: number, y: number, top: number, blocks: number,
 *   bottom: number, depth: Place | null, share: string }} Lane
 * @typedef {{ at: number, end: number, most: number }} Place of a curve among the columns
 * @typedef {{ at: Float64Array, level: Uint32Array, most: number }} Curve
 * @typedef {{ name: string, wall: number, facts: string, models: { name: string, light: string, dark: string }[],
 *   lanes: Lane[], strips: { lane: number, what: string, top: number, height: number }[], work: number,
 *   bottom: number, curves: { working: Place, queued: Place }, kinds: string[], states: string[],
 *   devices: string[], columns: import("./common.js").Column[], data: DataView, texts: DataView }} RawSession
 * @typedef {import("./chart.js").Row & { session: Session, lane: number, what: string }} Strip
 */

/**
 * @typedef {object} Session
 * @property {RawSession} raw as Python sent it; see display/timeline/columns.py
 * @property {number} number
 * @property {number} n how many spans
 * @property {number} wall ns, at least 1
 * @property {Record<string, any>} c the columns
 * @property {Strip[]} rows
 * @property {Curve} working how many requests are worked on
 * @property {Curve} queued how many wait
 * @property {(Curve | null)[]} depth of each lane where those that wait are too many to be told apart
 * @property {Uint32Array} marksAt where the marks of each span begin
 * @property {Map<number, number[]>} batches the requests of each batch, by the first of them
 * @property {Float64Array} own the self time of each span, ns
 * @property {(i: number) => string} text
 */

/** @param {RawSession} raw @param {number} number @returns {Session} */
export function readSession(raw, number) {
  const c = columns(raw.data, raw.columns);
  const n = c.sent.length;
  const texts = new Uint8Array(raw.texts.buffer, raw.texts.byteOffset, raw.texts.byteLength);
  const decoder = new TextDecoder();
  /** @type {Map<number, number[]>} */
  const batches = new Map();
  const marksAt = new Uint32Array(n + 1);
  for (const i of c.mark_span) marksAt[i + 1] += 1;
  for (let i = 0; i < n; i += 1) {
    marksAt[i + 1] += marksAt[i];
    if (c.parts[i] < 2) continue;
    batches.set(c.first[i], [...(batches.get(c.first[i]) ?? []), i]);
  }
  const curve = ({ at, end, most } = { at: 0, end: 0, most: 0 }) =>
    ({ at: c.curve_ns.subarray(at, end), level: c.curve_level.subarray(at, end), most });
  /** @type {Session} */
  const session = {
    raw, number, n, wall: Math.max(raw.wall, 1), c, rows: [], batches, marksAt, own: new Float64Array(n),
    working: curve(raw.curves.working), queued: curve(raw.curves.queued),
    depth: raw.lanes.map(({ depth }) => depth && curve(depth)),
    text: (i) => decoder.decode(texts.subarray(i ? c.text_end[i - 1] : 0, c.text_end[i])),
  };
  for (let i = 0; i < n; i += 1) session.own[i] = selfTime(session, i).reduce((sum, [from, to]) => sum + to - from, 0);
  session.rows = raw.strips.map((strip, k) => {
    const of = c.strip_of.subarray(c.strip_at[k], c.strip_at[k + 1]);
    const waits = strip.what === "wait";
    const begins = waits || strip.what === "refused" ? c.sent : c.started;
    const ends = waits ? c.started : c.ended;
    const begin = Float64Array.from(of, (i) => begins[i]);
    const until = (/** @type {number} */ i) => (strip.what === "gpu" ? c.started[i] + c.device_ns[i] : ends[i]);
    const end = Float64Array.from(of, (i) => Math.max(begins[i], until(i)));
    return { ...strip, session, of, begin, end, quiet: waits, ...(strip.what === "run" ? { first: c.first, batches } : {}) };
  });
  return session;
}

/** When the model of a request was at work itself: it ran, and nothing that it sent was under way. @param {Session} session @param {number} i @returns {[number, number][]} */
export function selfTime({ c }, i) {
  const lead = c.first[i];
  if (c.calls_at[lead] === c.calls_at[lead + 1]) return [[c.started[i], c.ended[i]]];
  const found = [];
  for (let k = c.own_at[lead]; k < c.own_at[lead + 1]; k += 1) found.push(/** @type {[number, number]} */ ([c.own_from[k], c.own_to[k]]));
  return found;
}

/** The requests that an execution sent. @param {Session} session @param {number} i @returns {Uint32Array} */
export function callsOf({ c }, i) {
  return c.calls.subarray(c.calls_at[c.first[i]], c.calls_at[c.first[i] + 1]);
}
