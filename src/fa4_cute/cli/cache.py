"""fa4-cute cache: the disk cache of compiled kernels."""

import argparse
import datetime

from .. import cache


def run(args: argparse.Namespace) -> int:
    """Shows or empties the disk cache of compiled kernels."""
    disk = cache.disk_cache()
    if disk is None:
        print("the disk cache is turned off (FA4_CUTE_CACHE=0)")
        return 0
    if args.action == "clear":
        print(f"{disk.clear()} kernels removed from {disk.folder}")
        return 0
    files = disk.files()
    total = sum(stat.st_size for _, stat in files)
    print(f"{disk.folder}: {len(files)} kernels, {total / 2**20:.1f} of at most {disk.limit_bytes / 2**20:.0f} MB")
    for path, stat in reversed(files):
        used = datetime.datetime.fromtimestamp(stat.st_mtime).isoformat(" ", "seconds")
        print(f"  {path.name}  {stat.st_size / 1024:.0f} KB  last used {used}")
    return 0


def add_arguments(command: argparse.ArgumentParser) -> None:
    """info or clear."""
    command.add_argument("action", choices=("info", "clear"), help="show what is there, or remove all of it")
