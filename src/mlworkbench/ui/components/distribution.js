// Heat map of histograms over steps, or a precision-recall curve with a slider for the step.
import { echarts } from "nicegui-echart";

const charts = new Set(); // to redraw when the theme changes
new MutationObserver(() => charts.forEach((chart) => chart.paint())).observe(document.body, { attributeFilter: ["class"] });

const format = (value) => (Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4))));

export default {
  template: `<div>
    <div ref="box" role="img" :aria-label="summary" style="width: 100%; height: 240px"></div>
    <label v-if="curves && last > 0" class="mlw-faint">Step {{ step }}
      <input type="range" min="0" :max="last" v-model.number="at" :aria-label="'Step of ' + title" :aria-valuetext="'Step ' + step" style="accent-color: var(--mlw-busy)">
    </label>
  </div>`,
  props: { title: String, plot: Object },
  data() { return { at: this.plot.steps.length - 1 }; },
  computed: {
    curves() { return this.plot.kind === "pr_curve"; },
    last() { return this.plot.steps.length - 1; },
    step() { return format(this.plot.steps[this.at]); },
    summary() {
      const { steps, low, high } = this.plot, range = `steps ${format(steps[0])} to ${format(steps[this.last])}`;
      return this.curves ? `${this.title}: precision over recall at step ${this.step}`
        : `${this.title}: histogram, ${range}, values from ${format(low)} to ${format(high)}`;
    },
  },
  watch: { at() { this.paint(); } },
  mounted() {
    this.chart = echarts.init(this.$refs.box, null, { renderer: "canvas" });
    this.resizer = new ResizeObserver(() => this.chart.resize());
    this.resizer.observe(this.$refs.box);
    charts.add(this);
    this.paint();
  },
  unmounted() { charts.delete(this); this.resizer.disconnect(); this.chart.dispose(); },
  methods: {
    paint() {
      const style = getComputedStyle(document.body), ink = (name) => style.getPropertyValue(name).trim();
      const look = { ink: ink("--mlw-ink"), faint: ink("--mlw-faint"), line: ink("--mlw-line"), soft: ink("--mlw-soft"), busy: ink("--mlw-busy") };
      const tooltip = { renderMode: "richText", confine: true, backgroundColor: look.soft, borderColor: look.line, textStyle: { color: look.ink, fontSize: 12 } };
      this.chart.setOption({ animation: false, ...(this.curves ? this.curve(look, tooltip) : this.heat(look, tooltip)) }, { notMerge: true });
    },
    axis(look, name, more) {
      return { name, nameLocation: "middle", nameTextStyle: { color: look.faint, fontSize: 11 }, axisLabel: { color: look.faint, fontSize: 11, hideOverlap: true }, axisLine: { lineStyle: { color: look.line } }, splitLine: { lineStyle: { color: look.line } }, ...more };
    },
    heat(look, tooltip) {
      const { steps, low, high, rows } = this.plot, size = rows[0].length;
      const edge = (index) => low + ((high - low) * index) / size, category = { type: "category", splitLine: { show: false }, axisTick: { show: false } };
      const cells = rows.flatMap((row, x) => row.map((value, y) => [x, y, value]).filter((cell) => cell[2] > 0));
      return {
        grid: { left: 56, right: 12, top: 8, bottom: 40 },
        xAxis: this.axis(look, "Step", { ...category, nameGap: 24, data: steps.map(format) }),
        yAxis: this.axis(look, "", { ...category, data: Array.from({ length: size }, (_, index) => format(edge(index + 0.5))), axisLabel: { color: look.faint, fontSize: 11, interval: 7 } }),
        visualMap: { show: false, min: 0, max: 100, inRange: { color: [look.soft, look.busy] } },
        tooltip: { ...tooltip, formatter: ({ value: [x, y, value] }) => `Step ${format(steps[x])}\n${format(edge(y))} to ${format(edge(y + 1))}\n${value} % of the largest bin` },
        series: [{ type: "heatmap", data: cells }],
      };
    },
    curve(look, tooltip) {
      return {
        grid: { left: 48, right: 12, top: 12, bottom: 40 },
        xAxis: this.axis(look, "Recall", { type: "value", min: 0, max: 1, nameGap: 24 }),
        yAxis: this.axis(look, "Precision", { type: "value", min: 0, max: 1, nameGap: 32 }),
        tooltip: { ...tooltip, trigger: "item", formatter: ({ value: [recall, precision] }) => `Recall ${format(recall)}\nPrecision ${format(precision)}` },
        series: [{ type: "line", data: this.plot.rows[this.at], color: look.busy, symbolSize: 4, lineStyle: { width: 1.6 } }],
      };
    },
  },
};
