// A session in the browser: its columns, and what is worked out from them once, ahead of every drawing.

import { columns } from "./common.js";

/**
 * @typedef {{ name: string, light: string, dark: string, hatch: string }} ModelInk
 * @typedef {{ kind: string, label: string, name: string, model: number, rows: number, waits: number }} LaneInfo
 * @typedef {{ name: string, wall: number, dropped: number, facts: string[], models: ModelInk[], lanes: LaneInfo[],
 *   kinds: string[], states: string[], devices: string[], phases: string[],
 *   columns: import("./common.js").Column[], data: DataView, texts: DataView }} RawSession
 */

/**
 * Intervals in the order of their beginnings that do not overlap, each with the span that it belongs to.
 * `before` counts, up to each interval, the time that is covered, and `own` the part of it that is lit.
 * @typedef {{ begin: Float64Array, end: Float64Array, span: Int32Array, before: Float64Array, own: Float64Array,
 *   errors: Uint32Array, n: number }} Row
 */

/** @typedef {{ at: Float64Array, level: Float64Array, sum: Float64Array, most: number }} Curve */

/**
 * @typedef {object} Session
 * @property {RawSession} raw
 * @property {number} n how many spans
 * @property {number} wall ns, at least 1
 * @property {Record<string, any>} c the columns
 * @property {Row[][]} blocks of each lane
 * @property {Row[][]} waits of each lane; empty where there are too many to be told apart
 * @property {(Curve | null)[]} depth of each lane: how many wait, where they are too many
 * @property {Curve} working how many requests are worked on
 * @property {Curve} queued how many wait
 * @property {Uint32Array} callsAt where the callees of each span begin in `calls`
 * @property {Uint32Array} calls callees, in the order of sending
 * @property {Float64Array} ownAt where the pieces of own work of each span begin in `ownFrom`
 * @property {Float64Array} ownFrom
 * @property {Float64Array} ownTo
 * @property {Uint32Array} marksAt where the marks of each span begin
 * @property {Map<number, number[]>} batches the requests of each batch, by the first of them
 * @property {Int32Array} first the first request of the batch that a span is of, or the span
 * @property {(i: number) => string} text
 */

export const MOST_WAITS = 12; // rows of queued requests that can be told apart

/**
 * @param {RawSession} raw
 * @returns {Session}
 */
export function readSession(raw) {
  const c = columns(raw.data, raw.columns);
  const n = c.sent.length;
  const texts = new Uint8Array(raw.texts.buffer, raw.texts.byteOffset, raw.texts.byteLength);
  const decoder = new TextDecoder();
  const text = (/** @type {number} */ i) => decoder.decode(texts.subarray(i ? c.text_end[i - 1] : 0, c.text_end[i]));
  const { first, batches } = findBatches(c, n);
  const { callsAt, calls } = findCalls(c, n, first);
  const { ownAt, ownFrom, ownTo, own } = findOwnWork(c, n, first, callsAt, calls);
  const { blocks, waits, depth } = findRows(raw, c, n, own);
  const working = workCurve(c, n, first, ownAt, ownFrom, ownTo);
  const queued = waitCurve(c, n);
  return {
    raw, n, wall: Math.max(raw.wall, 1), c, blocks, waits, depth, working, queued, callsAt, calls, ownAt, ownFrom,
    ownTo, marksAt: offsets(c.mark_span, n), batches, first, text,
  };
}

/**
 * How many requests wait for an instance.
 * @param {Record<string, any>} c
 * @param {number} n
 */
function waitCurve(c, n) {
  const from = new Float64Array(n);
  const to = new Float64Array(n);
  let count = 0;
  for (let i = 0; i < n; i += 1) {
    if (c.started[i] <= c.queued[i]) continue;
    from[count] = c.queued[i];
    to[count++] = c.started[i];
  }
  return curve(from.subarray(0, count), to.subarray(0, count));
}

/**
 * Where the entries of each key begin in a list that is ordered by key.
 * @param {ArrayLike<number>} keys
 * @param {number} n
 */
function offsets(keys, n) {
  const at = new Uint32Array(n + 1);
  for (let i = 0; i < keys.length; i += 1) at[keys[i] + 1] += 1;
  for (let i = 0; i < n; i += 1) at[i + 1] += at[i];
  return at;
}

