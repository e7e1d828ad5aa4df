"""The MODEL argument: its line in the help, and completion of cached names in the shell."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

SPELLINGS = """MODEL is a path (/…, ./…, ~/…), hf:ORG/REPO:QUANT, ollama:MODEL:TAG, pypi:PACKAGE, or the
name of a cached model as `minfer-fetch list` shows it."""


class ModelType(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    """A word that names a model. It is resolved later: a bad one is no usage error of the command."""

    name = "MODEL"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Cached models that begin with `incomplete`, and paths when it looks like one; silent on trouble."""
        if incomplete[:1] in ("/", ".", "~"):
            return [CompletionItem(incomplete, type="file")]
        from minfer.core.errors import MinferError
        from minfer.store.catalog import read_catalog
        from minfer.store.settings import Settings
        from minfer.store.spelling import spelling

        try:
            catalog = read_catalog(Settings.of().cache, with_sizes=False)
        except (MinferError, OSError):
            return []
        names = sorted(spelling(model, catalog) for model in catalog.models)
        return [CompletionItem(name) for name in names if name.lower().startswith(incomplete.lower())]


MODEL = ModelType()
