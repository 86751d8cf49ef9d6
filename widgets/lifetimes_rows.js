// Which row of the chart each block stands in. The same rules as display/lifetimes/lanes.py, for what is shown.

/**
 * @typedef {Record<string, any>} Columns typed arrays by name; see display/lifetimes/columns.py
 * @typedef {{ lane: Lane, lives: number[], first: boolean, folded: boolean, steps: number[][] }} Row
 * @typedef {{ key: string, label: string, device: number, model: number, lives: number[], deep: number }} Lane
 * @typedef {{ model: number, rows: Row[] }} Group
 */

/**
 * @param {Columns} c
 * @param {string[]} words
 * @param {(life: number) => boolean} shown
 * @param {Set<string>} open lanes that are unfolded
 * @param {number} most rows, unless lanes are unfolded
 * @returns {Group[]}
 */
export function layout(c, words, shown, open, most) {
  /** @type {Map<string, Lane>} */
  const lanes = new Map();
  for (let life = 0; life < c.id.length; life += 1) {
    if (!shown(life)) continue;
    const key = `${c.model[life]}/${c.device[life]}/${c.name_[life]}`;
    let lane = lanes.get(key);
    if (!lane) {
      const [model, device] = [c.model[life], c.device[life]];
      lanes.set(key, (lane = { key, label: words[c.name_[life]], device, model, lives: [], deep: 0 }));
    }
    lane.lives.push(life);
  }
  const packed = new Map([...lanes.values()].map((lane) => [lane, pack(c, lane.lives)]));
  for (const [lane, rows] of packed) lane.deep = rows.length;
  const share = shares([...lanes.values()], most);
  /** @type {Map<number, Group>} */
  const groups = new Map();
  for (const [lane, rows] of inOrder(c, packed, share)) {
    let group = groups.get(lane.model);
    if (!group) groups.set(lane.model, (group = { model: lane.model, rows: [] }));
    if (open.has(lane.key) || rows.length <= (share.get(lane) ?? 1)) {
      rows.forEach((lives, i) => group.rows.push({ lane, lives, first: !i, folded: false, steps: [] }));
    } else {
      group.rows.push({ lane, lives: lane.lives, first: true, folded: true, steps: profile(c, lane.lives) });
    }
  }
  return [...groups.values()];
}

/**
 * In the order of birth while every block has a bar; of many, the names that left most behind come first, then
 * the largest.
 * @param {Columns} c
 * @param {Map<Lane, number[][]>} packed
 * @param {Map<Lane, number>} share
 */
function inOrder(c, packed, share) {
  const found = [...packed];
  if (found.every(([lane]) => share.has(lane))) return found;
  const weights = new Map(found.map(([lane]) => [lane, weight(c, lane.lives)]));
  /** @type {Map<number, number[]>} */
  const models = new Map();
  for (const [lane, [left, peak]] of weights) {
    const sum = models.get(lane.model) ?? [0, 0];
    models.set(lane.model, [sum[0] + left, sum[1] + peak]);
  }
  const most = (/** @type {number[]} */ a, /** @type {number[]} */ b) => b[0] - a[0] || b[1] - a[1];
  return found.sort(([a], [b]) =>
    most(models.get(a.model) ?? [], models.get(b.model) ?? []) || a.model - b.model ||
    most(weights.get(a) ?? [], weights.get(b) ?? []));
}

/**
 * The bytes that blocks left behind, and had at most.
 * @param {Columns} c
 * @param {number[]} lives
 */
function weight(c, lives) {
  const steps = profile(c, lives);
  return [steps[steps.length - 1][2], Math.max(...steps.map((step) => step[1]))];
}

/**
 * Give each life, in the order of birth, the first row that is free again.
 * @param {Columns} c
 * @param {number[]} lives
 */
function pack(c, lives) {
  /** @type {number[][]} */
  const rows = [];
  /** @type {number[]} */
  const until = [];
  for (const life of lives) {
    let row = until.findIndex((end) => end <= c.born[life]);
    if (row < 0) row = rows.push([]) - 1;
    rows[row].push(life);
    until[row] = c.died[life] < 0 ? Infinity : Math.max(c.died[life], c.born[life] + 1);
  }
  return rows;
}

/**
 * Give each lane the rows that it wants or, where they run short, one: the lanes that want least come first.
 * @param {Lane[]} lanes
 * @param {number} most
 */
function shares(lanes, most) {
  let left = most - lanes.length;
  /** @type {Map<Lane, number>} */
  const share = new Map();
  for (const lane of [...lanes].sort((a, b) => a.deep - b.deep)) {
    if (lane.deep - 1 > left) continue;
    left -= lane.deep - 1;
    share.set(lane, lane.deep);
  }
  return share;
}

/**
 * The bytes of some blocks together: [ns, bytes, bytes of those left behind], each from its time on.
 * @param {Columns} c
 * @param {Iterable<number>} lives
 */
export function profile(c, lives) {
  /** @type {number[][]} */
  const events = [];
  for (const life of lives) {
    events.push([c.born[life], c.bytes[life], c.left[life] ? c.bytes[life] : 0]);
    if (c.died[life] >= 0) events.push([c.died[life], -c.bytes[life], 0]);
  }
  // A death comes before a birth at the same moment.
  events.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const steps = [[0, 0, 0]];
  let [bytes, left] = [0, 0];
  for (const [ns, change, stays] of events) {
    bytes += change;
    left += stays;
    if (steps[steps.length - 1][0] === ns) steps.pop();
    steps.push([ns, bytes, left]);
  }
  return steps;
}

/**
 * The position of the last step that begins at or before a time.
 * @param {number} count
 * @param {(i: number) => number} time
 * @param {number} ns
 */
export function lastBefore(count, time, ns) {
  let [low, high] = [0, count];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (time(middle) <= ns) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
