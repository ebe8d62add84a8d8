// Live GPU gauges of a machine. Polls only while the page and the card are visible.
const PAUSE = 2; // seconds
const GIB = 2 ** 30;

export default {
  template: `
    <div class="mlw-gauges" ref="box">
      <div class="mlw-gauges-line" :class="sign.kind" role="status">
        <q-icon :name="sign.icon" aria-hidden="true" /><span>{{ sign.words }}</span>
      </div>
      <div v-if="told && told.state === 'no contact' && told.hint" class="mlw-faint mlw-said">{{ told.hint }}</div>
      <div v-for="gpu in cards" :key="gpu.key" class="mlw-gpu" :class="{'mlw-gpu-old': told.state !== 'ok'}">
        <div class="mlw-gpu-head"><strong>{{ gpu.title }}</strong><span class="mlw-faint">{{ gpu.figures }}</span></div>
        <div v-for="bar in gpu.bars" :key="bar.label" class="mlw-meter-row">
          <span class="mlw-meter-label">{{ bar.label }}</span>
          <div class="mlw-meter" role="meter" :aria-label="gpu.title + ' ' + bar.label" aria-valuemin="0" aria-valuemax="100"
               :aria-valuenow="bar.share ?? 0" :aria-valuetext="bar.words">
            <div class="mlw-meter-fill" :class="{'mlw-meter-high': bar.share >= 90}" :style="{width: (bar.share ?? 0) + '%'}"></div>
          </div>
          <span class="mlw-meter-words">{{ bar.words }}</span>
        </div>
        <div class="mlw-said" :class="gpu.bad ? 'mlw-bad' : 'mlw-faint'">{{ gpu.user }}</div>
      </div>
    </div>`,
  props: { url: String, distant: Boolean, worst: String, why: String },
  data() { return { told: null, seen: false, trouble: "" }; },
  computed: {
    cards() { return this.told ? this.told.gpus.map(this.drawn) : []; },
    sign() {
      if (this.trouble) return { icon: "link_off", kind: "mlw-warn", words: this.trouble };
      const told = this.told;
      if (!told || told.state === "asking") return { icon: "hourglass_empty", kind: "mlw-faint", words: "connecting…" };
      if (told.state === "no contact") {
        const words = `unreachable: ${told.message}; retrying every ${Math.round(told.again)} s`;
        return { icon: "link_off", kind: "mlw-bad", words };
      }
      const way = this.distant ? "reachable" : "this machine";
      const sign = { icon: this.distant ? "link" : "computer", kind: "mlw-good", words: way };
      if (this.worst === "error") return { icon: "error", kind: "mlw-bad", words: `${way}; ${this.why}` };
      if (told.problem) return { icon: "warning", kind: "mlw-warn", words: `${way}; GPUs: ${told.problem}` };
      if (this.worst) return { icon: "warning", kind: "mlw-warn", words: `${way}; ${this.why}` };
      if (told.note) return { ...sign, words: `${way}; ${told.note}` };
      if (!told.gpus.length) return { ...sign, words: `${way}; no NVIDIA GPU` };
      const parts = [told.driver && `driver ${told.driver}`, told.cuda && `CUDA ${told.cuda}`].filter(Boolean);
      return { ...sign, words: [way, ...parts].join(", ") };
    },
  },
  mounted() {
    this.observer = new IntersectionObserver((all) => {
      const before = this.seen;
      this.seen = all[all.length - 1].isIntersecting;
      if (this.seen && !before) this.soon(0);
    });
    this.observer.observe(this.$refs.box);
    this.shown = () => { if (!document.hidden) this.soon(0); };
    document.addEventListener("visibilitychange", this.shown);
  },
  unmounted() {
    clearTimeout(this.ticking);
    this.observer.disconnect();
    document.removeEventListener("visibilitychange", this.shown);
    this.gone = true;
  },
  methods: {
    soon(seconds) {
      clearTimeout(this.ticking);
      if (!this.gone) this.ticking = setTimeout(this.ask, 1000 * seconds);
    },
    async ask() {
      if (this.asking || !this.seen || document.hidden) return; // polling resumes when it becomes visible
      this.asking = true;
      try {
        const answer = await fetch(window.mlwAddress(this.url));
        const told = await answer.json();
        if (!answer.ok) throw new Error(told.error || `the server responded with status ${answer.status}`);
        this.told = told;
        this.trouble = "";
      } catch (error) { this.trouble = String(error.message || error); }
      this.asking = false;
      this.soon(Math.max(PAUSE, this.trouble ? 5 : Math.min(this.told.again, 10)));
    },
    drawn(gpu, at) {
      const gib = (count) => (count / GIB).toFixed(1);
      const power = gpu.power === null ? null : `${Math.round(gpu.power)} W` + (gpu.power_limit ? ` of ${Math.round(gpu.power_limit)}` : "");
      const figures = [gpu.temperature === null ? null : `${gpu.temperature} °C`, power, gpu.slices.join(", ") || null];
      const used = gpu.memory_total && gpu.memory_used !== null ? Math.round((100 * gpu.memory_used) / gpu.memory_total) : null;
      return {
        key: gpu.uuid || at,
        title: `GPU ${gpu.index ?? at} ${gpu.name || ""}`.trim(),
        figures: figures.filter(Boolean).join(" · "),
        bars: [
          { label: "Utilization", share: gpu.utilisation, words: gpu.utilisation === null ? "unknown" : `${gpu.utilisation} %` },
          { label: "Memory", share: used, words: used === null ? "unknown" : `${gib(gpu.memory_used)} of ${gib(gpu.memory_total)} GiB` },
        ],
        user: gpu.used_by ? (gpu.error ? gpu.used_by : `used by ${gpu.used_by}`) : gpu.utilisation ? "used by unknown processes" : "idle",
        bad: Boolean(gpu.error),
      };
    },
  },
};
