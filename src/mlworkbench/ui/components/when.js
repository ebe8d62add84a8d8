// Timestamp in the time zone of the browser: "3 min ago", with the full time as a tooltip.
const STEPS = [[60, "second", 1], [3600, "minute", 60], [86400, "hour", 3600], [30 * 86400, "day", 86400]];

export function ago(seconds, now) {
  const past = Math.max(0, now - seconds);
  if (past < 5) return "just now";
  for (const [below, unit, length] of STEPS)
    if (past < below) return new Intl.RelativeTimeFormat("en", { style: "short" }).format(-Math.floor(past / length), unit);
  return new Intl.DateTimeFormat("en", { dateStyle: "medium" }).format(seconds * 1000);
}

export default {
  template: `<time :datetime="exact" :title="whole">{{ words }}</time>`,
  props: { moment: Number, relative: Boolean },
  data() { return { now: Date.now() / 1000 }; },
  computed: {
    exact() { return new Date(this.moment * 1000).toISOString(); },
    whole() { return new Intl.DateTimeFormat("en", { dateStyle: "full", timeStyle: "long" }).format(this.moment * 1000); },
    words() {
      if (this.relative) return ago(this.moment, this.now);
      return new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "medium" }).format(this.moment * 1000);
    },
  },
  mounted() { this.ticking = setInterval(() => { this.now = Date.now() / 1000; }, 5000); },
  unmounted() { clearInterval(this.ticking); },
};
