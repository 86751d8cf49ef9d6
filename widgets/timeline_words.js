// What the timeline says in words: about a request, a range, the critical path. Text only, never markup.

import { counted, duration, make, size } from "./common.js";
import { callsOf, selfTime } from "./timeline_data.js";

/** @typedef {import("./timeline_data.js").Session} Session */

/** @param {Session} session @param {number} i */
export function nameOf({ c, raw, text }, i) {
  const id = text(c.request[i]);
  return `${raw.models[c.model[i]].name}${id ? ` “${id}”` : ""}`;
}

/** The number of a call, and of its response, where responses came in another order. @param {Session} session @param {number} i */
export function turnOf({ c }, i) {
  return `call ${c.turn_call[i]}, response ${c.turn_response[i]}`;
}

/**
 * What is known of a request: its phases with their ns, and further facts, a line each.
 * @param {Session} session
 * @param {number} i
 */
function about(session, i) {
  const { c, raw, marksAt } = session;
  const kind = raw.kinds[c.kind[i]];
  const how = { sync: "exec", async: "async_exec", stream: "a stream", ensemble: "a step of the ensemble" }[kind] ?? kind;
  const facts = [c.parent[i] < 0 ? "sent by the notebook" : `called by ${nameOf(session, c.parent[i])} (${how})`];
  /** @type {Map<string, number>} */
  const called = new Map();
  for (const call of callsOf(session, i)) {
    const { name } = raw.models[c.model[call]];
    called.set(name, (called.get(name) ?? 0) + 1);
  }
  if (called.size) {
    const own = session.own[i];
    facts.push(
      `called ${[...called].map(([name, count]) => (count > 1 ? `${name} × ${count}` : name)).join(", ")}`,
      `own work ${duration(own)}, calls under way ${duration(c.ended[i] - c.started[i] - own)}`,
    );
  }
  const members = session.batches.get(c.first[i]);
  if (members) facts.push(`in a batch of ${counted(members.length, "request")}`);
  const moved = c.crossings[i] ? `, ${counted(c.crossings[i], "tensor")} moved between devices` : "";
  facts.push(`${size(c.bytes_in[i])} in, ${size(c.bytes_out[i])} out${moved}`);
  if (c.rows[i] > 1) facts.push(counted(c.rows[i], "row"));
  if (c.device_ns[i] >= 0) facts.push(`${duration(c.device_ns[i])} on ${raw.devices[c.device[i]]}`);
  const [at, end] = [marksAt[i], marksAt[i + 1]];
  const responses = c.mark_ns.subarray(at, end).filter((/** @type {number} */ _, /** @type {number} */ k) => c.mark_kind[at + k] === 0);
  if (responses.length) facts.push(`${counted(responses.length, "response")}, the first after ${duration(responses[0] - c.sent[i])}`);
  for (const queued of [1, 0]) {
    const of = queued ? i : c.first[i];
    let held = 0;
    c.lock_span.forEach((/** @type {number} */ span, /** @type {number} */ k) => {
      if (span === of && c.lock_queued[k] === queued) held += c.lock_to[k] - c.lock_from[k];
    });
    if (held) facts.push(`${queued ? "waited for" : "took turns on"} Python’s lock (GIL) for ${duration(held)}${queued ? ", not for an instance" : ""}`);
  }
  const lane = raw.lanes[c.lane[i]];
  if (lane.loop && c.waits[i]) facts.push("waited for the event loop, not for an instance");
  if (c.turn_call[i]) facts.push(`${turnOf(session, i)} of those to ${raw.models[c.model[i]].name}`);
  const state = raw.states[c.state[i]];
  const states = /** @type {Record<string, string>} */ ({ ok: "", open: "not answered yet when the profile ended" });
  return {
    facts, name: nameOf(session, i), place: lane.kind === "refused" ? "never ran" : lane.label && `instance ${lane.label}`,
    state: session.text(c.error[i]) || (states[state] ?? state),
    phases: /** @type {[string, number][]} */ ([
      ["input", c.queued[i] - c.sent[i]], ["queue", c.started[i] - c.queued[i]], ["execute", c.inferred[i] - c.started[i]],
      [kind === "stream" ? "responses" : "output", c.ended[i] - c.inferred[i]],
    ]),
  };
}

/**
 * The details of a request as elements.
 * @param {Session} session
 * @param {number} i
 * @param {string} colour of its model
 */
