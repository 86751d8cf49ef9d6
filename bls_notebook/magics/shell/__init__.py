"""What the magics need of the shell: settings, failing cells, Ctrl-C, the debugger, where a cell stands."""
