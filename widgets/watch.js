// The watch: what the models of a repository do just now. Python's side is display/watch/widget.py, which
// sends a look every half a second; here each look changes what it changed, and lines remember the last ones.

import { counted, duration, isDark, make, onTheme, size } from "./common.js";
import { onTop } from "./on_top.js";

/** @typedef {import("./on_top.js").Model & { send(content: any): void }} Model */
/**
 * @typedef {{ id: number, name: string, version: number, state: string, reason: string, instances: number, busy: number,
 *   queue: number, answered: number, failed: number, rate: number, errors: number, p50: number | null, p99: number | null,
 *   ink: [string, string] }} Row
 * @typedef {{ name: string, hardware: string, simulated: boolean, ours: number, cached: number, others: number, total: number }} Device
 * @typedef {{ at: number, place: string, rows: Row[], devices: Device[], closed: boolean, seconds: number }} Now
 * @typedef {(number | null)[]} Look rate, errors, p50, p99
 * @typedef {{ looks: Map<number, Look[]>, views: number, said: Map<number, string>, doing: Map<number, string>, heard: number }} Memory
 */

const KEPT = 120; // looks that the lines show at most, and so many from the start
const LEAST = 30;
const SQUARES = 8; // instances that are shown one by one
const HEARD = 4000; // ms between two signs of life
const CALLS = 3; // to a kernel that tells nothing

/** What every view of a panel shares. @type {WeakMap<Model, Memory>} */
const memories = new WeakMap();

/** @param {Model} model */
function memory(model) {
  let found = memories.get(model);
  if (!found) {
    const past = Object.entries(model.get("past") ?? {});
    found = { looks: new Map(past.map(([id, looks]) => [Number(id), looks])), views: 0, said: new Map(), doing: new Map(), heard: Date.now() };
    memories.set(model, found);
  }
  return found;
}

/** Remember each look, whether a view is there or not. @param {Model} model */
function remember(model) {
  const kept = memory(model);
  const came = () => {
    const now = /** @type {Now} */ (model.get("now"));
    const there = new Set(now.rows?.map((row) => row.id));
    for (const id of kept.looks.keys()) if (!there.has(id)) kept.looks.delete(id);
    for (const row of now.rows ?? []) {
      const looks = kept.looks.get(row.id) ?? [];
      looks.push([row.rate, row.errors, row.p50, row.p99]);
      if (looks.length > KEPT) looks.shift();
      kept.looks.set(row.id, looks);
    }
    if (kept.views && Date.now() - kept.heard > HEARD) tell(model, { views: kept.views });
  };
  /** @param {any} content */
  const answered = (content) => {
    const id = content.begun ?? content.done;
    if (content.begun !== undefined) kept.doing.set(id, "…");
    else {
      kept.doing.delete(id);
      if (content.problem) kept.said.set(id, `${content.verb}: ${content.problem}`);
    }
  };
  model.on("change:now", came);
  /** @type {any} */ (model).on("msg:custom", answered);
}

/** @param {Model} model @param {any} content */
function tell(model, content) {
  memory(model).heard = Date.now();
  model.send(content);
}

/** @param {number} value a second */
function perSecond(value) {
  if (!value) return "0";
  return value < 9.95 ? value.toFixed(1) : Math.round(value).toLocaleString("en");
}

const SVG = "http://www.w3.org/2000/svg";

/** The last minute of something as a picture. @param {string} kind @param {string} title */
function line(kind, title) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", `bls-watch-line bls-watch-${kind}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  const text = document.createElementNS(SVG, "title");
  text.textContent = title;
  const [ground, area, stroke] = ["ground", "area", "stroke"].map((name) => {
    const part = document.createElementNS(SVG, "path");
    part.setAttribute("class", `bls-watch-${name}`);
    return part;
  });
  svg.append(text, ground, area, stroke);
  /**
   * @param {(number | null)[]} values
   * @param {(number | null)[]} lower what the area begins at
   * @param {(number | null)[]} upper and ends at
   */
  const draw = (values, lower, upper) => {
    const long = Math.max(LEAST, values.length);
    svg.setAttribute("viewBox", `0 0 ${long - 1} 20`);
    ground.setAttribute("d", `M0 19H${long - 1}`);
    const most = Math.max(1e-9, ...upper.map(Number));
    area.setAttribute("d", path(upper, long, most, (i) => Number(lower[i])));
    stroke.setAttribute("d", path(values, long, most, null));
  };
  return { svg, draw };
}

/**
 * A path through points, and none where there is nothing; closed at the bottom or along another line if `under` is given.
 * @param {(number | null)[]} values the latest at the right
 * @param {number} long how many the picture has room for
 * @param {number} top the largest value of the picture
 * @param {((i: number) => number) | null} under
 */
