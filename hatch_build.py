"""Puts the compiled kernel into a wheel: hatchling runs this when it builds one.

BAYESRNN_WHEEL=pure leaves it out, and BAYESRNN_WHEEL=compiled makes a missing compiler an error;
without either, the kernel is in the wheel where there is a C compiler. An editable install has
none: there the kernel is compiled on first use, for the machine that it runs on.
"""

import os
import platform
import runpy
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KERNEL = Path("src", "bayesrnn", "core", "kernel")


class KernelHook(BuildHookInterface[Any]):
    """One library for each level of the processor, in a wheel `py3-none-<platform>`."""

    folder: "tempfile.TemporaryDirectory[str] | None" = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the libraries, and say that the wheel is for one platform."""
        wanted = os.environ.get("BAYESRNN_WHEEL", "")
        if wanted not in ("", "compiled", "pure"):
            raise SystemExit(f"BAYESRNN_WHEEL is {wanted!r}; there are: compiled, pure")
        if version == "editable" or wanted == "pure":
            return
        build = runpy.run_path(str(Path(self.root, KERNEL, "build.py")))
        self.folder = tempfile.TemporaryDirectory()
        folder = Path(self.folder.name)
        try:
            made = build["compile_portable"](build["find_compiler"](), folder)
        except build["CompilerError"] as error:
            if wanted:
                raise SystemExit(f"no kernel for the wheel: {error}") from None
            self.app.display_warning(f"a wheel without the compiled kernel: {error}")
            return
        for name, data in made.items():
            path = folder / f"kernel-{name}.so"
            path.write_bytes(data)
            build_data["force_include"][str(path)] = f"bayesrnn/core/kernel/{path.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform(build['MACOS'])}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled."""
        if self.folder is not None:
            self.folder.cleanup()


def _platform(macos: str) -> str:
    """The platform in the name of the wheel; `auditwheel repair` makes linux a manylinux."""
    if sys.platform == "darwin":
        return f"macosx_{macos.replace('.', '_')}_{platform.machine()}"
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