export function details(session, i, colour) {
  const { c } = session;
  const { name, place, phases, facts, state } = about(session, i);
  const whole = Math.max(1, c.ended[i] - c.sent[i]);
  const swatch = (/** @type {string} */ phase, width = "") => {
    const mark = make("i", { class: `bls-tl-phase bls-tl-${phase}` });
    Object.assign(mark.style, { color: colour, width });
    return mark;
  };
  const rows = phases.filter(([, ns], k) => ns > 0 || k === 2).map(([phase, ns]) =>
    make("tr", {}, make("td", {}, swatch(phase), phase), make("td", { class: "bls-chart-num" }, duration(ns))));
  return [
    make("div", { class: "bls-tl-tip-title" }, make("b", {}, name), ` ${place}`),
    make("div", { class: "bls-tl-bar" }, ...phases.map(([phase, ns]) => swatch(phase, `${(100 * ns) / whole}%`))),
    make("table", {}, ...rows),
    make("div", {}, `${duration(whole)} in all, from ${duration(c.sent[i])} to ${duration(c.ended[i])}`),
    ...facts.map((line) => make("div", { class: "bls-chart-dim" }, line)),
    ...(state ? [make("div", { class: "bls-chart-alarm" }, state)] : []),
  ];
}

/** The details of a request in one sentence, for a screen reader. @param {Session} session @param {number} i */
export function spoken(session, i) {
  const { name, place, phases, facts, state } = about(session, i);
  return [
    `${name}, ${place}`, `from ${duration(session.c.sent[i])} to ${duration(session.c.ended[i])}`,
    phases.filter(([, ns]) => ns > 0).map(([phase, ns]) => `${phase} ${duration(ns)}`).join(", "), ...facts,
    state && `state: ${state}`,
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
  const cell = (/** @type {string} */ text, more = "") => make("td", { class: `bls-chart-num${more}` }, text);
  const time = (/** @type {number} */ ns) => cell(ns ? duration(ns) : "");
  return make("table", { class: "bls-tl-range" },
    make("thead", {}, make("tr", {}, ...heads.map((head, k) => make("th", { class: k ? "bls-chart-num" : null, scope: "col" }, head)))),
    ...rows.map(({ name, figures, span }) => make("tbody", {},
      make("tr", { class: "bls-tl-sum" }, make("th", { scope: "row" }, name || "all"),
        cell(figures.requests.toLocaleString("en")),
        cell(`${(figures.work / Math.max(span, 1)).toFixed(2)} at once`),
        time(figures.queued), failed && cell(String(figures.failed || ""), " bls-chart-alarm")),
      ...figures.models.map((/** @type {any} */ model) => {
        const chip = make("i", { class: "bls-tl-chip" });
        chip.style.background = ink(model.model);
        return make("tr", {}, make("th", { scope: "row" }, chip, model.model),
          cell(model.requests.toLocaleString("en")), time(model.busy), time(model.queued),
          failed && cell(String(model.failed || ""), " bls-chart-alarm"));
      }))));
}

/**
 * The spans that pass a test by a text: the model's name, the request's ID, the error, the state.
 * @param {Session} session
 * @param {((text: string) => boolean) | null} test
 * @param {Set<string>} hidden models
 */
export function found({ c, raw, text }, test, hidden) {
  const shown = raw.models.map((model) => !hidden.has(model.name));
  if (!test) return new Set([...c.sent.keys()].filter((i) => shown[c.model[i]]));
  const passes = (/** @type {string[]} */ texts) => texts.map((each) => test(each));
  const [models, states] = [passes(raw.models.map(({ name }) => name)), passes(raw.states)];
  const texts = Uint8Array.from(c.text_end, (_, i) => (i && test(text(i)) ? 1 : 0));
  const good = (/** @type {number} */ i) => models[c.model[i]] || texts[c.request[i]] || texts[c.error[i]] || states[c.state[i]];
  return new Set([...c.sent.keys()].filter((i) => shown[c.model[i]] && good(i)));
}

/**
 * What happened between two moments, in figures.
 * @param {Session} session
 * @param {number} begin
 * @param {number} end
 */
export function rangeFigures(session, begin, end) {
  const { c, n, raw } = session;
  const cut = (/** @type {number} */ from, /** @type {number} */ to) => Math.max(0, Math.min(to, end) - Math.max(from, begin));
  const models = raw.models.map((model) => ({ model: model.name, requests: 0, failed: 0, busy: 0, queued: 0 }));
  let work = 0;
  for (let i = 0; i < n; i += 1) {
    if (c.sent[i] > end || c.ended[i] < begin) continue;
    const model = models[c.model[i]];
    model.requests += 1;
    if (raw.states[c.state[i]] === "error") model.failed += 1;
    model.queued += cut(c.queued[i], c.started[i]);
    work += cut(c.sent[i], c.queued[i]); // checked and handed over, on the caller's thread
    if (c.first[i] !== i || raw.lanes[c.lane[i]].kind !== "instance") continue;
    model.busy += cut(c.started[i], c.ended[i]);
    for (const piece of selfTime(session, i)) work += cut(...piece);
  }
  const seen = models.filter((model) => model.requests);
  const total = (/** @type {"requests" | "failed" | "queued"} */ name) => seen.reduce((sum, model) => sum + model[name], 0);
  return { requests: total("requests"), failed: total("failed"), queued: total("queued"), work, models: seen };
}
