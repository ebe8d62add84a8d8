// Bar chart of the newest runs, oldest on the left. Names are drawn on the canvas only, never as markup.
const KINDS = { Completed: "--mlw-good", Failed: "--mlw-bad", Canceled: "--mlw-idle" };
const worn = new Set();
new MutationObserver(() => worn.forEach((chart) => chart.paint())).observe(document.body, { attributeFilter: ["class"] });

const unmarked = (text) => String(text).replaceAll("{", "{\u200b"); // ECharts parses {a|b} as a style
const figure = (value) => (Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4))));

export default {
  template: `<div class="mlw-runchart" ref="box" role="img" :aria-label="summary"></div>`,
  props: { url: String, measure: String, most: Number },
  data() { return { rows: [] }; },
  computed: {
    title() { return this.measure === "duration" ? "duration" : this.measure.replace(/^metrics\./, ""); },
    summary() {
      const counts = {};
      for (const row of this.rows) counts[row.status] = (counts[row.status] || 0) + 1;
      const words = Object.entries(counts).map(([word, count]) => `${count} ${word}`).join(", ");
      return `Newest ${this.rows.length} runs by ${this.title}: ${words}`;
    },
  },
  watch: { url() { this.ask(); }, measure() { this.ask(); } },
  mounted() {
    this.sized = new ResizeObserver(() => this.chart?.resize());
    this.sized.observe(this.$refs.box);
    worn.add(this);
    this.ask();
  },
  unmounted() { worn.delete(this); this.sized.disconnect(); this.chart?.dispose(); this.chart = null; },
  methods: {
    async begin() { // the library is large; the rows below must not wait for it
      const { echarts } = await import("nicegui-echart");
      if (this.chart || !worn.has(this)) return;
      this.chart = echarts.init(this.$refs.box, null, { renderer: "canvas" });
      this.chart.on("click", (bar) => { const row = this.rows[bar.dataIndex]; if (row) window.location.href = window.mlwAddress(`/runs/${encodeURIComponent(row.id)}`); });
    },
    async ask() {
      if (this.measure === "none") return;
      const more = new URLSearchParams({ limit: this.most });
      if (this.measure.startsWith("metrics.")) more.append("column", this.measure);
      try {
        const answer = await fetch(`${window.mlwAddress(this.url)}${this.url.includes("?") ? "&" : "?"}${more}`, { headers: { accept: "application/json" } });
        if (!answer.ok) return; // the grid shows the error
        this.rows = Object.freeze((await answer.json()).rows.reverse());
        await this.begin();
        this.paint();
      } catch { return; }
    },
    value(row) {
      const value = this.measure === "duration" ? row.duration : row.values[this.measure];
      return typeof value === "number" ? value : null;
    },
    paint() {
      if (!this.chart) return;
      const style = getComputedStyle(document.body), ink = (name) => style.getPropertyValue(name).trim();
      const faint = ink("--mlw-faint"), line = ink("--mlw-line");
      this.chart.setOption({
        animation: false, grid: { left: 8, right: 8, top: 22, bottom: 4, containLabel: true },
        xAxis: { type: "category", data: this.rows.map((row) => row.id), axisLabel: { show: false }, axisTick: { show: false }, axisLine: { lineStyle: { color: line } } },
        yAxis: { type: "value", name: this.measure === "duration" ? "duration (s)" : this.title, nameTextStyle: { color: faint, fontSize: 11, align: "left" }, nameGap: 8, splitNumber: 2,
          axisLabel: { color: faint, fontSize: 10 }, splitLine: { lineStyle: { color: line } } },
        tooltip: { trigger: "item", renderMode: "richText", confine: true, backgroundColor: ink("--mlw-soft"), borderColor: line, textStyle: { color: ink("--mlw-ink"), fontSize: 12 },
          formatter: (bar) => { const row = this.rows[bar.dataIndex]; return [row.name || row.id, row.outcome, `${this.title} ${figure(this.value(row))}`].map(unmarked).join("\n"); } },
        series: [{
          type: "bar", barMinHeight: 3, barMaxWidth: 14, barCategoryGap: "25%",
          data: this.rows.map((row) => ({ value: this.value(row), itemStyle: { color: ink(KINDS[row.status] || "--mlw-busy") } })),
        }],
      }, { notMerge: true });
    },
  },
};
