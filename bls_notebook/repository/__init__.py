"""Models on disk and in cells: layout, config.pbtxt, versions, load and unload, source isolation."""