/**
 * @param {Record<string, any>} c
 * @param {number} n
 */
function findBatches(c, n) {
  const first = new Int32Array(n);
  /** @type {Map<number, number[]>} */
  const batches = new Map();
  /** @type {Map<string, number>} */
  const seen = new Map();
  for (let i = 0; i < n; i += 1) {
    first[i] = i;
    if (c.parts[i] < 2) continue;
    const key = `${c.lane[i]} ${c.batch[i]}`;
    const head = seen.get(key);
    if (head === undefined) seen.set(key, i);
    else first[i] = head;
    const members = batches.get(first[i]);
    if (members) members.push(i);
    else batches.set(i, [i]);
  }
  return { first, batches };
}

/**
 * @param {Record<string, any>} c
 * @param {number} n
 * @param {Int32Array} first
 */
function findCalls(c, n, first) {
  const callsAt = new Uint32Array(n + 1);
  for (let i = 0; i < n; i += 1) if (c.parent[i] >= 0) callsAt[first[c.parent[i]] + 1] += 1;
  for (let i = 0; i < n; i += 1) callsAt[i + 1] += callsAt[i];
  const calls = new Uint32Array(callsAt[n]);
  const next = callsAt.slice();
  for (let i = 0; i < n; i += 1) if (c.parent[i] >= 0) calls[next[first[c.parent[i]]]++] = i;
  for (let i = 0; i < n; i += 1) {
    for (let k = callsAt[i] + 1; k < callsAt[i + 1]; k += 1) {
      if (c.sent[calls[k]] < c.sent[calls[k - 1]]) {
        calls.subarray(callsAt[i], callsAt[i + 1]).sort((a, b) => c.sent[a] - c.sent[b]);
        break;
      }
    }
  }
  return { callsAt, calls };
}

/**
 * When each span's model was at work itself: it ran, and none of the requests that it sent was under way.
 * @param {Record<string, any>} c
 * @param {number} n
 * @param {Int32Array} first
 * @param {Uint32Array} callsAt
 * @param {Uint32Array} calls
 */
function findOwnWork(c, n, first, callsAt, calls) {
  const most = n + calls.length;
  const ownAt = new Float64Array(n + 1);
  const ownFrom = new Float64Array(most);
  const ownTo = new Float64Array(most);
  const own = new Float64Array(n);
  let count = 0;
  for (let i = 0; i < n; i += 1) {
    ownAt[i] = count;
    if (first[i] !== i) {
      own[i] = own[first[i]]; // of a batch, what its first request has
      continue;
    }
    let now = c.started[i];
    const until = c.ended[i];
    for (let k = callsAt[i]; k < callsAt[i + 1]; k += 1) {
      const j = calls[k];
      const sent = Math.min(c.sent[j], until);
      if (sent > now) {
        ownFrom[count] = now;
        ownTo[count] = sent;
        own[i] += sent - now;
        count += 1;
      }
      if (c.ended[j] > now) now = c.ended[j];
    }
    if (until > now) {
      ownFrom[count] = now;
      ownTo[count] = until;
      own[i] += until - now;
      count += 1;
    }
  }
  ownAt[n] = count;
  return { ownAt, ownFrom: ownFrom.subarray(0, count), ownTo: ownTo.subarray(0, count), own };
}

/**
 * @param {RawSession} raw
 * @param {Record<string, any>} c
 * @param {number} n
 * @param {Float64Array} own
 */
