// Log of any length: only visible lines are in the page. Text is rendered as text nodes, never as markup.
const ROW = 18; // pixels
const TALLEST = 8_000_000; // pixels; browsers limit the height of boxes, so beyond it the scroll bar position maps to a line
const AHEAD = 100; // lines fetched beyond the visible ones
const KEPT = 20_000; // lines held in memory
const PAUSE = 1000; // milliseconds between polls of a growing log

const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
// C0 and C1 controls, and invisible characters that reorder or hide text.
const UNSEEN = /[\u0000-\u0008\u000a-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

function seen(text) {
  return text.replace(UNSEEN, (char) => {
    const code = char.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    return code === 0x7f ? "\u2421" : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

// Terminal colors: 16 named ones, a cube of 216, 24 grays, and any other by its RGB values.
const NAMED = [[0, 0, 0], [179, 38, 30], [27, 122, 67], [138, 90, 0], [36, 87, 167], [138, 47, 143], [12, 107, 120], [229, 229, 229]];
const PAPER = [244, 246, 249], SLATE = [29, 35, 44]; // background of the log in the light and the dark theme
const CONTRAST = 4.5;

function parts(number) { // RGB values of color 16 to 255
  if (number >= 232) return Array(3).fill(8 + 10 * (number - 232));
  const step = (value) => (value ? 55 + 40 * value : 0), at = number - 16;
  return [step(Math.floor(at / 36)), step(Math.floor(at / 6) % 6), step(at % 6)];
}

function light(rgb) {
  const [r, g, b] = rgb.map((one) => (one <= 10 ? one / 3294.6 : ((one / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function readable(rgb, ground) { // the same color, made darker or lighter until it is readable on this background
  const below = light(ground), towards = (below + 0.05) / 0.05 > 1.05 / (below + 0.05) ? 0 : 255;
  for (let share = 0; share < 1; share += 0.1) {
    const mixed = rgb.map((one) => Math.round(one + (towards - one) * share)), [low, high] = [light(mixed), below].sort((a, b) => a - b);
    if ((high + 0.05) / (low + 0.05) >= CONTRAST) return mixed;
  }
  return Array(3).fill(towards);
}

function colour(told) { // what follows 38 or 48: an index, three numbers, or no color
  const whole = (one) => Number.isInteger(one) && one >= 0 && one <= 255;
  if (told[0] === 5 && whole(told[1])) return told[1] < 16 ? COLOURS[told[1] % 8] : parts(told[1]);
  if (told[0] === 2 && told.length >= 4 && told.slice(1, 4).every(whole)) return told.slice(1, 4);
  return "";
}

function dressed(words, style) { // apply an escape sequence such as ESC[1;31m
  const next = { ...style };
  const codes = words.map((word) => Number(word.split(":")[0]));
  for (let at = 0; at < codes.length; at++) {
    const code = codes[at];
    if (words[at] === "4:0") next.under = false;
    else if (code === 0) { next.fore = next.back = ""; next.bold = next.faint = next.under = false; }
    else if (code === 1) next.bold = true;
    else if (code === 2) next.faint = true;
    else if (code === 4) next.under = true;
    else if (code === 22) next.bold = next.faint = false;
    else if (code === 24) next.under = false;
    else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) next.fore = COLOURS[code % 10];
    else if (code === 39) next.fore = "";
    else if ((code >= 40 && code <= 47) || (code >= 100 && code <= 107)) next.back = COLOURS[code % 10];
    else if (code === 49) next.back = "";
    else if (code === 38 || code === 48) {
      let told = words[at].split(":").slice(1).map(Number); // 38:2:r:g:b, and 38:2:space:r:g:b
      if (told.length > 4) told = [told[0], ...told.slice(2)];
      if (!told.length) {
        told = codes.slice(at + 1, at + 5);
        at += told[0] === 5 ? 2 : told[0] === 2 ? 4 : 0;
      }
      next[code === 38 ? "fore" : "back"] = colour(told);
    }
  }
  return next;
}

function classes(style) {
  const fore = Array.isArray(style.fore) || Array.isArray(style.back) ? "own" : style.fore;
  return [fore && `mlw-ansi-${fore}`, typeof style.back === "string" && style.back && `mlw-ansi-on-${style.back}`, style.bold && "mlw-ansi-bold",
    style.faint && "mlw-ansi-faint", style.under && "mlw-ansi-under"].filter(Boolean).join(" ");
}

function paint(style) { // contains only numbers, never text of the log
  const rgb = (one) => `rgb(${one.join(" ")})`;
  const fore = Array.isArray(style.fore) ? style.fore : style.fore ? NAMED[COLOURS.indexOf(style.fore)] : null;
  if (Array.isArray(style.back)) {
    const own = rgb(readable(fore || (light(style.back) > 0.18 ? [0, 0, 0] : [255, 255, 255]), style.back));
    return { "--mlw-own": own, "--mlw-own-dark": own, backgroundColor: rgb(style.back) };
  }
  if (!Array.isArray(style.fore)) return null;
  return { "--mlw-own": rgb(readable(fore, PAPER)), "--mlw-own-dark": rgb(readable(fore, SLATE)) };
}

function pieces(text) { // split text by style
  if (!text.includes("\u001b")) return [{ text: seen(text), look: "", paint: null }];
  const found = [];
  let style = {}, at = 0;
  const put = (end) => { if (end > at) found.push({ text: seen(text.slice(at, end)), look: classes(style), paint: paint(style) }); };
  for (const match of text.matchAll(/\u001b\[([0-9;:]{0,40})([mK])/g)) {
    put(match.index);
    at = match.index + match[0].length;
    if (match[2] === "m") style = dressed(match[1].split(";"), style);
  }
  put(text.length);
  return found;
}

export default {
  template: `
    <div class="mlw-log-whole">
      <div class="mlw-log-bar" role="toolbar" aria-label="Log">
        <form class="mlw-log-search" role="search" @submit.prevent="search(1)">
          <input type="search" v-model="text" ref="text" maxlength="500" placeholder="Search" aria-label="Search the log" @keydown.enter.shift.prevent="search(-1)">
          <button type="button" class="mlw-log-button" aria-label="Previous match" :disabled="!hits.length" @click="step(-1)">↑</button>
          <button type="submit" class="mlw-log-button" aria-label="Next match">↓</button>
          <span class="mlw-log-count" role="status">{{ counted }}</span>
        </form>
        <label>Line <input type="number" min="1" class="mlw-log-line-number" @keydown.enter.prevent="jump($event.target.value)" @change="jump($event.target.value)"></label>
        <span class="mlw-log-space"></span>
        <span class="mlw-faint">{{ words }}</span>
        <label v-if="!final"><input type="checkbox" v-model="following" @change="following && go(most)"> Follow</label>
        <label><input type="checkbox" v-model="wrap" @change="go(top)"> Wrap lines</label>
        <a class="mlw-log-button" :href="address('/raw?which=' + which)" download>Download</a>
      </div>
      <div class="mlw-log" :class="{'mlw-log-wrap': wrap}" ref="box" tabindex="0" role="log" aria-live="off" :aria-label="'Log, ' + words"
           @scroll="dragged" @wheel="wheeled" @keydown="pressed">
        <div class="mlw-log-room" :style="{height: room + 'px'}">
          <div class="mlw-log-sight" :style="{height: height + 'px'}">
            <div class="mlw-log-lines" :class="{'mlw-log-below': wrap && following}" :style="{transform: shift}">
              <div v-for="line in shown" :key="line.number" class="mlw-log-line" :data-line="line.number + 1"
                   :class="{'mlw-log-hit': marked.has(line.number), 'mlw-log-here': line.number === here}"><span
                class="mlw-log-number" aria-hidden="true">{{ gap === null || line.number < gap ? line.number + 1 : "" }}</span><span class="mlw-log-text"><span
                v-for="(piece, at) in line.pieces" :key="at" :class="piece.look" :style="piece.paint">{{ piece.text }}</span></span></div>
            </div>
          </div>
        </div>
        <div v-if="trouble" class="mlw-log-trouble" role="alert">{{ trouble }}</div>
      </div>
    </div>`,
  props: { run: String, which: String, start: Number },
  data() {
    return { total: 0, top: 0, height: 400, version: 0, final: true, following: false, wrap: false, trouble: "", asked: false,
      gap: null, indexing: false, text: "", sought: "", hits: [], more: false, rest: null, at: -1, here: -1, busy: false };
  },
  computed: {
    base() { return `/api/runs/${encodeURIComponent(this.run)}/log`; },
    fit() { return Math.max(1, Math.floor(this.height / ROW)); },
    most() { return Math.max(0, this.total - (this.wrap && !this.following ? 1 : this.fit)); },
    room() { return Math.max(this.height, Math.min(TALLEST, (this.most + this.fit) * ROW)); },
    exact() { return this.room < TALLEST; },
    shift() { return this.exact && !this.wrap ? `translateY(${-(this.top - Math.floor(this.top)) * ROW}px)` : "none"; },
    marked() { return new Set(this.hits); },
    words() {
      if (!this.asked) return "";
      const lines = this.gap ?? this.total, rest = this.indexing ? ", indexing" : this.gap === null ? "" : " and the last lines";
      return `${lines.toLocaleString("en")} ${lines === 1 ? "line" : "lines"}${this.final ? "" : " so far"}${rest}`;
    },
    counted() {
      if (this.busy) return "searching…";
      if (!this.sought) return "";
      if (!this.hits.length) return "no matches";
      return `${(this.at + 1).toLocaleString("en")} of ${this.hits.length.toLocaleString("en")}${this.more ? "+" : ""}`;
    },
    shown() {
      this.version; // lines are not reactive, because there are many
      const found = [];
      const last = Math.min(this.total, Math.floor(this.top) + this.fit + 2);
      for (let number = Math.floor(this.top); number < last; number++)
        found.push({ number, pieces: this.lines.get(number) || [] });
      return found;
    },
  },
  created() { this.lines = new Map(); },
  async mounted() {
    this.observer = new ResizeObserver(() => { this.height = this.$refs.box?.clientHeight || 400; this.look(); });
    this.observer.observe(this.$refs.box);
    this.height = this.$refs.box.clientHeight || 400;
    this.ticking = setInterval(() => (!this.final || this.indexing) && !document.hidden && this.refresh(), PAUSE);
    await this.refresh(-this.fit - AHEAD);
    if (this.start > 0) this.jump(this.start);
    else if (this.start < 0) this.go(this.most);
    else if (!this.final) { this.following = true; this.go(this.most); }
    else this.go(0);
  },
  unmounted() { this.gone = true; clearInterval(this.ticking); this.observer.disconnect(); },
  methods: {
    address(path) { return window.mlwAddress(this.base + path); },
    async ask(first, count) {
      const answer = await fetch(this.address(`/lines?first=${first}&count=${count}&which=${this.which}`), { headers: { accept: "application/json" } });
      const told = await answer.json().catch(() => ({}));
      if (!answer.ok) throw new Error([told.error || `the server responded with status ${answer.status}`, told.hint].filter(Boolean).join("; "));
      if (this.lines.size > KEPT || told.total < this.total) this.lines.clear(); // too many lines, or the log was replaced
      // The end of a large log moves, and lines without numbers may have got numbers meanwhile.
      const moved = Math.min(told.gap ?? told.total, this.gap ?? this.total);
      if (told.gap !== null || this.gap !== null) for (const number of this.lines.keys()) if (number >= moved - 1) this.lines.delete(number);
      told.lines.forEach((text, at) => this.lines.set(told.first + at, Object.freeze(pieces(text))));
      this.total = told.total;
      this.final = told.final;
      this.gap = told.gap;
      this.indexing = told.indexing;
      this.asked = true;
      this.trouble = "";
      this.version++;
    },
    async refresh(first) {
      if (this.asking) return;
      this.asking = true;
      try {
        const wanted = first ?? (this.following ? -this.fit - 20 : Math.max(0, Math.min(Math.floor(this.top), this.total - 1)));
        await this.ask(wanted, this.fit + AHEAD);
        if (this.following) this.go(this.most);
        if (this.final) this.following = false;
      } catch (error) { this.trouble = String(error.message || error); this.asked = true; }
      this.asking = false;
    },
    async look() { // fetch visible lines that are missing; during a request, only the latest call waits
      if (this.looking) { this.again = true; return; }
      this.looking = true;
      do {
        this.again = false;
        const first = Math.max(0, Math.floor(this.top) - AHEAD), last = Math.min(this.total, Math.floor(this.top) + this.fit + AHEAD);
        const near = Math.max(0, Math.floor(this.top) - 20), end = Math.min(this.total, Math.floor(this.top) + this.fit + 20);
        for (let number = near; number < end; number++)
          if (!this.lines.has(number)) {
            try { await this.ask(first, last - first); } catch (error) { this.trouble = String(error.message || error); }
            break;
          }
      } while (this.again);
      this.looking = false;
    },
    go(line) {
      this.top = Math.min(Math.max(0, line), this.most);
      this.$nextTick(() => {
        const box = this.$refs.box;
        if (!box) return;
        const place = this.most ? (this.top / this.most) * Math.max(0, this.room - this.height) : 0;
        if (Math.abs(box.scrollTop - place) > 1) { this.placed = Math.round(place); box.scrollTop = place; }
      });
      this.look();
    },
    dragged() { // the scroll bar was moved, by the user or by this code
      const at = this.$refs.box.scrollTop;
      if (this.placed !== undefined && Math.abs(at - this.placed) < 2) { this.placed = undefined; return; }
      this.placed = undefined;
      const reach = Math.max(1, this.room - this.height);
      this.top = Math.min(this.most, (at / reach) * this.most);
      this.following = !this.final && this.top >= this.most - 1;
      this.look();
    },
    wheeled(event) {
      if ((this.exact && !this.wrap) || event.ctrlKey || !event.deltaY) return; // the scrolling of the browser is exact there
      event.preventDefault();
      this.move(event.deltaMode === 1 ? event.deltaY : event.deltaY / ROW);
    },
    pressed(event) {
      if (event.ctrlKey && event.key === "f") { event.preventDefault(); this.$refs.text.focus(); return; }
      const far = { ArrowDown: 1, ArrowUp: -1, PageDown: this.fit - 1, PageUp: 1 - this.fit, Home: -this.total, End: this.total }[event.key];
      if (far === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      this.move(far);
    },
    move(lines) {
      const to = this.top + lines;
      this.following = !this.final && to >= this.most;
      this.go(Math.abs(lines) >= 1 && !this.exact ? Math.round(to) : to);
    },
    jump(line) {
      const number = Math.floor(Number(line)) - 1;
      if (!(number >= 0)) return;
      this.show(Math.min(number, Math.max(0, this.total - 1)));
    },
    show(number) {
      this.here = number;
      this.following = false;
      this.go(number - (this.wrap ? 0 : Math.floor(this.fit / 2)));
    },
    async search(way) {
      if (this.text === this.sought) { this.step(way); return; }
      this.hits = []; this.more = false; this.rest = null; this.at = -1; this.here = -1;
      this.sought = this.text;
      if (!this.sought) return;
      await this.find(0);
      const from = Math.floor(this.top), next = this.hits.findIndex((line) => line >= from);
      if (this.hits.length) this.at = Math.max(0, next);
      if (this.at >= 0) this.show(this.hits[this.at]);
    },
    async find(first) { // each request searches for a limited time; repeat until there is a hit or the end
      const sought = this.sought, before = this.hits.length;
      this.busy = true;
      try {
        do {
          const answer = await fetch(this.address(`/find?which=${this.which}&first=${first}&start=${this.rest ?? 0}&text=${encodeURIComponent(sought)}`), { headers: { accept: "application/json" } });
          const told = await answer.json().catch(() => ({}));
          if (!answer.ok) throw new Error(told.error || `the server responded with status ${answer.status}`);
          if (this.sought !== sought || this.gone) return;
          this.hits = this.hits.concat(told.lines);
          this.more = told.more;
          this.rest = told.rest;
        } while (this.more && this.hits.length === before);
      } catch (error) { this.more = false; this.trouble = String(error.message || error); }
      this.busy = false;
    },
    async step(way) {
      if (!this.hits.length) return;
      if (way > 0 && this.at === this.hits.length - 1 && this.more) await this.find(this.hits.at(-1) + 1);
      this.at = (this.at + way + this.hits.length) % this.hits.length;
      this.show(this.hits[this.at]);
    },
  },
};
