"""Write files atomically: write a temporary file in the same folder, then replace the old file by it.

If the process is killed meanwhile, the old file stays, or there is none. Every error names the path that the caller passed.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["check_writable", "write_bytes", "write_text"]


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file atomically. A symbolic link is followed. A device or pipe is written directly.

    Raises:
        OSError: if the file cannot be written; its `filename` is `path`.
    """
    with _naming_path(path):
        if _is_special(path):
            with open(path, "wb", buffering=0) as file:
                _write_all(file.fileno(), content)
            return
        target = Path(os.path.realpath(path))
        _check_regular(target)
        temporary = _temporary(target)
        try:
            with open(temporary, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if target.exists():
                os.chmod(temporary, target.stat().st_mode & 0o7777)
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise


def write_text(path: str | os.PathLike[str], text: str, errors: str = "strict") -> None:
    """Write a text file in UTF-8 as `write_bytes` does."""
    write_bytes(path, text.encode("utf-8", errors))


def check_writable(path: str | os.PathLike[str]) -> None:
    """Check that `write_bytes` can write a file later. No file is left behind.

    Raises:
        OSError: if the file cannot be written; its `filename` is `path`.
    """
    with _naming_path(path):
        if _is_special(path):
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return  # opening and closing a pipe would send its reader an end of file
        target = Path(os.path.realpath(path))
        _check_regular(target)
        temporary = _temporary(target)
        try:
            open(temporary, "xb").close()
        finally:
            with suppress(OSError):
                temporary.unlink()


@contextmanager
def _naming_path(path: str | os.PathLike[str]) -> Iterator[None]:
    """Change the file name in errors, which may be that of the temporary file, to `path`."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), os.fspath(path)) from error


def _is_special(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a device, a pipe or a file descriptor of this process, which cannot be replaced by a file."""
    if os.path.abspath(path).startswith(("/dev/std", "/dev/fd/", "/proc/")):
        return True
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def _check_regular(target: Path) -> None:
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if target.exists() and not os.access(target, os.W_OK):  # replacing a read-only file would succeed
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _temporary(target: Path) -> Path:
    return target.with_name(f".eagerdecomp.{os.getpid()}.{threading.get_ident()}.tmp")


def _write_all(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
