// Says so when this browser is no longer let in: without a word, the page would try to reconnect for ever.
const PAUSE = 3000; // milliseconds

export default {
  template: `<div v-if="out" class="mlw-out" role="alert">You are logged out. Type <code>mlw ui</code> again: it opens a new link, and this page goes on where it was when you load it again.
    <button type="button" @click="again">Load again</button></div>`,
  data() { return { out: false }; },
  mounted() { this.ticking = setInterval(() => this.look(), PAUSE); },
  unmounted() { clearInterval(this.ticking); },
  methods: {
    async look() {
      if (document.hidden || window.socket?.connected) return;
      try { this.out = (await fetch(window.mlwAddress("/api/openapi.json"), { method: "HEAD" })).status === 401; } catch { this.out = false; } // the server is away, and NiceGUI says so
    },
    again() { location.reload(); },
  },
};
