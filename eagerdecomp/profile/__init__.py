"""Recording of a run, and its reports: `RecordingMode` records what a mode does, and `Record` is the result."""

from eagerdecomp.profile.mode import RecordingMode
from eagerdecomp.profile.record import Record

__all__ = ["Record", "RecordingMode"]
