// Runs as points between two axes, or as lines through many. Names are drawn on the canvas only, never as markup.
import { echarts } from "nicegui-echart";

const LIGHT = ["#2457a7", "#b3541e", "#1b7a43", "#8a4fbd", "#b3261e", "#0f7c8a", "#7a6200", "#b02a7c"];
const DARK = ["#8fb8ff", "#f0a35e", "#6fd39a", "#c9a4f5", "#ff9d94", "#5ed0de", "#e0c64a", "#ff9ad1"];
const FEW = 8; // number of distinct run colors
const worn = new Set();
new MutationObserver(() => worn.forEach((chart) => chart.paint())).observe(document.body, { attributeFilter: ["class"] });

const unmarked = (text) => String(text).replaceAll("{", "{\u200b"); // ECharts parses {a|b} as a style
const figure = (value) => (Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(5))));

function between(from, to, share) { // interpolate between two colors, both #rrggbb
  const part = (colour, at) => parseInt(colour.slice(at, at + 2), 16);
  return `rgb(${[1, 3, 5].map((at) => Math.round(part(from, at) + (part(to, at) - part(from, at)) * share)).join(", ")})`;
}

export default {
  template: `<div class="mlw-scatter" ref="box" role="img" :aria-label="summary" :style="{height: height + 'px'}"></div>`,
  props: { label: String, height: Number, axes: Array, points: Array, parallel: Boolean },
  computed: {
    summary() { return `${this.label}: ${this.points.length} runs, ${this.axes.join(", ")}`; },
  },
  watch: { axes() { this.paint(); }, points() { this.paint(); } },
  mounted() {
    this.chart = echarts.init(this.$refs.box, null, { renderer: "canvas" });
    this.chart.on("click", (point) => { const id = this.points[this.parallel ? point.dataIndex : point.seriesIndex]?.id; if (id) window.location.href = window.mlwAddress(`/runs/${encodeURIComponent(id)}`); });
    this.sized = new ResizeObserver(() => { this.chart.resize(); if (this.parallel) this.paint(); }); // labels use the available width
    this.sized.observe(this.$refs.box);
    worn.add(this);
    this.paint();
  },
  unmounted() { worn.delete(this); this.sized.disconnect(); this.chart.dispose(); this.chart = null; },
  methods: {
    paint() {
      if (!this.chart) return;
      const style = getComputedStyle(document.body), ink = (name) => style.getPropertyValue(name).trim();
      const look = { ink: ink("--mlw-ink"), faint: ink("--mlw-faint"), line: ink("--mlw-line"), soft: ink("--mlw-soft") };
      const colours = document.body.classList.contains("body--dark") ? DARK : LIGHT;
      const tooltip = { trigger: "item", renderMode: "richText", confine: true, backgroundColor: look.soft, borderColor: look.line, textStyle: { color: look.ink, fontSize: 12 } };
      const option = this.parallel ? this.lines(look, colours) : this.dots(look, colours);
      this.chart.setOption({ animation: false, tooltip: { ...tooltip, formatter: (found) => this.tip(this.points[this.parallel ? found.dataIndex : found.seriesIndex]) }, ...option }, { notMerge: true });
    },
    tip(point) {
      if (!point) return "";
      return [unmarked(point.label), ...this.axes.map((name, at) => `${unmarked(name)}  ${point.values[at] === null ? "–" : figure(point.values[at])}`)].join("\n");
    },
    axis(look, name) {
      return {
        type: "value", scale: true, name, nameLocation: "middle", nameTextStyle: { color: look.faint, fontSize: 12 }, axisLine: { lineStyle: { color: look.line } },
        axisLabel: { color: look.faint, fontSize: 11, hideOverlap: true }, splitLine: { lineStyle: { color: look.line } },
      };
    },
    dots(look, colours) {
      return {
        grid: { left: 30, right: 20, top: 14, bottom: 26, containLabel: true },
        xAxis: { ...this.axis(look, this.axes[0]), nameGap: 26 }, yAxis: { ...this.axis(look, this.axes[1]), nameGap: 44 },
        series: this.points.map((point, at) => ({
          type: "scatter", name: point.label, symbolSize: 11, color: this.points.length <= FEW ? colours[at % FEW] : colours[0], itemStyle: { opacity: 0.8 },
          data: point.values.includes(null) ? [] : [point.values],
        })),
      };
    },
    lines(look, colours) {
      const room = Math.max(40, Math.floor((this.$refs.box.clientWidth - 130) / Math.max(1, this.axes.length - 1)) - 14);
      const dim = this.axes.length > 1 ? this.points.map((point) => point.shade) : [], shaded = dim.some((one) => typeof one === "number");
      const colour = (at) => (shaded ? (typeof dim[at] === "number" ? between(colours[0], colours[1], dim[at]) : look.faint) : this.points.length <= FEW ? colours[at % FEW] : colours[0]);
      return {
        parallel: { left: 65, right: 65, top: 40, bottom: 22 },
        parallelAxis: this.axes.map((name, dim) => ({
          dim, name: unmarked(name), type: "value", scale: true, nameTextStyle: { color: look.ink, fontSize: 12, fontWeight: 600 }, nameTruncate: { maxWidth: Math.min(room, 220) },
          axisLine: { lineStyle: { color: look.faint } }, axisLabel: { color: look.faint, fontSize: 11 }, axisTick: { show: false },
        })),
        series: [{
          type: "parallel", smooth: 0.2, lineStyle: { width: 2, opacity: this.points.length > 40 ? 0.5 : 0.9 }, emphasis: { lineStyle: { width: 4, opacity: 1 } },
          data: this.points.map((point, at) => ({ value: point.values.map((value) => value ?? "-"), lineStyle: { color: colour(at) } })),
        }],
      };
    },
  },
};