function findRows(raw, c, n, own) {
  /** @type {number[][][]} */
  const blocks = raw.lanes.map((lane) => Array.from({ length: lane.rows }, () => []));
  /** @type {number[][][]} */
  const waits = raw.lanes.map((lane) => Array.from({ length: lane.waits > MOST_WAITS ? 1 : lane.waits }, () => []));
  for (let i = 0; i < n; i += 1) {
    if (c.part[i] === 0) blocks[c.lane[i]][c.row[i]].push(i);
    if (c.gpu[i] >= 0) blocks[c.gpu[i]][c.gpu_row[i]].push(i);
    if (c.wait[i] >= 0) waits[c.lane[i]][raw.lanes[c.lane[i]].waits > MOST_WAITS ? 0 : c.wait[i]].push(i);
  }
  const onGpu = new Float64Array(n);
  for (let i = 0; i < n; i += 1) onGpu[i] = c.started[i] + Math.max(0, c.device_ns[i]);
  const begins = raw.lanes.map((lane) => (lane.kind === "refused" ? c.sent : c.started));
  return {
    blocks: blocks.map((rows, l) =>
      rows.map((spans) => row(c, spans, begins[l], raw.lanes[l].kind === "gpu" ? onGpu : c.ended, raw.lanes[l].kind === "instance" ? own : null)),
    ),
    waits: waits.map((rows, l) =>
      raw.lanes[l].waits > MOST_WAITS ? [] : rows.map((spans) => row(c, spans, c.sent, c.started, null)),
    ),
    depth: waits.map((rows, l) =>
      raw.lanes[l].waits > MOST_WAITS
        ? curve(Float64Array.from(rows[0], (i) => c.sent[i]), Float64Array.from(rows[0], (i) => c.started[i]))
        : null,
    ),
  };
}

/**
 * @param {Record<string, any>} c
 * @param {number[]} spans
 * @param {Float64Array} begin
 * @param {Float64Array} end
 * @param {Float64Array | null} own
 * @returns {Row}
 */
export function row(c, spans, begin, end, own) {
  const n = spans.length;
  const order = new Int32Array(spans);
  for (let k = 1; k < n; k += 1) {
    if (begin[order[k]] < begin[order[k - 1]]) { // rarely: they come in the order of sending
      order.sort((a, b) => begin[a] - begin[b] || a - b);
      break;
    }
  }
  /** @type {Row} */
  const made = {
    n, span: order, begin: new Float64Array(n), end: new Float64Array(n), before: new Float64Array(n + 1),
    own: new Float64Array(n + 1), errors: new Uint32Array(n + 1),
  };
  for (let k = 0; k < n; k += 1) {
    const i = order[k];
    made.begin[k] = begin[i];
    made.end[k] = Math.max(begin[i], end[i]);
    const length = made.end[k] - begin[i];
    made.before[k + 1] = made.before[k] + length;
    made.own[k + 1] = made.own[k] + (own ? own[i] : length);
    made.errors[k + 1] = made.errors[k] + (c.error[i] ? 1 : 0);
  }
  return made;
}

/**
 * How many of some intervals there are from moment to moment.
 * @param {Float64Array} begins
 * @param {Float64Array} ends
 * @returns {Curve}
 */
export function curve(begins, ends) {
  const up = Float64Array.from(begins).sort();
  const down = Float64Array.from(ends).sort();
  const at = new Float64Array(2 * up.length + 1);
  const level = new Float64Array(2 * up.length + 1);
  const sum = new Float64Array(2 * up.length + 1);
  let now = 0;
  let most = 0;
  let k = 1;
  for (let i = 0, j = 0; j < down.length; ) {
    const time = i < up.length && up[i] < down[j] ? up[i] : down[j];
    while (j < down.length && down[j] === time) { now -= 1; j += 1; }
    while (i < up.length && up[i] === time) { now += 1; i += 1; }
    if (now > most) most = now;
    at[k] = time;
    level[k] = now;
    sum[k] = sum[k - 1] + level[k - 1] * (time - at[k - 1]);
    k += 1;
  }
  return { at: at.subarray(0, k), level: level.subarray(0, k), sum: sum.subarray(0, k), most };
}

/**
 * @param {Record<string, any>} c
 * @param {number} n
 * @param {Int32Array} first
 * @param {Float64Array} ownAt
 * @param {Float64Array} ownFrom
 * @param {Float64Array} ownTo
 */
function workCurve(c, n, first, ownAt, ownFrom, ownTo) {
  const from = new Float64Array(n + ownFrom.length);
  const to = new Float64Array(n + ownFrom.length);
  let count = 0;
  for (let i = 0; i < n; i += 1) {
    if (c.sent[i] < c.queued[i]) { // checked and handed over, on the caller's thread
      from[count] = c.sent[i];
      to[count++] = c.queued[i];
    }
    if (first[i] !== i) continue;
    for (let k = ownAt[i]; k < ownAt[i + 1]; k += 1) {
      from[count] = ownFrom[k];
      to[count++] = ownTo[k];
    }
  }
  return curve(from.subarray(0, count), to.subarray(0, count));
}

