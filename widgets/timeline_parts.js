// The parts of the timeline on the page, and what stands beside its lanes.

import { duration, make } from "./common.js";
import { area, busy } from "./timeline_data.js";
import { counted } from "./timeline_words.js";

/** @typedef {import("./timeline_data.js").Session} Session */
/** @typedef {import("./timeline_paint.js").Places} Places */
/**
 * What shows the colour of a model, which the theme decides.
 * @typedef {{ element: HTMLElement, session: Session, model: number }} Chip
 */

export const RULER_HEIGHT = 26;
const MOST_HEIGHT = 640;

/**
 * @param {Session[]} sessions
 * @param {Places} places
 * @param {(model: string) => void} picked
 * @param {boolean} titled whether one session is named and described here; two always are
 */
export function makeParts(sessions, places, picked, titled) {
  const total = sessions.reduce((sum, session) => sum + session.n, 0);
  /** @type {Chip[]} */
  const chips = [];
  const live = make("div", { class: "bls-tl-live", "aria-live": "polite" });
  const query = /** @type {HTMLInputElement} */ (make("input", {
    type: "search", placeholder: "Search", "aria-label": "Search by model, request ID or error", title: "Model, request ID or error (/)",
  }));
  const foundText = make("span", { class: "bls-tl-found" });
  const button = (/** @type {string} */ text, /** @type {string} */ help, more = {}) => make("button", { type: "button", title: help, ...more }, text);
  const pathButton = button("Critical path", "What the time was spent on: were it faster, all would be (c)", { "aria-pressed": "false" });
  const fitButton = button("Fit", "Show all of it (0)");
  const helpButton = button("?", "Keys and mouse (?)", { "aria-pressed": "false", "aria-label": "Keys and mouse" });
  const legend = makeLegend(sessions, chips, picked);
  const ruler = canvas({ class: "bls-tl-ruler", "aria-hidden": "true", title: "Drag to select a range" });
  const base = canvas({ "aria-hidden": "true" });
  const over = canvas({
    class: "bls-tl-over", tabindex: "0", role: "application", "aria-roledescription": "timeline",
    "aria-label": `Timeline of ${counted(total, "request")}. Arrow keys go from request to request, question mark lists the keys.`,
  });
  const stage = make("div", { class: "bls-tl-stage" }, base, over);
  const lanes = make("div", { class: "bls-tl-lanes" }, stage, ...makeLabels(sessions, places, chips));
  lanes.style.height = `${places.height}px`;
  const scroll = make("div", { class: "bls-tl-scroll" }, lanes);
  scroll.style.height = `${Math.min(places.height, MOST_HEIGHT)}px`;
  const hint = make("div", { class: "bls-tl-hint", "aria-hidden": "true" });
  const frame = make("div", { class: "bls-tl-frame" }, ruler, scroll, hint);
  const below = make("div", { class: "bls-tl-below" });
  const tip = make("div", { class: "bls-timeline bls-tl-tip", hidden: true });
  const [pathCard, rangeCard, helpCard] = ["path", "range", "help"].map((name) => make("div", { class: `bls-tl-card bls-tl-card-${name}` }));
  const toolbar = make("span", { class: "bls-tl-tools" }, foundText, query, pathButton, fitButton, helpButton);
  const one = titled && sessions.length === 1;
  const head = one
    ? make("div", { class: "bls-tl-head" }, sessions[0].raw.name && make("span", { class: "bls-tl-title" }, sessions[0].raw.name),
      make("span", { class: "bls-tl-facts" }, facts(sessions[0])), toolbar)
    : make("div", { class: "bls-tl-head" }, legend, toolbar);
  for (const each of [query, over, pathButton, fitButton, helpButton, ...legend.querySelectorAll("button")]) own(each);
  return {
    all: [head, ...(one ? [legend] : []), frame, below, live], chips, live, query, foundText, pathButton, fitButton, helpButton, legend,
    ruler, base, over, stage, scroll, frame, hint, below, tip, pathCard, rangeCard, helpCard,
  };
}

/**
 * Keep the keys of what can have the focus from JupyterLab, whose notebook has commands on plain letters. It
 * looks for this on the element itself.
 * @template {Element} E
 * @param {E} element
 */
export function own(element) {
  element.setAttribute("data-lm-suppress-shortcuts", "true");
  return element;
}

