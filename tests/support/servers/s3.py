"""An S3 server on a free port of this machine, whose URL it prints. It keeps everything in memory.

`python s3.py [strict]`: a strict one checks signatures and rights from the first request on. A page of a listing has a
hundred names, so that a test of many pages stores few objects.
"""

import os
import sys

if "strict" in sys.argv:
    os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "0"
os.environ["MOTO_S3_DEFAULT_MAX_KEYS"] = "100"

from moto.server import (  # its own program takes them from here
    DomainDispatcherApplication,  # pyright: ignore[reportPrivateImportUsage]
    create_backend_app,  # pyright: ignore[reportPrivateImportUsage]
)
from werkzeug.serving import make_server

if __name__ == "__main__":
    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
    print(f"http://127.0.0.1:{server.port}", flush=True)
    server.serve_forever()
