// What the widgets share: reading columns, spelling quantities, axis ticks, small DOM helpers.

/** @typedef {[name: string, type: string, offset: number, count: number]} Column */

const TYPES = {
  f8: Float64Array, f4: Float32Array, u4: Uint32Array, i4: Int32Array, u2: Uint16Array, u1: Uint8Array,
};

/**
 * Read what `pack_columns` packed.
 * @param {DataView} data
 * @param {Column[]} layout
 * @returns {Record<string, any>} typed arrays by name
 */
export function columns(data, layout) {
  /** @type {Record<string, any>} */
  const found = {};
  // A message may place the bytes anywhere, typed arrays want multiples of 8.
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength).slice().buffer;
  for (const [name, type, offset, count] of layout) {
    found[name] = new TYPES[/** @type {keyof typeof TYPES} */ (type)](bytes, offset, count);
  }
  return found;
}

/** @param {number} value with three digits, as display/units.py spells it */
function three(value) {
  if (value < 9.995) return value.toFixed(2);
  return value < 99.95 ? value.toFixed(1) : value.toFixed(0);
}

/** Spell a time: "7.31 µs", "420 ms", "1.45 s". @param {number} ns */
export function duration(ns) {
  if (ns < 999.5) return `${Math.round(ns)} ns`;
  if (ns < 999.5e3) return `${three(ns / 1e3)} µs`;
  if (ns < 999.5e6) return `${three(ns / 1e6)} ms`;
  return `${three(ns / 1e9)} s`;
}

/** Spell a number of bytes in binary units: "512 B", "1.5 MiB". @param {number} bytes */
export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1023.5 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = Number.isInteger(value) || value >= 99.95 ? 0 : 1;
  return `${value.toFixed(digits)} ${units[unit]}`;
}

/** @param {number} count @param {string} noun */
export function counted(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

/**
 * The first index whose value is above a number.
 * @param {ArrayLike<number>} values in order
 * @param {number} value
 */
export function above(values, value) {
  let [low, high] = [0, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Choose round numbers between two.
 * @param {number} low
 * @param {number} high
 * @param {number} most how many at most
 */
export function ticks(low, high, most) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const rough = span / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((each) => each * power >= rough * 0.999) ?? 10);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at += 1) found.push(at * step);
  return found;
}

/**
 * Spell the times of an axis in one unit: the largest in which their step is a whole or short number.
 * @param {number[]} times in ns
 */
export function tickLabels(times) {
  const step = times.length > 1 ? times[1] - times[0] : times[0] || 1;
  const top = Math.max(...times.map(Math.abs), step);
  const [factor, unit] =
    top >= 1e9 ? [1e9, "s"] : top >= 1e6 ? [1e6, "ms"] : top >= 1e3 ? [1e3, "µs"] : [1, "ns"];
  const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / factor) - 1e-9)));
  return times.map((time) => `${(time / factor).toFixed(digits)} ${unit}`);
}

/**
 * Make an element; text is set as text, never as markup.
 * @param {string} tag
 * @param {Record<string, any>} [properties] attributes; `onclick` and the like are listeners
 * @param {...(Node | string | null | undefined | false)} children
 * @returns {HTMLElement}
 */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, String(value));
  }
  // Or letters that are pressed on a button would be the notebook's commands.
  if (tag === "button" || tag === "input") own(element);
  element.append(...children.filter((child) => child != null && child !== false).map((child) => child || ""));
  return element;
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

/**
 * Whether an element stands on a dark background, whatever says so: JupyterLab, VS Code, Colab or a page.
 * @param {Element} element
 */
export function isDark(element) {
  const theme = element.closest("[data-jp-theme-light]")?.getAttribute("data-jp-theme-light");
  if (theme) return theme === "false";
  for (let at = /** @type {Element | null} */ (element); at; at = at.parentElement) {
    const parts = getComputedStyle(at).backgroundColor.match(/[\d.]+/g)?.map(Number) ?? [];
    if (parts.length >= 3 && (parts[3] ?? 1) > 0.5) {
      return 0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2] < 128;
    }
  }
  return false;
}

/**
 * Call back when the theme has changed, and the page is seen again: JupyterLab hides all of it for a frame.
 * @param {() => void} changed
 * @returns {() => void} ends it
 */
export function onTheme(changed) {
  const observer = new MutationObserver(() => requestAnimationFrame(() => requestAnimationFrame(changed)));
  for (const each of [document.documentElement, document.body]) {
    observer.observe(each, { attributes: true, attributeFilter: ["data-jp-theme-light", "class", "theme"] });
  }
  return () => observer.disconnect();
}