/** @param {Record<string, string>} properties */
function canvas(properties) {
  return /** @type {HTMLCanvasElement} */ (make("canvas", properties));
}

/**
 * A session in one line.
 * @param {Session} session
 */
function facts(session) {
  const { raw, working, queued, wall } = session;
  const total = (/** @type {import("./timeline_data.js").Curve} */ curve) => area(curve, wall);
  const waited = total(queued);
  return [
    counted(session.n, "request"), duration(raw.wall),
    working.most ? `${(total(working) / wall).toFixed(1)} at work on average, ${working.most} at most` : "",
    waited > wall / 1000 ? `${duration(waited)} queued in all` : "",
    raw.dropped ? `${counted(raw.dropped, "request")} not recorded` : "",
  ].filter(Boolean).join(" · ");
}

/**
 * The names of sessions and lanes, beside them.
 * @param {Session[]} sessions
 * @param {Places} places
 * @param {Chip[]} chips
 */
function makeLabels(sessions, places, chips) {
  /** @type {HTMLElement[]} */
  const found = [];
  const put = (/** @type {HTMLElement} */ element, /** @type {number} */ y) => {
    element.style.top = `${y}px`;
    found.push(element);
  };
  for (const panel of places.panels) {
    const { session } = panel;
    if (sessions.length > 1) {
      put(make("div", { class: "bls-tl-session" }, make("b", {}, session.raw.name || `session ${panel.number + 1}`),
        make("span", { class: "bls-tl-facts" }, facts(session))), panel.y);
    }
    put(make("div", { class: "bls-tl-label bls-tl-two" }, make("div", {}, "at work"),
      session.queued.most ? make("div", {}, "in a queue") : null), panel.workY + 13);
    let last = -2;
    for (const place of panel.lanes) {
      const lane = session.raw.lanes[place.index];
      const chip = make("i", { class: "bls-tl-chip" });
      if (lane.model >= 0) chips.push({ element: chip, session, model: lane.model });
      else chip.style.visibility = "hidden";
      const name = lane.model < 0 ? lane.name : session.raw.models[lane.model].name;
      const share = busy(session.blocks[place.index]) / session.wall;
      const which = lane.kind === "gpu" ? "device" : lane.label;
      put(make("div", { class: "bls-tl-label", title: lane.name || name }, chip,
        make("b", { class: lane.model === last ? "bls-tl-again" : null }, name),
        which ? make("span", { class: "bls-tl-dim" }, `· ${which}`) : null,
        ["refused", "idle"].includes(lane.kind) ? null : make("span", { class: "bls-tl-share", title: "part of the time that it is busy" },
          share ? `${share < 0.01 ? "<1" : Math.round(share * 100)}%` : "idle")),
      place.blocksY + Math.min(place.height - (place.blocksY - place.y) - 5, 18) / 2 - 9);
      last = lane.model;
    }
  }
  return found;
}

/**
 * @param {Session[]} sessions
 * @param {Chip[]} chips
 * @param {(model: string) => void} picked
 */
function makeLegend(sessions, chips, picked) {
  /** @type {Map<string, { session: Session, model: number }>} */
  const models = new Map();
  for (const session of sessions) session.raw.models.forEach((model, k) => models.set(model.name, { session, model: k }));
  const buttons = [...models].map(([name, at]) => {
    const chip = make("i", { class: "bls-tl-chip" });
    chips.push({ element: chip, ...at });
    return make("button", {
      type: "button", "aria-pressed": "false", "data-model": name, title: `Show ${name} alone`, onclick: () => picked(name),
    }, chip, name);
  });
  const any = (/** @type {(session: Session) => boolean} */ test) => sessions.some(test);
  /** @type {[string, string, boolean][]} */
  const signs = [
    ["queued", "queued", any((s) => s.queued.most > 0)],
    ["calls", "its calls run", any((s) => s.calls.length > 0)],
    ["mark", "a response", any((s) => s.c.mark_span.length > 0)],
    ["error", "error", any((s) => s.raw.states.includes("error"))],
  ];
  return make("div", { class: "bls-tl-legend" }, ...buttons,
    ...signs.filter(([, , seen]) => seen).map(([kind, text]) => make("span", {}, make("i", { class: `bls-tl-sign bls-tl-sign-${kind}` }), text)));
}
