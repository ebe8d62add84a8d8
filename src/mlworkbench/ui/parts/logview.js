// A log of any length: only the lines in sight are in the page. Text goes into text nodes, never into markup.
const ROW = 18; // pixels
const TALLEST = 8_000_000; // pixels; browsers cut higher boxes off, so beyond it the scroll bar stands for the line
const AHEAD = 60; // lines fetched beyond those in sight

export default {
  template: `
    <div class="mlw-log" ref="box" tabindex="0" role="log" aria-live="off" :aria-label="'Log, ' + total + ' lines'"
         @scroll="dragged" @wheel="wheeled" @keydown="pressed">
      <div class="mlw-log-room" :style="{height: room + 'px'}"></div>
      <div class="mlw-log-sight" ref="sight">
        <div v-for="line in shown" :key="line.number" class="mlw-log-line"
             :class="{'mlw-log-hit': hits.has(line.number), 'mlw-log-here': line.number === here}">
          <span class="mlw-log-number" aria-hidden="true">{{ line.number + 1 }}</span><span>{{ line.text }}</span>
        </div>
      </div>
    </div>`,
  props: { url: String, live: Boolean, start: Number },
  data() {
    return { total: 0, top: 0, height: 400, lines: new Map(), hits: new Set(), here: -1, following: this.live && !this.start };
  },
  computed: {
    fit() { return Math.max(1, Math.floor(this.height / ROW)); },
    most() { return Math.max(0, this.total - this.fit); },
    room() { return Math.min(TALLEST, this.total * ROW); },
    shown() {
      const found = [];
      for (let number = Math.floor(this.top); number < Math.min(this.total, this.top + this.fit + 1); number++)
        found.push({ number, text: this.lines.get(number) ?? "" });
      return found;
    },
  },
  mounted() {
    this.observer = new ResizeObserver(() => { this.height = this.$refs.box.clientHeight; this.look(); });
    this.observer.observe(this.$refs.box);
    this.go(this.start || 0);
    this.ticking = setInterval(() => this.live && this.refresh(), 500);
    this.refresh();
  },
  unmounted() { clearInterval(this.ticking); this.observer.disconnect(); },
  methods: {
    async ask(first, count) {
      const answer = await fetch(`${this.url}?first=${first}&count=${count}`, { headers: { accept: "application/json" } });
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      const told = await answer.json();
      if (this.lines.size > 20000) this.lines.clear();
      told.lines.forEach((text, at) => this.lines.set(told.first + at, text));
      this.total = told.total;
      if (told.ended) this.$emit("ended");
      return told;
    },
    async refresh() {
      try {
        this.lines.delete(this.total - 1); // it may have lacked its end
        await this.ask(this.following ? Math.max(0, this.total - this.fit) : Math.floor(this.top), this.fit + AHEAD);
        if (this.following) this.go(this.most);
      } catch (error) { this.$emit("trouble", String(error.message || error)); }
    },
    async look() {
      const first = Math.max(0, Math.floor(this.top) - AHEAD), last = Math.min(this.total, first + this.fit + 2 * AHEAD);
      for (let number = first; number < last; number++)
        if (!this.lines.has(number)) {
          try { await this.ask(number, last - number); } catch (error) { this.$emit("trouble", String(error)); }
          return;
        }
    },
    go(line) {
      this.top = Math.min(Math.max(0, line), this.most);
      const box = this.$refs.box;
      if (!box) return;
      const place = this.most ? (this.top / this.most) * Math.max(0, this.room - this.height) : 0;
      if (Math.abs(box.scrollTop - place) > 1) { this.placed = true; box.scrollTop = place; }
      this.look();
    },
    dragged() { // the bar was moved, by hand or by us
      if (this.placed) { this.placed = false; return; }
      const reach = Math.max(1, this.room - this.height);
      this.top = (this.$refs.box.scrollTop / reach) * this.most;
      this.following = this.live && this.top >= this.most - 1;
      this.look();
    },
    wheeled(event) {
      if (this.room < TALLEST || event.ctrlKey) return; // the browser's own way is exact there
      event.preventDefault();
      this.move(event.deltaY / ROW);
    },
    pressed(event) {
      const far = { ArrowDown: 1, ArrowUp: -1, PageDown: this.fit, PageUp: -this.fit, Home: -this.total, End: this.total }[event.key];
      if (far === undefined) return;
      event.preventDefault();
      this.move(far);
    },
    move(lines) {
      this.following = this.live && this.top + lines >= this.most;
      this.go(this.top + lines);
    },
    mark(numbers, here) { // the lines that a search has found
      this.hits = new Set(numbers);
      this.here = here;
      if (here >= 0) { this.following = false; this.go(here - Math.floor(this.fit / 2)); }
    },
    follow(yes) { this.following = yes; if (yes) this.go(this.most); },
  },
};
