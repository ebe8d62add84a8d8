// Companion of an editor: Ctrl-S anywhere on the page, theme, label for screen readers, and edits made while the
// server was unreachable. Edits are stored in this tab only and restored when the file is opened again.
const KEEP = 700; // milliseconds

export default {
  template: "<span hidden></span>",
  props: { editor: Number, label: String, place: String },
  async mounted() {
    this.onKey = event => {
      if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "s") {
        event.preventDefault();
        this.$emit("save");
      }
    };
    this.onTheme = () => this.wear();
    window.addEventListener("keydown", this.onKey);
    window.addEventListener("mlw-theme", this.onTheme);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", this.onTheme);
    const kept = sessionStorage.getItem(this.place);
    if (kept !== null) {
      sessionStorage.removeItem(this.place);
      this.$emit("found", kept);
    }
    for (let tries = 0; tries < 100 && !this.view(); tries++) await new Promise(done => setTimeout(done, 20));
    this.view()?.contentDOM.setAttribute("aria-label", this.label);
    this.view()?.contentDOM.setAttribute("tabindex", "0");
    this.wear();
    this.ticking = setInterval(this.keep, KEEP);
  },
  unmounted() {
    window.removeEventListener("keydown", this.onKey);
    window.removeEventListener("mlw-theme", this.onTheme);
    matchMedia("(prefers-color-scheme: dark)").removeEventListener("change", this.onTheme);
    clearInterval(this.ticking);
  },
  methods: {
    element() { return this.$root.$refs[`r${this.editor}`]; }, // the page may not be complete yet
    view() { return this.element()?.editor; },
    wear() { if (this.view()) this.element().setTheme(Quasar.Dark.isActive ? "vscodeDark" : "vscodeLight"); },
    keep() {
      const view = this.view();
      if (!view || window.socket?.connected !== false) return;
      sessionStorage.setItem(this.place, view.state.doc.toString());
    },
  },
};
