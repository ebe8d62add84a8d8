// Curves that load their points: as many as fit their width, and again for the zoomed range.
// Names come from scripts: they are rendered as text nodes and on the canvas, never as markup.
let echarts = null; // one megabyte: loaded while the server reads the first points, so no page waits for it

async function drawing() { echarts ??= (await import("nicegui-echart")).echarts; }

const PAUSE = 2000; // milliseconds between polls of an active run
const LIGHT = ["#2457a7", "#b3541e", "#1b7a43", "#8a4fbd", "#b3261e", "#0f7c8a", "#7a6200", "#b02a7c"];
const DARK = ["#8fb8ff", "#f0a35e", "#6fd39a", "#c9a4f5", "#ff9d94", "#5ed0de", "#e0c64a", "#ff9ad1"];
// With eight colors, 64 distinct curves.
const DASHES = ["solid", "dashed", "dotted", [12, 4], [10, 3, 2, 3], [5, 2], [14, 3, 2, 3, 2, 3], [2, 6]];
const AXES = { step: "step", time: "time", points: "point", relative: "seconds since start" };

const worn = new Set(); // charts to redraw when the theme changes
new MutationObserver(() => worn.forEach((chart) => chart.paint())).observe(document.body, { attributeFilter: ["class"] });

export function figure(value) {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return String(value);
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-4 || size >= 1e7) ? value.toExponential(3) : String(Number(value.toPrecision(6)));
}

export function lasting(seconds) {
  const whole = Math.round(Math.abs(seconds)), sign = seconds < 0 ? "-" : "", two = (n) => String(n).padStart(2, "0");
  if (Math.abs(seconds) < 60) return `${sign}${Number(Math.abs(seconds).toPrecision(3))} s`;
  const minutes = Math.floor(whole / 60) % 60, hours = Math.floor(whole / 3600);
  return `${sign}${hours ? `${hours}:${two(minutes)}` : minutes}:${two(whole % 60)}`;
}

const unmarked = (text) => String(text).replaceAll("{", "{\u200b"); // ECharts parses {a|b} as a style

function smoothed(columns, weight) { // exponential, with bias correction at the beginning
  let sum = 0, share = 0;
  return columns.map(([x, , , last]) => {
    sum = sum * weight + (1 - weight) * last;
    share = share * weight + (1 - weight);
    return [x, sum / share];
  });
}

function path(columns, gaps) { // through minimum and maximum of each column, so that no spike is lost; interrupted at NaN
  const points = [];
  let gap = 0;
  for (const [x, lo, hi, last] of columns) {
    for (; gap < gaps.length && gaps[gap] <= x; gap++) points.push([gaps[gap], null]);
    if (lo === hi) points.push([x, last]);
    else points.push([x, lo], [x, hi], [x, last]);
  }
  return points;
}

function nearest(columns, x) {
  let low = 0, high = columns.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (columns[middle][0] < x) low = middle + 1; else high = middle;
  }
  return low > 0 && x - columns[low - 1][0] < columns[low][0] - x ? columns[low - 1] : columns[low];
}

