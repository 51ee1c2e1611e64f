"""Installations on disk: files changed with a backup and a record, and changed back to the byte.

Everything is below one folder beside the usual store: `record.json`, backups, and a folder for each
port with the files of its service.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from ..errors import RespoolError
from ..proxy.router import UPSTREAM_PREFIX
from ..proxy.server_options import Upstream, Upstreams
from ..store.location import store_path
from .install import InstallPlan, SettingsEdit, merge_upstreams
from .service import (
    Manager,
    Service,
    ServiceError,
    kept_environment,
    manager_files,
    restart_commands,
    run_commands,
    service_files,
    start_commands,
    stop_commands,
    stop_in_background,
    wait_for_proxy,
)
from .settings_edits import (
    Format,
    UneditableSettings,
    append_item,
    get_value,
    remove_item,
    remove_value,
    set_value,
)

_RECORD: Final = "record.json"
_PRIVATE: Final = 0o600
_DEFAULT: Final = Upstreams()


class DamagedRecord(RespoolError, ValueError):
    """The record of installations cannot be read."""


class EditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A value that was set, and the one that was there before."""

    format: Format
    keys: tuple[str, ...]
    value: Any
    former: Any = None  # None: there was none
    depth: int = 0  # how many of the keys existed before
    is_item: bool = False


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """A file before and after, and the edits that lead from one to the other."""

    file: str
    before: bytes | None  # None: there was no such file
    after: bytes
    edits: tuple[EditRecord, ...] = ()
    direct: dict[str, str] = {}  # base URLs of the proxy's, and those that they stand for
    mode: int = _PRIVATE  # of a new file

    @property
    def digest(self) -> str:
        """Hash by which the file is known to be as it was written."""
        return _digest(self.after)


class FileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was changed: its backup and what was written."""

    file: str
    digest: str
    backup: str = ""  # name of the copy of its former bytes; empty: there was no such file
    edits: tuple[EditRecord, ...] = ()
    direct: dict[str, str] = {}
    folders: tuple[str, ...] = ()  # made for it, the innermost first


class AgentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that is installed."""

    label: str
    port: int
    upstreams: Upstreams
    uses: tuple[str, ...]
    files: tuple[FileRecord, ...] = ()


class ServiceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A service that is set up."""

    manager: Manager
    files: tuple[FileRecord, ...] = ()


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """All that is installed: agents by their commands, services by their ports."""

    agents: dict[str, AgentRecord] = {}
    services: dict[str, ServiceRecord] = {}


def install_folder(environ: Mapping[str, str]) -> Path:
    """Folder of records and backups, wherever RESPOOL_STORE puts the store."""
    return store_path({**environ, "RESPOOL_STORE": ""}).parent / "install"


def read_record(folder: Path) -> Record:
    """Read what is installed; nothing if there is no record."""
    file = folder / _RECORD
    try:
        return msgspec.json.decode(file.read_bytes(), type=Record)
    except FileNotFoundError:
        return Record()
    except (OSError, msgspec.DecodeError) as error:
        raise DamagedRecord(f"{file} cannot be read: {error}") from None


def skip_installed_proxies(upstreams: Upstreams, record: Record) -> Upstreams:
    """The upstreams, with those of an installed proxy in place of the proxy itself.

    A run of an installed agent would otherwise go through two proxies.
    """
    known = {
        f"http://127.0.0.1:{port}": merge_upstreams(
            {
                one.label: (one.upstreams, one.uses)
                for one in record.agents.values()
                if one.port == port
            }
        )
        for port in {one.port for one in record.agents.values()}
    }

    def behind(one: Upstream, own: Upstream | None) -> Upstream:
        proxy = known.get(one.origin)
        if proxy is None:
            return one
        _, mark, path = one.prefix.partition(UPSTREAM_PREFIX)
        found = proxy.named.get(path.partition("/")[0]) if mark else own
        return found or one

    fixed: dict[str, Upstream] = {}
    for name in upstreams.__struct_fields__:
        one = getattr(upstreams, name)
        if isinstance(one, Upstream):
            proxy = known.get(one.origin)
            fixed[name] = behind(one, None if proxy is None else getattr(proxy, name))
    named = {name: behind(one, None) for name, one in upstreams.named.items()}
    return msgspec.structs.replace(upstreams, **fixed, named=named)


def write_record(folder: Path, record: Record) -> None:
    """Write what is installed; an empty record is removed, and its folder with it."""
    file = folder / _RECORD
    if record.agents or record.services:
        _write(file, msgspec.json.format(msgspec.json.encode(record)), _PRIVATE)
        return
    file.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


# --- changes -----------------------------------------------------------------------------------


def plan_changes(plan: InstallPlan) -> list[FileChange]:
    """Changes of files that a plan leads to."""
    files = dict.fromkeys(edit.file for edit in plan.edits)
    changes = [_edited(file, [one for one in plan.edits if one.file == file]) for file in files]
    whole = [
        FileChange(
            file=str(one.file),
            before=_read(one.file),
            after=one.text.encode(),
            direct=one.direct,
            mode=0o644,
        )
        for one in plan.files
    ]
    return [*changes, *whole]


def _edited(file: Path, edits: Sequence[SettingsEdit]) -> FileChange:
    before = _read(file)
    try:
        text = (before or b"").decode("utf-8")
    except UnicodeDecodeError:
        raise UneditableSettings(f"{file} is not changed: it is not UTF-8.") from None
    made: list[EditRecord] = []
    for edit in edits:
        try:
            former = get_value(text, edit.format, edit.keys)
            depth = _depth(text, edit)
            text = _applied(text, edit)
        except UneditableSettings as error:
            raise UneditableSettings(f"{file} is not changed: {error}.") from None
        made.append(
            EditRecord(
                format=edit.format,
                keys=edit.keys,
                value=edit.value,
                former=None if edit.is_item else former,
                depth=depth,
                is_item=edit.is_item,
            )
        )
    return FileChange(
        file=str(file),
        before=before,
        after=text.encode(),
        edits=tuple(made),
        direct={str(edit.value): edit.direct for edit in edits if edit.direct},
    )


def _depth(text: str, edit: SettingsEdit) -> int:
    known = (get_value(text, edit.format, edit.keys[:end]) for end in range(1, len(edit.keys) + 1))
    return sum(one is not None for one in known)


def _applied(text: str, edit: SettingsEdit) -> str:
    if edit.is_item:
        return append_item(text, edit.keys, edit.value)
    return set_value(text, edit.format, edit.keys, edit.value)


def plan_service(
    service: Service, manager: Manager, environ: Mapping[str, str]
) -> list[FileChange]:
    """Changes of files that set up a service."""
    own = [
        FileChange(file=str(file), before=_read(file), after=text.encode(), mode=mode)
        for file, (text, mode) in service_files(service).items()
    ]
    units = [
        FileChange(file=str(file), before=_read(file), after=text.encode(), mode=0o644)
        for file, text in manager_files(service, manager, environ).items()
    ]
    return [*own, *units]


def direct_table(folder: Path, records: Iterable[AgentRecord]) -> str:
    """Table by which the guard script points agents at their providers: a line for each URL."""
    rows: list[str] = []
    for record in records:
        for file in record.files:
            for ours in sorted(file.direct, key=len, reverse=True):  # one may begin with another
                former = str(folder / file.backup) if file.backup else "-"
                written = str(folder / _written_name(file))
                rows.append("\t".join((file.file, former, written, ours, file.direct[ours])))
    return "".join(f"{row}\n" for row in rows)


# --- writing and undoing -----------------------------------------------------------------------


def back_up(change: FileChange, folder: Path) -> FileRecord:
    """Copy a file before it is changed, and what will be written, beside the record."""
    file = Path(change.file)
    record = FileRecord(
        file=change.file,
        digest=change.digest,
        backup="" if change.before is None else _backup_name(change),
        edits=change.edits,
        direct=change.direct,
        folders=tuple(str(one) for one in file.parents if not one.exists()),
    )
    if change.before is not None:
        _write(folder / record.backup, change.before, _PRIVATE)
    if change.direct or record.backup:
        _write(folder / _written_name(record), change.after, _PRIVATE)
    return record


def _backup_name(change: FileChange) -> str:
    return f"backups/{_digest(change.file.encode() + (change.before or b''))}"


def write_change(change: FileChange) -> None:
    """Write a file as it shall be."""
    _write(Path(change.file), change.after, change.mode)


def _written_name(record: FileRecord) -> str:
    return f"backups/{_digest(record.file.encode())}-{record.digest}"


def plan_undo(record: FileRecord, folder: Path) -> FileChange | None:
    """Change that undoes a recorded one; None: nothing is left to undo.

    A file that is as it was written gets its former bytes back. In one that was edited since, only
    respool's own values are taken out. `after` is empty, and `edits` too, where it is removed.
    """
    current = _read(Path(record.file))
    if current is None:
        return None
    former = (folder / record.backup).read_bytes() if record.backup else None
    if _digest(current) == record.digest or not (record.edits or record.backup):
        after = former
    elif record.edits:
        after = _without_edits(current, record)
    else:
        after = _without_lines(
            current, (folder / _written_name(record)).read_bytes(), former or b""
        )
    if after == current:
        return None
    return FileChange(file=record.file, before=current, after=after or b"")


def is_edited(record: FileRecord) -> bool:
    """Report whether a file was edited since it was written."""
    current = _read(Path(record.file))
    return current is not None and _digest(current) != record.digest


def is_in_force(record: AgentRecord) -> bool:
    """Report whether an agent's settings still hold what was written."""
    return all(_is_file_in_force(one) for one in record.files)


