"""Registration of the capability `testing`."""

from bls_notebook.extending import Capability, Drawing

CAPABILITY = Capability(
    "testing",
    needs=("profiling", "lifetimes", "inspection", "checking", "shipping"),
    names={
        "drill": ".drills.driller:drill",
        "judge": ".claim_checks:judge",
        "record": ".recording.recorder:record",
        "replay": ".recording.replaying:replay",
    },
    types={
        "FakeClock": ".fake_clock:FakeClock",
        "Recording": ".recording.recording:Recording",
        "RepositoryUnderTest": ".repository_under_test:RepositoryUnderTest",
        "TritonTestCase": ".unittest_case:TritonTestCase",
        "responses_of": "bls_notebook.pb_utils.request:responses_of",
    },
    loaders={"bls_notebook.recording": ".recording.recording:load_recording"},
    magics={"%blsdrill": ".drills.operations:DRILL", "%blsreplay": ".recording.operations:REPLAY"},
    commands={"drill": ".drills.operations:DRILL", "replay": ".recording.operations:REPLAY"},
    completions={"FAULT": ".drills.faults:suggested_faults"},
    displays={
        ".claim_checks:Judgement": Drawing(".claim_checks:judgement_document"),
        ".recording.recorder:Recorder": Drawing(),
        ".recording.recording:Recording": Drawing(),
        ".records:Drilled": Drawing(".drills.display:drilled_document"),
        ".records:Replay": Drawing(".recording.display:replay_document"),
        ".records:Recorded": Drawing(".recording.display:recording_document"),
    },
)
