"""Pictures: what is drawn says it to a `Pen`, and pens write SVG or draw with matplotlib."""
