"""Serves the artifacts on loopback: as files below /dist, and as the npm registry that they are published in.

python3 server.py DIR PORT-FILE
"""

import base64
import hashlib
import http.server
import json
import os
import sys
import tarfile
import urllib.parse

root, port_file = sys.argv[1], sys.argv[2]


def packages():
    found = {}
    for name in sorted(os.listdir(root)):
        if not name.endswith(".tgz"):
            continue
        path = os.path.join(root, name)
        with tarfile.open(path) as archive:
            manifest = json.load(archive.extractfile("package/package.json"))
        with open(path, "rb") as file:
            digest = base64.b64encode(hashlib.sha512(file.read()).digest()).decode()
        found[manifest["name"]] = (manifest, name, f"sha512-{digest}")
    return found


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = urllib.parse.unquote(urllib.parse.urlparse(self.path).path)
        if path.startswith("/dist/"):
            return self.file(os.path.join(root, os.path.basename(path)))
        if path[1:] in PACKAGES:
            return self.manifest(*PACKAGES[path[1:]])
        self.send_error(404)

    def file(self, path):
        try:
            with open(path, "rb") as file:
                self.answer(file.read(), "application/octet-stream")
        except OSError:
            self.send_error(404)

    def manifest(self, manifest, name, integrity):
        version = manifest["version"]
        tarball = f"http://127.0.0.1:{self.server.server_port}/dist/{name}"
        one = dict(manifest, dist={"tarball": tarball, "integrity": integrity})
        all_versions = {"name": manifest["name"], "dist-tags": {"latest": version}, "versions": {version: one}}
        self.answer(json.dumps(all_versions).encode(), "application/json")

    def answer(self, body, kind):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


PACKAGES = packages()
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
with open(port_file + ".new", "w") as file:
    file.write(str(server.server_port))
os.rename(port_file + ".new", port_file)
server.serve_forever()
