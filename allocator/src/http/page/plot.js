// A limit over time: what is left, and what is granted, spent and refused a second. Drawn by uPlot, a global that the
// page loads before this.

import { el } from "./dom.js";
import { history } from "./figures.js";
import * as words from "./words.js";

/** Rates are smoothed over so many samples: nodes report up to a second apart. */
const SMOOTH = 3;

/** At least so many seconds are shown: a plot that has just begun fills up from the right. */
const SHOWN_S = 60;

const dark = matchMedia("(prefers-color-scheme: dark)");

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function axis(more) {
  const line = { stroke: colour("line"), width: 1 };
  return { stroke: colour("faint"), grid: line, ticks: line, font: "11px system-ui, sans-serif", ...more };
}

const clock = (at) => new Date(at * 1_000).toTimeString().slice(0, 8);

function series(label, name, value, fill) {
  return {
    label, stroke: colour(name), width: 1.5, points: { show: false },
    // The newest value where the pointer is not on the plot.
    value: (plot, number, at) => value(number ?? plot.data[at].at(-1)),
    fill: fill ? `${colour(name)}22` : undefined,
  };
}

/** One plot with these series, of a height, beside others that show the same time. */
function make(root, height, lines, data, value, sync) {
  return new uPlot({
    width: Math.max(280, root.clientWidth), height,
    cursor: { sync: { key: sync }, y: false, drag: { x: false, y: false } },
    legend: { live: true },
    scales: { x: { time: true, range: (_, first, last) => [Math.min(first, last - SHOWN_S), last] }, y: { range: (_, __, most) => [0, Math.max(1, most * 1.08)] } },
    axes: [axis({ space: 90, values: (_, ticks) => ticks.map(clock) }), axis({ size: 62, values: (_, ticks) => ticks.map(value) })],
    series: [{ label: "at", value: (_, at) => (at ? clock(at) : "now") }, ...lines],
  }, data, root);
}

/** The plots of the limit called `name`. */
export function plots(name) {
  // The label around each says what it is; its legend is no table of anything.
  const plot = () => el("div", { class: "plot", "aria-hidden": "true" });
  const [left, rates] = [plot(), plot()];
  const label = (what) => ({ class: "plots", role: "img", "aria-label": `${what} of ${name} over the last minutes; the figures above are the newest` });
  const root = el("div", {},
    el("figure", {}, el("figcaption", {}, "Left to lend"), el("div", label("what is left"), left)),
    el("figure", {}, el("figcaption", {}, "Per second"), el("div", label("granted, spent and refused a second"), rates)));
  let drawn = [];

  function data() {
    const samples = history(name);
    const offset = (Date.now() - performance.now()) / 1_000;
    const times = samples.map(({ at }) => at / 1_000 + offset);
    const rate = (pick) => samples.map((now, at) => {
      const before = samples[Math.max(0, at - SMOOTH)];
      return before === now ? null : ((pick(now) - pick(before)) * 1_000) / (now.at - before.at);
    });
    return [
      [times, samples.map(({ available }) => available)],
      [times, rate(({ granted }) => granted), rate(({ spent }) => spent), rate(({ refused }) => refused)],
    ];
  }

  function begin() {
    drawn.forEach((plot) => plot.destroy());
    const [a, b] = data();
    drawn = [
      make(left, 150, [series("left", "left", words.count, true)], a, words.count, name),
      make(rates, 190, [
        series("granted", "granted", words.rate), series("spent", "spent", words.rate), series("refused", "refused", words.rate),
      ], b, words.rate, name),
    ];
  }

  const fit = new ResizeObserver(() => {
    drawn.forEach((plot) => plot.setSize({ width: Math.max(280, left.clientWidth), height: plot.height }));
  });
  dark.addEventListener("change", begin);
  return {
    root,
    /** To be called once it is in the page. */
    begin() {
      begin();
      fit.observe(left);
    },
    update() {
      const next = data();
      drawn.forEach((plot, at) => plot.setData(next[at]));
    },
    end() {
      fit.disconnect();
      dark.removeEventListener("change", begin);
      drawn.forEach((plot) => plot.destroy());
    },
  };
}