def _is_file_in_force(record: FileRecord) -> bool:
    current = _read(Path(record.file))
    if current is None:
        return False
    text = current.decode("utf-8", "replace")
    return all(url in text for url in record.direct)


def _without_edits(current: bytes, record: FileRecord) -> bytes:
    """Take respool's own values out of a file; what else has changed stays."""
    text = current.decode("utf-8", "replace")
    for edit in reversed(record.edits):
        try:
            text = _undone(text, edit)
        except UneditableSettings as error:
            raise UneditableSettings(f"{record.file} is not changed: {error}.") from None
    return text.encode()


def _without_lines(current: bytes, written: bytes, former: bytes) -> bytes:
    """Take the lines that were written out of a file, and put the former ones back."""
    lines, ours, theirs = (data.splitlines(keepends=True) for data in (current, written, former))
    blocks = difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes()
    for kind, start, end, first, last in reversed(blocks):
        if kind == "equal":
            continue
        old, new = ours[start:end], theirs[first:last]
        at = next((at for at in range(len(lines)) if lines[at : at + len(old)] == old), None)
        if old and at is not None:
            lines[at : at + len(old)] = new
    return b"".join(lines)


def _undone(text: str, edit: EditRecord) -> str:
    found = get_value(text, edit.format, edit.keys)
    if edit.is_item:
        if isinstance(found, list) and edit.value in found:
            return remove_item(text, edit.keys, edit.value, kept_depth=edit.depth)
        return text
    if found != edit.value:
        return text
    if edit.former is not None:
        return set_value(text, edit.format, edit.keys, edit.former)
    return remove_value(text, edit.format, edit.keys, kept_depth=edit.depth)


def undo(record: FileRecord, folder: Path) -> None:
    """Undo a recorded change of a file, and remove the folders that were made for it."""
    change = plan_undo(record, folder)
    if change is not None:
        if not change.after and not record.backup:
            Path(record.file).unlink(missing_ok=True)
        else:
            _write(Path(record.file), change.after, _PRIVATE)
    for one in record.folders:
        with contextlib.suppress(OSError):
            Path(one).rmdir()  # only if it is empty
    copies = (record.backup, _written_name(record))
    for name in filter(None, copies):
        (folder / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        (folder / "backups").rmdir()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None


def _write(file: Path, data: bytes, mode: int) -> None:
    """Replace a file in one step; a link stays one, and a file that exists keeps its mode."""
    file = file.resolve()
    file.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        mode = file.stat().st_mode & 0o777
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "wb") as output:
            output.write(data)
        Path(name).chmod(mode)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


# --- agents and services -----------------------------------------------------------------------


