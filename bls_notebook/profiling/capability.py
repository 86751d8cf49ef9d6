"""Registration of the profiling capability."""

from bls_notebook.extending import Capability, Drawing

CAPABILITY = Capability(
    "profiling",
    names={
        "compare": ".sync_vs_async:compare",
        "mark": ".profiler:mark",
        "overlap": ".dependences.analysis:overlap",
        "profile": ".profiler:profile",
        "tune": ".tuner:tune",
    },
    types={
        "BeforeAfter": ".records.before_after:BeforeAfter",
        "CallGraph": ".analysis.call_graph:CallGraph",
        "ModelLines": ".records.line_times:ModelLines",
        "Comparison": ".records.comparison:Comparison",
        "Overlap": ".dependences.records:Overlap",
        "Profile": ".profiler:Profile",
        "Session": ".session:Session",
        "SessionStatistics": ".analysis.session_statistics:SessionStatistics",
        "Tuning": ".records.tuning:Tuning",
    },
    loaders={
        "bls_notebook.session": ".session:load_session",
        "bls_notebook.comparison": ".records.comparison:load_comparison",
        "server trace": ".server_trace:load_server_trace",
    },
    magics={
        "%blsprofile": ".operations:COMPARE",
        "%%blsprofile": ".operations:PROFILE",
        "%blsoverlap": ".operations:OVERLAP",
        "%blstune": ".operations:TUNE",
    },
    displays={
        ".analysis.call_graph:CallGraph": Drawing(display=".session_report:call_graph_display"),
        ".records.line_times:ModelLines": Drawing(".line_report:model_lines_document"),
        ".analysis.session_statistics:SessionStatistics": Drawing(".session_report:figures_document"),
        ".dependences.records:Overlap": Drawing(
            ".comparison_report:overlap_document", widget=".comparison_report:overlap_widget"
        ),
        ".profiler:Profile": Drawing(),
        ".records.before_after:BeforeAfter": Drawing(".change_report:before_after_document"),
        ".records.comparison:Comparison": Drawing(
            ".comparison_report:comparison_document", widget=".comparison_report:comparison_widget"
        ),
        ".session:Session": Drawing(".session_report:session_document", widget=".session_report:session_widget"),
        ".records.tuning:Tuning": Drawing(
            ".comparison_report:tuning_document", widget=".comparison_report:tuning_widget"
        ),
    },
)
