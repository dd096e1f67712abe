"""A Spark whose master and workers are small Python programs."""

import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tailrace.cluster import cluster
from tailrace.toolchain import Java

SPARK_CLASS = """\
#!{python}
import http.server, json, os, pathlib, signal, socket, sys

name, _, host, *rest = sys.argv[1:]
spark = pathlib.Path(os.environ["SPARK_HOME"])
assert os.environ["SPARK_LOCAL_IP"] == host == "127.0.0.1"
registered = spark / "registered"
if name.endswith(".Worker"):
    if (spark / "broken").exists():
        print("Exception in thread main\\nCaused by: java.io.IOException: " + (spark / "broken").read_text())
        sys.exit(1)
    port = rest[-1].rpartition(":")[2]
    (registered / f"{{port}}-{{os.getpid()}}").touch()
    signal.pause()
options = dict(zip(rest[::2], rest[1::2]))
port = options["--port"]
listening = socket.create_server((host, int(port)))

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        alive = len(list(registered.glob(f"{{port}}-*")))
        apps = [{{"name": "cards", "cores": 8}}]
        state = {{"url": f"spark://{{host}}:{{port}}", "aliveworkers": alive, "activeapps": apps}}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(state).encode())

    def log_message(self, *_):
        pass

http.server.HTTPServer((host, int(options["--webui-port"])), Page).serve_forever()
"""


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The home of such a Spark; whatever still runs at the end is killed."""
    home = tmp_path / "spark"
    (home / "bin").mkdir(parents=True)
    (home / "registered").mkdir()
    script = home / "bin" / "spark-class"
    script.write_text(SPARK_CLASS.format(python=sys.executable))
    script.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(home))
    java = Java(tmp_path / "java", tmp_path / "java" / "bin" / "java", "17", 17, "PATH")
    monkeypatch.setattr(cluster, "ensure_java", lambda _: java)
    yield home
    for process in psutil.process_iter(["cmdline"]):
        if str(script) in (process.info["cmdline"] or []):
            process.kill()
