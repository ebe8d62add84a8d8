// Shows a notice when the session has expired. Without it the page would try to reconnect forever.
const PAUSE = 3000; // milliseconds

export default {
  template: `<div v-if="moved" class="mlw-out" role="alert">Your session has expired: <code>mlw ui</code> was restarted and has a new address. Close this page and run <code>mlw ui</code> to open a new link.</div>
    <div v-else-if="out" class="mlw-out" role="alert">You are logged out. Run <code>mlw ui</code> to open a new link, then reload this page to continue.
    <button type="button" @click="again">Reload</button></div>`,
  data() { return { out: false, moved: false }; },
  mounted() { this.ticking = setInterval(() => this.look(), PAUSE); },
  unmounted() { clearInterval(this.ticking); },
  methods: {
    async look() {
      if (document.hidden || window.socket?.connected) return;
      let status = 0;
      try { status = (await fetch(window.mlwAddress("/api/openapi.json"), { method: "HEAD" })).status; } catch {} // the server is unreachable; NiceGUI shows that
      this.out = status === 401;
      this.moved = status === 421; // the host name belongs to an earlier server
    },
    again() { location.reload(); },
  },
};