function path(values, long, top, under) {
  const from = long - values.length;
  const y = (/** @type {number} */ value) => (19 - (18 * value) / top).toFixed(1);
  let out = "";
  for (let i = 0; i < values.length; i += 1) {
    if (values[i] === null) continue;
    let end = i;
    while (end + 1 < values.length && values[end + 1] !== null) end += 1;
    const points = [];
    for (let at = i; at <= end; at += 1) points.push(`${from + at} ${y(/** @type {number} */ (values[at]))}`);
    if (points.length === 1) points.push(`${from + i + 0.7} ${points[0].split(" ")[1]}`); // a dot
    if (under) for (let at = end; at >= i; at -= 1) points.push(`${from + at} ${y(under(at))}`);
    out += `M${points.join("L")}${under ? "Z" : ""}`;
    i = end;
  }
  return out;
}

/** One model: its elements, and what changes in them. */
class ModelRow {
  rate = line("rates", "requests a second, the last minute");
  latency = line("latencies", "latency, the last minute: p50 as a line, up to p99 the band");
  state = make("span", { class: "bls-watch-state" });
  squares = make("span", { class: "bls-watch-squares" });
  busy = make("span", { class: "bls-chart-dim" });
  queue = make("td", { class: "bls-watch-num" });
  perSecond = make("span", { class: "bls-watch-figure" });
  errors = make("td", { class: "bls-watch-num" });
  p50 = make("span", { class: "bls-watch-figure" });
  p99 = make("span", { class: "bls-watch-figure bls-chart-dim" });
  why = make("td", { colspan: "8", class: "bls-watch-why" });
  below = make("tr", { class: "bls-watch-below", hidden: true }, this.why);

  /** @param {Panel} panel @param {Row} row */
  constructor(panel, row) {
    this.panel = panel;
    this.id = row.id;
    const button = (/** @type {string} */ verb, /** @type {string} */ sign, /** @type {string} */ title) =>
      make("button", { type: "button", title, "data-verb": verb, onclick: () => panel.ask(verb, this.id) },
        make("i", { "aria-hidden": "true" }, sign), make("span", {}, verb[0].toUpperCase() + verb.slice(1)));
    this.buttons = {
      load: button("load", "▸", `Load ${row.name}`),
      reload: button("reload", "⟳", `Load ${row.name} again from its files or its cell`),
      unload: button("unload", "×", `Take ${row.name} out of service after its running requests`),
    };
    const version = row.version === 1 ? "" : `version ${row.version}`;
    this.top = make("tr", { class: "bls-watch-model", "data-model": row.name },
      make("th", { scope: "row", title: row.name }, make("i", { class: "bls-watch-chip" }), make("b", {}, row.name), make("small", {}, version)),
      make("td", {}, this.state),
      make("td", { class: "bls-watch-instances" }, this.squares, this.busy),
      this.queue,
      make("td", { class: "bls-watch-with" }, this.rate.svg, this.perSecond),
      this.errors,
      make("td", { class: "bls-watch-with" }, this.latency.svg, this.p50, this.p99),
      make("td", { class: "bls-watch-buttons" }, ...Object.values(this.buttons)));
  }

  /** @param {Row} row @param {Look[]} looks @param {string} said @param {boolean} doing */
  update(row, looks, said, doing) {
    const serves = row.state === "READY" || row.state === "UNLOADING";
    this.top.style.setProperty("--light", row.ink[0]);
    this.top.style.setProperty("--dark", row.ink[1]);
    const stub = row.state === "READY" && row.reason.startsWith("stub: ");
    this.state.textContent = stub ? `${row.state} · stub` : row.state;
    this.state.title = stub ? row.reason : row.state;
    this.state.className = `bls-watch-state bls-watch-${row.state.toLowerCase()}`;
    const few = row.instances <= SQUARES;
    while (few && this.squares.childElementCount < row.instances) this.squares.append(make("i"));
    while (this.squares.childElementCount > (few ? row.instances : 0)) this.squares.lastElementChild?.remove();
    [...this.squares.children].forEach((square, i) => square.classList.toggle("bls-watch-busy", i < row.busy));
    this.busy.textContent = serves && row.instances ? `${row.busy} of ${row.instances}` : "";
    this.busy.title = serves ? `${row.busy} busy, ${row.instances - row.busy} idle` : "";
    this.queue.textContent = serves ? row.queue.toLocaleString("en") : "";
    this.queue.classList.toggle("bls-watch-waits", row.queue > 0);
    this.perSecond.textContent = serves ? perSecond(row.rate) : "";
    this.perSecond.title = counted(row.answered, "request") + " answered since it was loaded";
    this.errors.textContent = serves ? perSecond(row.errors) : "";
    this.errors.title = counted(row.failed, "request") + " failed since it was loaded";
    this.errors.classList.toggle("bls-chart-alarm", row.errors > 0);
    const last = [...looks].reverse().find((look) => look[2] !== null);
    this.p50.textContent = serves && last ? duration(/** @type {number} */ (last[2])) : "";
    this.p99.textContent = serves && last ? duration(/** @type {number} */ (last[3])) : "";
    for (const { svg } of [this.rate, this.latency]) svg.style.visibility = serves ? "" : "hidden";
    const [rates, , p50s, p99s] = [0, 1, 2, 3].map((which) => looks.map((look) => look[which]));
    this.rate.draw(rates, rates.map(() => 0), rates);
    this.latency.draw(p50s, p50s, p99s);
    const words = said || (row.state === "READY" || row.reason === "unloaded" ? "" : row.reason);
    this.why.textContent = words;
    this.why.classList.toggle("bls-watch-wrong", Boolean(said));
    this.below.hidden = !words;
    this.buttons.load.hidden = serves || row.state === "LOADING";
    this.buttons.reload.hidden = this.buttons.unload.hidden = row.state !== "READY";
    for (const each of Object.values(this.buttons)) /** @type {HTMLButtonElement} */ (each).disabled = doing;
  }
}

