"""Check the examples for Kubernetes: each document by the schema of its kind, and the rights of each container.

The schemas come with kubernetes-validate; nothing is downloaded. A container other than `mounter` must fulfil the level
"restricted" of the Pod Security Standards, as far as they speak of containers.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate  # pyright: ignore[reportMissingImports] - in an environment of its own
import yaml

NEWEST = kubernetes_validate.latest_version()
PRIVILEGED = "mounter"


def documents(root: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the documents that a cluster gets. A kustomization is for kubectl, and has only its files checked."""
    for path in sorted(root.rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if path.name == "kustomization.yaml":
                named = [name for entry in document["configMapGenerator"] for name in entry["files"]]
                for name in [*named, *document.get("resources", [])]:
                    if not (path.parent / name).exists():
                        raise SystemExit(f"{path}: {name} is not there")
            else:
                yield path, document


def containers(document: dict[str, Any]) -> list[dict[str, Any]]:
    spec = document.get("spec", {})
    pod = spec.get("template", {}).get("spec", spec)
    return [*pod.get("initContainers", []), *pod.get("containers", [])]


def faults(container: dict[str, Any]) -> Iterator[str]:
    """Yield the rights that a container has and should not have."""
    context = container.get("securityContext", {})
    expected = {"runAsNonRoot": True, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}
    for key, value in expected.items():
        if context.get(key) != value:
            yield f"{key} is not {value}"
    if context.get("privileged"):
        yield "privileged"
    if context.get("capabilities") != {"drop": ["ALL"]}:
        yield "has capabilities"
    if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "has no seccomp profile"
    if any(mount.get("mountPropagation") == "Bidirectional" for mount in container.get("volumeMounts", [])):
        yield "mounts on the node"


def main(root: Path) -> int:
    wrong, checked = 0, 0
    for path, document in documents(root):
        checked += 1
        try:
            kubernetes_validate.validate(document, NEWEST, strict=True)
        except kubernetes_validate.ValidationError as error:
            wrong += 1
            print(f"{path}: {document['kind']}: {error}")
        for container in containers(document):
            if container["name"] != PRIVILEGED:
                for fault in faults(container):
                    wrong += 1
                    print(f"{path}: container {container['name']}: {fault}")
    print(f"{checked} documents, {wrong} faults, by the schemas of Kubernetes {NEWEST}")
    return 1 if wrong or not checked else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
