"""Builds the launcher and the emulator's core, both C++. Everything else about the package is in pyproject.toml.

Neither needs CUDA or a GPU to build. FA4_CUTE_NO_EMULATOR=1 leaves the emulator out: the op does not need it.
FA4_CUTE_MARCH picks the instruction set (-march=...; default x86-64-v4, for AVX-512, or v3, for AVX2 and FMA, where
this machine has it).
"""

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent


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
        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        work = (ROOT / self.build_temp / ext.name).resolve()
        work.mkdir(parents=True, exist_ok=True)
        includes = [nb / "include", nb / "ext" / "robin_map" / "include", sysconfig.get_paths()["include"]]
        cxx = [os.environ.get("CXX", "c++"), "-std=c++20", "-O3", "-fPIC", "-fvisibility=hidden", *_march()]
        # No result depends on these two; without them the compiler may not compute lanes together.
        cxx += ["-fno-trapping-math", "-fno-math-errno"]
        cxx += ["-DNDEBUG", *(f"-isystem{path}" for path in includes)]
        sources = [ROOT / source for source in ext.sources]
        steps = {
            work / (str(s.relative_to(ROOT)).replace(os.sep, "_") + ".o"): (s, ["-Wall", "-Wextra"]) for s in sources
        }
        steps[work / "nanobind.o"] = (nb / "src" / "nb_combined.cpp", [])
        link = [cxx[0], "-shared", "-pthread"]
        if platform.system() == "Darwin":
            link += ["-undefined", "dynamic_lookup"]
        else:
            link += ["-Wl,--no-as-needed", "-ldl"]  # dlopen is in a library of its own before glibc 2.34
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
        subprocess.run([ninja, "-C", str(work), jobs], check=True)

    def _directly(self, cxx: list[str], link: list[str], steps: dict, target: Path) -> None:
        def compile_one(item: tuple[Path, tuple[Path, list[str]]]) -> None:
            output, (source, extra) = item
            subprocess.run([*cxx, *extra, "-c", str(source), "-o", str(output)], check=True)

        with ThreadPoolExecutor(self.parallel or os.cpu_count() or 1) as pool:
            list(pool.map(compile_one, steps.items()))
        subprocess.run([*link, "-o", str(target), *map(str, steps)], check=True)


def _extensions() -> list[Extension]:
    launch = ROOT / "csrc" / "launch"
    sources = [path for path in sorted((ROOT / "csrc").rglob("*.cpp")) if launch not in path.parents]
    parts = {"fa4_cute._launch": sorted(launch.glob("*.cpp"))}
    if os.environ.get("FA4_CUTE_NO_EMULATOR", "0") in ("", "0"):
        parts["fa4_cute.emulator._core"] = sources
    return [Extension(name, [str(s.relative_to(ROOT)) for s in part], language="c++") for name, part in parts.items()]


setup(ext_modules=_extensions(), cmdclass={"build_ext": NinjaBuild})
