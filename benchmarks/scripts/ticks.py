"""Print the time, so often, at such distances."""

import sys
import time

for _ in range(int(sys.argv[1])):
    time.sleep(float(sys.argv[2]))
    print(time.monotonic_ns(), flush=True)
