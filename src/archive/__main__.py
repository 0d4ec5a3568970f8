"""Carry evidence between hosts: results as one archive, merged elsewhere without overwriting anything.

    python -m adrbench.archive pack --output h200.tar.xz [--platform NAME ...] [--piece-size 15MiB]
    python -m adrbench.archive merge h200.tar.xz

Both work on the current folder, as Snakemake does. Packed are whole measurements: each evidence file with its raw
folder and whatever else it lists, Snakemake's record of the job that wrote it, refusals, and an embedded model's
converted folder. What Snakemake counts as unfinished, or whose raw files are not those that were measured, stays out
and is named; with --incomplete, what merely lacks raw files travels, too.

Merging adds what is missing, single raw files included. The same measurement with another content is a conflict: all
conflicts are named, and nothing is merged. What is computed from measurements blocks nothing: this folder's stays, and
Snakemake computes it again where they changed. Checks of another host of the same kind (device.hosts: several) are
kept beside this folder's. Records are rewritten to this folder's paths, and times are kept, so that Snakemake reruns a
merged job only when its specification or code differs here.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from adrbench.archive.merge import describe, merge
from adrbench.archive.pack import pack
from adrbench.archive.records import ArchiveError

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}


def size(text: str) -> int:
    """Bytes of a size such as 15MiB.

    Raises:
        argparse.ArgumentTypeError: not a size.
    """
    found = re.fullmatch(r"(\d+)\s*([KMG]I?)?B?", text.upper())
    if not found or int(found[1]) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write 15MiB, 57MB or 2GB")
    return int(found[1]) * UNITS[found[2] or ""]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m adrbench.archive",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack", help="write the results of this folder into an archive")
    packing.add_argument("--output", type=Path, required=True, help="archive to write, NAME.tar.xz")
    packing.add_argument("--platform", action="append", default=[], help="only this platform (repeatable)")
    packing.add_argument("--piece-size", type=size, help="cut it into NAME.000, ... of this size, such as 15MiB")
    packing.add_argument("--without-models", action="store_true", help="leave converted models out")
    packing.add_argument("--incomplete", action="store_true", help="pack results whose raw files are missing, too")
    merging = commands.add_parser("merge", help="add an archive's results to this folder")
    merging.add_argument("archive", type=Path, help="the archive; for pieces, the name without .000")
    merging.add_argument("--limit", type=size, default=size("20GB"), help="refuse to unpack more (default 20GB)")
    merging.add_argument(
        "--platforms", type=Path, help="folder of platform files (default: that of config/config.yaml)"
    )
    arguments = parser.parse_args()
    base = Path.cwd()
    try:
        if arguments.command == "pack":
            models = not arguments.without_models
            lines = pack(
                base,
                arguments.output.absolute(),
                arguments.platform,
                models=models,
                piece=arguments.piece_size,
                incomplete=arguments.incomplete,
            )
            print("\n".join(lines))
            return
        result = merge(base, arguments.archive.absolute(), limit=arguments.limit, platforms=arguments.platforms)
        print(describe(result, arguments.archive), file=sys.stderr if result.conflicts else sys.stdout)
        sys.exit(1 if result.conflicts else 0)
    except ArchiveError as error:
        sys.exit(f"evidence archive: {error}")
    except OSError as error:
        sys.exit(f"evidence archive: {error}; free space or fix permissions, then call it again")


if __name__ == "__main__":
    main()
