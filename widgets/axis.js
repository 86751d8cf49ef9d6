// The time axis of a chart: what of it is seen, how the theme looks, and what canvases are painted with.

import { above, duration, isDark, make, tickLabels } from "./common.js";

/**
 * @typedef {CanvasRenderingContext2D} Pen
 * @typedef {{ light: string, dark: string }} Ink
 * @typedef {{ colour: string, font?: string, align?: CanvasTextAlign, most?: number, least?: number, halo?: boolean }} Look
 */

export const CLOSEST = 200; // ns that are seen at least
const LINES = { "/": [0, 6, 6, 0], "\\": [0, 0, 6, 6], "-": [0, 3, 6, 3] };

export class Axis {
  /** @param {HTMLElement} root of the chart */
  constructor(root) {
    this.root = root;
    this.whole = this.to = 1; // the end of the axis when all is shown, and of what is seen of it, ns
    this.from = 0;
    this.left = this.width = this.canvasWidth = 0; // of the axis, within the canvases, px
    /** @type {number[]} */
    this.times = [];
    /** @type {Map<string, CanvasPattern>} */
    this.patterns = new Map();
    this.theme = { fg: "", dim: "", line: "", faint: "", paper: "", brand: "", alarm: "", dark: false, font: "" };
    /** What shows a colour that the theme decides. @type {[HTMLElement, Ink][]} */
    this.chips = [];
  }

  /** The colour of a model or a device. @param {Ink | undefined} ink */
  ink(ink) {
    if (!ink) return this.theme.dim;
    return this.theme.dark ? ink.dark : ink.light;
  }

  /** Paint all of it again, soon. */
  draw() {}

  readTheme() {
    const dark = isDark(this.root);
    this.root.classList.toggle("bls-chart-dark", dark);
    const { color, fontFamily } = getComputedStyle(this.root);
    const probe = make("i");
    this.root.append(probe);
    const of = (/** @type {string} */ name) => {
      probe.style.color = `var(--c-${name})`; // as a canvas takes it
      return getComputedStyle(probe).color;
    };
    const [dim, line, faint, paper, brand, alarm] = ["dim", "line", "faint", "paper", "brand", "alarm"].map(of);
    probe.remove();
    this.theme = { fg: color, dim, line, faint, paper, brand, alarm, dark, font: `11px ${fontFamily}` };
    this.patterns.clear();
    for (const [chip, ink] of this.chips) chip.style.background = this.ink(ink);
  }

  /**
   * Make a canvas as sharp as the screen, empty, and in CSS pixels.
   * @param {HTMLCanvasElement} canvas @param {number} height
   */
  fresh(canvas, height) {
    const ratio = window.devicePixelRatio || 1;
    const [w, h] = [this.canvasWidth, height].map((px) => Math.round(px * ratio));
    if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
    canvas.style.width = `${this.canvasWidth}px`;
    canvas.style.height = `${height}px`;
    const pen = /** @type {Pen} */ (canvas.getContext("2d"));
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.textBaseline = "middle";
    return pen;
  }

  get scale() {
    return this.width / (this.to - this.from);
  }

  /** @param {number} time */
  x(time) {
    return this.left + (time - this.from) * this.scale;
  }

  /** @param {number} x */
  time(x) {
    return this.from + (x - this.left) / this.scale;
  }

  /** @param {Pen} pen @param {number} top @param {number} height */
  grid(pen, top, height) {
    pen.fillStyle = this.theme.faint;
    for (const time of this.times) pen.fillRect(Math.round(this.x(time)), top, 1, height);
  }

  /** The times of the axis, and where we are in all of it. @param {Pen} pen @param {number} middle of the words */
  axis(pen, middle) {
    const { times, theme } = this;
    // Zoomed far in, all labels would look alike: then they count from the first.
    const near = this.to - this.from < this.to / 5000;
    const labels = near ? tickLabels(times.map((time) => time - times[0])).map((text) => `+${text}`) : tickLabels(times);
    if (near) labels[0] = duration(times[0]);
    pen.font = theme.font;
    times.forEach((time, k) => {
      const wide = pen.measureText(labels[k]).width;
      const left = Math.max(0, this.x(time) - wide / 2);
      if (left + wide <= this.canvasWidth) this.write(pen, labels[k], left, middle, { colour: theme.dim });
    });
    if (this.from <= 0 && this.to >= this.whole) return;
    pen.fillStyle = theme.dim;
    for (const [alpha, from, to] of [[0.2, 0, this.whole], [0.8, this.from, this.to]]) {
      pen.globalAlpha = alpha;
      pen.fillRect(this.left + (from / this.whole) * this.width, 0, Math.max(3, ((to - from) / this.whole) * this.width), 3);
    }
    pen.globalAlpha = 1;
  }

