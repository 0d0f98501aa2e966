# SPDX-License-Identifier: Apache-2.0
"""A new folder for a test's files: in memory where there is such a place, since runs sync often and disks take their
time."""
import os
import tempfile

SPACE = 256 << 20  # bytes


def make_memory_folder(prefix):
    """PREFIX and some characters in /dev/shm, or with the other temporary files if that lacks space or cannot be
    written."""
    try:
        found = os.statvfs("/dev/shm")
        if found.f_bavail * found.f_frsize >= SPACE:
            return tempfile.mkdtemp(prefix=prefix, dir="/dev/shm")
    except OSError:
        pass
    return tempfile.mkdtemp(prefix=prefix)
