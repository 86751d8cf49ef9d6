"""A session as a Perfetto trace: track events with flows, for ui.perfetto.dev and its trace processor.

Needs the package `perfetto` (the extra of that name), of which only the generated protobuf messages are used.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bls_notebook.profiling.records.spans import SessionData
from bls_notebook.records.exceptions import BLSError
from bls_notebook.records.visible import encodable

from .tracks import Track, request_facts, tracks

_SEQUENCE = 1
_TRACKS = 1 << 32  # the ids of tracks; below them are those of processes
_CLEARED = 1  # SEQ_INCREMENTAL_STATE_CLEARED: nothing before this packet matters
_BEGIN, _END, _INSTANT = 1, 2, 3  # TrackEvent.Type


def perfetto_trace(session: SessionData) -> bytes:
    """Return a session as a serialized ``perfetto.protos.Trace``; times are ns since it began.

    Raises BLSError: the package `perfetto` is not there, or a number is larger than what a trace can hold.
    """
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError as error:
        raise BLSError(
            "session: a Perfetto trace needs the package perfetto, which is not installed: "
            "pip install perfetto; or save as .trace.json, which ui.perfetto.dev reads too"
        ) from error
    trace = perfetto_trace_pb2.Trace()
    writer = _Writer(trace)
    groups: dict[str, int] = {}
    try:
        for number, track in enumerate(tracks(session), 1):
            if track.group not in groups:
                groups[track.group] = len(groups) + 1
                writer.process(groups[track.group], track.group)
            writer.track(number, groups[track.group], track)
    except ValueError as error:  # a file that nobody has saved may say anything
        raise BLSError(f"session: it has a number that no Perfetto trace can hold: {error}") from None
    return bytes(trace.SerializeToString())


class _Writer:
    """Adds packets to a trace."""

    def __init__(self, trace: Any) -> None:
        self._trace = trace

    def _packet(self) -> Any:
        packet = self._trace.packet.add()
        packet.trusted_packet_sequence_id = _SEQUENCE
        if len(self._trace.packet) == 1:
            packet.sequence_flags = _CLEARED
        return packet

    def process(self, number: int, name: str) -> None:
        """Describe a model, which is a process of its own on a real server."""
        descriptor = self._packet().track_descriptor
        descriptor.uuid = number
        descriptor.process.pid = number
        descriptor.process.process_name = encodable(name)

    def track(self, number: int, group: int, track: Track) -> None:
        """Describe a track, and write what is on it."""
        descriptor = self._packet().track_descriptor
        descriptor.uuid = uuid = _TRACKS + number
        descriptor.parent_uuid = group
        descriptor.name = encodable(track.name)
        open_until: list[int] = []
        for piece in track.slices:
            while open_until and open_until[-1] <= piece.begin:
                self._event(uuid, open_until.pop(), _END)
            event = self._event(uuid, piece.begin, _BEGIN, piece.name, piece.kind)
            event.terminating_flow_ids.extend(piece.arrives)
            if piece.name != piece.kind:
                _annotate(event, request_facts(piece.spans).items())
            open_until.append(piece.end)
        while open_until:
            self._event(uuid, open_until.pop(), _END)
        for point in track.points:
            event = self._event(uuid, point.at, _INSTANT, point.name, point.kind)
            _annotate(event, [("request", point.span)] if point.span else [])
            if point.sends:
                event.flow_ids.append(point.sends)

    def _event(self, uuid: int, at: int, kind: int, name: str = "", category: str = "") -> Any:
        packet = self._packet()
        packet.timestamp = at
        event = packet.track_event
        event.track_uuid = uuid
        event.type = kind
        if name:
            event.name = encodable(name)
            event.categories.append(category)
        return event


def _annotate(event: Any, what: Iterable[tuple[str, str | int]]) -> None:
    for name, value in what:
        note = event.debug_annotations.add()
        note.name = name
        if isinstance(value, int):
            note.int_value = value
        else:
            note.string_value = value
