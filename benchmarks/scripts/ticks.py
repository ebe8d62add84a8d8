"""Print the time repeatedly, at a fixed interval."""

import sys
import time

for _ in range(int(sys.argv[1])):
    time.sleep(float(sys.argv[2]))
    print(time.monotonic_ns(), flush=True)
