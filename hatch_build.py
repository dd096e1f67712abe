"""Puts the engine's jar into the wheel: built from ``jvm/`` first, if need be."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class EngineHook(BuildHookInterface[Any]):
    """Runs before a wheel is put together."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the jar. An editable installation builds it at the first session instead."""
        if self.target_name != "wheel" or version == "editable":
            return
        sys.path.insert(0, str(Path(self.root) / "src"))
        from tailrace.toolchain import ensure_engine, ensure_jars, ensure_java

        java = ensure_java(self.app.display_info)
        jar = ensure_engine(java, ensure_jars(java, ["connector"], self.app.display_info)["connector"], print)
        build_data["force_include"][str(jar)] = "tailrace/tailrace-engine.jar"
