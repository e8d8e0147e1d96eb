"""One node of a real Kubernetes in namespaces of its own: no port, rule, mount or process of it is seen outside.

    unshare -fpmn --kill-child --mount-proc python3 tests/kubernetes/cluster.py CACHE STATE CGROUP

Writes STATE/ready when pods can run, then starts the API server again whenever it ends. It ends with its namespaces. STATE
then has `kubeconfig` (a user with the rights that the documentation names, and no others), the log of each component, and
`kube-apiserver.pid`. On 127.0.0.1:8001 an administrator's requests are answered without TLS and token, for the tests.
"""

import base64
import http.client
import http.server
import json
import os
import pathlib
import secrets
import ssl
import subprocess
import sys
import threading
import time

CACHE, STATE = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
CGROUP = sys.argv[3]
ADDRESS = "10.88.0.1"
SERVER = f"https://{ADDRESS}:6443"
BIN, ROOT = CACHE / "bin", CACHE / "root"
READY_SECONDS = 240
TOKENS = {name: secrets.token_hex(16) for name in ("admin", "node", "stead")}
ENVIRONMENT = {"PATH": f"{BIN}:{ROOT}/usr/bin:{ROOT}/usr/sbin:{ROOT}/sbin:{os.environ['PATH']}", "HOME": str(STATE)}
# What the provider needs; docs/how-to/kubernetes.md has the same.
RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "create", "delete"]},
    {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]},
    {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["get", "list", "create", "delete"]},
]


def run(*command, **more):
    subprocess.run([str(word) for word in command], check=True, env=ENVIRONMENT, **more)


def start(name, *arguments):
    log = open(STATE / f"{name}.log", "ab")
    command = [name, *(str(argument) for argument in arguments)]
    return subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def write(name, text):
    path = STATE / name
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


def wait(what, condition):
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            if condition():
                return
        except (OSError, http.client.HTTPException, ValueError):
            pass
        if time.monotonic() > deadline:
            sys.exit(f"kubernetes: {what}: not in {READY_SECONDS} s; see the logs in {STATE}")
        time.sleep(0.2)


def isolate():
    """Lets the kubelet believe that it has changed the machine, which it must not."""
    for directory in ("/run", "/var/log"):
        run("mount", "-t", "tmpfs", "tmpfs", directory)
    kept = STATE / "volumes"
    kept.mkdir()
    pathlib.Path("/tmp/hostpath_pv").mkdir(exist_ok=True)
    run("mount", "--bind", kept, "/tmp/hostpath_pv")
    values = {
        "vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
        "kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
    }
    for name, value in values.items():
        run("mount", "--bind", write(name.replace("/", "-"), value + "\n"), f"/proc/sys/{name}")
    for controller in pathlib.Path("/sys/fs/cgroup").iterdir():
        if (controller / "cgroup.procs").exists() and controller.name != "unified":
            (controller / CGROUP).mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                if (controller / name).exists():
                    (controller / CGROUP / name).write_text((controller / name).read_text())
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "cni0", "type", "bridge")
    run("ip", "address", "add", f"{ADDRESS}/24", "dev", "cni0")
    run("ip", "link", "set", "cni0", "up")
    run("ip", "route", "add", "default", "dev", "cni0")


def certificates():
    quiet = {"stderr": subprocess.DEVNULL, "cwd": STATE}
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test", "-days", "2",
        "-keyout", "ca.key", "-out", "ca.crt", **quiet)
    run("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=kube-apiserver", "-keyout", "server.key",
        "-out", "server.csr", **quiet)
    names = write("names", f"subjectAltName=IP:127.0.0.1,IP:{ADDRESS},IP:10.96.0.1\nbasicConstraints=CA:FALSE\n")
    run("openssl", "x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
        "-days", "2", "-extfile", names, "-out", "server.crt", **quiet)
    run("openssl", "genrsa", "-out", "accounts.key", "2048", **quiet)
    lines = [
        f'{TOKENS["admin"]},admin,admin,"system:masters"',
        f'{TOKENS["node"]},system:node:node1,node,"system:nodes"',
        f'{TOKENS["stead"]},stead,stead',
    ]
    write("tokens.csv", "\n".join(lines) + "\n")
    for name, token in TOKENS.items():
        write("kubeconfig" if name == "stead" else f"{name}.kubeconfig", kubeconfig(token))


def kubeconfig(token):
    authority = base64.b64encode((STATE / "ca.crt").read_bytes()).decode()
    return f"""apiVersion: v1
kind: Config
clusters:
- cluster:
    certificate-authority-data: {authority}
    server: {SERVER}
  name: test
contexts:
- context:
    cluster: test
    namespace: agents
    user: test
  name: test
current-context: test
users:
- name: test
  user:
    token: {token}
"""


def request(method, path, body=None, headers=None):
    """A request of the administrator."""
    context = ssl.create_default_context(cafile=STATE / "ca.crt")
    connection = http.client.HTTPSConnection(ADDRESS, 6443, context=context, timeout=60)
    body = json.dumps(body) if isinstance(body, dict) else body
    sent = {"Authorization": f"Bearer {TOKENS['admin']}", "Content-Type": "application/json", **(headers or {})}
    try:
        connection.request(method, path, body, sent)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def create(path, body):
    status, answer = request("POST", path, body)
    if status not in (201, 409):
        raise OSError(f"{path}: {status} {answer.decode()}")
    return True


