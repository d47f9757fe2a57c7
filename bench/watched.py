"""`python -m bench.watched COMMAND...`: runs it, and says on a last line its seconds and its peak in MiB.

A small process of its own: until it executes something else, a child counts what its parent holds as its own.
"""

import resource
import subprocess
import sys
from time import perf_counter


def main() -> int:
    before = perf_counter()
    status = subprocess.run(sys.argv[1:], check=False).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    mib = used / 2**20 if sys.platform == "darwin" else used / 1024
    print(f"\n{perf_counter() - before:.3f} {mib:.1f}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
