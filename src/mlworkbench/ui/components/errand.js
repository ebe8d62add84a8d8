// Live output of an operation. Text is rendered as text nodes, never as markup.
const KINDS = ["error", "hint", "warning", "note"];
const MOST = 5000; // maximum number of lines in the page
const PAUSE = 400; // milliseconds between polls

export default {
  template: `
    <div v-show="!below || shown.length" class="mlw-errand" ref="box" role="log" tabindex="0" :aria-label="label" @scroll="scrolled">
      <div v-for="line in shown" :key="line.number" class="mlw-errand-line" :class="'mlw-errand-' + line.kind">{{ line.text }}</div>
      <div v-if="code === null && !trouble" class="mlw-errand-line mlw-faint">…</div>
      <div v-if="trouble" class="mlw-errand-line mlw-errand-warning">{{ trouble }}</div>
    </div>`,
  props: { name: String, label: String, below: Boolean },
  data() { return { lines: [], said: 0, code: null, trouble: "", atEnd: true, error: null, hint: null }; },
  computed: {
    shown() { // without the error that is shown below
      if (!this.below || this.error === null) return this.lines;
      const told = [this.error, `error: ${this.error}`, this.hint && `hint: ${this.hint}`];
      return this.lines.filter((line) => !told.includes(line.text));
    },
  },
  mounted() { this.look(); },
  unmounted() { clearTimeout(this.ticking); this.gone = true; },
  methods: {
    async look() {
      try {
        const answer = await fetch(window.mlwAddress(`/api/operations/${encodeURIComponent(this.name)}?first=${this.said}`));
        if (answer.status === 404) {
          this.trouble = "The server no longer tracks this operation; the command keeps running.";
          return;
        }
        if (!answer.ok) throw new Error(`the server responded with status ${answer.status}`);
        this.take(await answer.json());
        this.trouble = "";
      } catch (error) { this.trouble = `cannot reach the server: ${error.message || error}`; }
      if (this.code === null && !this.gone) this.ticking = setTimeout(this.look, PAUSE);
    },
    take(told) {
      const first = told.total - told.lines.length;
      told.lines.forEach((text, at) => {
        const kind = KINDS.find((one) => text.startsWith(one + ": ")) || "said";
        this.lines.push({ number: first + at, text: text || "\u00a0", kind });
      });
      if (this.lines.length > MOST) this.lines.splice(0, this.lines.length - MOST);
      this.said = told.total;
      this.code = told.code;
      this.error = told.error;
      this.hint = told.hint;
      this.$nextTick(() => { if (this.atEnd && this.$refs.box) this.$refs.box.scrollTop = this.$refs.box.scrollHeight; });
      if (told.code !== null) this.$emit("ended", told.code);
    },
    scrolled() {
      const box = this.$refs.box;
      this.atEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 20;
    },
  },
};
