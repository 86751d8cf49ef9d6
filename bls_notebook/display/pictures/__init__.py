"""Pictures: the pen that every picture is drawn with, which writes SVG, and histograms."""
