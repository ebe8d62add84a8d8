import re, sys, time
sys.path.insert(0, "/work/ui")
from pathlib import Path
from contextlib import closing
from tests.machines.browser import looking
from tests.e2e.test_ui_run import submitted, tab
BIG = """
import os
from mlworkbench import log
os.makedirs("outputs/outputs", exist_ok=True)
for at in range(2600):
    open("outputs/f%05d.txt" % at, "w").write("content %d" % at)
open("outputs/outputs/x.txt", "w").write("below"); open("outputs/x.txt","w").write("above")
import sys
for at in range(10000):
    log("metric/%05d" % at, at + len(sys.argv[1]))
for at in range(20000): sys.stdout.write("\\r%3d%% epoch |%s| %d/20000" % (at/200, "#"*40, at))
"""
MANY = """
import sys
from mlworkbench import log
for step in range(60): log("loss", (1+int(sys.argv[1]))/(step+1.0), step=step)
"""
def test_big(user, tmp_path):
    root = user.project("demo", big=BIG, many=MANY)
    (root/"lib").mkdir()
    for at in range(3000): (root/"lib"/f"m{at:04}.py").write_text("x=1\n")
    a = submitted(user, root, "big.py", "a"); 
    for at in range(3000): (root/"lib"/f"m{at:04}.py").write_text("x=2\n")
    b = submitted(user, root, "big.py", "bb")
    runs = [submitted(user, root, "many.py", str(n)) for n in range(12)]
    with looking(user, root, tmp_path) as looker:
        def timed(name, f):
            t=time.time(); f(); print(name, "%.2f s"%(time.time()-t))
        page = looker.go(f"/runs/{a}")
        def outs():
            tab(page, "Outputs"); page.get_by_role("button", name="f00003.txt").wait_for()
        timed("outputs", outs)
        timed("click", lambda: (page.get_by_role("button", name="f00003.txt").click(), page.get_by_text("content 3", exact=True).wait_for()))
        def seek():
            page.get_by_label("Search files").fill("2599"); page.get_by_role("button", name="f02599.txt").click(); page.get_by_text("content 2599").wait_for()
        timed("search", seek)
        page.screenshot(path="/tmp/s5/big-outputs.png")
        page.get_by_role("button", name="outputs", exact=True).click()
        page.locator(".mlw-run-browse-name .mlw-said", has_text=re.compile("^outputs$")).click(timeout=4000)
        page.get_by_role("button", name="x.txt").click(); page.get_by_text("below", exact=True).wait_for()
        timed("code", lambda: (tab(page, "Code"), page.get_by_role("button", name="lib/m0003.py").wait_for()))
        timed("diff", lambda: (page.get_by_role("button", name="What has changed since").click(), page.locator(".mlw-diffline-new").first.wait_for()))
        page.screenshot(path="/tmp/s5/big-code.png")
        tab(page, "Log"); page.get_by_text("19999/20000").wait_for()
        page.screenshot(path="/tmp/s5/big-log.png")
        timed("metrics", lambda: (tab(page, "Metrics"), page.get_by_text("metric/00003", exact=True).first.wait_for()))
        timed("compare", lambda: (looker.go(f"/compare?runs={a},{b}"), page.get_by_role("region", name="Metrics").wait_for()))
        timed("seek", lambda: (page.get_by_label("Search metrics").fill("09999"), page.get_by_role("rowheader", name="metric/09999").wait_for()))
        page.screenshot(path="/tmp/s5/big-compare.png")
        timed("compare12", lambda: (looker.go(f"/compare?runs={','.join(runs)}"), page.get_by_role("region", name="Metrics").wait_for()))
        chart = page.get_by_role("group", name=re.compile("^loss: .*last")); chart.wait_for(); chart.scroll_into_view_if_needed()
        page.wait_for_timeout(500)
        chart.screenshot(path="/tmp/s5/big-chart.png")
        looker.must_be_content()
