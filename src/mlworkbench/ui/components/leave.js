// Ends the session of this browser; the server then closes the connections of its other tabs.
export default {
  template: `<q-btn flat round dense icon="logout" aria-label="Log out" @click="leave"><q-tooltip>Log out</q-tooltip></q-btn>`,
  methods: {
    async leave() {
      await fetch(window.mlwAddress("/logout"), { method: "POST" });
      location.replace(window.mlwAddress("/login"));
    },
  },
};
