"""Compares a page's commands for a cluster with the chart, without a cluster.

main.py imports this module. The real helm renders `helm install`, with the same chart and values.
The result must contain everything that later commands name: the namespace, the chart's tests, the
policy that a label opens, the service and the port that a pod calls, its image. Only `./run image`
builds and tests the image itself; here its archive, name and version from deploy/image.sh must
match the chart. The pod's commands run here, against the server at `address`.
"""

import os
import shlex
import subprocess

KUBERNETES = "1.30.0"


class Mismatch(Exception):
    pass


def hold(condition, what):
    if not condition:
        raise Mismatch(what)


def helm_template(words, root, path):
    """Returns the objects of `helm install NAME CHART ...`."""
    import yaml  # Debian's python3-yaml, which only these pages need

    words = [word for word in words if word != "--create-namespace"]
    done = subprocess.run(["helm", "template", "--kube-version", KUBERNETES, *words], cwd=root,
                          env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)
    hold(done.returncode == 0, done.stderr)
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def after(words, flag):
    return words[words.index(flag) + 1]


def kind(objects, name):
    return [each for each in objects if each["kind"] == name]


class Rehearsal:
    """The commands of one page, in their order."""

    def __init__(self, root, path, run, address):
        self.root, self.path, self.run, self.address = root, path, run, address
        self.release, self.namespace, self.objects = None, None, []
        self.installed = []  # the words of helm install
        self.archive, self.images, self.pushed = None, set(), None

    def command(self, text):
        words = shlex.split(text)
        doing = {"./run image": self.build_image, "docker load": self.load, "docker tag": self.tag,
                 "docker push": self.push, "helm install": self.install, "helm test": self.test, "helm upgrade": self.upgrade,
                 "kubectl label": self.label, "kubectl run": self.pod, "kubectl exec": self.inside}.get(" ".join(words[:2]))
        hold(doing, f"nothing says how to rehearse: {text}")
        doing(words[2:])

    def server(self):
        """Returns the container of posencd."""
        return kind(self.objects, "Deployment")[0]["spec"]["template"]["spec"]["containers"][0]

    def build_image(self, words):
        script = (self.root / "deploy/image.sh").read_text()
        hold(words[0] == "--keep" and "--keep |" in script, f"deploy/image.sh knows no {words[0]}")
        hold("image=posenc:$version" in script, "deploy/image.sh names its image otherwise")
        self.archive = words[1]

    def load(self, words):
        hold(words == ["-i", self.archive], f"the archive is {self.archive}")
        self.images.add("posenc:" + (self.root / "VERSION").read_text().strip())

    def tag(self, words):
        hold(words[0] in self.images, f"{words[0]} is none of {', '.join(self.images)}")
        self.images.add(words[1])

    def push(self, words):
        hold(words[0] in self.images, f"{words[0]} is none of {', '.join(self.images)}")
        self.pushed = words[0]

    def install(self, words):
        self.release, self.namespace, self.installed = words[0], after(words, "-n"), words
        self.objects = helm_template(words, self.root, self.path)
        used = self.server()["image"]
        hold(self.pushed in (None, used), f"the chart's image is {used}, and {self.pushed} was pushed")

    def upgrade(self, words):
        hold(words[0] == self.release and after(words, "-n") == self.namespace, "helm upgrade names another release")
        more = words[words.index("--reuse-values") + 1:]
        before = self.server()["args"]
        self.objects = helm_template([*self.installed, *more], self.root, self.path)
        added = [word for word in self.server()["args"] if word not in before]
        hold(added, "helm upgrade changes no flag of posencd")
        self.run(shlex.join(["posencd", *added, "--check-config"]))

    def test(self, words):
        hold(words[0] == self.release and after(words, "-n") == self.namespace, "helm test names another release")
        hooks = [each["metadata"].get("annotations", {}).get("helm.sh/hook") for each in kind(self.objects, "Pod")]
        hold("test" in hooks, "the chart has no test")

    def label(self, words):
        key, value = words[2].split("=")
        opened = [peer.get("namespaceSelector", {}).get("matchLabels", {}).get(key)
                  for policy in kind(self.objects, "NetworkPolicy")
                  for rule in policy["spec"]["ingress"] for peer in rule.get("from", [])]
        hold(words[0] == "namespace" and value in opened, f"no policy lets a namespace in for {words[2]}")

    def pod(self, words):
        image = next(word for word in words if word.startswith("--image=")).split("=", 1)[1]
        used = self.server()["image"]
        hold(used == image, f"the chart's image is {used}, not {image}")
        inside = words[words.index("--") + 1:]
        target = after(inside, "--server")
        names = {f"dns:///{service['metadata']['name']}.{self.namespace}.svc:{port['port']}"
                 for service in kind(self.objects, "Service") for port in service["spec"]["ports"]}
        hold(target in names, f"{target} is none of {', '.join(sorted(names))}")
        self.run(shlex.join([self.address if word == target else word for word in inside]))

    def inside(self, words):
        name = kind(self.objects, "Deployment")[0]["metadata"]["name"]
        hold(after(words, "-n") == self.namespace and f"deploy/{name}" in words, f"the Deployment is {name}")
        own = f"localhost:{self.server()['ports'][0]['containerPort']}"
        inside = words[words.index("--") + 1:]
        hold(own in inside, f"posencd listens at {own}")
        self.run(shlex.join([self.address if word == own else word for word in inside]))