class Panel {
  /** @type {Map<number, ModelRow>} */
  rows = new Map();
  /** @type {(() => void)[]} */
  ends = [];
  pulse = make("i", { class: "bls-watch-pulse" });
  place = make("b", { class: "bls-watch-place" });
  facts = make("span", { class: "bls-chart-dim bls-watch-facts" });
  news = make("span", { class: "bls-watch-news", role: "status" });
  devices = make("div", { class: "bls-watch-devices" });
  body = make("tbody");
  restList = make("div", { class: "bls-watch-names" });
  restTitle = make("summary");
  rest = make("details", { class: "bls-watch-rest", hidden: true }, this.restTitle, this.restList);
  restKnown = "";
  calls = 0;

  /** @param {Model} model @param {HTMLElement} el */
  constructor(model, el) {
    this.model = model;
    this.kept = memory(model);
    const heads = /** @type {[string, string, string][]} */ ([
      ["model", "", ""], ["state", "", ""], ["instances", "", "busy ones are filled"],
      ["queue", "bls-watch-num", "requests that wait for an instance"], ["requests/s", "bls-watch-num", "answered, lately"],
      ["errors/s", "bls-watch-num", "failed, lately"], ["p50, p99", "bls-watch-num", "latency of the latest requests: half of them are quicker than p50, 99 of 100 quicker than p99"],
      ["", "", ""],
    ]);
    this.root = make("div", { class: "bls-chart bls-watch" },
      make("div", { class: "bls-watch-head" }, this.pulse, this.place, this.facts, this.news, this.devices),
      make("div", { class: "bls-watch-scroll" }, make("table", {},
        make("thead", {}, make("tr", {}, ...heads.map(([text, kind, title]) => make("th", { scope: "col", class: kind, title: title || null }, text)))), this.body)),
      this.rest);
    el.append(this.root);
    const update = () => this.update();
    for (const event of ["change:now", "change:rest", "msg:custom"]) {
      model.on(event, update);
      this.ends.push(() => model.off(event, update));
    }
    const theme = () => {
      for (const dark of ["bls-chart-dark", "bls-watch-dark"]) this.root.classList.toggle(dark, isDark(this.root));
    };
    this.ends.push(onTheme(theme));
    const timer = setInterval(() => this.tellNews(), 1000);
    this.ends.push(() => clearInterval(timer));
    const back = () => !document.hidden && tell(model, { views: this.kept.views });
    document.addEventListener("visibilitychange", back);
    this.ends.push(() => document.removeEventListener("visibilitychange", back));
    this.kept.views += 1;
    tell(model, { views: this.kept.views });
    theme();
    update();
  }

  /** @param {string} verb @param {number} id */
  ask(verb, id) {
    this.kept.said.delete(id);
    this.kept.doing.set(id, verb);
    tell(this.model, { verb, id });
    this.update();
    setTimeout(() => this.update(), 1500);
  }

  tellNews() {
    const now = /** @type {Now} */ (this.model.get("now"));
    if (!now.rows) return;
    const silent = Date.now() / 1000 - now.at;
    const late = silent > Math.max(4, 4 * now.seconds);
    const asked = [...this.kept.doing.values()].find((what) => what !== "…");
    if (!late) this.calls = 0;
    else if (this.calls < CALLS && Date.now() - this.kept.heard > HEARD) {
      this.calls += 1; // it may have taken this page for closed, as after a sleep of the machine
      tell(this.model, { views: this.kept.views });
    }
    this.pulse.className = now.closed || late ? "bls-watch-pulse bls-watch-still" : "bls-watch-pulse";
    this.news.textContent = now.closed ? "the repository is closed; run %blswatch again"
      : late ? `no news for ${Math.round(silent)} s: the kernel is too busy to tell, or was restarted`
      : asked && Date.now() - this.kept.heard > 1400 ? `${asked}: begins when the cell that runs has ended` : "";
  }

