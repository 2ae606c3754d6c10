"""Builds the C++ parts: launcher, operators' kernels, emulator. Everything else about the package is in pyproject.toml.

None needs CUDA or a GPU to build. The operators' kernels fit the torch that is installed when they are built; without
one, or once another torch is installed, the operators do without them, and a call costs some microseconds more.
FA4_CUTE_NO_EMULATOR=1 leaves the emulator out: the op does not need it.
FA4_CUTE_MARCH picks the instruction set (-march=...; default x86-64-v4, for AVX-512, or v3, for AVX2 and FMA, where
this machine has it).
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
OPERATOR = "fa4_cute._operator"


def _march() -> list[str]:
    chosen = os.environ.get("FA4_CUTE_MARCH")
    if chosen:
        return [f"-march={chosen}"]
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    if platform.machine() not in ("x86_64", "AMD64"):
        return []
    if all(f"avx512{part}" in flags for part in ("f", "bw", "cd", "dq", "vl")):
        return ["-march=x86-64-v4", "-mprefer-vector-width=512"]
    return ["-march=x86-64-v3"] if all(f in flags for f in ("avx2", "fma", "bmi2", "f16c")) else []


def _ninja() -> str | None:
    """ninja's path: the one installed beside this Python counts even where its environment is not activated."""
    beside = str(Path(sys.executable).parent)
    return shutil.which("ninja", path=os.pathsep.join([beside, os.environ.get("PATH", os.defpath)]))


class NinjaBuild(build_ext):
    """One object a source, rebuilt when the source or a header it includes has changed."""

    def build_extension(self, ext: Extension) -> None:
        """Compiles and links with ninja if it is installed, else with the compiler directly."""
        import nanobind

        nb = Path(nanobind.__file__).parent
        torch = _torch() if ext.name == OPERATOR else None
        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        work = (ROOT / self.build_temp / ext.name).resolve()
        work.mkdir(parents=True, exist_ok=True)
        includes = [nb / "include", nb / "ext" / "robin_map" / "include", Path(sysconfig.get_paths()["include"])]
        if torch:
            includes = [torch / "include", torch / "include/torch/csrc/api/include", includes[-1]]
        cxx = [os.environ.get("CXX", "c++"), "-std=c++20", "-O3", "-fPIC", "-fvisibility=hidden", *_march()]
        # No result depends on these two; without them the compiler may not compute lanes together.
        cxx += ["-fno-trapping-math", "-fno-math-errno"]
        cxx += [f"-DFA4_TORCH_VERSION={_version(torch)}"] if torch else []
        cxx += ["-DNDEBUG", *(f"-isystem{path}" for path in includes)]
        sources = [ROOT / source for source in ext.sources]
        steps = {
            work / (str(s.relative_to(ROOT)).replace(os.sep, "_") + ".o"): (s, ["-Wall", "-Wextra"]) for s in sources
        }
        link = [cxx[0], "-shared", "-pthread"]
        if platform.system() == "Darwin":
            link += ["-undefined", "dynamic_lookup"]
        else:
            link += ["-Wl,--no-as-needed", "-ldl"]  # dlopen is in a library of its own before glibc 2.34
        if torch:  # whose libraries are loaded by then
            link += [f"-L{torch / 'lib'}", "-ltorch_python", "-ltorch_cpu", "-lc10"]
        else:
            steps[work / "nanobind.o"] = (nb / "src" / "nb_combined.cpp", [])
        ninja = _ninja()
        if ninja:
            self._with_ninja(ninja, work, cxx, link, steps, target)
        else:
            self._directly(cxx, link, steps, target)

    def _with_ninja(self, ninja: str, work: Path, cxx: list[str], link: list[str], steps: dict, target: Path) -> None:
        def esc(path: Path) -> str:
            return str(path).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")

        lines = [
            f"rule cxx\n command = {' '.join(cxx)} $extra -MMD -MF $out.d -c $in -o $out",
            " depfile = $out.d\n deps = gcc",
        ]
        lines.append(f"rule link\n command = {' '.join(link)} -o $out $in")
        for output, (source, extra) in steps.items():
            lines.append(f"build {esc(output)}: cxx {esc(source)}\n extra = {' '.join(extra)}")
        lines.append(f"build {esc(target)}: link {' '.join(esc(o) for o in steps)}")
        (work / "build.ninja").write_text("\n".join(lines) + "\n")
        jobs = f"-j{self.parallel or os.cpu_count() or 1}"
        quiet = [] if self.distribution.verbose else ["--quiet"]
        subprocess.run([ninja, "-C", str(work), jobs, *quiet], check=True)

    def _directly(self, cxx: list[str], link: list[str], steps: dict, target: Path) -> None:
        def compile_one(item: tuple[Path, tuple[Path, list[str]]]) -> None:
            output, (source, extra) = item
            subprocess.run([*cxx, *extra, "-c", str(source), "-o", str(output)], check=True)

        with ThreadPoolExecutor(self.parallel or os.cpu_count() or 1) as pool:
            list(pool.map(compile_one, steps.items()))
        subprocess.run([*link, "-o", str(target), *map(str, steps)], check=True)


def _torch() -> Path | None:
    """The folder of the torch that this interpreter has, also from within pip's isolated build; None without one."""
    found = (Path(sysconfig.get_path(kind)) / "torch" for kind in ("platlib", "purelib"))
    return next((path for path in found if (path / "include/torch/library.h").exists()), None)


def _version(torch: Path) -> str:
    return re.search(r"__version__ = '([^']+)'", (torch / "version.py").read_text()).group(1)  # type: ignore[union-attr]


def _extensions() -> list[Extension]:
    csrc = ROOT / "csrc"
    apart = [csrc / "launch", csrc / "operator"]
    sources = [path for path in sorted(csrc.rglob("*.cpp")) if path.parent not in apart]
    parts = {"fa4_cute._launch": sorted(apart[0].glob("*.cpp"))}
    if _torch():
        parts[OPERATOR] = sorted(apart[1].glob("*.cpp"))
    if os.environ.get("FA4_CUTE_NO_EMULATOR", "0") in ("", "0"):
        parts["fa4_cute.emulator._core"] = sources
    return [Extension(name, [str(s.relative_to(ROOT)) for s in part], language="c++") for name, part in parts.items()]


setup(ext_modules=_extensions(), cmdclass={"build_ext": NinjaBuild})
