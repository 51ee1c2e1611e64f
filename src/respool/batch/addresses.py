"""Files by path or by address: `s3://bucket/logs/a.jsonl` and other schemes go through fsspec.

Plain paths need no other package. An object in object storage appears when it is complete; any
other file is first written under a temporary name.
"""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path, PurePath, PurePosixPath
from typing import IO, Any, Literal

from msgspec import Struct

from ..errors import RespoolError, describe_missing_package
from ..regex import lazy_compile

_SCHEME = lazy_compile(r"[A-Za-z][A-Za-z0-9+.-]+://")  # two letters at least: not a drive
_UNFINISHED = lazy_compile(r"(.+)\.[0-9]+\.part")  # see `_temporary`
_BUFFER = 1024 * 1024
_OBJECT_STORES = frozenset(("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "oci"))


EngineName = Literal["local", "ray"]


class StorageError(RespoolError):
    """An address cannot be used: a package is missing, or the storage failed or refused."""


def missing_package(what: str, error: ImportError, extras: str = "batch") -> StorageError:
    """Error for a package that is not installed."""
    return StorageError(describe_missing_package(what, error, extras))


class FoundFile(Struct, frozen=True):
    """A file, its size, and its edition: a time or a tag that changes with it."""

    address: str
    size: int
    edition: str

    def __str__(self) -> str:
        return self.address


def is_remote(address: str) -> bool:
    """Report whether an address has a scheme, and so is not a path."""
    return _SCHEME.match(address) is not None


def join(folder: str, *names: str) -> str:
    """The address of a file in a folder."""
    if is_remote(folder):
        return "/".join((folder.rstrip("/"), *names))
    return str(Path(folder, *names))


def is_within(address: str, folder: str) -> bool:
    """Report whether a file is in a folder or below it, by whatever path they are named."""
    if is_remote(address) or is_remote(folder):
        return address.startswith(join(folder, ""))
    return Path(folder).resolve() in Path(address).resolve().parents


def absolute(address: str) -> str:
    """The same address from any working directory."""
    return address if is_remote(address) else str(Path(address).absolute())


def _as_path(address: str) -> PurePath:
    return PurePosixPath(address) if is_remote(address) else Path(address)


def file_name(address: str) -> str:
    """The last part of an address."""
    return _as_path(address).name


def parent_name(address: str) -> str:
    """The last part but one."""
    return _as_path(address).parent.name


def _filesystem(address: str) -> tuple[Any, str]:
    """The storage of an address, and the path in it."""
    try:
        core: Any = import_module("fsspec.core")  # lazily: only addresses need it
    except ImportError as error:
        raise missing_package(address, error) from None
    try:
        return core.url_to_fs(address)
    except (ImportError, ValueError) as error:  # it names the package, or the schemes there are
        raise StorageError(f"{address}: {error}.") from None


@contextmanager
def naming_failures(address: str, *passed: type[Exception]) -> Generator[None]:
    """Say in a sentence that storage failed; the errors of its clients have no common type."""
    try:
        yield
    except (RespoolError, *passed):
        raise
    except Exception as error:
        said = " ".join(str(error).split())
        raise StorageError(f"{address}: {said or type(error).__name__}") from error


def open_stream(address: str) -> IO[bytes]:
    """Open a file to be read."""
    if not is_remote(address):
        return Path(address).open("rb")
    with naming_failures(address, FileNotFoundError):
        storage, path = _filesystem(address)
        return io.BufferedReader(storage.open(path, "rb"), _BUFFER)  # its lines may be limited


def find_file(address: str) -> FoundFile | None:
    """A file as it is now; None: there is none, or it is a folder."""
    if is_remote(address):
        try:
            with naming_failures(address, FileNotFoundError):
                storage, path = _filesystem(address)
                about = storage.info(path)
        except FileNotFoundError:
            return None
        return _found(address, about) if about["type"] == "file" else None
    try:
        status = Path(address).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return None if Path(address).is_dir() else _found_locally(address, status)


def _found(address: str, about: dict[str, Any]) -> FoundFile:
    names = ("ETag", "etag", "md5Hash", "LastModified", "mtime", "created")
    edition = next((str(about[name]) for name in names if about.get(name)), "")
    return FoundFile(address, int(about.get("size") or 0), edition)


def _found_locally(address: str, status: os.stat_result) -> FoundFile:
    return FoundFile(address, status.st_size, str(status.st_mtime_ns))


def find_files(address: str) -> Iterator[FoundFile]:
    """Every file below a folder in the order of their names, or the file itself; none: nothing."""
    if (alone := find_file(address)) is not None:
        yield alone
    elif is_remote(address):
        with naming_failures(address):
            storage, path = _filesystem(address)
            try:
                found = sorted(storage.find(path, detail=True).items())
            except FileNotFoundError:  # not even a bucket
                found = []
        scheme = address.partition("://")[0]
        for name, about in found:
            yield _found(f"{scheme}://{name.lstrip('/')}", about)
    else:
        for file in sorted(one for one in Path(address).rglob("*") if one.is_file()):
            yield _found_locally(str(file), file.stat())


@contextmanager
def write_stream(address: str) -> Generator[IO[bytes]]:
    """Write a file that appears only when it is complete."""
    if not is_remote(address):
        with _write_locally(Path(address)) as stream:
            yield stream
    elif address.partition("://")[0].lower() in _OBJECT_STORES:
        with _write_object(address) as stream:
            yield stream
    else:
        storage, path = _filesystem(address)
        storage.makedirs(path.rpartition("/")[0], exist_ok=True)
        temporary = _temporary(path)
        try:
            with storage.open(temporary, "wb") as stream:
                yield stream
        except BaseException:
            storage.rm_file(temporary)
            raise
        storage.mv(temporary, path)


@contextmanager
def _write_locally(file: Path) -> Generator[IO[bytes]]:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(_temporary(file.name))
    try:
        with temporary.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _write_object(address: str) -> Generator[IO[bytes]]:
    with naming_failures(address):
        storage, path = _filesystem(address)
        stream = storage.open(path, "wb")
    try:
        yield stream
    except BaseException:
        stream.discard()
        stream.closed = True  # so that nothing is uploaded when it is collected
        raise
    with naming_failures(address):
        stream.close()


def _temporary(name: str) -> str:
    """The name of a file until it is whole."""
    return f"{name}.{os.getpid()}.part"


def remove_unfinished(folder: str, names: Collection[str]) -> None:
    """Remove what a killed process left of files with these names in a local folder."""
    if is_remote(folder) or not Path(folder).is_dir():
        return
    for file in Path(folder).iterdir():
        found = _UNFINISHED.fullmatch(file.name)
        if found is not None and found[1] in names:
            file.unlink(missing_ok=True)


@contextmanager
def local_copy(address: str, folder: Path) -> Generator[Path]:
    """A file on disk under its own name, for readers that need one; a copy if it is elsewhere."""
    if not is_remote(address):
        yield Path(address)
        return
    storage, path = _filesystem(address)
    copy = folder / file_name(address)
    try:
        storage.get_file(path, str(copy))
        yield copy
    finally:
        copy.unlink(missing_ok=True)
