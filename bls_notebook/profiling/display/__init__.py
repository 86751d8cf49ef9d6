"""What a profile recorded, in figures and tables, as a call graph, and compared with another one."""
