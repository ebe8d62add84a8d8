// Light, dark, or system theme; stored in this browser only.
const KEY = "mlw-theme";
const NEXT = { auto: "dark", dark: "light", light: "auto" };
const ICONS = { auto: "brightness_auto", dark: "dark_mode", light: "light_mode" };

export default {
  template: `<q-btn flat round dense :icon="icon" :aria-label="'Theme: ' + mode" @click="turn"><q-tooltip>Theme: {{ mode }}</q-tooltip></q-btn>`,
  data() { return { mode: "auto" }; },
  computed: { icon() { return ICONS[this.mode]; } },
  mounted() {
    const kept = localStorage.getItem(KEY);
    if (kept in NEXT) this.mode = kept;
    this.wear();
  },
  methods: {
    turn() { this.mode = NEXT[this.mode]; localStorage.setItem(KEY, this.mode); this.wear(); },
    wear() {
      Quasar.Dark.set(this.mode === "auto" ? "auto" : this.mode === "dark");
      window.dispatchEvent(new CustomEvent("mlw-theme", { detail: Quasar.Dark.isActive }));
    },
  },
};
