# SPDX-License-Identifier: Apache-2.0
"""A new folder for a test's files: in memory if possible, since training runs sync often and disks are slow."""
import os
import tempfile

SPACE = 256 << 20  # bytes


def make_memory_folder(prefix):
    """PREFIX and some characters in /dev/shm, or with the other temporary files if that is full or not writable."""
    try:
        found = os.statvfs("/dev/shm")
        if found.f_bavail * found.f_frsize >= SPACE:
            return tempfile.mkdtemp(prefix=prefix, dir="/dev/shm")
    except OSError:
        pass
    return tempfile.mkdtemp(prefix=prefix)