export default {
  template: `
    <figure class="mlw-chart" :class="{'mlw-chart-small': small}" ref="whole" :aria-label="summary" role="group">
      <figcaption v-if="!small" class="mlw-chart-title"><span>{{ title }}</span>
        <button v-if="span" type="button" class="mlw-chart-back" @click="zoom(null)">Reset zoom</button>
      </figcaption>
      <div class="mlw-chart-box" ref="box" role="img" :tabindex="small ? -1 : 0" :aria-label="summary" :style="{height: height + 'px'}"
           @mousedown="pressed" @dblclick="zoom(null)" @keydown="keyed"></div>
      <div v-if="drag" class="mlw-chart-drag" :style="{left: drag.left + 'px', width: drag.width + 'px', height: height - 30 + 'px'}"></div>
      <div v-if="words" class="mlw-chart-words">{{ words }}</div>
    </figure>`,
  props: { title: String, series: Array, x: String, log: Boolean, smooth: Number, height: Number, group: String, small: Boolean, unit: String, reach: Number },
  data() { return { told: [], span: null, drag: null, trouble: "", asked: false }; },
  computed: {
    summary() {
      if (!this.told.length) return `${this.title}: chart`;
      const each = this.told.filter(Boolean).map((one) =>
        `${one.label === this.title ? "" : one.label + ": "}last ${figure(one.last)}, minimum ${figure(one.least)}, maximum ${figure(one.greatest)}`);
      return `${this.title}: ${each.join("; ")}`;
    },
    words() {
      if (this.trouble) return this.trouble;
      if (this.asked && !this.told.some((one) => one?.columns.length)) return this.span ? "no points in this range" : this.small ? "" : this.told.some((one) => one?.odd) ? "no finite values" : "no points yet";
      const odd = this.told.reduce((sum, one) => sum + (one?.odd || 0), 0);
      const said = [odd ? `${odd} non-finite ${odd === 1 ? "value" : "values"} omitted` : ""];
      if (this.log && this.told.some((one) => one?.least <= 0)) said.push("values of 0 or less are not shown");
      return this.small ? "" : said.filter(Boolean).join("; ");
    },
  },
  watch: {
    x() { this.span = null; this.ask(); },
    series() { this.ask(); },
    log() { this.paint(); },
    smooth() { this.paint(); },
    group() { this.join(); },
  },
  mounted() {
    this.seen = new IntersectionObserver((found) => this.sight(found.at(-1).isIntersecting), { rootMargin: "300px" });
    this.seen.observe(this.$refs.whole);
    this.sized = new ResizeObserver(() => this.resized());
    this.sized.observe(this.$refs.box);
    this.ticking = setInterval(() => this.chart && !document.hidden && this.told.some((one) => one && !one.final) && this.ask(), PAUSE);
    this.zoomed = (event) => event.detail.group && event.detail.group === this.group && event.detail.x === this.x && event.detail.from !== this && this.zoom(event.detail.span, true);
    window.addEventListener("mlw-zoom", this.zoomed);
    worn.add(this);
  },
  unmounted() {
    worn.delete(this);
    clearInterval(this.ticking);
    window.removeEventListener("mlw-zoom", this.zoomed);
    this.seen.disconnect();
    this.sized.disconnect();
    this.inSight = false;
    this.chart?.dispose();
    this.chart = null;
  },
  methods: {
    sight(yes) { // a page may have hundreds of charts: only visible ones have a canvas
      if (yes === Boolean(this.inSight)) return;
      this.inSight = yes;
      if (yes) {
        this.width = this.$refs.box.clientWidth;
        if (this.told.length) this.paint();
        this.ask();
      } else if (this.chart) {
        this.chart.dispose();
        this.chart = null;
      }
    },
    begin() { // only with the first points: drawing a dozen empty charts would delay them
      this.chart = echarts.init(this.$refs.box, null, { renderer: "canvas" });
      this.join();
    },
    join() {
      if (!this.chart) return;
      this.chart.group = this.group || undefined;
      if (this.group) echarts.connect(this.group);
    },
    resized() {
      if (!this.chart || !this.$refs.box.clientWidth) return;
      this.chart.resize();
      if (Math.abs(this.$refs.box.clientWidth - this.width) > 40) { this.width = this.$refs.box.clientWidth; this.ask(); }
    },
    async ask() {
      if (!this.inSight) return;
      const turn = (this.turn = (this.turn || 0) + 1);
      try {
        const asked = this.series.map((one, at) => this.fetched(one, at));
        const [told] = await Promise.all([Promise.all(asked), drawing()]);
        if (turn !== this.turn) return; // a later request was sent meanwhile
        this.told = told;
        this.trouble = "";
      } catch (error) {
        if (turn === this.turn) this.trouble = `cannot load chart: ${error.message || error}`;
      }
      this.asked = true;
      this.paint();
    },
    async fetched(one, at) {
      const address = new URL(window.mlwAddress(one.url), location.href), relative = this.x === "relative";
      address.searchParams.set("x", relative ? "time" : this.x);
      address.searchParams.set("width", String(Math.max(16, Math.min(2000, Math.round(this.width || 400)))));
      if (this.span && this.told[at]) {
        const shift = relative ? this.told[at].start : 0, room = (this.span[1] - this.span[0]) * 0.02;
        address.searchParams.set("from", String(this.span[0] - room + shift));
        address.searchParams.set("to", String(this.span[1] + room + shift));
      }
      const answer = await fetch(address, { headers: { accept: "application/json" } });
      const told = await answer.json().catch(() => ({}));
      if (!answer.ok) throw new Error(told.error || `the server responded with status ${answer.status}`);
      if (relative) told.columns.forEach((column) => { column[0] -= told.start; });
      return Object.freeze({ ...told, label: one.label });
    },
    zoom(span, heard) {
      if (span && !(span[1] > span[0])) return;
      if (!span && !this.span) return;
      this.span = span;
      this.ask();
      if (!heard && this.group) window.dispatchEvent(new CustomEvent("mlw-zoom", { detail: { group: this.group, x: this.x, span, from: this } }));
    },
    pressed(event) { // select a range with the mouse
      if (event.button !== 0 || this.small || !this.chart) return;
      const box = this.$refs.box.getBoundingClientRect(), from = event.clientX - box.left;
      if (!this.chart.containPixel("grid", [from, event.clientY - box.top])) return;
      const place = (at) => Math.min(Math.max(0, at.clientX - box.left), box.width);
      const move = (at) => { this.drag = { left: Math.min(from, place(at)), width: Math.abs(place(at) - from) }; };
      const up = (at) => {
        window.removeEventListener("mousemove", move);
        this.drag = null;
        if (Math.abs(place(at) - from) < 5 || !this.chart) return;
        const ends = [from, place(at)].sort((a, b) => a - b).map((x) => this.chart.convertFromPixel({ xAxisIndex: 0 }, x));
        this.zoom(this.x === "time" ? ends.map((end) => end / 1000) : ends);
      };
      window.addEventListener("mousemove", move);
      window.addEventListener("mouseup", up, { once: true });
      event.preventDefault();
      this.$refs.box.focus({ preventScroll: true });
    },
    keyed(event) {
      const ends = this.span || this.ends(), by = (ends[1] - ends[0]) / 4;
      const wanted = { "+": [1, -1], "=": [1, -1], "-": [-2, 2], ArrowLeft: [-1, -1], ArrowRight: [1, 1] }[event.key];
      if (event.key === "Escape" || event.key === "0") this.zoom(null);
      else if (wanted && by > 0) { this.zoom([ends[0] + wanted[0] * by, ends[1] + wanted[1] * by]); event.preventDefault(); }
    },
    ends() {
      const xs = this.told.flatMap((one) => (one?.columns.length ? [one.columns[0][0], one.columns.at(-1)[0]] : []));
      return xs.length ? [Math.min(...xs), Math.max(...xs)] : [0, 0];
    },
    paint() {
      if (!this.inSight || !this.asked || !echarts) return;
      if (!this.chart) this.begin();
      const style = getComputedStyle(document.body), ink = (name) => style.getPropertyValue(name).trim();
      const look = { ink: ink("--mlw-ink"), faint: ink("--mlw-faint"), line: ink("--mlw-line"), soft: ink("--mlw-soft") };
      const colours = document.body.classList.contains("body--dark") ? DARK : LIGHT;
      this.chart.setOption({ animation: false, ...this.frame(look), series: this.curves(colours) }, { notMerge: true });
    },
    frame(look) {
      const many = !this.small && this.told.length > 1, time = this.x === "time";
      const over = this.told.find(Boolean)?.over, fit = this.span || this.whole();
      const label = { color: look.faint, fontSize: 11, hideOverlap: true }, split = { lineStyle: { color: look.line } };
      const ends = this.small ? {} : { min: fit[0] === null ? "dataMin" : fit[0] * (time ? 1000 : 1), max: fit[1] === null ? "dataMax" : fit[1] * (time ? 1000 : 1) };
      return {
        grid: this.small ? { left: 2, right: 2, top: 4, bottom: 4 } : { left: 8, right: 16, top: many ? 34 : 10, bottom: 20, containLabel: true },
        legend: { show: many, type: "scroll", top: 0, textStyle: { color: look.ink, fontSize: 11 }, pageIconColor: look.ink, pageTextStyle: { color: look.ink }, itemWidth: 24, itemHeight: 14, itemStyle: { opacity: 0 } }, // a line in the style of the curve; a lower height would cut off the text
        xAxis: {
          ...ends, type: time ? "time" : "value", show: !this.small, axisLine: { lineStyle: { color: look.line } }, splitLine: { show: false },
          axisLabel: { ...label, ...(this.x === "relative" ? { formatter: lasting } : {}) },
          name: this.small ? "" : AXES[this.x === "step" ? over || "step" : this.x], nameLocation: "middle", nameGap: 22, nameTextStyle: { color: look.faint, fontSize: 11 },
          ...(this.small && { min: "dataMin", max: "dataMax" }),
        },
        yAxis: {
          type: this.log && this.told.some((one) => one?.greatest > 0) ? "log" : "value", scale: !this.unit, // machine charts start at zero
          show: !this.small, splitLine: split,
          axisLabel: { ...label, formatter: (value) => this.said(value) }, splitNumber: 4,
        },
        tooltip: this.small ? { show: false } : {
          trigger: "axis", renderMode: "richText", confine: true, transitionDuration: 0, backgroundColor: look.soft, borderColor: look.line,
          textStyle: { color: look.ink, fontSize: 12 }, formatter: (found) => this.tip(found), axisPointer: { type: "line", lineStyle: { color: look.faint } },
        },
      };
    },
    whole() { // time axis: from the start of the run to its end, even without points
      const start = this.told.find(Boolean)?.start;
      if (!this.reach || this.x === "step" || start === undefined) return [null, null];
      return this.x === "time" ? [start, start + this.reach] : [0, this.reach];
    },
    said(value) {
      const little = this.unit === " GiB" && this.told.every((one) => !one || one.greatest < 1);
      return little ? `${figure(value * 1024)} MiB` : figure(value) + this.unit;
    },
    tip(found) {
      const at = found[0]?.axisValue;
      if (at === undefined) return "";
      const x = this.x === "time" ? at / 1000 : at;
      const where = this.x === "time" ? new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "medium" }).format(at)
        : this.x === "relative" ? lasting(at) : `${this.told.find(Boolean)?.over === "points" ? "point" : "step"} ${figure(at)}`;
      const lines = this.told.filter((one) => one?.columns.length).slice(0, 30).map((one) => {
        const [, lo, hi, last] = nearest(one.columns, x);
        return `${unmarked(one.label)}  ${this.said(last)}${lo === hi ? "" : `  (${this.said(lo)} … ${this.said(hi)})`}`;
      });
      return [where, ...lines].join("\n");
    },
    curves(colours) {
      const scale = this.x === "time" ? 1000 : 1, names = new Map(), found = [];
      const placed = (points) => points.map(([x, y]) => [x * scale, this.log && !(y > 0) ? null : y]);
      this.told.forEach((one, at) => {
        if (!one) return;
        const times = names.get(one.label) || 0, colour = colours[at % colours.length];
        names.set(one.label, times + 1);
        const base = {
          type: "line", name: times ? `${one.label} (${times + 1})` : one.label, color: colour, silent: true,
          showSymbol: one.columns.length < 2 || (!this.small && one.columns.length <= 40 && !this.smooth), symbol: "circle", symbolSize: 5,
        };
        const line = { width: this.small ? 1.5 : 1.6, color: colour, type: DASHES[Math.floor(at / colours.length) % DASHES.length] };
        if (this.smooth > 0 && !this.small) {
          found.push({ ...base, data: placed(smoothed(one.columns, this.smooth)), lineStyle: line, z: 3 }); // the legend uses the style of the first series of a name
          found.push({ ...base, data: placed(path(one.columns, [])), showSymbol: false, lineStyle: { ...line, width: 1, opacity: 0.25 } });
        } else found.push({ ...base, data: placed(path(one.columns, one.odd_at || [])), lineStyle: line });
      });
      return found;
    },
  },
};