class Installation:
    """The record with its folder, and what is done by it."""

    def __init__(self, environ: Mapping[str, str], python: str) -> None:
        self._environ = environ
        self._python = python
        self.folder = install_folder(environ)
        self.record = read_record(self.folder)

    def service(self, port: int, upstreams: Upstreams = _DEFAULT) -> Service:
        """Service on a port."""
        environment = kept_environment(self._environ)
        return Service(port, self._python, self.folder / str(port), upstreams, environment)

    def agents_on(self, port: int) -> dict[str, AgentRecord]:
        """Agents that go through the proxy on a port."""
        return {name: one for name, one in self.record.agents.items() if one.port == port}

    def merged_service(self, port: int, plan: InstallPlan | None = None) -> Service:
        """Service for all agents on a port, and for one more."""
        every = {one.label: (one.upstreams, one.uses) for one in self.agents_on(port).values()}
        if plan is not None:
            every[plan.label] = (plan.upstreams, plan.uses)
        return self.service(port, merge_upstreams(every))

    def plan_service(self, service: Service, manager: Manager) -> list[FileChange]:
        """Changes of files that set up a service or bring it up to date."""
        changes = plan_service(service, manager, self._environ)
        return [one for one in changes if one.before != one.after]

    def set_up(self, service: Service, manager: Manager, changes: list[FileChange]) -> None:
        """Write a service's files and start it; if it does not answer, all is undone."""
        port = str(service.port)
        known = self.record.services.get(port)
        held = {one.file: one for one in known.files} if known else {}
        for change in changes:
            record = held.get(change.file) or back_up(change, self.folder)
            held[change.file] = msgspec.structs.replace(record, digest=change.digest)
        made = ServiceRecord(manager=manager, files=tuple(held.values()))
        self._save(services={**self.record.services, port: made})
        for change in changes:
            write_change(change)
        try:
            if known and changes:
                self._restart(service, manager)
            elif not known:
                units = manager_files(service, manager, self._environ)
                run_commands(start_commands(service, manager, list(units)))
            wait_for_proxy(service.port)
        except ServiceError:
            if not known:
                self.remove_service(service.port)
            raise

    def _restart(self, service: Service, manager: Manager) -> None:
        stop_in_background(service.port, self.folder.parent)
        run_commands(restart_commands(service, manager))

    def add_agent(self, plan: InstallPlan, port: int, changes: list[FileChange]) -> None:
        """Change an agent's settings; the record is written before."""
        files = tuple(back_up(change, self.folder) for change in changes)
        made = AgentRecord(
            label=plan.label, port=port, upstreams=plan.upstreams, uses=plan.uses, files=files
        )
        self._save(agents={**self.record.agents, plan.command: made})
        try:
            self._write_table(port)
            for change in changes:
                write_change(change)
        except OSError:
            self.remove_agent(plan.command)
            raise

    def remove_agent(self, command: str) -> None:
        """Undo the changes of an agent's settings."""
        record = self.record.agents[command]
        for file in reversed(record.files):
            undo(file, self.folder)
        rest = {name: one for name, one in self.record.agents.items() if name != command}
        self._save(agents=rest)
        self._write_table(record.port)

    def remove_service(self, port: int) -> None:
        """Stop a service and remove its files."""
        known = self.record.services[str(port)]
        for words in stop_commands(port, known.manager):
            with contextlib.suppress(ServiceError):  # it may be stopped already
                run_commands([words])
        stop_in_background(port, self.folder.parent)
        if known.manager == "systemd":  # systemctl leaves the folder of its links
            wants = Path(known.files[-1].file).parent / "sockets.target.wants"
            with contextlib.suppress(OSError):
                wants.rmdir()
        for file in known.files:
            undo(file, self.folder)
        for name in ("direct.tsv", "direct.log", "start.log", "serve.log"):
            (self.folder / str(port) / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            (self.folder / str(port)).rmdir()
        if known.manager == "systemd":
            with contextlib.suppress(ServiceError):
                run_commands([["systemctl", "--user", "daemon-reload"]])
        rest = {key: one for key, one in self.record.services.items() if key != str(port)}
        self._save(services=rest)

    def _write_table(self, port: int) -> None:
        table = direct_table(self.folder, self.agents_on(port).values())
        if str(port) in self.record.services:
            _write(self.folder / str(port) / "direct.tsv", table.encode(), _PRIVATE)

    def _save(self, **changed: Any) -> None:
        self.record = msgspec.structs.replace(self.record, **changed)
        write_record(self.folder, self.record)