  /**
   * A fill of lines, `/`, `\`, `-` or `x`, or of dots, `.`, on a ground or on nothing.
   * @param {string} lines @param {string} colour @param {string} [ground]
   */
  hatch(lines, colour, ground = "") {
    const ratio = window.devicePixelRatio || 1;
    const key = [lines, colour, ground, ratio].join();
    const found = this.patterns.get(key);
    if (found) return found;
    const side = Math.round(6 * ratio);
    const tile = document.createElement("canvas");
    tile.width = tile.height = side;
    const pen = /** @type {Pen} */ (tile.getContext("2d"));
    if (ground) {
      pen.fillStyle = ground;
      pen.fillRect(0, 0, side, side);
    }
    pen.scale(side / 6, side / 6);
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineWidth = 1.5;
    if (lines === ".") for (const [x, y] of [[0.5, 0.5], [3.5, 3.5]]) pen.fillRect(x, y, 2, 2.2);
    for (const [kind, [x0, y0, x1, y1]] of Object.entries(LINES)) {
      if (!(lines === kind || (lines === "x" && kind !== "-"))) continue;
      const [dx, dy] = [x1 - x0, y1 - y0];
      for (const shift of dy ? [-6, 0, 6] : [0]) {
        pen.moveTo(x0 - dx + shift, y0 - dy);
        pen.lineTo(x1 + dx + shift, y1 + dy);
      }
    }
    pen.stroke();
    const pattern = /** @type {CanvasPattern} */ (pen.createPattern(tile, "repeat"));
    pattern.setTransform(new DOMMatrix([1 / ratio, 0, 0, 1 / ratio, 0, 0]));
    this.patterns.set(key, pattern);
    return pattern;
  }

  /** @param {Pen} pen @param {string} text @param {number} x @param {number} y @param {Look} look */
  write(pen, text, x, y, { colour, font = this.theme.font, align = "left", most = Infinity, least = 0, halo = false }) {
    pen.font = font;
    pen.fillStyle = colour;
    pen.textAlign = align;
    const fitted = fit(pen, text, most, least);
    if (halo) {
      [pen.strokeStyle, pen.lineWidth, pen.lineJoin] = [this.theme.paper, 4, "round"];
      pen.strokeText(fitted, x, y);
    }
    pen.fillText(fitted, x, y);
    pen.textAlign = "left";
  }

  /**
   * Fill what is between a base and steps, each until the next: of what falls on one pixel the highest, or the mean.
   * @param {Pen} pen @param {{ at: ArrayLike<number>, level: ArrayLike<number> }} steps @param {number} base
   * @param {number} unit px for one; upwards if negative @param {boolean} [mean]
   */
  area(pen, { at, level }, base, unit, mean = false) {
    const end = this.left + this.width;
    let k = above(at, this.from) - 1;
    let now = k < 0 ? 0 : level[k];
    pen.beginPath();
    pen.moveTo(this.left, base);
    for (let x = this.left; x < end; x += 1) {
      const [begin, until] = [this.time(x), this.time(x + 1)];
      let [since, sum, high] = [begin, 0, now];
      while (k + 1 < at.length && at[k + 1] < until) {
        k += 1;
        sum += now * (at[k] - since);
        [since, now] = [at[k], level[k]];
        high = Math.max(high, now);
      }
      const y = base + unit * (mean ? (sum + now * (until - since)) / (until - begin) : high);
      pen.lineTo(x, y);
      pen.lineTo(Math.min(x + 1, end), y);
    }
    pen.lineTo(end, base);
    pen.closePath();
    pen.fill();
  }

  // -- moving -------------------------------------------------------------------------------------

  /** @param {number} from @param {number} to */
  show(from, to) {
    const span = Math.min(Math.max(CLOSEST, to - from), this.whole);
    this.from = Math.max(0, Math.min((from + to) / 2 - span / 2, this.whole - span));
    this.to = this.from + span;
    this.draw();
  }

  /** @param {number} factor above 1 to see more @param {number} [x] what stays in place */
  zoom(factor, x = this.left + this.width / 2) {
    const span = Math.max(CLOSEST, Math.min((this.to - this.from) * factor, this.whole));
    const from = this.time(x) - ((x - this.left) / this.width) * span;
    this.show(from, from + span);
  }

  /** @param {number} px */
  pan(px) {
    this.show(this.from + px / this.scale, this.to + px / this.scale);
  }

  fit() {
    this.show(0, this.whole);
  }
}

/**
 * As much of a text as there is room for; nothing if that is less than `least` letters.
 * @param {Pen} pen @param {string} text @param {number} most px @param {number} least
 */
export function fit(pen, text, most, least = 0) {
  if (pen.measureText(text).width <= most) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (pen.measureText(`${text.slice(0, middle)}…`).width <= most) low = middle;
    else high = middle - 1;
  }
  return low > least ? `${text.slice(0, low)}…` : "";
}

/** @param {Pen} pen @param {number} x @param {number} y of its tip @param {number} high from the tip, negative upwards */
export function triangle(pen, x, y, high) {
  pen.beginPath();
  pen.moveTo(x, y);
  pen.lineTo(x - 3, y + high);
  pen.lineTo(x + 3, y + high);
  pen.fill();
}
