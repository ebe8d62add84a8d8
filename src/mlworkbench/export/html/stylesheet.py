"""The embedded style sheet for light and dark mode. The page's security policy allows no other."""

from __future__ import annotations

import base64
import hashlib

# Colors for light and dark backgrounds that color-blind readers can distinguish.
LIGHT = ("#0b62c4", "#e08a00", "#00936b", "#c81e1e", "#e255a1", "#35b3e8", "#7a2fc0", "#4d4d4d")
DARK = ("#4a90ff", "#ffb000", "#14c98f", "#ff5a4a", "#ff9ad5", "#8be3ff", "#b06cff", "#8f8f8f")


def _curve_colors(colors: tuple[str, ...]) -> str:
    return "".join(f".c{at}{{--c:{color}}}" for at, color in enumerate(colors))


_GROUND = """
:root{color-scheme:light dark;--ground:#f6f7f9;--card:#fff;--text:#1d2430;--soft:#5b6675;--line:#dfe3e8;--head:#f0f2f5;
--good:#12703f;--goodbg:#e2f4e9;--bad:#a8261b;--badbg:#fbe9e7;--warn:#7a5600;--warnbg:#fdf3d8;--info:#0b5cad;--infobg:#e4f0fc}
@media (prefers-color-scheme:dark){:root{--ground:#14181f;--card:#1c222b;--text:#e3e8ef;--soft:#9aa7b6;--line:#323b47;
--head:#252d38;--good:#6fdb9e;--goodbg:#17362a;--bad:#ff9d92;--badbg:#43211e;--warn:#f0cd6e;--warnbg:#3b3116;
--info:#86c1ff;--infobg:#17304b}
"""
_REST = """
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--text);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",sans-serif}
main{max-width:1240px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:26px;line-height:1.25;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:18px;margin:34px 0 12px}
h3{font-size:14px;margin:22px 0 8px;color:var(--soft);font-weight:600}
p{margin:6px 0}.soft{color:var(--soft)}
code,.id{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:13px}
a{color:var(--info);text-decoration:none}a:hover{text-decoration:underline}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px 18px;margin:0 0 14px}
.wide{overflow-x:auto;padding:0}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{padding:7px 12px;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
tr:last-child td,tr:last-child th{border-bottom:0}
thead th{background:var(--head);font-weight:600;white-space:nowrap}
th.group{color:var(--soft);font-weight:400;padding-bottom:0;
border-bottom:0}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td{overflow-wrap:anywhere}.wide td{min-width:72px;max-width:340px}.wide td.name{min-width:200px}
.badge{display:inline-block;padding:1px 9px;border-radius:99px;font-size:12.5px;font-weight:600;white-space:nowrap;
color:var(--info);background:var(--infobg)}
.badge.good{color:var(--good);background:var(--goodbg)}.badge.bad{color:var(--bad);background:var(--badbg)}
.badge.warn{color:var(--warn);background:var(--warnbg)}
.tag{display:inline-block;padding:0 8px;margin:0 4px 4px 0;border-radius:6px;border:1px solid var(--line);
font-size:13px}
.say{border-radius:8px;padding:10px 14px;margin:12px 0;background:var(--infobg);white-space:pre-wrap;
overflow-wrap:anywhere}
.say.bad{background:var(--badbg)}.say.warn{background:var(--warnbg)}.say.good{background:var(--goodbg)}
.say strong{display:block}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,370px),1fr));gap:14px}
.charts .card{margin:0;padding:12px 14px 8px}.charts h3{margin:0 0 4px;color:var(--text);overflow-wrap:anywhere}
.chart{display:block;width:100%;height:auto}
.tick{font-size:13px;fill:var(--soft)}.grid{stroke:var(--line);stroke-width:1}.axis{stroke:var(--soft);stroke-width:1}
.curve{fill:none;stroke:var(--c);stroke-width:1.8;stroke-linejoin:round}.band{fill:var(--c);opacity:.16}.dot{fill:var(--c)}
.d1 .curve{stroke-dasharray:6 4}.d2 .curve{stroke-dasharray:2 3}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:0 0 12px;padding:0;list-style:none;font-size:14px}
.legend li{display:flex;align-items:center;gap:7px;overflow-wrap:anywhere}.legend svg{flex:none}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:0 28px;align-items:start}
dl{display:grid;grid-template-columns:max-content 1fr;gap:3px 18px;margin:10px 0;font-size:14px}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
details.card>summary{cursor:pointer;font-weight:600;overflow-wrap:anywhere}
details.card>summary .badge{margin-left:8px}
details details{margin:12px 0}details details summary{cursor:pointer;color:var(--soft);font-size:14px;font-weight:600}
.pictures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,260px),1fr));gap:14px}
figure{margin:0}figure img{display:block;max-width:100%;max-height:420px;background:#fff;
border:1px solid var(--line);border-radius:6px}
figcaption{font-size:13px;color:var(--soft);overflow-wrap:anywhere}
header{margin-bottom:18px}
footer{margin-top:40px;color:var(--soft);font-size:13px}
@media print{body{background:#fff}.card{break-inside:avoid}}
"""
STYLE = f"{_GROUND}{_curve_colors(DARK)}}}{_REST}".replace(
    "@media (prefers", f"{_curve_colors(LIGHT)}@media (prefers", 1
)

_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
# The page loads nothing and runs no scripts, even if a name contains markup.
POLICY = f"default-src 'none'; style-src 'sha256-{_DIGEST}'; img-src data:; base-uri 'none'; form-action 'none'"
