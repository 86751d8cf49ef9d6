"""Registration of the lifetimes capability."""

from bls_notebook.extending import Capability, Drawing

CAPABILITY = Capability(
    "lifetimes",
    needs=("profiling",),
    names={"track_memory": ".memory_recording:track_memory"},
    types={"Lifetimes": ".records:Lifetimes", "MemoryTrack": ".memory_recording:MemoryTrack"},
    magics={"%%blsmemory": ".operations:MEMORY"},
    displays={
        ".memory_recording:MemoryTrack": Drawing(),
        ".records:Lifetimes": Drawing(".display.report:lifetimes_document", widget=".display:lifetimes_widget"),
    },
    loaders={"bls_notebook.lifetimes": ".records:load_lifetimes"},
    shell=(".notebook_variables:watch_memory",),
)
