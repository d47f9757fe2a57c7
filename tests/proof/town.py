"""The truth: a small cluster that does what it is told, one version after the other."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any

from tests.model.books import APP, Event, NodeView, PodView, QuotaView, View


@dataclass
class Town:
    """Pods, nodes and quotas as they are. Every change answers the watch event that tells of it."""

    version: int = 100
    born: int = 0
    pods: dict[str, PodView] = field(default_factory=dict)
    nodes: dict[str, NodeView] = field(default_factory=dict)
    quotas: dict[tuple[str, str], QuotaView] = field(default_factory=dict)

    def tick(self) -> int:
        """The next version."""
        self.version += 1
        return self.version

    # --- pods ---

    def bear(self, namespace: str, name: str, kinds: tuple[str, ...], **facts: Any) -> Event:
        """A new pod; who had its name is gone, whether anybody was told or not."""
        for uid, other in list(self.pods.items()):
            if (other.namespace, other.name) == (namespace, name):
                del self.pods[uid]
        self.born += 1
        inits = sum(kind != APP for kind in kinds)
        view = PodView(f"uid-{self.born}", namespace, name, self.tick(), kinds, (None,) * inits, **facts)
        self.pods[view.uid] = view
        return Event("ADDED", view)

    def change(self, uid: str, **changes: Any) -> Event:
        """Something about a pod is otherwise than before."""
        self.pods[uid] = replace(self.pods[uid], version=self.tick(), **changes)
        return Event("MODIFIED", self.pods[uid])

    def kill(self, uid: str) -> Event:
        """The pod is no more."""
        return Event("DELETED", replace(self.pods.pop(uid), version=self.tick()))

    # --- nodes and quotas ---

    def register(self, name: str, **facts: Any) -> Event:
        """A node says what it has."""
        type_ = "MODIFIED" if name in self.nodes else "ADDED"
        self.nodes[name] = NodeView(name, self.tick(), **facts)
        return Event(type_, self.nodes[name])

    def lose_node(self, name: str) -> Event:
        """The node is no more."""
        return Event("DELETED", replace(self.nodes.pop(name), version=self.tick()))

    def limit(self, namespace: str, name: str, **facts: Any) -> Event:
        """A quota says what it limits."""
        type_ = "MODIFIED" if (namespace, name) in self.quotas else "ADDED"
        self.quotas[namespace, name] = QuotaView(namespace, name, self.tick(), **facts)
        return Event(type_, self.quotas[namespace, name])

    def lose_quota(self, namespace: str, name: str) -> Event:
        """The quota is no more."""
        return Event("DELETED", replace(self.quotas.pop((namespace, name)), version=self.tick()))

    # --- all of it ---

    def views(self, kind: str, namespace: str = "") -> list[View]:
        """What a list of the kind holds."""
        if kind == "Node":
            return list(self.nodes.values())
        named = self.pods.values() if kind == "Pod" else self.quotas.values()
        return [view for view in named if namespace in ("", view.namespace)]

    def backup(self) -> Town:
        """As it is now, to come back to."""
        return copy.deepcopy(self)

    def restore(self, saved: Town) -> None:
        """A backup is put back, versions too. UIDs are never given twice."""
        kept = saved.backup()
        self.version, self.pods, self.nodes, self.quotas = kept.version, kept.pods, kept.nodes, kept.quotas
