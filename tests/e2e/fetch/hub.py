"""A Hub on loopback: its listing, its redirects to signed storage, its refusals."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from e2e.fetch.servers import Exchange, FileServer, json_answer, redirect, status

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Repository:
    """`token`: who may read it. `is_gated`: what a visitor with a wrong token is told."""

    files: dict[str, bytes]
    token: str = ""
    is_gated: bool = False
    lengths_in_info: bool = True
    extra: list[dict[str, object]] = field(default_factory=list)  # further entries of the listing
    revisions: Mapping[str, str] = field(default_factory=lambda: {"main": COMMIT})


@dataclass
class Hub:
    """Answers for `repositories` on `server`; storage is the same server under another name."""

    server: FileServer
    repositories: dict[str, Repository] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    page_length: int = 1000
    n_signatures: int = 0

    def __post_init__(self) -> None:
        self.server.routes["/api/models/"] = self._api
        for repo in self.repositories:
            self._serve_files(repo)

    def _serve_files(self, repo: str) -> None:
        self.server.routes[f"/{repo}/resolve/"] = self._resolve
        for body in self.repositories[repo].files.values():
            self.server.files[f"/storage/{hashlib.sha256(body).hexdigest()}"] = body

    def _api(self, exchange: Exchange) -> None:
        path, _, query = exchange.handler.path.removeprefix("/api/models/").partition("?")
        org, name, *rest = path.split("/")
        repo = f"{org}/{name}"
        if repo in self.renamed:
            target = "/".join([f"/api/models/{self.renamed[repo]}", *rest])
            redirect(f"{target}?{query}", 307)(exchange)
        elif not self._is_let_in(exchange, repo):
            json_answer({"error": "Invalid username or password."}, status=401)(exchange)
        elif rest[:1] == ["tree"]:
            self._tree(exchange, repo)
        else:
            self._info(exchange, repo, unquote(rest[1]) if rest else "main")

    def _is_let_in(self, exchange: Exchange, repo: str) -> bool:
        """The listing of a gated repository is public, its files are not."""
        repository = self.repositories.get(repo)
        if repository is None:
            return False
        wanted = f"Bearer {repository.token}" if repository.token else None
        return (
            repository.is_gated or wanted is None or exchange.handler.headers.get("Authorization") == wanted
        )

    def _info(self, exchange: Exchange, repo: str, revision: str) -> None:
        repository = self.repositories[repo]
        commit = COMMIT if revision == COMMIT else repository.revisions.get(revision)
        if commit is None:
            headers = {"X-Error-Code": "RevisionNotFound", "X-Error-Message": f"Invalid rev id: {revision}"}
            json_answer({"error": "Invalid rev id"}, status=404, headers=headers)(exchange)
            return
        siblings: list[dict[str, object]] = []
        for name, body in repository.files.items():
            entry: dict[str, object] = {"rfilename": name}
            if repository.lengths_in_info:
                digest = hashlib.sha256(body).hexdigest()
                entry |= {
                    "size": len(body),
                    "lfs": {"sha256": digest, "size": len(body), "pointerSize": 135},
                }
            siblings.append(entry)
        answer = {"id": repo, "sha": commit, "gated": "manual" if repository.is_gated else False}
        json_answer({**answer, "siblings": siblings + repository.extra})(exchange)

    def _tree(self, exchange: Exchange, repo: str) -> None:
        names = list(self.repositories[repo].files)
        query = exchange.handler.path.partition("?")[2]
        start = int(query.rpartition("cursor=")[2]) if "cursor=" in query else 0
        page: list[dict[str, object]] = [{"type": "directory", "path": "dir", "oid": "0" * 40, "size": 0}]
        for name in names[start : start + self.page_length]:
            body = self.repositories[repo].files[name]
            lfs = {"oid": hashlib.sha256(body).hexdigest(), "size": len(body), "pointerSize": 135}
            page.append({"type": "file", "path": name, "oid": "1" * 40, "size": len(body), "lfs": lfs})
        headers = {}
        if start + self.page_length < len(names):
            here = f"{self.server.url}{exchange.handler.path.partition('?')[0]}"
            headers = {"Link": f'<{here}?recursive=true&cursor={start + self.page_length}>; rel="next"'}
        json_answer(page, headers=headers)(exchange)

    def _resolve(self, exchange: Exchange) -> None:
        repo, _, rest = exchange.handler.path[1:].partition("/resolve/")
        repository = self.repositories[repo]
        commit, _, name = rest.partition("/")
        if repository.token and exchange.handler.headers.get("Authorization") != f"Bearer {repository.token}":
            headers = {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to model is restricted"}
            status(403 if repository.is_gated else 401, headers if repository.is_gated else {})(exchange)
            return
        body = repository.files[unquote(name)]
        assert commit == COMMIT
        self.n_signatures += 1
        address = (
            f"{self.server.other_url}/storage/{hashlib.sha256(body).hexdigest()}?sig={self.n_signatures}"
        )
        headers = {"X-Repo-Commit": commit, "X-Linked-Size": str(len(body)), "Location": address}
        status(302, headers, json.dumps("Found. Redirecting").encode())(exchange)
