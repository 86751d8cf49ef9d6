"""What this capability adds to the package."""

from bls_notebook.extending import Capability, Drawing

CAPABILITY = Capability(
    "profiling",
    names={
        "compare": ".sync_vs_async:compare",
        "mark": ".recording.profiler:mark",
        "overlap": ".dependences.analysis:overlap",
        "profile": ".recording.profiler:profile",
        "tune": ".tuner:tune",
    },
    types={
        "CallGraph": ".analysis.call_graph:CallGraph",
        "Comparison": ".records.comparison:Comparison",
        "Difference": ".analysis.difference:Difference",
        "Overlap": ".dependences.records:Overlap",
        "Profile": ".recording.profiler:Profile",
        "Session": ".records.session:Session",
        "SessionStatistics": ".analysis.session_statistics:SessionStatistics",
        "SideBySide": ".records.session:SideBySide",
        "Tuning": ".records.tuning:Tuning",
    },
    loaders={
        "bls_notebook session": ".records.session:load_session",
        "bls_notebook.comparison": ".records.comparison:load_comparison",
        "server trace": ".server_trace:load_server_trace",
    },
    magics={"%blsprofile": ".magic:LINE_MAGIC", "%%blsprofile": ".magic:CELL_MAGIC"},
    displays={
        ".analysis.call_graph:CallGraph": Drawing(display=".display.call_graph_diagram:call_graph_display"),
        ".analysis.difference:Difference": Drawing(".display.difference_report:difference_document"),
        ".analysis.session_statistics:SessionStatistics": Drawing(".display.session_report:figures_document"),
        ".dependences.records:Overlap": Drawing(
            ".dependences.display:overlap_document", widget=".dependences.display:overlap_widget"
        ),
        ".recording.profiler:Profile": Drawing(),
        ".records.comparison:Comparison": Drawing(
            ".display.comparison_report:comparison_document", widget=".display.comparison_report:comparison_widget"
        ),
        ".records.session:Session": Drawing(
            ".display.session_report:session_document", widget=".display.session_report:session_widget"
        ),
        ".records.session:SideBySide": Drawing(
            ".display.difference_report:beside_document", widget=".display.difference_report:beside_widget"
        ),
        ".records.tuning:Tuning": Drawing(
            ".display.tuning_report:tuning_document", widget=".display.tuning_report:tuning_widget"
        ),
    },
)