  update() {
    const now = /** @type {Now} */ (this.model.get("now"));
    if (!now.rows) return;
    this.place.textContent = now.place;
    const ready = now.rows.filter((row) => row.state === "READY");
    const sum = (/** @type {(row: Row) => number} */ of) => ready.reduce((all, row) => all + of(row), 0);
    const instances = sum((row) => row.instances);
    this.facts.textContent = `${ready.length} ready · ${sum((row) => row.busy)} of ${counted(instances, "instance")} busy`;
    for (const [id, row] of this.rows) {
      if (now.rows.some((each) => each.id === id)) continue;
      row.top.remove();
      row.below.remove();
      this.rows.delete(id);
    }
    now.rows.forEach((row, i) => {
      let shown = this.rows.get(row.id);
      if (!shown) {
        shown = new ModelRow(this, row);
        this.rows.set(row.id, shown);
      }
      if (this.body.children[2 * i] !== shown.top) {
        this.body.insertBefore(shown.top, this.body.children[2 * i] ?? null);
        shown.top.after(shown.below);
      }
      shown.update(row, this.kept.looks.get(row.id) ?? [], this.kept.said.get(row.id) ?? "", now.closed || this.kept.doing.has(row.id));
    });
    this.root.classList.toggle("bls-watch-empty", !now.rows.length);
    this.root.classList.toggle("bls-watch-closed", now.closed);
    this.updateDevices(now.devices);
    this.updateRest(now.closed);
    this.tellNews();
  }

  /** @param {Device[]} devices */
  updateDevices(devices) {
    const shown = devices.filter((device) => device.total > 0 && (device.name !== "cpu" || devices.length === 1));
    while (this.devices.childElementCount > shown.length) this.devices.lastElementChild?.remove();
    shown.forEach((device, i) => {
      let box = /** @type {HTMLElement | undefined} */ (this.devices.children[i]);
      if (!box) {
        box = make("div", { class: "bls-watch-device" }, make("span"), make("div", {}, make("i"), make("i"), make("i")), make("span"));
        this.devices.append(box);
      }
      const [label, bar, used] = /** @type {HTMLElement[]} */ ([...box.children]);
      label.textContent = device.simulated ? `${device.name} (simulated)` : device.name;
      const ours = Math.max(0, device.ours) + Math.max(0, device.cached);
      used.textContent = `${size(ours)} of ${size(device.total)}`;
      box.title = `${device.hardware}: ${size(Math.max(0, device.ours))} ours, ${size(Math.max(0, device.cached))} kept for later, ${size(Math.max(0, device.others))} of others`;
      [device.ours, device.cached, device.others].forEach((bytes, part) => {
        /** @type {HTMLElement} */ (bar.children[part]).style.width = `${(100 * Math.max(0, bytes)) / device.total}%`;
      });
    });
  }

  /** Models that nobody has loaded. @param {boolean} closed */
  updateRest(closed) {
    const rest = /** @type {Row[]} */ (this.model.get("rest") ?? []);
    const problems = rest.filter((row) => this.kept.said.has(row.id));
    const known = JSON.stringify([rest, closed, [...this.kept.doing], problems.map((row) => this.kept.said.get(row.id))]);
    if (known === this.restKnown) return;
    this.restKnown = known;
    this.rest.hidden = !rest.length;
    if (!this.rows.size) /** @type {HTMLDetailsElement} */ (this.rest).open = true;
    this.restTitle.textContent = `${counted(rest.length, "model")} not loaded`;
    this.restList.replaceChildren(...rest.map((row) => make("button", {
      type: "button", title: `Load ${row.name}`, "data-verb": "load", "data-model": row.name,
      disabled: closed || this.kept.doing.has(row.id), onclick: () => this.ask("load", row.id),
    }, make("i", { "aria-hidden": "true" }, "▸"), row.name)),
    ...problems.map((row) => make("div", { class: "bls-chart-alarm" }, `${row.name}: ${this.kept.said.get(row.id)}`)));
  }

  close() {
    this.kept.views -= 1;
    for (const end of this.ends) end();
    this.root.remove();
    try {
      tell(this.model, { views: this.kept.views });
    } catch {
      // The kernel is gone, and what watched with it.
    }
  }
}

/** @param {{ model: any, el: HTMLElement }} context */
function render({ model, el }) {
  const panel = new Panel(model, el);
  return () => panel.close();
}

const top = onTop(render);

export default {
  render: top.render,
  initialize(/** @type {any} */ context) {
    remember(context.model);
    return top.initialize(context);
  },
};