class Administrator(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            status, answer = request(self.command, self.path, body)
        except OSError as error:
            status, answer = 502, json.dumps({"message": str(error)}).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_DELETE = do_PUT = answer

    def log_message(self, *_):
        pass


def api_server():
    process = start(
        "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--secure-port=6443", "--bind-address=0.0.0.0",
        f"--advertise-address={ADDRESS}", f"--tls-cert-file={STATE}/server.crt",
        f"--tls-private-key-file={STATE}/server.key", f"--token-auth-file={STATE}/tokens.csv",
        "--authorization-mode=Node,RBAC", "--service-cluster-ip-range=10.96.0.0/16",
        "--service-account-issuer=https://test", f"--service-account-signing-key-file={STATE}/accounts.key",
        f"--service-account-key-file={STATE}/accounts.key", "--allow-privileged=true",
        "--kubelet-preferred-address-types=InternalIP", f"--cert-dir={STATE}/certificates",
        f"--audit-log-path={STATE}/audit.log", f"--audit-policy-file={STATE}/audit.yaml",
    )
    write("pid.new", str(process.pid)).rename(STATE / "kube-apiserver.pid")
    return process


def control_plane():
    etcd = "http://127.0.0.1:2379"
    start("etcd", f"--data-dir={STATE}/etcd", f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}",
          "--listen-peer-urls=http://127.0.0.1:2380", "--unsafe-no-fsync")
    write("audit.yaml", {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [
        {"level": "Metadata", "users": ["stead"], "omitStages": ["RequestReceived"]}, {"level": "None"}]})
    server = api_server()
    wait("the API server", lambda: request("GET", "/readyz")[0] == 200)
    config = f"--kubeconfig={STATE}/admin.kubeconfig"
    start("kube-controller-manager", config, "--leader-elect=false", "--enable-hostpath-provisioner=true", "--port=0",
          f"--service-account-private-key-file={STATE}/accounts.key", f"--root-ca-file={STATE}/ca.crt",
          f"--cert-dir={STATE}/certificates")
    start("kube-scheduler", config, "--leader-elect=false", "--port=0", "--secure-port=0")
    return server


def node():
    runtime = STATE / "containerd"
    socket = runtime / "containerd.sock"
    (runtime / "cni").mkdir(parents=True)
    write("containerd/cni/10-pods.conflist", {"cniVersion": "0.4.0", "name": "pods", "plugins": [{
        "type": "bridge", "bridge": "cni0", "isGateway": True,
        "ipam": {"type": "host-local", "subnet": "10.88.0.0/24", "dataDir": f"{runtime}/addresses",
                 "routes": [{"dst": "0.0.0.0/0"}]}}]})
    plugins = next(path for path in (ROOT / "usr/lib/cni", ROOT / "opt/cni/bin") if path.is_dir())
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    write("containerd/config.toml", f"""version = 2
root = "{runtime}/root"
state = "{runtime}/state"
[grpc]
address = "{socket}"
[{cri}]
sandbox_image = "stead.test/pause:1"
restrict_oom_score_adj = true
disable_apparmor = true
[{cri}.cni]
bin_dir = "{plugins}"
conf_dir = "{runtime}/cni"
[{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{cri}.containerd.runtimes.runc.options]
SystemdCgroup = false
""")
    start("containerd", "--config", runtime / "config.toml")
    ctr = ("ctr", "--address", socket, "--namespace", "k8s.io")
    wait("containerd", lambda: subprocess.run([*ctr, "version"], env=ENVIRONMENT, capture_output=True).returncode == 0)
    for image in sorted((STATE / "images").glob("*.tar")):
        run(*ctr, "images", "import", image, stdout=subprocess.DEVNULL)
    config = write("kubelet.yaml", {
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"}, "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{CGROUP}",
        "failSwapOn": False, "makeIPTablesUtilChains": False, "healthzPort": 0, "readOnlyPort": 0,
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%",
                         "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
        "resolvConf": str(write("resolv.conf", f"nameserver {ADDRESS}\n")),
        "volumePluginDir": f"{STATE}/plugins", "maxPods": 60,
    })
    start("kubelet", f"--config={config}", f"--kubeconfig={STATE}/node.kubeconfig", "--container-runtime=remote",
          f"--container-runtime-endpoint=unix://{socket}", "--hostname-override=node1", f"--node-ip={ADDRESS}",
          f"--root-dir={STATE}/kubelet", f"--cert-dir={STATE}/certificates")


def objects():
    for namespace in ("agents", "full"):
        create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        create(f"{rbac}/roles", {"metadata": {"name": "stead"}, "rules": RULES})
        create(f"{rbac}/rolebindings", {
            "metadata": {"name": "stead"}, "subjects": [{"kind": "User", "name": "stead"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "stead"}})
    # Nothing may be created in this one.
    create("/api/v1/namespaces/full/resourcequotas", {
        "metadata": {"name": "team-budget"}, "spec": {"hard": {"limits.memory": "32Mi"}}})
    create("/apis/storage.k8s.io/v1/storageclasses", {
        "metadata": {"name": "kept", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "kubernetes.io/host-path", "reclaimPolicy": "Delete"})


def usable():
    nodes = json.loads(request("GET", "/api/v1/nodes")[1])["items"]
    conditions = [condition for node in nodes for condition in node["status"].get("conditions", [])]
    ready = any(it["type"] == "Ready" and it["status"] == "True" for it in conditions)
    tainted = any(node["spec"].get("taints") for node in nodes)
    accounts = [request("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default")[0] for name in ("agents", "full")]
    return ready and not tainted and accounts == [200, 200]


def main():
    isolate()
    certificates()
    server = control_plane()
    wait("the objects of the tests", lambda: objects() is None)
    node()
    wait("the node", usable)
    administrator = http.server.ThreadingHTTPServer(("127.0.0.1", 8001), Administrator)
    threading.Thread(target=administrator.serve_forever, daemon=True).start()
    write("ready.new", "").rename(STATE / "ready")
    while True:
        server.wait()
        server = api_server()


main()
