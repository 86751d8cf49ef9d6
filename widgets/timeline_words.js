// What the timeline says in words: about a request, a range, the critical path. Text only, never markup.

import { duration, make, size } from "./common.js";

/** @typedef {import("./timeline_data.js").Session} Session */

/** @param {number} count @param {string} noun */
export function counted(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

/** @param {Session} session @param {number} i */
export function nameOf(session, i) {
  const { c, raw } = session;
  const id = session.text(c.request[i]);
  return `${raw.models[c.model[i]].name}${id ? ` “${id}”` : ""}`;
}

/**
 * Where a request ran.
 * @param {Session} session
 * @param {number} i
 */
export function placeOf(session, i) {
  const lane = session.raw.lanes[session.c.lane[i]];
  if (lane.kind === "refused") return "never ran";
  return lane.label ? `instance ${lane.label}` : "";
}

/**
 * The phases of a request: name, ns.
 * @param {Session} session
 * @param {number} i
 * @returns {[name: string, ns: number][]}
 */
export function phasesOf(session, i) {
  const { c } = session;
  return [
    ["input", c.queued[i] - c.sent[i]],
    ["queue", c.started[i] - c.queued[i]],
    ["execute", c.inferred[i] - c.started[i]],
    [session.raw.kinds[c.kind[i]] === "stream" ? "responses" : "output", c.ended[i] - c.inferred[i]],
  ];
}

/** @param {Session} session @param {number} i */
function ownWork(session, i) {
  let total = 0;
  const lead = session.first[i];
  for (let k = session.ownAt[lead]; k < session.ownAt[lead + 1]; k += 1) total += session.ownTo[k] - session.ownFrom[k];
  return total;
}

/**
 * Whom a request called, by model.
 * @param {Session} session
 * @param {number} i
 */
function callsOf(session, i) {
  /** @type {Map<string, number>} */
  const found = new Map();
  const lead = session.first[i];
  for (let k = session.callsAt[lead]; k < session.callsAt[lead + 1]; k += 1) {
    const name = session.raw.models[session.c.model[session.calls[k]]].name;
    found.set(name, (found.get(name) ?? 0) + 1);
  }
  return [...found].map(([name, count]) => (count > 1 ? `${name} × ${count}` : name)).join(", ");
}

/**
 * What else is known of a request, a line each.
 * @param {Session} session
 * @param {number} i
 */
export function factsOf(session, i) {
  const { c, raw, marksAt } = session;
  const lines = [];
  const caller = c.parent[i];
  const kind = raw.kinds[c.kind[i]];
  const how = { sync: "exec", async: "async_exec", stream: "a stream", ensemble: "a step of the ensemble" }[kind] ?? kind;
  lines.push(caller >= 0 ? `called by ${nameOf(session, caller)} (${how})` : "sent by the notebook");
  const calls = callsOf(session, i);
  if (calls) {
    const own = ownWork(session, i);
    lines.push(`called ${calls}`, `own work ${duration(own)}, calls under way ${duration(c.ended[i] - c.started[i] - own)}`);
  }
  const members = session.batches.get(session.first[i]);
  if (members) lines.push(`in a batch of ${counted(members.length, "request")}`);
  const moved = c.crossings[i] ? `, ${counted(c.crossings[i], "tensor")} moved between devices` : "";
  lines.push(`${size(c.bytes_in[i])} in, ${size(c.bytes_out[i])} out${moved}`);
  if (c.rows[i] > 1) lines.push(counted(c.rows[i], "row"));
  if (c.device_ns[i] >= 0) lines.push(`${duration(c.device_ns[i])} on ${raw.devices[c.device[i]]}`);
  const marks = marksAt[i + 1] - marksAt[i];
  if (marks) {
    let responses = 0;
    let first = -1;
    for (let k = marksAt[i]; k < marksAt[i + 1]; k += 1) {
      if (c.mark_kind[k] !== 0) continue;
      responses += 1;
      if (first < 0) first = c.mark_ns[k];
    }
    if (responses) lines.push(`${counted(responses, "response")}, the first after ${duration(first - c.sent[i])}`);
  }
  return lines;
}

/** @param {Session} session @param {number} i */
export function stateOf(session, i) {
  const { c, raw } = session;
  const error = session.text(c.error[i]);
  if (error) return error;
  const state = raw.states[c.state[i]];
  return state === "ok" ? "" : state === "open" ? "not answered yet when the profile ended" : state;
}

/**
 * The details of a request as elements.
 * @param {Session} session
 * @param {number} i
 * @param {(model: number) => string} ink
 */
export function details(session, i, ink) {
  const { c } = session;
  const colour = ink(c.model[i]);
  const phases = phasesOf(session, i);
  const whole = Math.max(1, c.ended[i] - c.sent[i]);
  const swatch = (/** @type {string} */ name) => {
    const mark = make("i", { class: `bls-tl-phase bls-tl-${name}` });
    mark.style.color = colour;
    return mark;
  };
  const bar = make("div", { class: "bls-tl-bar" });
  for (const [name, ns] of phases) {
    const part = swatch(name);
    part.style.width = `${(100 * ns) / whole}%`;
    bar.append(part);
  }
  const table = make("table", {}, ...phases.filter(([, ns], k) => ns > 0 || k === 2).map(([name, ns]) =>
    make("tr", {}, make("td", {}, swatch(name), name), make("td", { class: "bls-tl-num" }, duration(ns)))));
  const state = stateOf(session, i);
  return [
    make("div", { class: "bls-tl-tip-title" }, make("b", {}, nameOf(session, i)), ` ${placeOf(session, i)}`),
    bar, table,
    make("div", {}, `${duration(whole)} in all, from ${duration(c.sent[i])} to ${duration(c.ended[i])}`),
    ...factsOf(session, i).map((line) => make("div", { class: "bls-tl-dim" }, line)),
    state && make("div", { class: "bls-tl-alarm" }, state),
  ];
}

/**
 * The details of a request in one sentence, for a screen reader.
 * @param {Session} session
 * @param {number} i
 */
export function spoken(session, i) {
  const { c } = session;
  const phases = phasesOf(session, i).filter(([, ns]) => ns > 0).map(([name, ns]) => `${name} ${duration(ns)}`);
  const state = stateOf(session, i);
  return [
    `${nameOf(session, i)}, ${placeOf(session, i)}`, `from ${duration(c.sent[i])} to ${duration(c.ended[i])}`,
    phases.join(", "), ...factsOf(session, i), state && `state: ${state}`,
  ].filter(Boolean).join("; ");
}

/**
 * A table of what happened in a range, or in all of it.
 * @param {{ name: string, figures: any, span: number }[]} rows one for each session
 * @param {(model: string) => string} ink
 */
export function rangeTable(rows, ink) {
  const failed = rows.some(({ figures }) => figures.failed);
  const heads = ["", "requests", "busy", "queued", ...(failed ? ["failed"] : [])];
  const cell = (/** @type {string} */ text, more = "") => make("td", { class: `bls-tl-num${more}` }, text);
  const time = (/** @type {number} */ ns) => cell(ns ? duration(ns) : "");
  return make("table", { class: "bls-tl-range" },
    make("thead", {}, make("tr", {}, ...heads.map((head, k) => make("th", { class: k ? "bls-tl-num" : null, scope: "col" }, head)))),
    ...rows.map(({ name, figures, span }) => make("tbody", {},
      make("tr", { class: "bls-tl-sum" }, make("th", { scope: "row" }, name || "all"),
        cell(figures.requests.toLocaleString("en")),
        cell(`${(figures.work / Math.max(span, 1)).toFixed(2)} at once`),
        time(figures.queued), failed && cell(String(figures.failed || ""), " bls-tl-alarm")),
      ...figures.models.map((/** @type {any} */ model) => {
        const chip = make("i", { class: "bls-tl-chip" });
        chip.style.background = ink(model.model);
        return make("tr", {}, make("th", { scope: "row" }, chip, model.model),
          cell(model.requests.toLocaleString("en")), time(model.busy), time(model.queued),
          failed && cell(String(model.failed || ""), " bls-tl-alarm"));
      }))));
}

/**
 * What a critical path is spent on, the most first.
 * @param {Session} session
 * @param {{ span: Int32Array, begin: Float64Array, end: Float64Array, phase: Uint8Array, phases: string[] }} path
 * @returns {[what: string, ns: number][]}
 */
export function pathShares(session, path) {
  /** @type {Map<string, number>} */
  const spent = new Map();
  for (let k = 0; k < path.span.length; k += 1) {
    const i = path.span[k];
    const phase = path.phases[path.phase[k]];
    const model = i < 0 ? "the notebook" : session.raw.models[session.c.model[i]].name;
    const what = i < 0 || phase === "compute_infer" ? model : `${model} (${phase.replace("compute_", "")})`;
    spent.set(what, (spent.get(what) ?? 0) + path.end[k] - path.begin[k]);
  }
  return [...spent].sort((a, b) => b[1] - a[1]);
}