/**
 * The first index whose value is above a number.
 * @param {ArrayLike<number>} values in order
 * @param {number} value
 * @param {number} [from] where to begin
 */
export function above(values, value, from = 0) {
  let low = from;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * The area under a curve from its beginning.
 * @param {Curve} curve_
 * @param {number} time
 */
export function area(curve_, time) {
  const k = Math.max(0, above(curve_.at, time) - 1);
  return curve_.sum[k] + curve_.level[k] * Math.max(0, time - curve_.at[k]);
}

/**
 * The spans that a word is in: the model's name, the request's ID, the error, or the word error itself.
 * @param {Session} session
 * @param {string} query
 * @returns {number[]}
 */
export function search(session, query) {
  const word = query.trim().toLowerCase();
  if (!word) return [];
  const { c, raw, n } = session;
  const models = raw.models.map((model) => model.name.toLowerCase().includes(word));
  const texts = Uint8Array.from(c.text_end, (_, i) => (i && session.text(i).toLowerCase().includes(word) ? 1 : 0));
  const states = raw.states.map((state) => state === word);
  const found = [];
  for (let i = 0; i < n; i += 1) {
    if (models[c.model[i]] || texts[c.request[i]] || texts[c.error[i]] || states[c.state[i]]) found.push(i);
  }
  return found;
}

/**
 * What happened between two moments, in figures; display/timeline/ranges.py has the same.
 * @param {Session} session
 * @param {number} begin
 * @param {number} end
 */
export function rangeFigures(session, begin, end) {
  const { c, n, raw } = session;
  const cut = (/** @type {number} */ from, /** @type {number} */ to) => Math.max(0, Math.min(to, end) - Math.max(from, begin));
  const models = raw.models.map((model) => ({ model: model.name, requests: 0, failed: 0, busy: 0, queued: 0 }));
  for (let i = 0; i < n; i += 1) {
    if (c.sent[i] > end || c.ended[i] < begin) continue;
    const model = models[c.model[i]];
    model.requests += 1;
    if (raw.states[c.state[i]] === "error") model.failed += 1;
    model.queued += cut(c.queued[i], c.started[i]);
    if (session.first[i] === i && raw.lanes[c.lane[i]].kind === "instance") model.busy += cut(c.started[i], c.ended[i]);
  }
  const seen = models.filter((model) => model.requests);
  const total = (/** @type {"requests" | "failed" | "queued"} */ name) => seen.reduce((sum, model) => sum + model[name], 0);
  return {
    requests: total("requests"), failed: total("failed"), queued: total("queued"),
    work: area(session.working, end) - area(session.working, begin), models: seen,
  };
}

/**
 * The part of a row that is of some spans.
 * @param {Session} session
 * @param {Row} from
 * @param {Set<number>} spans
 * @returns {Row}
 */
export function subset(session, from, spans) {
  const kept = [];
  for (let k = 0; k < from.n; k += 1) {
    const i = from.span[k];
    if (spans.has(i) || session.batches.get(i)?.some((j) => spans.has(j))) kept.push(k);
  }
  const n = kept.length;
  const made = {
    n, span: new Int32Array(n), begin: new Float64Array(n), end: new Float64Array(n), before: new Float64Array(n + 1),
    own: new Float64Array(n + 1), errors: new Uint32Array(n + 1),
  };
  kept.forEach((k, at) => {
    made.span[at] = from.span[k];
    made.begin[at] = from.begin[k];
    made.end[at] = from.end[k];
    made.before[at + 1] = made.before[at] + from.before[k + 1] - from.before[k];
    made.own[at + 1] = made.own[at] + from.own[k + 1] - from.own[k];
    made.errors[at + 1] = made.errors[at] + from.errors[k + 1] - from.errors[k];
  });
  return made;
}

/**
 * The time in which one of a lane's rows, at least, is covered.
 * @param {Row[]} rows
 */
export function busy(rows) {
  if (rows.length === 1) return rows[0].before[rows[0].n];
  const joined = (/** @type {"begin" | "end"} */ name) => Float64Array.from(rows.flatMap((each) => [...each[name]]));
  const levels = curve(joined("begin"), joined("end"));
  let total = 0;
  for (let k = 0; k + 1 < levels.at.length; k += 1) if (levels.level[k]) total += levels.at[k + 1] - levels.at[k];
  return total;
}
