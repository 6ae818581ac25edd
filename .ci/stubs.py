"""Puts realmemory.py into the wheel a second time, as its own stubs.

PEP 561 has no place for the `py.typed` of a lone module, so that type checkers would take an
installed one for untyped.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Stubs(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self.folder = tempfile.TemporaryDirectory()
        stub = shutil.copy(Path(self.root, "realmemory.py"), self.folder.name)
        build_data["force_include"][stub] = "realmemory-stubs/__init__.pyi"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self.folder.cleanup()
