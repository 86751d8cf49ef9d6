// A session in the browser: its columns, and the rows of what they hold.

import { columns } from "./common.js";

/**
 * @typedef {{ kind: string, label: string, count: string, loop: boolean, name: string, title: string, model: number, y: number, top: number, blocks: number,
 *   bottom: number, depth: Place | null, share: string }} Lane
 * @typedef {[name: string, dtype: string, dims: number[]]} Tensor
 * @typedef {{ name: string, of: [model: string, version: number], light: string, dark: string, words: import("./axis.js").Ink, inputs: Tensor[], outputs: Tensor[], batches: boolean }} Served
 * @typedef {{ title: string, text: string, execute: number, of: [model: string, version: number] }} Source
 * @typedef {{ at: number, end: number, most: number }} Place of a curve among the columns
 * @typedef {{ at: Float64Array, level: Uint32Array, most: number }} Curve
 * @typedef {{ name: string, sender: string, wall: number, facts: string, models: Served[], notebook: import("./axis.js").Ink,
 *   marks: string[], sources: Source[], stacks: [source: number, line: number, function: string][][], shapes: Tensor[][],
 *   lanes: Lane[], signs: [kind: string, words: string][], strips: { lane: number, what: string, top: number, height: number }[], work: number,
 *   bottom: number, curves: { working: Place, queued: Place }, kinds: string[], states: string[],
 *   devices: string[], columns: import("./common.js").Column[], data: DataView, texts: DataView }} RawSession
 * @typedef {import("./chart.js").Row & { session: Session, lane: number, what: string }} Strip
 */

/**
 * @typedef {object} Session
 * @property {RawSession} raw as Python sent it; see profiling/timeline/widget.py
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
 * @property {number[]} waited how many requests the notebook waited for, each time that it did
 * @property {(i: number) => string} text
 */

/**
 * The times, and the places, that columns tell by what comes before.
 * @param {Record<string, any>} c @param {RawSession} raw
 */
function unfold(c, raw) {
  const n = c.sent.length;
  const whole = (/** @type {ArrayLike<number>} */ steps, /** @type {ArrayLike<number> | null} */ from = null) => {
    const all = new Float64Array(steps.length);
    for (let i = 0, sum = 0; i < all.length; i += 1) all[i] = sum = (from ? from[i] : sum) + steps[i];
    return all;
  };
  c.sent = whole(c.sent);
  ["sent", "queued", "started", "inferred", "ended"].reduce((before, name) => {
    c[name] = whole(c[`to_${name}`], c[before]);
    return name;
  });
  c.device_ns = whole(c.device_ns, new Float64Array(n).fill(-1));
  c.parent = Int32Array.from(c.back, (back, i) => (back ? i - back : -1));
  c.first = Uint32Array.from(c.lead, (/** @type {number} */ lead, i) => i - lead);
  // What each has sent, in order, is with the first of its batch.
  const sender = (/** @type {number} */ i) => (c.parent[i] < 0 ? -1 : c.first[c.parent[i]]);
  [c.calls_at, c.own_at, c.calls] = [new Uint32Array(n + 1), new Uint32Array(n + 1), new Uint32Array(n)];
  for (let i = 0; i < n; i += 1) if (sender(i) >= 0) c.calls_at[sender(i) + 1] += 1;
  for (let i = 0; i < n; i += 1) {
    c.calls_at[i + 1] += c.calls_at[i];
    c.own_at[i + 1] = c.own_at[i] + c.own_count[i];
  }
  const next = c.calls_at.slice();
  for (let i = 0; i < n; i += 1) if (sender(i) >= 0) c.calls[next[sender(i)]++] = i;
  c.own_from = new Float64Array(c.own_ns.length);
  c.own_to = new Float64Array(c.own_ns.length);
  for (let i = 0; i < n; i += 1) {
    for (let k = c.own_at[i], at = c.started[i]; k < c.own_at[i + 1]; k += 1) {
      c.own_from[k] = at + c.own_after[k];
      c.own_to[k] = at = c.own_from[k] + c.own_ns[k];
    }
  }
  // Where each runs, and where it arrives: in a row of the queue, or at its run.
  for (const name of ["y", "height", "from_y", "from_height"]) c[name] = new Float32Array(n);
  /** @type {Map<number, number[]>} */
  const batches = new Map();
  for (let i = 0; i < n; i += 1) {
    if (c.parts[i] < 2) continue;
    const batch = batches.get(c.first[i]);
    if (batch) batch.push(i);
    else batches.set(c.first[i], [i]);
  }
  const place = (/** @type {number} */ i, /** @type {number} */ top, /** @type {number} */ height) => {
    c.y[i] = c.from_y[i] = top;
    c.height[i] = c.from_height[i] = height;
  };
  const strips = raw.strips.map((strip, k) => ({ ...strip, of: c.strip_of.subarray(c.strip_at[k], c.strip_at[k + 1]) }));
  for (const { what, top, height, of } of strips) {
    if (what !== "run" && what !== "refused") continue;
    for (const lead of of) {
      const batch = batches.get(lead) ?? [lead];
      const share = (height + 1) / batch.length;
      batch.forEach((i, part) => place(i, top + part * share, share - Math.min(1, share / 8)));
    }
  }
  for (const { what, top, height, of } of strips) {
    if (what !== "wait") continue;
    for (const i of of) [c.from_y[i], c.from_height[i]] = [top, (height + 1) * 0.85];
  }
  return { batches, strips, whole };
}

/** @param {RawSession} raw @param {number} number @returns {Session} */
export function readSession(raw, number) {
  const c = columns(raw.data, raw.columns);
  const n = c.sent.length;
  const texts = new Uint8Array(raw.texts.buffer, raw.texts.byteOffset, raw.texts.byteLength);
  const decoder = new TextDecoder();
  const { batches, strips, whole } = unfold(c, raw);
  const marksAt = new Uint32Array(n + 1);
  for (const i of c.mark_span) marksAt[i + 1] += 1;
  for (let i = 0; i < n; i += 1) marksAt[i + 1] += marksAt[i];
  const curve = ({ at, end, most } = { at: 0, end: 0, most: 0 }) =>
    ({ at: whole(c.curve_ns.subarray(at, end)), level: c.curve_level.subarray(at, end), most });
  /** @type {Session} */
  const session = {
    raw, number, n, wall: Math.max(raw.wall, 1), c, rows: [], batches, marksAt, own: new Float64Array(n), waited: [],
    working: curve(raw.curves.working), queued: curve(raw.curves.queued),
    depth: raw.lanes.map(({ depth }) => depth && curve(depth)),
    text: (i) => decoder.decode(texts.subarray(i ? c.text_end[i - 1] : 0, c.text_end[i])),
  };
  for (let i = 0; i < n; i += 1) session.own[i] = selfTime(session, i).reduce((sum, [from, to]) => sum + to - from, 0);
  for (let i = 0, k = -1; i < n; i += 1) { // in the order of sending
    if (c.parent[i] >= 0 || c.ended[i] <= c.sent[i]) continue;
    if (k < 0 || c.sent[i] > c.wait_to[k]) k += 1;
    session.waited[k] = (session.waited[k] ?? 0) + 1;
  }
  session.rows = strips.map((strip) => {
    const { of } = strip;
    if (strip.what === "notebook") return { ...strip, session, begin: c.wait_from, end: c.wait_to };
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
